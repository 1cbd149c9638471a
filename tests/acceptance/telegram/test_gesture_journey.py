"""A conversation of forty gestures on Telegram, judged by the request at its end."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from PIL import Image

from tests.acceptance.gestures import Meanings
from tests.kit.fakes.bot_api import Person
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import recording
from tests.kit.sample_files import OLD_OFFICE, pdf, words_docx, xlsx
from tests.kit.telegram.deployment import MINE, Deployment

CHECKLIST = {
    "title": "Packing",
    "tasks": [{"id": 1, "text": "Rope", "completion_date": 1_790_000_000}, {"id": 2, "text": "Tar"}],
}
DICE = {"emoji": "🎲", "value": 4}
PLACE = {"latitude": 59.91, "longitude": 10.75}
ROW = "<row><c r='A1' t='str'><v>Ferry</v></c><c r='B1'><v>17.5</v></c></row>"
PIECE = "Rope and tar and sailcloth. "


@pytest.fixture(scope="module")
def bot_options(module_transcriptions: RunningTranscriptions) -> dict[str, Any]:
    answers = {"slowly": {"latency": 4.0, "text": "At last."}, "e": {"text": "Noted."}}
    return {"answers": answers, "settings": module_transcriptions.settings}


@dataclass(slots=True)
class Journey:
    """One person's conversation, and what it means so far."""

    here: Deployment
    person: Person
    means: Meanings = field(default_factory=Meanings)
    done: list[str] = field(default_factory=list)

    async def do(self, gesture: str, act: Callable[[], Awaitable[Any]], *texts: str) -> Any:
        """Make a gesture that brings these texts, and wait until it is answered."""
        made = await act()
        self.done.append(gesture)
        self.means.add(gesture, *texts)
        await self.rest()
        return made

    async def rest(self) -> None:
        await self.here.house.handled()
        await self.here.house.until(
            f"SELECT count(*) = 0 FROM turns t {MINE} AND t.ended_at IS NULL", str(self.person.id)
        )

    async def say(self, gesture: str, text: str, *texts: str, **where: Any) -> Any:
        return await self.do(gesture, lambda: self.person.say(text, **where), text, *texts)

    async def edit(self, gesture: str, message_id: int, old: str, new: str) -> None:
        await self.do(gesture, lambda: self.person.edit(message_id, new))
        self.means.replace(gesture, old, new)

    async def send_file(self, gesture: str, name: str, content: bytes, caption: str, *texts: str) -> Any:
        act = lambda: self.person.send_file(name, content, caption=caption)  # noqa: E731
        return await self.do(gesture, act, caption, *texts)


async def write(journey: Journey) -> None:
    """Messages, edits, replies and forwards."""
    ada = journey.person
    first = await journey.say("send", "The anchor is of iron-one.")
    second = await journey.say("send another", "The mast is of pine-one.")
    await journey.edit(
        "edit the last", second.message_id, "The mast is of pine-one.", "The mast is of oak-two."
    )
    await journey.edit(
        "edit an older one", first.message_id, "The anchor is of iron-one.", "The anchor: steel-two."
    )
    await journey.edit(
        "edit it again", first.message_id, "The anchor: steel-two.", "The anchor: bronze-three."
    )
    slow = await ada.say("Tell me slowly of keel-one.")
    queued = await ada.say("And then of rudder-one.")
    await ada.edit(queued.message_id, "And then of rudder-two.")
    await journey.rest()
    journey.means.add("send while it answers", "Tell me slowly of keel-one.", "And then of rudder-two.")
    journey.means.remove("edit while it waits", "rudder-one")
    await journey.edit(
        "edit after waiting", slow.message_id, "Tell me slowly of keel-one.", "Tell me slowly of keel-two."
    )
    running = await ada.say("Tell me slowly of flag-one.")
    await journey.here.house.until(
        f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'claimed'", str(ada.id)
    )
    await journey.edit(
        "edit while it answers",
        running.message_id,
        "Tell me slowly of flag-one.",
        "Tell me slowly of flag-two.",
    )
    journey.done += ["send while it answers", "edit while it waits"]
    await journey.say("reply to own", "Why so?", "In reply to their own message", reply_to=first.message_id)
    await journey.say(
        "reply with a quote",
        "Which bronze?",
        "> bronze-three",
        reply_to=first.message_id,
        quote="bronze-three",
    )
    answer = (await ada.screen()).answers[0]
    await journey.say(
        "reply to the bot", "Did you note it?", "In reply to your message", reply_to=answer.message_id
    )
    await journey.do(
        "forward",
        lambda: ada.forward("The ferry is late-one.", from_name="Grace"),
        "> The ferry is late-one.",
    )
    await journey.do(
        "forward with a comment",
        lambda: ada.forward("Noon-one.", comment="In time?", from_name="Bo"),
        "In time?",
        "> Noon-one.",
    )
    await journey.do("paste", lambda: ada.paste(PIECE * 200), (PIECE * 200).strip()[-60:])
    await journey.do("react", lambda: ada.react(answer.message_id, "👍"))


