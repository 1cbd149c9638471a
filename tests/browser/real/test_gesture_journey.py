"""A conversation of forty gestures in the chat of a browser, judged by the request at its end."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import BrowserContext, FilePayload, Locator, Page, expect

from tests.acceptance.gestures import Meanings
from tests.browser.patience import WAIT_MS
from tests.browser.real.hands import choose, delete, edit, edit_older, give
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import recording
from tests.kit.file_kinds import FILES
from tests.kit.sample_files import pdf, words_docx, xlsx

pytestmark = pytest.mark.browser

ROW = "<row><c r='A1' t='str'><v>Ferry</v></c><c r='B1'><v>17.5</v></c></row>"
WITHIN_MS = 60_000
PIECE = "Rope and tar and sailcloth. "
SCRIPT: list[dict[str, Any]] = [
    {
        "match": {"kind": "chat", "contains": "slowly"},
        "times": -1,
        "action": {"latency": 8.0, "text": "At last."},
    },
    {
        "match": {"kind": "chat", "contains": "at length"},
        "times": -1,
        "action": {"text": "word " * 250, "pace_ms": 50},
    },
    {"match": {"kind": "chat"}, "times": -1, "action": {"text": "Noted."}},
]
KINDS = {one.name: one for one in FILES}


@pytest.fixture
async def serving_options(fake: RunningFake, transcriptions: RunningTranscriptions) -> dict[str, Any]:
    await fake.script(SCRIPT)
    spoken = {name.removeprefix("EVERTALK_").lower(): text for name, text in transcriptions.settings.items()}
    return {**spoken, "anthropic_api_key": "test-key", "anthropic_base_url": fake.base_url}


@dataclass(slots=True)
class Journey:
    """One visitor's conversation on a page, and what it means so far."""

    page: Page
    session: str
    means: Meanings = field(default_factory=Meanings)
    done: list[str] = field(default_factory=list)

    @property
    def mine(self) -> Locator:
        return self.page.locator("article.person")

    def find(self, text: str) -> Locator:
        return self.mine.filter(has_text=text)

    async def rest(self, answers: int) -> None:
        """Wait until each question has an answer that is whole."""
        whole = self.page.locator("article.assistant[data-status=sent]")
        await expect(whole).to_have_count(answers, timeout=WITHIN_MS)

    async def count_answers(self) -> int:
        return await self.page.locator("article.assistant[data-status=sent]").count()

    async def say(self, gesture: str, text: str, *texts: str) -> None:
        answers = await self.count_answers()
        await self.type(text)
        await self.rest(answers + 1)
        self.did(gesture, text, *texts)

    async def type(self, text: str) -> None:
        box = self.page.get_by_role("textbox", name="Message", exact=True)
        await box.fill(text)
        await box.press("Enter")

    def did(self, gesture: str, *texts: str) -> None:
        self.done.append(gesture)
        self.means.add(gesture, *texts)

    async def edit(self, gesture: str, old: str, new: str) -> None:
        await edit_older(self.find(old), new)
        await expect(self.find(new)).to_have_count(1)
        self.done.append(gesture)
        self.means.replace(gesture, old, new)

    async def send_files(
        self, gesture: str, caption: str, *files: tuple[str, bytes], texts: Any = ()
    ) -> None:
        payloads: list[FilePayload] = [
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
            for name, content in files
        ]
        async with self.page.expect_file_chooser() as chooser:
            await self.page.get_by_role("button", name="Attach files").click()
        await (await chooser.value).set_files(payloads)
        await expect(self.page.locator(".composer .file[data-state=ready]")).to_have_count(len(files))
        await self.say(gesture, caption, *texts)

    async def call(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """Make a gesture over REST, as a program of the visitor does."""
        script = """async ([method, path, body]) => {
            const json = { "Content-Type": "application/json" };
            const more = body ? { body: JSON.stringify(body), headers: json } : {};
            const answer = await fetch(path, { method, ...more });
            return [answer.status, await answer.json()];
        }"""
        asked = [method, f"/api/v1/sessions/{self.session}/{path}", body or None]
        status, told = await self.page.evaluate(script, asked)
        assert status in (200, 202), told
        return dict(told)


async def write(journey: Journey) -> None:
    """Messages, edits and deletions, on the screen and over REST."""
    page = journey.page
    await journey.say("send", "The anchor is of iron-one.")
    await journey.say("send another", "The mast is of pine-one.")
    answers = await journey.count_answers()
    await edit(page, "The mast is of oak-two.")
    await expect(journey.find("oak-two")).to_have_count(1)
    await journey.rest(answers)
    journey.done.append("edit the last")
    journey.means.replace("edit the last", "The mast is of pine-one.", "The mast is of oak-two.")
    await journey.edit("edit an older one", "The anchor is of iron-one.", "The anchor: steel-two.")
    await journey.edit("edit it again", "The anchor: steel-two.", "The anchor: bronze-three.")
    await journey.say("send what is regretted", "The cook is a thief-one.")
    await delete(journey.find("thief-one"))
    await expect(journey.find("thief-one")).to_have_count(0)
    journey.done.append("delete")
    journey.means.remove("delete", "The cook is a thief-one.")

    answers = await journey.count_answers()
    await journey.type("Tell me slowly of keel-one.")
    await expect(journey.mine.last).to_have_attribute("data-status", "sent")
    await journey.type("And then of rudder-one.")
    await expect(journey.find("rudder-one")).to_have_attribute("data-status", "sent")
    await journey.edit("edit while it waits", "And then of rudder-one.", "And then of rudder-two.")
    await journey.rest(answers + 2)
    journey.did("send while it answers", "Tell me slowly of keel-one.", "And then of rudder-two.")
    await journey.edit("edit after waiting", "Tell me slowly of keel-one.", "Tell me slowly of keel-two.")

    answers = await journey.count_answers()
    await journey.type("Tell me slowly of flag-one.")
    await expect(journey.mine.last).to_have_attribute("data-status", "sent")
    await journey.edit("edit while it answers", "Tell me slowly of flag-one.", "Tell me of flag-two.")
    await journey.rest(answers + 1)

    answers = await journey.count_answers()
    await journey.type("Tell me at length of sail-one.")
    await expect(page.locator("article.assistant[data-status=draft] .body")).to_contain_text("word")
    await journey.edit("edit a shown answer", "Tell me at length of sail-one.", "Tell me of sail-two.")
    await journey.edit("edit it once more", "Tell me of sail-two.", "Tell me of sail-three.")
    await journey.rest(answers + 1)
    offer = journey.find("The answer is older than this edit.")
    await expect(offer).to_have_count(1)
    await offer.get_by_role("button", name="Answer again").click()
    await expect(offer).to_have_count(0)
    await expect(page.locator("article.assistant").last).to_contain_text("Noted.")
    journey.done.append("answer again")

    await journey.type("Tell me slowly of leak-one.")
    await expect(journey.mine.last).to_have_attribute("data-status", "sent")
    await delete(journey.mine.last)
    await expect(journey.find("leak-one")).to_have_count(0)
    await expect(page.locator("article").last).to_contain_text("Stopped")
    journey.done.append("delete before the answer")
    journey.means.remove("delete before the answer", "leak-one")

    await journey.type("Tell me slowly of storm-one.")
    await page.get_by_role("button", name="Stop answering").click()
    await expect(page.get_by_role("button", name="Stop answering")).to_have_count(0)
    journey.did("stop", "Tell me slowly of storm-one.")
    await journey.say("quote", "> bronze-three\n\nWhich one is it?", "Which one is it?")
    await journey.say("forward", "Fwd: The ferry is late-one.")
    await journey.say("paste", (PIECE * 200).strip(), (PIECE * 200).strip()[-60:])


async def write_over_the_wire(journey: Journey) -> None:
    """The same gestures of a program, which the open page shows at once."""
    sent = await journey.call("POST", "messages?wait=20", text="The bell is of tin-one.", cid="rest-1")
    journey.did("send over REST", "The bell is of tin-one.")
    await expect(journey.find("tin-one")).to_have_count(1)
    await journey.say("send after it", "Is it loud?")
    await journey.call("POST", f"messages/{sent['mid']}/edit", text="The bell is of brass-two.", cid="rest-2")
    await expect(journey.find("brass-two")).to_have_count(1)
    journey.done.append("edit over REST")
    journey.means.replace("edit over REST", "The bell is of tin-one.", "The bell is of brass-two.")
    sent = await journey.call("POST", "messages?wait=20", text="The safe code is 7-one.", cid="rest-3")
    await expect(journey.find("7-one")).to_have_count(1)
    await journey.call("DELETE", f"messages/{sent['mid']}")
    await expect(journey.find("7-one")).to_have_count(0)
    journey.done.append("delete over REST")
    journey.means.remove("delete over REST", "The safe code is 7-one.")


async def use_the_screen(journey: Journey) -> None:
    """Pins, opinions, commands, another tab, and a message without a connection."""
    page = journey.page
    answer = page.locator("article.assistant").last
    await answer.get_by_role("button", name="Pin", exact=True).click()
    await expect(answer.get_by_role("button", name="Unpin", exact=True)).to_have_count(1)
    journey.done.append("pin")
    await answer.get_by_role("button", name="Good answer").click()
    journey.done.append("judge")
    await give(page, "/remember My boat is called Selkie-one.")
    await expect(page.locator("article.result").last).to_have_attribute("data-pending", "false")
    journey.did("remember", "Selkie-one")
    tab = await page.context.new_page()
    await tab.goto(page.url)
    await expect(tab.locator("article.person").filter(has_text="brass-two")).to_have_count(1)
    box = tab.get_by_role("textbox", name="Message", exact=True)
    answers = await journey.count_answers()
    await box.fill("Said in another tab-one.")
    await box.press("Enter")
    await journey.rest(answers + 1)
    journey.did("send from another tab", "Said in another tab-one.")
    await edit_older(tab.locator("article.person").filter(has_text="late-one"), "The ferry is late-two.")
    await expect(journey.find("late-two")).to_have_count(1)
    journey.done.append("edit from another tab")
    journey.means.replace("edit from another tab", "Fwd: The ferry is late-one.", "The ferry is late-two.")
    await tab.close()
    await page.reload()
    await expect(journey.find("late-two")).to_have_count(1)
    journey.done.append("reload")
    answers = await journey.count_answers()
    await page.context.set_offline(True)
    await journey.type("Said without a net-one.")
    await page.context.set_offline(False)
    await journey.rest(answers + 1)
    journey.did("send offline", "Said without a net-one.")


async def send_files(journey: Journey) -> None:
    """Files of each kind, failures of each kind, and a caption that is edited."""
    page = journey.page
    picture = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(picture, "PNG")
    await journey.send_files("picture", "My photo-one", ("boat.png", picture.getvalue()))
    answers = await journey.count_answers()
    await journey.edit("edit a caption", "My photo-one", "My photo-two")
    await journey.rest(answers)
    await journey.send_files(
        "album", "My album-one", *((f"{number}.png", picture.getvalue()) for number in range(3))
    )
    await journey.send_files(
        "document", "My lease", ("lease.docx", words_docx("Rent-one.")), texts=("Rent-one.",)
    )
    await journey.send_files("table", "My costs", ("costs.xlsx", xlsx(ROW)), texts=("| Ferry | 17.5 |",))
    await journey.send_files("pdf", "My plan", ("plan.pdf", pdf("Plan-one of it")), texts=("Plan-one of it",))
    for gesture, name in {
        "csv of a country": "tseny.csv", "mail": "mail.eml", "old table": "old.xls", "calendar": "trip.ics",
        "notebook": "book.ipynb", "archive": "texts.zip",
    }.items():  # fmt: skip
        one = KINDS[name]
        await journey.send_files(gesture, f"Read {name}", (name, one.content), texts=one.words)
    await journey.send_files("phone picture", "My phone-one", ("photo.heic", KINDS["photo.heic"].content))
    await journey.send_files(
        "recording",
        "Listen to it",
        ("leak.ogg", recording("The hull leaks-one.")),
        texts=("The hull leaks-one.",),
    )
    for gesture, name, content in (
        ("damaged file", "broken.docx", words_docx("x")[:300]),
        ("file of an unknown kind", "game.exe", b"MZ" + bytes(400)),
        ("file that is too large", "film.pdf", b"%PDF-1.4" + bytes(20 * 1024 * 1024)),
    ):
        async with page.expect_file_chooser() as chooser:
            await page.get_by_role("button", name="Attach files").click()
        payload: FilePayload = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        await (await chooser.value).set_files(payload)
        refused = page.locator(".composer .file").filter(has_text=name)
        await expect(refused).not_to_have_attribute("data-state", "ready")
        await refused.get_by_role("button", name=f"Remove {name}").click()
        await expect(refused).to_have_count(0)
        await journey.say(gesture, f"I could not send {gesture}-one.")


@pytest.mark.timeout(300)
async def test_request_after_forty_gestures_on_page_shows_each_meaning(
    url: str, tabs: BrowserContext, fake: RunningFake
) -> None:
    page = await tabs.new_page()
    page.set_default_timeout(WAIT_MS)
    await page.goto(f"{url}/chat")
    await expect(page.get_by_role("button", name="Menu")).to_be_visible(timeout=WITHIN_MS)
    await page.get_by_role("textbox", name="Message", exact=True).fill("Hello-one")
    await page.keyboard.press("Enter")
    await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(1, timeout=WITHIN_MS)
    session = await page.evaluate("localStorage.getItem('evertalk:default:session')")
    journey = Journey(page=page, session=session)
    journey.did("first words", "Hello-one")
    await write(journey)
    await write_over_the_wire(journey)
    await use_the_screen(journey)
    await send_files(journey)
    await journey.say("ask", "What have we talked about?")
    await choose(page, "Download (Markdown)")
    asked = [one["body"] for one in await fake.requests() if one["kind"] == "chat"]
    blocks = [one for message in asked[-1]["messages"] for one in message["content"]]
    text = "\n".join(one.get("text", "") for one in blocks if isinstance(one, dict))
    system = json.dumps(asked[-1]["system"], ensure_ascii=False)
    assert journey.means.find_faults(f"{system}\n{text}") == []
    assert len(journey.done) >= 40, len(journey.done)
