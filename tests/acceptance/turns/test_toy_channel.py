"""A third channel, written as CONTRIBUTING says: letters in a table of its own, answers in a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import Connection
from shared.bootstrap import foundation
from shared.bootstrap.app import App, open_app
from shared.bootstrap.configured_parts import Role
from shared.core.session.turns import Accepted, Inbound, ReplyEvent, Stored
from shared.core.values.errors import LeaseLost
from shared.services.turns.turn_dispatcher import OpenReplySink, TurnDispatcher
from tests.kit.app_driver import settings_for

_LETTERS = """
CREATE TABLE letters (id bigserial PRIMARY KEY, sender text NOT NULL, text text NOT NULL,
                      handled_at timestamptz, seq bigint)
"""
_ADDRESS = """
WITH p AS (
  INSERT INTO contacts (kind, display_name, anonymous) VALUES ('person', $1, false) RETURNING id
), s AS (
  INSERT INTO sessions (contact_id, agent_id) SELECT p.id, a.id FROM p, agents a ORDER BY a.id LIMIT 1
  RETURNING id, contact_id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
)
INSERT INTO addresses (channel, account, chat, contact_id, session_id, title)
SELECT 'toy', 'post', $1, s.contact_id, s.id, $1 FROM s RETURNING id, session_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterReceipt:
    """The letter that ends with the message's commit."""

    letter: int
    breaks: bool = False

    async def lock(self, transaction: Connection) -> bool:
        waits = "SELECT true FROM letters WHERE id = $1 AND handled_at IS NULL FOR UPDATE"
        return bool(await transaction.fetchval(waits, self.letter))

    async def record(self, transaction: Connection, *, session_id: int, seq: int, turn: int) -> None:
        ended = "UPDATE letters SET handled_at = now(), seq = $2::bigint / $3::bigint WHERE id = $1"
        await transaction.execute(ended, self.letter, seq, 0 if self.breaks else 1)

    async def find_joined_turn(self, transaction: object, inbound: Inbound) -> int | None:
        return None

    async def find_stored(self, transaction: Connection, inbound: Inbound, *, is_stored: bool) -> int | None:
        if not is_stored:
            raise LeaseLost(f"letter {self.letter} ended elsewhere")
        return None