async def send_content(journey: Journey) -> None:
    """Albums, and what has no file."""
    ada = journey.person
    album = await journey.do("album", lambda: ada.album(3, caption="My album-one"), "My album-one")
    await journey.edit("edit an album's caption", album[0].message_id, "My album-one", "My album-two")
    await journey.do(
        "add a caption to an album",
        lambda: ada.edit(album[2].message_id, "with a stern-two"),
        "with a stern-two",
    )
    contents: dict[str, tuple[dict[str, Any], str]] = {
        "location": ({"location": PLACE}, "59.91000"),
        "contact": ({"contact": {"phone_number": "+47999", "first_name": "Grace"}}, "Grace +47999"),
        "dice": ({"dice": DICE}, "🎲 4"),
        "checklist": ({"checklist": CHECKLIST}, "Packing – [x] Rope | [ ] Tar"),
    }
    for kind, (content, text) in contents.items():
        sent = await journey.do(kind, partial(ada.send_content, content), text)
        await journey.say(f"reply to a {kind}", f"What of this {kind}?", reply_to=sent.message_id)


async def send_files(journey: Journey) -> None:
    """Files of each kind, failures of each kind, and the way back from one."""
    ada, api = journey.person, journey.here.api
    picture = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(picture, "JPEG")
    photo = await journey.do(
        "photo", lambda: ada.send_photo(picture.getvalue(), caption="My photo-one"), "My photo-one"
    )
    await journey.say(
        "reply to a photo", "What is on it?", "photo, of the message replied to", reply_to=photo.message_id
    )
    lease = await journey.send_file(
        "document", "lease.docx", words_docx("Rent-one."), "My lease-one", "Rent-one."
    )
    await journey.edit("edit a document's caption", lease.message_id, "My lease-one", "My lease-two")
    await journey.say(
        "reply to a document", "Is it dear?", "of the message replied to", reply_to=lease.message_id
    )
    await journey.send_file("table", "costs.xlsx", xlsx(ROW), "My costs-one", "| Ferry | 17.5 |")
    await journey.send_file("pdf", "plan.pdf", pdf("Plan-one of the boat"), "My plan", "Plan-one of the boat")
    await journey.send_file(
        "text", "notes.txt", b"Notes-one of the boat", "My notes", "Notes-one of the boat"
    )
    voice = await journey.do(
        "voice", lambda: ada.send_voice(recording("The hull leaks-one.")), "The hull leaks-one."
    )
    await journey.say("reply to a voice message", "Is that bad?", reply_to=voice.message_id)
    await journey.send_file(
        "damaged file", "broken.docx", words_docx("x")[:300], "Read broken-one", "broken.docx"
    )
    await journey.do(
        "file that is too large",
        lambda: ada.send_file("film.pdf", size=20 * 1024 * 1024 + 1, caption="Read film-one"),
        "film.pdf, not read", "larger than the 20 MB",
    )  # fmt: skip
    await journey.send_file(
        "file of an unknown kind", "old.doc", OLD_OFFICE, "Read old-one", "old.doc, not read"
    )
    await api.fail("getFile", times=3, status=500)
    await journey.send_file(
        "file that was not there", "codes.txt", b"The code is 4711-one.", "Read codes-one"
    )
    await journey.do("retry", lambda: ada.command("retry"), "The code is 4711-one.")
    journey.means.remove("retry", "codes.txt, not read")


@pytest.mark.timeout(300)
async def test_request_after_forty_gestures_shows_what_each_means(here: Deployment) -> None:
    journey = Journey(here=here, person=await here.person(first_name="Ada"))
    await write(journey)
    await send_content(journey)
    await send_files(journey)
    await journey.say("ask", "What have we talked about, Ada wonders?")
    [request] = (await here.prompts(holding="Ada wonders"))[-1:]
    text = "\n".join(
        block.get("text", "")
        for message in request["messages"]
        for block in message["content"]
        if isinstance(block, dict)
    )
    assert journey.means.find_faults(text) == []
    assert len(journey.done) >= 40, len(journey.done)
    assert "(picture " in text, "an older picture is described"
