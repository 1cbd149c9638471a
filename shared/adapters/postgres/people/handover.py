"""Hand-over in Postgres: every change locks the session's row first, then looks, then writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias
from uuid import UUID

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people import handover_sql as sql
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.core.identity.handover import (
    ADVICE,
    CODES,
    NAMELESS,
    PER_HOUR,
    AnswerRuns,
    AskedTooOften,
    CannotHandOver,
    End,
    HandoverLimits,
    Listed,
    Moved,
    NewHandover,
    NobodyComes,
    NotTaken,
    Overdue,
    Reply,
    State,
    TakenByOther,
    Told,
    Untold,
    event_payload,
)
from shared.core.values.errors import LeaseLost
from shared.core.values.messages import Block, blocks_to_json

Record = asyncpg.Record
Connection: TypeAlias = "PoolConnectionProxy[Record]"

_AT_ONCE = 50


class PostgresHandovers:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[Record]) -> None:
        self._pool = pool

    @store_method
    async def request_handover(self, new: NewHandover) -> Moved:
        """From now on the assistant is silent, once the turn that runs is over; again changes nothing.

        Raises Fenced, AskedTooOften, CannotHandOver, NobodyComes.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _locked(connection, new.session_id)
            if new.key and (known := await connection.fetchrow(sql.BY_KEY, new.key)) is not None:
                return _as_it_is(new.session_id, known)
            if new.epoch and (new.epoch, new.turn) != (session["turn_epoch"], session["answered_turn"] + 1):
                raise LeaseLost(f"session {new.session_id}, epoch {new.epoch}")
            if (there := await connection.fetchrow(sql.OPEN, new.session_id)) is not None:
                return _as_it_is(new.session_id, there)
            if await connection.fetchval(sql.ASKED_LATELY, new.session_id) >= PER_HOUR:
                raise AskedTooOften
            if new.asked_by != "operator" and not await connection.fetchval(sql.MAY_ASK, new.address_id):
                raise NobodyComes
            return await _begin(connection, session, new)

    @store_method
    async def take_over(self, session_id: int, *, operator_id: int, name: str) -> Moved:
        """The conversation is this operator's, whether or not somebody asked; of two at once one has it.

        Raises TakenByOther, CannotHandOver.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _locked(connection, session_id)
            there = await connection.fetchrow(sql.OPEN, session_id)
            if there is not None and there["state"] == "human":
                if there["operator_id"] != operator_id:
                    raise TakenByOther(there["operator_name"] or NAMELESS)
                return _as_it_is(session_id, there)
            if there is None:
                new = NewHandover(session_id=session_id, address_id=None, asked_by="operator")
                moved = await _begin(connection, session, new, operator=(operator_id, name))
                await _record(connection, session, operator_id, "take")
                return moved
            await connection.execute(sql.TAKE, there["id"], operator_id, name)
            shown: str = await connection.fetchval(sql.SHOWN_NAME, operator_id) or NAMELESS
            event_seq = await _tell(connection, session_id, event_payload("human", name=shown))
            await _record(connection, session, operator_id, "take")
        return Moved(session_id=session_id, state="human", name=shown, event_seq=event_seq)

    @store_method
    async def release(
        self,
        session_id: int,
        *,
        by: Literal["operator", "person"],
        operator_id: int = 0,
        any_ones: bool = False,
    ) -> Moved:
        """The assistant goes on; a conversation that it has stays as it is.

        `any_ones`: also what another operator has. Raises TakenByOther.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _locked(connection, session_id)
            there = await connection.fetchrow(sql.OPEN, session_id)
            if there is None:
                return Moved(session_id=session_id, state="bot")
            others = there["operator_id"] not in (None, operator_id)
            if by == "operator" and others and not any_ones:
                raise TakenByOther(there["operator_name"] or NAMELESS)
            moved = await _end(connection, session, there, by)
            if by == "operator":
                await _record(connection, session, operator_id, "return")
            return moved

    @store_method
    async def record_reply(
        self, session_id: int, *, operator_id: int, cid: str, blocks: Sequence[Block], tokens: int
    ) -> Reply:
        """Store an operator's words as the answer to what waits, once per `cid`.

        They end the oldest turns that wait, as far as those came from one place, and go where they came from;
        where nothing waits they are a turn of their own. Raises NotTaken, TakenByOther, AnswerRuns.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _locked(connection, session_id)
            key = f"operator:{cid}"
            before = await connection.fetchrow(sql.REPLIED_BEFORE, session_id, key)
            if before is not None:
                return Reply(session_id=session_id, **dict(before), repeated=True)
            there = await connection.fetchrow(sql.OPEN, session_id)
            if there is None or there["state"] != "human":
                raise NotTaken
            name = there["shown_name"] or NAMELESS
            if there["operator_id"] != operator_id:
                raise TakenByOther(there["operator_name"] or NAMELESS)
            place = await _place_of_reply(connection, session, there)
            row = place and await connection.fetchrow(
                sql.REPLY, session_id, place["from_turn"], place["through_turn"], place["channel"],
                place["address_id"], blocks_to_json(blocks), tokens, key, cid, {"cid": cid, "name": name},
            )  # fmt: skip
            if row is not None:
                await _record(connection, session, operator_id, "reply", mid=f"m{row['seq']}")
        if row is None:
            raise AnswerRuns
        return Reply(session_id=session_id, **dict(row))

    @store_method
    async def list_overdue(
        self, channel: str, limits: HandoverLimits, *, accounts: Sequence[str] | None = None
    ) -> tuple[Overdue, ...]:
        """Those of a channel that have waited for too long."""
        named = None if accounts is None else list(accounts)
        rows = await self._pool.fetch(
            sql.OVERDUE, channel, named, float(limits.waiting), float(limits.silence), _AT_ONCE
        )
        return tuple(
            Overdue(session_id=row["session_id"], handover_id=row["id"], end=row["over"]) for row in rows
        )

    @store_method
    async def end_handover(self, one: Overdue, limits: HandoverLimits) -> Moved | None:
        """Give it back with a notice; None when somebody came after all."""
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _locked(connection, one.session_id, archived=True)
            still = await connection.fetchrow(
                sql.STILL_OVERDUE, one.handover_id, float(limits.waiting), float(limits.silence)
            )
            if still is None or still["over"] != one.end:
                return None
            there = await connection.fetchrow(sql.OPEN, one.session_id)
            return None if there is None else await _end(connection, session, there, one.end)

    @store_method
    async def list_handovers(self, state: Literal["waiting", "human"] | None = None) -> tuple[Listed, ...]:
        """All that are open, the longest first."""
        rows = await self._pool.fetch(sql.LISTED, state)
        ids = ("session", "person_id")
        return tuple(Listed(**{**dict(row), **{name: str(row[name]) for name in ids}}) for row in rows)

    @store_method
    async def find_session(self, public_id: UUID) -> int | None:
        found: int | None = await self._pool.fetchval(
            "SELECT id FROM sessions WHERE public_id = $1", public_id
        )
        return found

    # -- the word that it is over, where it has to be sent ------------------------------------------------

    @store_method
    async def untold(self, accounts: Sequence[int]) -> tuple[Untold, ...]:
        """Chats of these bots that are to be told, the oldest first."""
        rows = await self._pool.fetch(sql.UNTOLD, [str(account) for account in accounts], _AT_ONCE)
        return tuple(
            Untold(handover_id=row["id"], address_id=row["address_id"], code=CODES[row["ended_by"]])
            for row in rows
        )

    @store_method
    async def begin_telling(self, handover_id: int) -> bool:
        """Written before the request goes out; False when somebody else has it."""
        found = await self._pool.fetchval(
            "UPDATE handovers SET told = 'sending' WHERE id = $1 AND told = 'queued' RETURNING id",
            handover_id,
        )
        return found is not None

    @store_method
    async def told(self, handover_id: int, state: Told) -> None:
        """What became of the request; `queued` is for one that surely never arrived."""
        await self._pool.execute(sql.TOLD, handover_id, state, float(sql.NOTICE_SECONDS))

    @store_method
    async def left_by_the_dead(self, accounts: Sequence[int]) -> int:
        """For a new holder: what was being sent when its sender died may be in the chat, or not."""
        rows = await self._pool.fetch(sql.LEFT_BY_THE_DEAD, [str(account) for account in accounts])
        return len(rows)


async def _locked(connection: Connection, session_id: int, *, archived: bool = False) -> Record:
    row = await connection.fetchrow(sql.LOCK, session_id)
    if row is None or (row["archived_at"] is not None and not archived):
        raise CannotHandOver(f"session {session_id}")
    return row


async def _record(
    connection: Connection, session: Record, operator_id: int, what: str, **detail: str
) -> None:
    """In the same commit: nothing that an operator did is without its line, and no line without a deed."""
    actor = await connection.fetchval("SELECT name FROM operators WHERE id = $1", operator_id)
    await append_audit(
        connection, actor=actor or f"operator:{operator_id}", action=f"handover.{what}",
        about=str(session["public_id"]), detail=detail,
    )  # fmt: skip


def _as_it_is(session_id: int, there: Record) -> Moved:
    state: State = "bot" if there["state"] == "ended" else there["state"]
    name = (there["shown_name"] or NAMELESS) if state == "human" else ""
    return Moved(session_id=session_id, state=state, name=name)


async def _begin(
    connection: Connection, session: Record, new: NewHandover, *, operator: tuple[int, str] | None = None
) -> Moved:
    """The turn that runs, or that left a tool half done, is the assistant's still."""
    session_id: int = session["id"]
    address = new.address_id or await connection.fetchval(sql.NEWEST_ADDRESS, session_id)
    if address is None:
        raise CannotHandOver(f"session {session_id} has no place")
    runs = bool(new.epoch) or await connection.fetchval(sql.IS_RUNNING, session_id)
    await connection.execute(sql.HOLD, session_id, session["answered_turn"] + int(runs))
    await connection.execute(
        sql.BEGIN, session_id, address, new.asked_by, new.reason, new.key, *(operator or (None, ""))
    )
    name = operator and await connection.fetchval(sql.SHOWN_NAME, operator[0])
    shown = (name or NAMELESS) if operator else ""
    state: Literal["waiting", "human"] = "human" if operator else "waiting"
    payload = event_payload(state, name=shown, reason=new.reason, asked_by=new.asked_by)
    event_seq = await _tell(connection, session_id, payload)
    return Moved(session_id=session_id, state=state, name=shown, event_seq=event_seq)


