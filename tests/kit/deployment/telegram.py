"""Deployment on a fake Telegram that a test can break, the people who talk with it, and the final verdict."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import asyncpg

from bot.telegram.markup.entity_text import LIVE_UNITS, render, split
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.deployment.breakable_servers import Case, Plant, open_for_too_long
from tests.kit.deployment.chat_view import RESEND, Sight, Wanted, look, notice_of
from tests.kit.deployment.forks import HatchedProcess, Hatchery
from tests.kit.deployment.processes import Process, logged
from tests.kit.fakes.bot_api import TOKEN, BotApi, Line, Person, Screen
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.free_ports import free_port

SECRET = "f" * 40
SECONDS = 75.0
"""Seconds that anything may take, including crashes and leases."""
_people = count(5_000)
_bots = count(730_000)

Rows = list[asyncpg.Record]


@dataclass(slots=True, kw_only=True)
class Talker:
    """Person on Telegram who remembers the messages they sent."""

    person: Person
    said: list[str] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.person.id

    async def say(self, text: str, **where: Any) -> None:
        self.said.append(text)
        await self.person.say(text, **where)

    async def ask(self, text: str) -> Screen:
        """Send a message and wait for one more answer; return the screen."""
        before = len((await self.person.screen()).answers)
        await self.say(text)
        return await self.person.sees(lambda screen: len(screen.answers) > before, within=SECONDS)


@dataclass(slots=True, kw_only=True)
class Telegram:
    """Fake Telegram, fake provider, one database, and the bots that a test starts."""

    api: BotApi
    provider: RunningFake
    case: Case
    hatchery: Hatchery
    token: str = TOKEN
    people: list[Talker] = field(default_factory=list)
    presses: int = 0
    """Number of answers that were missing, and came after a press on the button of their notice."""

    @property
    def bot_id(self) -> int:
        return int(self.token.partition(":")[0])

    def settings(self, **more: str) -> dict[str, str]:
        return self.case.settings(
            TELEGRAM_BOT_TOKEN=self.token,
            EVERTALK_TELEGRAM_API_URL=self.api.base_url,
            EVERTALK_TELEGRAM_ACCESS="open",
            ANTHROPIC_BASE_URL=self.provider.base_url,
            ANTHROPIC_API_KEY="a-key-for-the-fake",
            **{"EVERTALK_TELEGRAM_DRAFTS": "false", **more},  # faults meet bubbles, which need more care
        )

    def posted_to(self) -> dict[str, str]:
        """Return the settings of webhook mode with a free port."""
        port = str(free_port())
        return {
            "EVERTALK_TELEGRAM_MODE": "webhook",
            "EVERTALK_TELEGRAM_WEBHOOK_SECRET": SECRET,
            "EVERTALK_TELEGRAM_PORT": port,
            "EVERTALK_PUBLIC_URL": f"http://127.0.0.1:{port}",
        }

    def bot(self, *, crash_point: str | None = None, **more: str) -> Process:
        return HatchedProcess(self.hatchery, "bot", self.settings(**more), crash_point=crash_point)

    async def talker(self, **told: Any) -> Talker:
        made = Talker(person=await self.api.person(next(_people), bot=self.bot_id, **told))
        self.people.append(made)
        return made

    @asynccontextmanager
    async def sessions_locked(self) -> AsyncIterator[HeldUp]:
        """Lock all sessions while the context is open, so that storing a message waits."""
        connection = await self.case.connect()
        try:
            await connection.execute("BEGIN")
            await connection.execute("SELECT FROM sessions FOR UPDATE")
            yield HeldUp(telegram=self, connection=connection)
        finally:
            await connection.close(timeout=SECONDS)

    @staticmethod
    async def answers_of(provider: RunningFake, actions: Mapping[str, Mapping[str, object]]) -> None:
        """Set how the model answers a request that contains a word; `times` limits how often."""
        rules = []
        for word, told in actions.items():
            action = dict(told)
            times = action.pop("times", -1)
            rules.append({"match": {"kind": "chat", "contains": word}, "times": times, "action": action})
        await provider.script(rules)

    async def until(self, sql: str, *arguments: object, seconds: float = SECONDS) -> None:
        """Wait until the first value of a query is true."""
        end = time.monotonic() + seconds
        while not await self.case.value(sql, *arguments):
            assert time.monotonic() < end, f"never: {sql}"
            await asyncio.sleep(0.05)

    async def serves(self, bot: Process, *, times: int = 1) -> None:
        await self.says(bot, "bot_serves", times=times)

    async def says(self, bot: Process, event: str, *, times: int = 1) -> None:
        """Wait until the bot has logged this event `times` times."""
        await eventually(lambda: logged([bot], event) >= times, f"{event}:\n{bot.words()}")

    async def answered_with(self) -> dict[str, int]:
        """Return how often each status answered the post of an update."""
        return dict((await self.api.bot(self.bot_id))["posts"])

    async def answered_at_least(self, status: str, *, times: int) -> dict[str, int]:
        """Return how often each status answered, once `status` has occurred `times` times.

        Fail after SECONDS.
        """
        end = time.monotonic() + SECONDS
        while (found := await self.answered_with()).get(status, 0) < times:
            assert time.monotonic() < end, found
            await asyncio.sleep(0.05)
        return found

    async def called(self, method: str, *, status: int) -> list[dict[str, Any]]:
        """Return the calls of a method that were answered with this status; waits until there is one."""
        end = time.monotonic() + SECONDS
        while True:
            calls = await self.api.calls(method, bot=self.bot_id)
            if found := [call for call in calls if call["status"] == status]:
                return found
            assert time.monotonic() < end, f"{method} never met {status}"
            await asyncio.sleep(0.02)

    async def rests(self) -> None:
        """Wait until every message is stored and answered, and its answer delivered as far as possible."""
        said = {talker.id: talker.said for talker in self.people}
        end = time.monotonic() + SECONDS
        while missing := await self._missing(said):
            assert time.monotonic() < end, missing
            await asyncio.sleep(0.1)

    async def _missing(self, said: Mapping[int, Sequence[str]]) -> str:
        """Return what is missing, empty if nothing; checks in the order in which things happen."""
        for chat, texts in said.items():
            heard = await self.heard(chat)
            if any(text not in heard for text in texts):
                return f"not everything of chat {chat} is stored: {heard!r}"
        for what, sql in _OPEN.items():
            if found := await self.case.value(sql):
                return f"{found} {what}"
        return ""

    async def heard(self, chat: int) -> str:
        """Return all stored texts of a chat's person, in order."""
        words = await self.case.value(
            """SELECT string_agg(b ->> 'text', E'\\n' ORDER BY e.seq) FROM addresses a
                 JOIN entries e USING (session_id), jsonb_array_elements(e.blocks) b
                WHERE a.channel = 'telegram' AND a.chat = $1 AND e.author = 'person'""",
            str(chat),
        )
        return str(words or "")

    async def promises_hold(self, *, strays: int = 0) -> None:
        """Check that nothing is lost, doubled or out of order, in Postgres and on every screen.

        `strays` is the number of unknown messages that may be in the chats, because their process died while
        sending.
        """
        await self.rests()
        unknown: list[Line] = []
        for talker in self.people:
            await self._heard_once(talker)
            unknown += await self._shown_once(talker)
        assert len(unknown) <= strays, f"lines that nobody knows of: {unknown}"
        connection = await self.case.connect()
        try:
            broken = [*await check_invariants(connection), *await open_for_too_long(connection)]
        finally:
            await connection.close(timeout=SECONDS)
        assert broken == [], "\n".join(map(str, broken))
        objected = [one for one in await self.api.violations() if one["bot"] == self.bot_id]
        assert objected == []

    async def _heard_once(self, talker: Talker) -> None:
        heard = await self.heard(talker.id)
        places = [heard.find(text) for text in talker.said]
        assert -1 not in places, f"lost: {heard!r}"
        assert places == sorted(places), f"in another order: {heard!r}"
        assert [heard.count(text) for text in talker.said] == [1] * len(places), f"doubled: {heard!r}"

    async def _shown_once(self, talker: Talker) -> list[Line]:
        """Return the lines of a screen that are neither answers nor notices.

        If an answer is missing, the person presses the button of its notice, after which it must be there.
        """
        wanted = await self._wanted(talker)
        while (sight := look(await talker.person.screen(), wanted)).missing:
            await self._have_brought(talker, sight)
        tries = {row["id"]: row["tries"] for row in await self._rows(_NOTICES, talker)}
        told = Counter(notice_of(line) for line in sight.notices)
        assert all(times <= tries[number] for number, times in told.items() if number), told
        waits = Counter(row["text"] for row in await self._rows(_TOLD, talker))
        return [line for line in sight.others if not _was_told(line, waits)]

    async def _have_brought(self, talker: Talker, sight: Sight) -> None:
        turns = {row["id"]: row["turn_no"] for row in await self._rows(_NOTICES, talker)}
        missing = {part.turn for part in sight.missing}
        line = next((line for line in sight.notices if turns.get(notice_of(line)) in missing), None)
        assert line is not None, f"nobody was told that these are missing: {sight.missing}"
        self.presses += 1
        await talker.person.tap(RESEND, message_id=line.message_id)
        await talker.person.sees(partial(_has_no_notice, line.message_id), within=SECONDS)
        await self.rests()

    async def _wanted(self, talker: Talker) -> list[Wanted]:
        return [
            Wanted(turn=row["turn_no"], text=part.text, asked=row["asked"])
            for row in await self._rows(_ANSWERS, talker)
            for part in split(render(row["answer"]), limit=LIVE_UNITS)
        ]

    async def _rows(self, sql: str, talker: Talker) -> Rows:
        connection = await self.case.connect()
        try:
            return list(await connection.fetch(sql, str(talker.id), timeout=SECONDS))
        finally:
            await connection.close(timeout=SECONDS)


