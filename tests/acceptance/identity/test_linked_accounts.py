"""One person on a web page and on Telegram: joined, answered where they asked, and parted again."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from tests.kit.fakes.bot_api import USERNAME, Person
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import HatchedProgram
from tests.kit.telegram.deployment import Deployment, deployment
from tests.kit.web.fixtures import Frame, Screen, hello
from tests.kit.web.http_client import browsing

ANSWERS = {
    "from the page": {"text": "I hear you on the page."},
    "from the phone": {"text": "I hear you on the phone."},
    "What do you know": {"text": "I know what I know."},
}
CODE = re.compile(r"[A-Z2-9]{4}-[A-Z2-9]{4}")


@dataclass(slots=True)
class Browser:
    """A page that keeps its token and the session that its numbers count in."""

    url: str
    client: ClientSession
    token: str | None = None
    session: str = ""
    last: int = 0
    screen: Screen | None = None

    async def come(self) -> Frame:
        self.screen = Screen(
            socket=await self.client.ws_connect(f"{self.url}/ws", headers={"Origin": self.url})
        )
        seen = {"session": self.session, "last_seq": self.last}
        await self.screen.send(hello(token=self.token, **seen))
        welcome = await self.screen.until("welcome")
        self.token, self.session = welcome.get("token", self.token), welcome["session"]
        self.last = welcome["head"]
        return welcome

    @property
    def here(self) -> Screen:
        assert self.screen is not None
        return self.screen

    async def command(self, name: str, args: str = "", *, cid: str) -> Frame:
        await self.here.send({"t": "command", "cid": cid, "command": name, "args": args})
        return await self.here.until("command.result", cid=cid)

    async def ask(self, words: str, *, cid: str) -> str:
        await self.here.say(words, cid=cid)
        return str((await self.here.until("msg", role="assistant"))["text"])

    async def sent_on(self) -> Frame:
        """Told to come back, and back; the welcome."""
        goodbye = await self.here.until("bye")
        assert (goodbye["code"], goodbye["reason"]) == (1012, "moved")
        await self.here.closed()
        return await self.come()

    async def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.client.get(f"{self.url}{path}", headers=headers) as answer:
            return await answer.json()


@dataclass(slots=True)
class Both:
    """A bot process and a web process on one database."""

    there: Deployment
    web: HatchedProgram
    url: str
    client: ClientSession

    async def browser(self) -> Browser:
        browser = Browser(self.url, self.client)
        await browser.come()
        return browser

    async def session_of(self, person: Person) -> int:
        return int(
            await self.there.house.one("SELECT session_id FROM addresses WHERE chat = $1", str(person.id))
        )


@asynccontextmanager
async def both_processes(database_url: str, redis_url: str, folder: Path, **more: str) -> AsyncIterator[Both]:
    async with deployment(ANSWERS, database_url, redis_url, folder, settings=more) as there:
        port = str(free_port())
        web = HatchedProgram("web", {**there.house.settings, "EVERTALK_HTTP_PORT": port})
        await web.start()
        try:
            await web.said("web_ready")
            async with browsing() as client:
                yield Both(there, web, f"http://127.0.0.1:{port}", client)
        finally:
            assert await web.terminate() == 0, web.words()


@pytest.fixture(scope="module")
async def both(
    module_database_url: str, module_redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Both]:
    folder = tmp_path_factory.mktemp("people")
    async with both_processes(module_database_url, module_redis_url, folder) as both:
        yield both


def code_in(words: str) -> str:
    found = CODE.search(words)
    assert found is not None, words
    return found[0]


async def test_linked_page_and_chat_share_one_conversation_until_unlinked(both: Both) -> None:
    house = both.there.house
    page, ada = await both.browser(), await both.there.person(first_name="Ada")
    await page.ask("Hello from the page, before", cid="p1")
    await ada.say("Hello from the phone, before")
    await ada.sees("I hear you on the phone.")
    chat = await both.session_of(ada)
    own_session = page.session

    # The code is given on the page and typed on Telegram, whose conversation goes on.
    given = await page.command("link", cid="p2")
    assert "event_seq" not in given
    code = code_in(given["result"])
    stored = await house.one("SELECT string_agg(payload::text, ' ') FROM events")
    assert code not in stored
    await ada.command(f"link {code.lower().replace('-', ' ')}")
    await ada.sees("Joined with the web page")
    welcome = await page.sent_on()
    assert welcome["resumed"] is False
    assert page.session != own_session
    texts = [event.get("text") for event in welcome["events"] if event["t"] == "msg"]
    assert "Hello from the phone, before" in texts
    assert "Hello from the page, before" not in texts

    # Each is answered where they ask; the page shows both, the chat does not repeat the page.
    assert await page.ask("Again from the page", cid="p3") == "I hear you on the page."
    await ada.say("Again from the phone")
    assert (await page.here.until("msg", role="person"))["text"] == "Again from the phone"
    assert (await page.here.until("msg", role="assistant"))["text"] == "I hear you on the phone."
    screen = await ada.sees(lambda seen: sum("on the phone." in one.text for one in seen.answers) == 2)
    assert not any("on the page." in one.text for one in screen.answers)
    rows = await house.one(
        "SELECT string_agg(channel, ' ' ORDER BY turn_no) FROM turns WHERE session_id = $1", chat
    )
    assert rows == "telegram web telegram"

    # The earlier conversation of the page can be read, by nobody else.
    kept = await page.get("/api/v1/archived")
    assert [one["session_id"] for one in kept["sessions"]] == [own_session]
    assert kept["sessions"][0]["messages"][0]["text"] == "Hello from the page, before"
    stranger = await both.browser()
    assert (await stranger.get("/api/v1/archived"))["sessions"] == []

    # Unlinked on Telegram: the page is back where it was.
    await ada.command("unlink")
    await ada.sees("Unlinked")
    welcome = await page.sent_on()
    assert page.session == own_session
    texts = [event.get("text") for event in welcome["events"] if event["t"] == "msg"]
    assert texts == ["Hello from the page, before", "I hear you on the page."]
    assert await page.ask("Once more from the page", cid="p4") == "I hear you on the page."
    assert await both.session_of(ada) == chat


async def test_a_chat_goes_on_in_the_conversation_of_a_page(both: Both) -> None:
    page, ada = await both.browser(), await both.there.person(first_name="Ada")
    await ada.say("Hello from the phone")
    await ada.sees("I hear you on the phone.")
    own = await both.session_of(ada)
    await ada.command("link")
    screen = await ada.sees(lambda seen: any(CODE.search(one.text) for one in seen.answers))
    code = code_in(screen.answers[-1].text)
    joined = await page.command("link", code, cid="q1")
    assert joined["success"] is True
    assert "Telegram" in joined["result"]
    assert await both.session_of(ada) != own
    await ada.say("Still from the phone")
    assert (await page.here.until("msg", role="person"))["text"] == "Still from the phone"
    await ada.sees(lambda seen: sum("on the phone." in one.text for one in seen.answers) == 2)
    # Their place with Telegram stays their own: nobody who comes by the page may write to the bot's owner.
    assert await both.there.house.one("SELECT count(*) FROM telegram_access WHERE owner") == 0


async def test_wrong_link_code_gets_same_text_as_missing_code(both: Both) -> None:
    page = await both.browser()
    wrong = await page.command("link", "AAAA-2222", cid="w1")
    none = await page.command("link", "please", cid="w2")
    assert wrong["error"] == none["error"]
    assert "does not work" in wrong["error"]


async def test_turn_waiting_for_other_channel_starts_when_that_turn_ends(both: Both) -> None:
    """The page's answer takes a while; the chat's question waits for it and for nothing else."""
    house = both.there.house
    page, ada = await both.browser(), await both.there.person(first_name="Ada")
    await ada.command("start")
    await ada.sees("Ada")
    code = code_in((await page.command("link", cid="s1"))["result"])
    await ada.command(f"link {code}")
    await page.sent_on()
    chat = await both.session_of(ada)
    await both.there.provider.set_pace(40)
    try:
        for number in range(3):
            await page.here.say("Slowly from the page " * 3, cid=f"s2{number}")
            await page.here.until("run", state="started")
            await ada.say("Quickly from the phone")
            await house.until("SELECT count(*) = $2 FROM turns WHERE session_id = $1", chat, 2 * number + 2)
            await house.until("SELECT answered_turn = $2 FROM sessions WHERE id = $1", chat, 2 * number + 2)
    finally:
        await both.there.provider.set_pace(0)
    rows = await house.one(
        """SELECT json_agg(json_build_array(t.channel, w.channel, extract(epoch FROM
                             w.claimed_at - greatest(t.ended_at, w.opened_at))) ORDER BY t.turn_no)
             FROM turns t JOIN turns w ON w.session_id = t.session_id AND w.turn_no = t.turn_no + 1
            WHERE t.session_id = $1 AND t.channel = 'web'""",
        chat,
    )
    waits = json.loads(rows)
    assert [(before, after) for before, after, _ in waits] == [("web", "telegram")] * 3
    print("waited for the other channel:", [round(seconds * 1000) for _, _, seconds in waits], "ms")


@pytest.mark.control("S22")
async def test_nothing_private_reaches_a_group_or_a_stranger(both: Both) -> None:
    """What a person has told the assistant alone is in no prompt but their own."""
    house = both.there.house
    page, ada = await both.browser(), await both.there.person(first_name="Ada")
    bob = await both.there.person(first_name="Bob")
    await ada.say("Hello from the phone")
    await ada.sees("I hear you on the phone.")
    code = code_in((await page.command("link", cid="i1"))["result"])
    await ada.command(f"link {code}")
    await page.sent_on()
    for owner, secret in ((ada, "Ada is afraid of swans."), (bob, "Bob collects spoons.")):
        if owner is bob:
            await bob.say("Hello from the phone")
            await bob.sees("I hear you on the phone.")
        await house.one(
            """INSERT INTO notes (contact_id, scope, kind, text, session_id, hash)
               SELECT s.contact_id, g.name, 'fact', $2, s.id, sha256($2::text::bytea)
                 FROM addresses a JOIN sessions s ON s.id = a.session_id JOIN agents g ON g.id = s.agent_id
                WHERE a.chat = $1 RETURNING id""",
            str(owner.id), secret,
        )  # fmt: skip
    rowers = await both.there.api.group("Rowers", ada, members=(bob,))
    await house.let_in(rowers.id)
    await ada.command(f"link@{USERNAME}", chat=rowers.id)
    await ada.sees("not in a group", chat=rowers.id)
    await ada.say(f"@{USERNAME} What do you know in the group?", chat=rowers.id)
    await ada.sees("I know what I know.", chat=rowers.id)
    await ada.say("What do you know from the phone?")
    await page.ask("What do you know from the page?", cid="i2")
    await bob.say("What do you know of Bob?")
    await bob.sees("I know what I know.")
    # The page shows the answer to the phone, too: which came first tells nothing of the other.
    await house.until(
        """SELECT count(*) = 3 FROM turns JOIN addresses a USING (session_id)
            WHERE a.chat = $1 AND ended_at IS NOT NULL""",
        str(ada.id),
    )
    requests = [one for one in await both.there.provider.requests() if one["kind"] == "chat"]

    def holding(words: str) -> set[str]:
        return {
            json.dumps(one["body"]["messages"][-1])
            for one in requests
            if words in json.dumps(one["body"], ensure_ascii=False)
        }

    assert any("from the page?" in words for words in holding("afraid of swans"))
    assert any("from the phone?" in words for words in holding("afraid of swans"))
    assert not any("of Bob" in words or "in the group" in words for words in holding("afraid of swans"))
    assert all("of Bob" in words for words in holding("collects spoons"))


def test_the_store_of_places_keeps_nothing_in_memory() -> None:
    """A place leads to its session of this moment: a chat that was joined must not be answered elsewhere."""
    assert vars(PostgresTelegramChats(None)).keys() == {"_pool"}  # type: ignore[arg-type]