async def _end(connection: Connection, session: Record, there: Record, by: End) -> Moved:
    session_id: int = session["id"]
    sends = by in CODES and await connection.fetchval(sql.IS_SENT_TO, there["address_id"])
    await connection.execute(sql.END, there["id"], by, "queued" if sends else "nothing")
    waits = session["answered_turn"] < session["next_turn"] - 1
    await connection.execute(sql.RELEASE, session_id, sql.NOTICE_SECONDS if sends and waits else 0.0)
    if by in ("unanswered", "silent", "off"):
        code = CODES[by]
        await _tell(
            connection, session_id, {"text": ADVICE[code], "error": code, "waiting": True}, kind="msg"
        )
    event_seq = await _tell(connection, session_id, event_payload("bot"))
    return Moved(session_id=session_id, state="bot", event_seq=event_seq, bot_has_turn=waits)


async def _tell(
    connection: Connection, session_id: int, payload: Mapping[str, Any], *, kind: str = "handover"
) -> int:
    event_seq: int = await connection.fetchval(sql.TELL, session_id, kind, dict(payload))
    return event_seq


async def _place_of_reply(connection: Connection, session: Record, there: Record) -> Mapping[str, Any] | None:
    """Which turns an operator's words end, and where they go; None while the assistant has one to end."""
    session_id: int = session["id"]
    if session["answered_turn"] < session["held_after"]:
        return None
    waiting = await connection.fetch(sql.WAITING, session_id, session["answered_turn"])
    if not waiting:
        place = await connection.fetchrow(sql.PLACE, session_id, there["address_id"])
        assert place is not None
        return {**dict(place), "from_turn": session["next_turn"], "through_turn": session["next_turn"]}
    first, through = waiting[0], waiting[0]["turn_no"]
    if first["is_reminder"]:
        # It is for now, and nobody but the assistant tells it.
        await connection.execute(sql.HOLD, session_id, through)
        return None
    for row in waiting[1:]:
        if row["address_id"] != first["address_id"] or row["is_reminder"]:
            break
        through = row["turn_no"]
    return {
        "from_turn": first["turn_no"],
        "through_turn": through,
        "channel": first["channel"],
        "address_id": first["address_id"],
    }