@asynccontextmanager
async def bot_of_its_own(
    api: BotApi, provider: RunningFake, plant: Plant, hatchery: Hatchery, template: str
) -> AsyncIterator[Telegram]:
    """Yield a separate bot on a Telegram with other bots, with a fresh database."""
    number = next(_bots)
    token = f"{number}:FAKE-token-of-a-bot-beside-others_{number:010d}"
    await api.add_bot(token, username=f"beside_{number}_bot")
    case = await plant.case(template)
    try:
        yield Telegram(api=api, provider=provider, case=case, hatchery=hatchery, token=token)
    finally:
        await plant.drop(case.database)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """Statements that wait for the locks of one connection."""

    telegram: Telegram
    connection: asyncpg.Connection[asyncpg.Record]

    async def waits(self) -> None:
        """Wait until a statement waits for one of the locks that this connection holds."""
        await self.telegram.until(f"SELECT count(*) > 0 FROM ({_WAITING}) AS waiting")

    async def break_off(self) -> None:
        """End the waiting connections, then release the locks.

        Waits for the ends: a server process that was only asked to end could still get the lock first.
        """
        ended = f"SELECT bool_and(pg_terminate_backend(pid, 10000)) FROM ({_WAITING}) AS waiting"
        assert await self.connection.fetchval(ended)
        await self.connection.execute("ROLLBACK")