@dataclass(slots=True)
class Envelope:
    """The screen of one sender: what was stored is what the answer says."""

    answers: asyncio.Queue[str]

    async def __call__(self, event: ReplyEvent) -> None:
        if isinstance(event, Stored) and event.payload.get("role") == "assistant":
            await self.answers.put(str(event.payload["text"]))

    async def mark_idle(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class ToyChannel:
    """Reads letters in their order, stores each as a message, and hands the answers out."""

    app: App
    answers: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    dispatcher: TurnDispatcher = field(init=False)

    def __post_init__(self) -> None:
        self.dispatcher = TurnDispatcher(self.app.sessions, channel="toy", orphan=self._find_screen)

    async def _find_screen(self, session_id: int) -> OpenReplySink | None:
        return lambda: Envelope(self.answers)

    async def post(self, sender: str, text: str) -> int:
        written = "INSERT INTO letters (sender, text) VALUES ($1, $2) RETURNING id"
        return int(await self.one(written, sender, text))

    async def accept(self, letter: int, *, breaks: bool = False, claims: bool = False) -> Accepted:
        row = await self.app.pool.fetchrow("SELECT sender, text FROM letters WHERE id = $1", letter)
        assert row is not None
        known = "SELECT id, session_id FROM addresses WHERE channel = 'toy' AND chat = $1"
        place = await self.app.pool.fetchrow(known, row["sender"])
        place = place or await self.app.pool.fetchrow(_ADDRESS, row["sender"])
        assert place is not None
        store = self.app.sessions.accept_and_claim if claims else self.app.sessions.accept
        return await store(
            Inbound(
                session_id=place["session_id"],
                address_id=place["id"],
                text=row["text"],
                dedupe_key=f"toy:{letter}",
                receipt=LetterReceipt(letter=letter, breaks=breaks),
            )
        )

    async def read(self) -> None:
        for row in await self.app.pool.fetch("SELECT id FROM letters WHERE handled_at IS NULL ORDER BY id"):
            stored = await self.accept(row["id"])
            self.dispatcher.dispatch(stored.session_id, lambda: Envelope(self.answers))

    async def one(self, sql: str, *arguments: object) -> Any:
        return await self.app.pool.fetchval(sql, *arguments)

    async def next_answer(self) -> str:
        async with asyncio.timeout(30):
            return await self.answers.get()


@pytest.fixture
async def toy(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ToyChannel]:
    """The channel in a process whose role is its own."""
    roles: dict[Any, str] = {**foundation.CHANNELS, "toy": "toy"}
    for module in ("foundation", "build_turns"):
        monkeypatch.setattr(f"shared.bootstrap.{module}.CHANNELS", roles)
    app = await open_app(settings_for(database_url, redis_url), role=cast("Role", "toy"))
    await app.pool.execute(_LETTERS)
    channel = ToyChannel(app)
    channel.dispatcher.start()
    yield channel
    await channel.dispatcher.close(drain_seconds=1)
    await app.close()


async def test_third_channel_answers_what_comes_in(toy: ToyChannel) -> None:
    await toy.post("ada", "What is two and two?")

    await toy.read()

    assert await toy.next_answer()
    assert await toy.one("SELECT seq FROM letters") == 1
    assert await toy.one("SELECT string_agg(channel, ' ') FROM turns") == "toy"
    assert await toy.one("SELECT count(*) FROM deliveries") == 0


async def test_third_channel_answers_turns_that_were_not_dispatched(toy: ToyChannel) -> None:
    await toy.accept(await toy.post("ada", "Is anybody there?"))

    assert await toy.next_answer()


async def test_message_is_not_stored_when_its_channel_fails(toy: ToyChannel) -> None:
    letter = await toy.post("ada", "Keep this.")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await toy.accept(letter, breaks=True)

    assert await toy.one("SELECT count(*) FROM entries") == 0
    assert await toy.one("SELECT count(*) FROM letters WHERE handled_at IS NULL") == 1
    assert not (await toy.accept(letter)).repeated


async def test_letter_is_stored_once_when_ten_read_it(toy: ToyChannel) -> None:
    await toy.accept(await toy.post("ada", "First."))
    letter = await toy.post("ada", "Second.")

    results = await asyncio.gather(*(toy.accept(letter) for _ in range(10)))

    assert sorted(each.repeated for each in results) == [False, *[True] * 9]
    assert {each.seq for each in results} == {await toy.one("SELECT max(seq) FROM letters")}
    assert await toy.one("SELECT count(*) FROM entries WHERE author = 'person'") == 2


async def test_letter_is_stored_and_claimed_by_one_commit(toy: ToyChannel) -> None:
    await toy.post("ada", "First.")
    await toy.read()
    await toy.next_answer()
    letter = await toy.post("ada", "Second.")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await toy.accept(letter, breaks=True, claims=True)
    assert await toy.one("SELECT count(*) FROM turns") == 1
    before = await toy.one(_TRANSACTIONS)

    await toy.accept(letter, claims=True)

    written = await toy.one("SELECT xmin::text::bigint FROM letters WHERE id = $1", letter)
    assert written >= before
    assert await toy.one("SELECT xmin::text::bigint FROM turns WHERE turn_no = 2") == written
    assert await toy.one("SELECT state FROM turns WHERE turn_no = 2") == "claimed"
    assert await toy.one("SELECT seq FROM letters WHERE id = $1", letter) == 3


async def test_letter_that_ended_elsewhere_is_not_claimed(toy: ToyChannel) -> None:
    await toy.post("ada", "First.")
    await toy.read()
    await toy.next_answer()
    letter = await toy.post("ada", "Second.")
    await toy.one("UPDATE letters SET handled_at = now() WHERE id = $1", letter)

    with pytest.raises(LeaseLost):
        await toy.accept(letter, claims=True)

    assert await toy.one("SELECT count(*) FROM turns") == 1


_TRANSACTIONS = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