def _has_no_notice(message_id: int, screen: Screen) -> bool:
    return not any(line.message_id == message_id and notice_of(line) for line in screen.answers)


def _was_told(line: Line, told: Counter[str]) -> bool:
    told[line.text] -= 1
    return told[line.text] >= 0


_WAITING = """SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""
_OPEN = {
    "updates wait": "SELECT count(*) FROM telegram_updates WHERE handled_at IS NULL",
    "turns are not answered": "SELECT count(*) FROM turns WHERE ended_at IS NULL",
    "parts are not in their chat": (
        "SELECT count(*) FROM deliveries"
        " WHERE channel = 'telegram' AND state IN ('queued', 'sending', 'sent')"
    ),
    "people are not told of what may be missing": (
        "SELECT count(*) FROM uncertain_notices WHERE state <> 'over'"
        " AND (due_at < 'infinity' OR created_at > now() - interval '8 s' OR EXISTS"
        " (SELECT FROM workers WHERE role = 'bot' AND started_at > now() - interval '8 s'))"
    ),
}
_TOLD = """
SELECT v.payload ->> 'text' AS text FROM addresses a JOIN turns t ON t.address_id = a.id
  JOIN events v ON v.session_id = t.session_id AND v.turn_no = t.turn_no
 WHERE a.channel = 'telegram' AND a.chat = $1 AND v.kind = 'msg' AND v.payload ->> 'waiting' = 'true'
"""
_ANSWERS = """
SELECT t.turn_no, coalesce((SELECT max(m.message_id) FROM telegram_messages m
         WHERE m.session_id = t.session_id AND m.turn_no = t.turn_no AND m.seq IS NOT NULL), 0) AS asked,
       coalesce((SELECT v.payload ->> 'text' FROM events v
         WHERE v.session_id = t.session_id AND v.turn_no = t.turn_no AND v.kind = 'msg'
           AND v.payload ->> 'role' IN ('assistant', 'notice')
           AND v.payload ->> 'waiting' IS DISTINCT FROM 'true'
         ORDER BY v.event_seq DESC LIMIT 1),
       (SELECT string_agg(b ->> 'text', '') FROM turn_entries te JOIN entries e USING (session_id, seq),
               jsonb_array_elements(e.blocks) b
         WHERE te.session_id = t.session_id AND te.turn_no = t.turn_no AND e.author = 'assistant')) AS answer
  FROM addresses a JOIN turns t ON t.address_id = a.id
 WHERE a.channel = 'telegram' AND a.chat = $1 ORDER BY t.turn_no
"""
_NOTICES = """
SELECT n.id, n.turn_no, n.tries + 9 * (n.round - 1) AS tries
  FROM uncertain_notices n JOIN addresses a ON a.id = n.address_id
 WHERE a.channel = 'telegram' AND a.chat = $1
"""


async def eventually(true: Callable[[], bool], what: str, *, seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"never came: {what}"
        await asyncio.sleep(0.02)
