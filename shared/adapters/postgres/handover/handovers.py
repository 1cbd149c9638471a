"""Store of hand-overs; each change first locks the session's row, then reads, then writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, Record, build_value, store_method
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.core.identity.handover import (
    ADVICE,
    CODES,
    NAMELESS,
    PER_HOUR,
    AnswerRuns,
    AskedTooOften,
    Assignment,
    BadSnooze,
    CannotHandOver,
    ChangedMeanwhile,
    End,
    HandoverChange,
    HandoverLimits,
    HandoverOutcome,
    Labels,
    ListedHandover,
    NewHandover,
    NobodyComes,
    NotTaken,
    OverdueHandover,
    Reply,
    Snooze,
    State,
    TakenByOther,
    Told,
    UnknownAssignee,
    UnsentNotice,
    event_payload,
    operator_payload,
)
from shared.core.values.errors import LeaseLost
from shared.core.values.files import Attached
from shared.core.values.messages import Block, blocks_to_json

_AT_ONCE = 50


class PostgresHandovers(PoolStore):
    """Store of hand-overs; each method that writes is one transaction. Raises StorageUnavailable."""

    @store_method
    async def request_handover(self, new: NewHandover) -> HandoverOutcome:
        """Request an operator for a session; the assistant falls silent after the turn that runs now.

        Stores the hand-over and an event for the screens. If the session has an open hand-over, or `new.key`
        was used before, nothing changes, and that hand-over's state is returned. Raises LeaseLost if
        `new.epoch` is not that of the running turn, AskedTooOften after PER_HOUR requests within an hour,
        CannotHandOver for an unknown or archived session, and NobodyComes if the site has hand-overs off.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _lock_session(connection, new.session_id)
            if new.key and (known := await connection.fetchrow(*_BY_KEY(key=new.key))) is not None:
                return _as_it_is(new.session_id, known)
            if new.epoch and (new.epoch, new.turn) != (session["turn_epoch"], session["answered_turn"] + 1):
                raise LeaseLost(f"session {new.session_id}, epoch {new.epoch}")
            if (there := await connection.fetchrow(*_OPEN(session_id=new.session_id))) is not None:
                return _as_it_is(new.session_id, there)
            if await connection.fetchval(*_ASKED_LATELY(session_id=new.session_id)) >= PER_HOUR:
                raise AskedTooOften
            if new.asked_by != "operator" and not await connection.fetchval(
                *_MAY_ASK(
                    address_id=new.address_id,
                )
            ):
                raise NobodyComes
            return await _begin(connection, session, new)

    @store_method
    async def take_over(self, session_id: int, *, operator_id: int, name: str) -> HandoverOutcome:
        """Assign the conversation to this operator, requested or not; the assistant falls silent.

        Of two operators at once, one gets it. Stores an event for the screens, which the caller announces,
        and an entry of the audit log. If this operator already has it, nothing changes, and `event_seq` is
        0. `name` is the operator's login name. Raises TakenByOther if another operator has it, and
        CannotHandOver for a session that is unknown, archived or without an address.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _lock_session(connection, session_id)
            there = await connection.fetchrow(*_OPEN(session_id=session_id))
            if there is not None and there["state"] == "human":
                if there["operator_id"] != operator_id:
                    raise TakenByOther(there["operator_name"] or NAMELESS)
                return _as_it_is(session_id, there)
            if there is None:
                new = NewHandover(session_id=session_id, address_id=None, asked_by="operator")
                moved = await _begin(connection, session, new, operator=(operator_id, name))
                await _record(connection, session, operator_id, "take")
                return moved
            await connection.execute(*_TAKE(handover_id=there["id"], operator_id=operator_id, name=name))
            shown = await _shown(connection, operator_id)
            payload = {"state": "human", **operator_payload(**shown)}
            event_seq = await _store_event(connection, session_id, payload)
            await _record(connection, session, operator_id, "take")
        name = shown["name"] or NAMELESS
        return HandoverOutcome(session_id=session_id, state="human", name=name, event_seq=event_seq)

    @store_method
    async def release(
        self,
        session_id: int,
        *,
        by: Literal["operator", "person", "resolved"],
        operator_id: int = 0,
        any_ones: bool = False,
    ) -> HandoverOutcome:
        """Return the conversation to the assistant; no effect if the assistant already has it.

        `by` is who ends the hand-over; `resolved` means an operator who has solved the matter. `any_ones`
        allows it for conversations of other operators. Stores an event for the screens and, unless the person
        ends it, an entry of the audit log. Raises TakenByOther if another operator has it, and CannotHandOver
        for an unknown or archived session.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _lock_session(connection, session_id)
            there = await connection.fetchrow(*_OPEN(session_id=session_id))
            if there is None:
                return HandoverOutcome(session_id=session_id, state="bot")
            others = there["operator_id"] not in (None, operator_id)
            if by != "person" and others and not any_ones:
                raise TakenByOther(there["operator_name"] or NAMELESS)
            moved = await _end(connection, session, there, by)
            if by != "person":
                await _record(connection, session, operator_id, "resolve" if by == "resolved" else "return")
            return moved

    @store_method
    async def change(
        self,
        session_id: int,
        change: HandoverChange,
        *,
        version: int,
        operator_id: int,
        any_ones: bool = False,
    ) -> HandoverOutcome:
        """Assign, snooze or label an open hand-over whose version is `version`; return its new state.

        An assignment also stores an event for the screens. `operator_id` is who changes it; `any_ones` allows
        this operator to snooze those of others. Raises NotTaken without an open hand-over, ChangedMeanwhile
        for another version, TakenByOther, UnknownAssignee, BadSnooze for a time that is past or a year away,
        and CannotHandOver for an unknown or archived session.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _lock_session(connection, session_id)
            there = await connection.fetchrow(*_OPEN(session_id=session_id))
            if there is None:
                raise NotTaken
            if there["version"] != version:
                raise ChangedMeanwhile
            match change:
                case Assignment(operator=name):
                    return await _assign(connection, session, there, name, by=operator_id)
                case Snooze(until=until):
                    if there["operator_id"] not in (None, operator_id) and not any_ones:
                        raise TakenByOther(there["operator_name"] or NAMELESS)
                    if not await connection.fetchval(*_SNOOZE(handover_id=there["id"], until=until)):
                        raise BadSnooze
                    await _record(connection, session, operator_id, "snooze")
                case Labels(labels=labels):
                    await connection.execute(*_LABEL(handover_id=there["id"], labels=list(labels)))
                    await _record(connection, session, operator_id, "label")
            return _as_it_is(session_id, there)

    @store_method
    async def record_reply(
        self,
        session_id: int,
        *,
        operator_id: int,
        cid: str,
        blocks: Sequence[Block],
        tokens: int,
        attached: Sequence[Attached] = (),
    ) -> Reply:
        """Store an operator's message as the answer to the waiting turns; a repeated `cid` stores nothing.

        It ends the waiting turns from the oldest on as long as they are from one address, and is queued for
        delivery there. Without a waiting turn it becomes a separate turn at the newest address. It ends a
        snooze. Returns the stored message, with `repeated` for a known `cid`. Raises NotTaken without an
        operator, TakenByOther, AnswerRuns while the assistant still has a turn to end, and CannotHandOver for
        an unknown or archived session.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _lock_session(connection, session_id)
            key = f"operator:{cid}"
            before = await connection.fetchrow(*_REPLIED_BEFORE(session_id=session_id, key=key))
            if before is not None:
                return Reply(session_id=session_id, **dict(before), repeated=True)
            there = await connection.fetchrow(*_OPEN(session_id=session_id))
            there = _refuse_others(there, operator_id)
            shown: dict[str, Any] = dict(operator_payload(there["shown_name"], there["shown_picture"]))
            if attached:
                shown["attachments"] = [one.to_payload() for one in attached]
            place = await _place_of_reply(connection, session, there)
            row = place and await connection.fetchrow(
                *RECORD_REPLY(
                    session_id=session_id, **place, blocks=blocks_to_json(blocks), tokens=tokens, key=key,
                    cid=cid, payload={"cid": cid, **shown},
                )
            )  # fmt: skip
            if row is not None:
                await connection.execute(*_WAKE(handover_id=there["id"]))
                await _record(connection, session, operator_id, "reply", mid=f"m{row['seq']}")
        if row is None:
            raise AnswerRuns
        return Reply(session_id=session_id, **dict(row))

    @store_method
    async def list_overdue(
        self, channel: str, limits: HandoverLimits, *, accounts: Sequence[str] | None = None
    ) -> tuple[OverdueHandover, ...]:
        """Return at most 50 hand-overs of a channel that have waited longer than `limits`, in minutes.

        Each names the reason: `unanswered` if no operator came, `silent` if the operator does not reply,
        `off` if a limit of 0 switches hand-overs off. `accounts` are the channel's bots or sites; None means
        all of them. A snooze puts the reason off.
        """
        overdue = _OVERDUE(
            channel=channel, accounts=None if accounts is None else list(accounts),
            waiting=float(limits.waiting), silence=float(limits.silence), most=_AT_ONCE,
        )  # fmt: skip
        rows = await self._pool.fetch(*overdue)
        return tuple(
            OverdueHandover(session_id=row["session_id"], handover_id=row["id"], end=row["over"])
            for row in rows
        )

    @store_method
    async def end_handover(self, one: OverdueHandover, limits: HandoverLimits) -> HandoverOutcome | None:
        """Return an overdue conversation to the assistant, and store events for the screens.

        Returns None, without effect, if the hand-over has ended or is no longer overdue for the same reason.
        Raises CannotHandOver for an unknown session.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await _lock_session(connection, one.session_id, archived=True)
            waiting, silence = float(limits.waiting), float(limits.silence)
            overdue = _STILL_OVERDUE(id=one.handover_id, waiting=waiting, silence=silence)
            still = await connection.fetchrow(*overdue)
            if still is None or still["over"] != one.end:
                return None
            there = await connection.fetchrow(*_OPEN(session_id=one.session_id))
            return None if there is None else await _end(connection, session, there, one.end)

    @store_method
    async def list_handovers(
        self, state: Literal["waiting", "human", "resolved"] | None = None
    ) -> tuple[ListedHandover, ...]:
        """Return hand-overs in `state`; None means all that are open.

        Open ones are sorted by the time of their request, oldest first, at most 500. Resolved ones are sorted
        by their end, newest first, at most 100.
        """
        listed = _RESOLVED() if state == "resolved" else _LISTED(state=state)
        rows = await self._pool.fetch(*listed)
        return tuple(_build_listed(row) for row in rows)

    @store_method
    async def find_reply_target(self, session_id: int, *, operator_id: int) -> tuple[str, int]:
        """Return channel and address id to which the operator's next message is sent; changes nothing.

        That is the address of the newest turn. Raises NotTaken if no operator has the conversation, and
        TakenByOther if another one has.
        """
        there = _refuse_others(await self._pool.fetchrow(*_OPEN(session_id=session_id)), operator_id)
        place = await self._pool.fetchrow(*_PLACE(session_id=session_id, address_id=there["address_id"]))
        assert place is not None
        return place["channel"], place["address_id"]

    @store_method
    async def find_session(self, public_id: UUID) -> int | None:
        """Return the internal id of a session; None if it is unknown."""
        found: int | None = await self._pool.fetchval(*_FIND_SESSION(public_id=public_id))
        return found

    # -- notices that a hand-over has ended, for channels that send messages -------------------------------

    @store_method
    async def list_unnotified(self, accounts: Sequence[int]) -> tuple[UnsentNotice, ...]:
        """Return at most 50 Telegram chats of these bots in which the end of a hand-over must be announced.

        `accounts` are ids of bots. A chat is left out while an earlier message to it is not delivered.
        Changes nothing; `begin_notifying` claims a notice.
        """
        rows = await self._pool.fetch(
            *_UNTOLD(
                accounts=[str(account) for account in accounts],
                limit=_AT_ONCE,
            )
        )
        return tuple(
            UnsentNotice(handover_id=row["id"], address_id=row["address_id"], code=CODES[row["ended_by"]])
            for row in rows
        )

    @store_method
    async def begin_notifying(self, handover_id: int) -> bool:
        """Mark a notice as being sent, before the request to Telegram.

        Returns False if the notice is not queued: another process sends or has sent it.
        """
        found = await self._pool.fetchval(
            *_BEGIN_NOTIFYING(handover_id=handover_id),
        )
        return found is not None

    @store_method
    async def record_notified(self, handover_id: int, state: Told) -> None:
        """Store the outcome of a notice; `queued` means that it surely did not arrive and is sent again.

        After any other outcome, the answer that waited for the notice becomes due.
        """
        await self._pool.execute(
            *_TOLD(
                handover_id=handover_id,
                state=state,
                notice_seconds=float(_NOTICE_SECONDS),
            )
        )

    @store_method
    async def recover_interrupted(self, accounts: Sequence[int]) -> int:
        """Mark the notices of these bots that are still being sent as uncertain; return their number.

        A process calls it when it begins to serve these bots, so the process that sent them is dead.
        """
        rows = await self._pool.fetch(*_LEFT_BY_THE_DEAD(accounts=[str(account) for account in accounts]))
        return len(rows)


async def _lock_session(connection: Connection, session_id: int, *, archived: bool = False) -> Record:
    row = await connection.fetchrow(*_LOCK(session_id=session_id))
    if row is None or (row["archived_at"] is not None and not archived):
        raise CannotHandOver(f"session {session_id}")
    return row


async def _record(
    connection: Connection, session: Record, operator_id: int, what: str, **detail: str
) -> None:
    """Append an operator's action to the audit log in the transaction of the action."""
    actor = await connection.fetchval(*_NAME_OF_OPERATOR(operator_id=operator_id))
    await append_audit(
        connection, actor=actor or f"operator:{operator_id}", action=f"handover.{what}",
        about=str(session["public_id"]), detail=detail,
    )  # fmt: skip


def _build_listed(row: Record) -> ListedHandover:
    return build_value(
        ListedHandover,
        row,
        session=str(row["session"]),
        person_id=str(row["person_id"]),
        labels=tuple(row["labels"]),
    )


async def _assign(
    connection: Connection, session: Record, there: Record, name: str, *, by: int
) -> HandoverOutcome:
    """Assign the hand-over to the operator `name`, and show that to the person.

    Has no effect if the hand-over is already assigned.
    """
    session_id: int = session["id"]
    to = await connection.fetchval(*_FIND_ASSIGNEE(name=name))
    if to is None:
        raise UnknownAssignee
    if there["operator_id"] == to:
        return _as_it_is(session_id, there)
    await connection.execute(*_TAKE(handover_id=there["id"], operator_id=to, name=name))
    shown = await _shown(connection, to)
    event_seq = await _store_event(connection, session_id, {"state": "human", **operator_payload(**shown)})
    await _record(connection, session, by, "assign", to=str(to))
    return HandoverOutcome(
        session_id=session_id, state="human", name=shown["name"] or NAMELESS, event_seq=event_seq
    )


def _refuse_others(there: Record | None, operator_id: int) -> Record:
    if there is None or there["state"] != "human":
        raise NotTaken
    if there["operator_id"] != operator_id:
        raise TakenByOther(there["operator_name"] or NAMELESS)
    return there


def _as_it_is(session_id: int, there: Record) -> HandoverOutcome:
    state: State = "bot" if there["state"] == "ended" else there["state"]
    name = (there["shown_name"] or NAMELESS) if state == "human" else ""
    return HandoverOutcome(session_id=session_id, state=state, name=name)


async def _begin(
    connection: Connection, session: Record, new: NewHandover, *, operator: tuple[int, str] | None = None
) -> HandoverOutcome:
    """Begin a hand-over; with `operator` (id, name) that operator has the conversation at once.

    The assistant still ends a turn that runs or has an unfinished tool call. Raises CannotHandOver.
    """
    session_id: int = session["id"]
    address = new.address_id or await connection.fetchval(*_NEWEST_ADDRESS(session_id=session_id))
    if address is None:
        raise CannotHandOver(f"session {session_id} has no place")
    runs = bool(new.epoch) or await connection.fetchval(*_IS_RUNNING(session_id=session_id))
    await connection.execute(*_HOLD(session_id=session_id, through_turn=session["answered_turn"] + int(runs)))
    operator_id, name = operator or (None, "")
    begun = _BEGIN(
        session_id=session_id, address=address, asked_by=new.asked_by, reason=new.reason, key=new.key,
        operator_id=operator_id, name=name,
    )  # fmt: skip
    await connection.execute(*begun)
    shown = await _shown(connection, operator_id) if operator else {}
    state: Literal["waiting", "human"] = "human" if operator else "waiting"
    payload = event_payload(state, **shown, reason=new.reason, asked_by=new.asked_by)
    event_seq = await _store_event(connection, session_id, payload)
    return HandoverOutcome(
        session_id=session_id, state=state, name=payload.get("name", ""), event_seq=event_seq
    )


async def _end(connection: Connection, session: Record, there: Record, by: End) -> HandoverOutcome:
    session_id: int = session["id"]
    sends = by in CODES and await connection.fetchval(*_IS_SENT_TO(address_id=there["address_id"]))
    await connection.execute(
        *_END(
            handover_id=there["id"],
            ended_by=by,
            told="queued" if sends else "nothing",
        )
    )
    waits = session["answered_turn"] < session["next_turn"] - 1
    await connection.execute(
        *_RELEASE(
            session_id=session_id,
            notice_seconds=_NOTICE_SECONDS if sends and waits else 0.0,
        )
    )
    if by in ("unanswered", "silent", "off"):
        code = CODES[by]
        await _store_event(
            connection, session_id, {"text": ADVICE[code], "error": code, "waiting": True}, kind="msg"
        )
    asks = {"rate": there["id"]} if by == "resolved" else {}
    event_seq = await _store_event(connection, session_id, {**event_payload("bot"), **asks})
    return HandoverOutcome(session_id=session_id, state="bot", event_seq=event_seq, bot_has_turn=waits)


async def _shown(connection: Connection, operator_id: int | None) -> dict[str, str]:
    row = await connection.fetchrow(*_SHOWN(operator_id=operator_id))
    assert row is not None
    return dict(row)


async def _store_event(
    connection: Connection, session_id: int, payload: Mapping[str, Any], *, kind: str = "handover"
) -> int:
    event_seq: int = await connection.fetchval(
        *_TELL(
            session_id=session_id,
            kind=kind,
            payload=dict(payload),
        )
    )
    return event_seq


async def _place_of_reply(connection: Connection, session: Record, there: Record) -> Mapping[str, Any] | None:
    """Return the turns that an operator's message ends, and its address.

    Returns None while the assistant has a turn to end.
    """
    session_id: int = session["id"]
    if session["answered_turn"] < session["held_after"]:
        return None
    waiting = await connection.fetch(*_WAITING(session_id=session_id, answered_turn=session["answered_turn"]))
    if not waiting:
        place = await connection.fetchrow(*_PLACE(session_id=session_id, address_id=there["address_id"]))
        assert place is not None
        return {**dict(place), "from_turn": session["next_turn"], "through_turn": session["next_turn"]}
    first, through = waiting[0], waiting[0]["turn_no"]
    if first["is_reminder"]:
        # A reminder is due now, and only the assistant can write it.
        await connection.execute(*_HOLD(session_id=session_id, through_turn=through))
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


_NOTICE_SECONDS = 10.0
"""Seconds for which the next answer waits for the notice, which is a separate message and must come first."""

_LOCK = Named("""
SELECT id, public_id, archived_at, turn_epoch, answered_turn, next_turn, held_after FROM sessions
  WHERE id = :session_id
   FOR NO KEY UPDATE
""")
"""Lock a session's row.

A message, claim or answer waits for the transaction's end and then reads the new row.
"""

_SHOWN = Named("""
SELECT o.display_name AS name, coalesce(p.key, '') AS picture
  FROM operators o LEFT JOIN operator_pictures p ON p.operator_id = o.id WHERE o.id = :operator_id
""")
_OPEN = Named("""
SELECT h.*, coalesce(o.display_name, '') AS shown_name, coalesce(p.key, '') AS shown_picture FROM handovers h
  LEFT JOIN operators o ON o.id = h.operator_id LEFT JOIN operator_pictures p ON p.operator_id = o.id
 WHERE h.session_id = :session_id AND h.ended_at IS NULL
""")
_BY_KEY = Named("""
SELECT h.*, coalesce(o.display_name, '') AS shown_name, coalesce(p.key, '') AS shown_picture FROM handovers h
  LEFT JOIN operators o ON o.id = h.operator_id LEFT JOIN operator_pictures p ON p.operator_id = o.id
 WHERE h.call_key = :key
""")
_ASKED_LATELY = Named("""
SELECT count(*) FROM handovers
 WHERE session_id = :session_id AND asked_by <> 'operator' AND asked_at > now() - interval '1 hour'
""")
_NEWEST_ADDRESS = Named("""
SELECT coalesce(
  (SELECT t.address_id FROM turns t JOIN addresses a ON a.id = t.address_id AND a.session_id = t.session_id
    WHERE t.session_id = :session_id ORDER BY t.turn_no DESC LIMIT 1),
  (SELECT id FROM addresses WHERE session_id = :session_id ORDER BY id DESC LIMIT 1))
""")

_IS_RUNNING = Named("""
SELECT EXISTS (
  SELECT FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
   WHERE s.id = :session_id AND (
         EXISTS (SELECT FROM workers w WHERE w.id = s.leased_by AND worker_is_alive(w))
      OR EXISTS (SELECT FROM turn_steps p
                  WHERE p.session_id = s.id AND p.turn_no = t.turn_no AND p.status = 'intent')
      OR EXISTS (SELECT FROM reminders r WHERE r.session_id = s.id AND r.turn_no = t.turn_no)))
""")
"""Select whether a turn runs that only the assistant can end.

It is being written, has a running tool, or is a reminder.
"""

_HOLD = Named("UPDATE sessions SET held_after = :through_turn WHERE id = :session_id")
_RELEASE = Named("""
UPDATE sessions SET held_after = NULL,
       retry_at = CASE WHEN :notice_seconds::float8 > 0 THEN
          greatest(retry_at, now() + make_interval(secs => :notice_seconds))
                       ELSE retry_at END
 WHERE id = :session_id
""")
_MAY_ASK = Named("""
SELECT NOT EXISTS (SELECT FROM addresses a JOIN sites w ON a.channel = 'web' AND w.name = a.account
                    WHERE a.id = :address_id AND w.config -> 'handover' = 'false')
""")
_BEGIN = Named("""
INSERT INTO handovers (session_id, address_id, asked_by, reason, call_key, operator_id, operator_name,
  state, taken_at)
VALUES (:session_id, :address, :asked_by, :reason, :key, :operator_id::bigint, :name,
  CASE WHEN :operator_id::bigint IS NULL THEN 'waiting' ELSE 'human' END,
        CASE WHEN :operator_id::bigint IS NOT NULL THEN now() END)
""")
_TAKE = Named("""
UPDATE handovers SET state = 'human', operator_id = :operator_id, operator_name = :name, taken_at = now(),
  version = version + 1, snoozed_at = NULL, snoozed_until = NULL WHERE id = :handover_id
""")
_SNOOZE = Named("""
UPDATE handovers SET version = version + 1, snoozed_at = CASE
   WHEN :until::timestamptz IS NOT NULL THEN now() END,
       snoozed_until = :until
 WHERE id = :handover_id AND coalesce(:until::timestamptz > now()
                                      AND :until < now() + interval '1 year', true) RETURNING true
""")
_LABEL = Named("UPDATE handovers SET version = version + 1, labels = :labels WHERE id = :handover_id")
_END = Named("""
UPDATE handovers SET state = 'ended', ended_at = now(), ended_by = :ended_by, told = :told
   WHERE id = :handover_id
""")
_IS_SENT_TO = Named("""
SELECT channel <> 'web' AND unreachable_since IS NULL FROM addresses WHERE id = :address_id
""")
"""Select whether messages are sent to an address; on the web, a stored message is already on the screen."""

_TELL = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1
    WHERE id = :session_id RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT :session_id, event_seq, :kind, :payload::jsonb FROM s RETURNING event_seq
""")

_REPLIED_BEFORE = Named("""
SELECT e.seq, te.turn_no AS turn,
       (SELECT v.event_seq FROM events v
         WHERE v.session_id = :session_id AND v.seq = e.seq AND v.kind = 'msg' LIMIT 1) AS event_seq
  FROM entries e JOIN turn_entries te USING (session_id, seq) WHERE e.session_id = :session_id
    AND e.dedupe_key = :key
""")
_WAITING = Named("""
SELECT t.turn_no, t.channel, t.address_id,
       EXISTS (SELECT FROM reminders r WHERE r.session_id = t.session_id
         AND r.turn_no = t.turn_no) AS is_reminder
  FROM turns t WHERE t.session_id = :session_id AND t.turn_no > :answered_turn ORDER BY t.turn_no
""")
_PLACE = Named("""
SELECT a.channel, a.id AS address_id FROM addresses a
 WHERE a.id = coalesce((SELECT t.address_id FROM turns t JOIN addresses x ON x.id = t.address_id
                         WHERE t.session_id = :session_id AND x.session_id = :session_id
                           ORDER BY t.turn_no DESC LIMIT 1), :address_id)
""")

RECORD_REPLY = Named("""
WITH said AS (
  SELECT coalesce(sum(e.tokens), 0) AS tokens FROM turn_entries te JOIN entries e USING (session_id, seq)
   WHERE te.session_id = :session_id AND te.turn_no BETWEEN :from_turn AND :through_turn
), s AS (
  UPDATE sessions x
     SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1, next_turn = greatest(next_turn,
       :through_turn + 1),
         last_channel = CASE WHEN next_turn <= :through_turn THEN :channel ELSE last_channel END,
           answered_turn = :through_turn,
           open_turn = CASE WHEN open_turn > :through_turn THEN open_turn END,
         turn_epoch = turn_epoch + 1, leased_by = NULL, retry_at = NULL, last_active_at = now(),
         context_tokens = CASE WHEN context_tokens = 0 THEN 0
                               ELSE context_tokens + ceil(token_ratio * (said.tokens + :tokens)) END
    FROM said WHERE x.id = :session_id
  RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq
), ended AS (
  UPDATE turns t SET state = 'answered', ended_at = now(),
         error_code = CASE WHEN turn_no < :through_turn THEN 'answered_together' END
   WHERE t.session_id = :session_id AND t.turn_no BETWEEN :from_turn AND :through_turn
), own AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id, state, ended_at)
  VALUES (:session_id, :through_turn, :channel, :address_id, 'answered', now()) ON CONFLICT DO NOTHING
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, cid)
  SELECT :session_id, seq, 'user', 'operator', :blocks::jsonb, :tokens, :key, :cid FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, :through_turn, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', seq, :through_turn, :payload::jsonb FROM s
), d AS (
  INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state, delivered_at)
  SELECT :session_id, n, 0, :channel, :address_id,
    CASE WHEN n < :through_turn THEN 'delivered' ELSE 'queued' END,
    CASE WHEN n < :through_turn THEN now() END
    FROM generate_series(:from_turn::bigint, :through_turn::bigint) AS n
      WHERE :channel <> 'web' ON CONFLICT DO NOTHING
), tot AS (
  UPDATE session_totals SET total_tokens_estimate = total_tokens_estimate + :tokens
    WHERE session_id = :session_id
)
SELECT seq, :through_turn::bigint AS turn, event_seq FROM s
""")
"""Store an operator's reply in turn `through_turn`, and end the turns from `from_turn` on with it.

Earlier ones of these turns end as `answered_together`. The statement also releases the session's lease,
counts tokens, and queues a delivery unless the channel is the web. Selects number, turn and event number of
the reply; no row if the session does not exist.
"""

_WAKE = Named("""
UPDATE handovers SET snoozed_at = NULL, snoozed_until = NULL WHERE id = :handover_id
   AND snoozed_at IS NOT NULL
""")
_OVERDUE = Named("""
SELECT * FROM (
  SELECT h.id, h.session_id, overdue_for(h, :waiting::float8, :silence::float8) AS over
    FROM handovers h JOIN addresses a ON a.id = h.address_id
   WHERE h.ended_at IS NULL AND a.channel = :channel
     AND (:accounts::text[] IS NULL OR a.account = ANY (:accounts))) o
 WHERE over IS NOT NULL ORDER BY id LIMIT :most
""")
_STILL_OVERDUE = Named("""
SELECT overdue_for(h, :waiting::float8, :silence::float8) AS over FROM handovers h
 WHERE h.id = :id AND h.ended_at IS NULL
""")
_LISTED = Named("""
SELECT * FROM listed_handovers
 WHERE ended_at IS NULL AND (:state::text IS NULL OR state = :state) ORDER BY asked_at, id LIMIT 500
""")
_RESOLVED = Named("""
SELECT * FROM listed_handovers WHERE ended_by = 'resolved' ORDER BY ended_at DESC, id LIMIT 100
""")
_UNTOLD = Named("""
SELECT h.id, h.address_id, h.ended_by FROM handovers h JOIN addresses a ON a.id = h.address_id
 WHERE h.told = 'queued' AND a.channel = 'telegram' AND a.account = ANY (:accounts::text[]) AND NOT EXISTS (
       SELECT FROM deliveries d JOIN turns t USING (session_id, turn_no)
        WHERE d.session_id = h.session_id AND d.address_id = h.address_id AND t.ended_at <= h.ended_at
          AND d.state IN ('queued', 'sending', 'sent'))
 ORDER BY h.id LIMIT :limit
""")
"""Select notices whose preceding messages have all been delivered to the chat."""
_TOLD = Named("""
WITH h AS (
  UPDATE handovers SET told = :state WHERE id = :handover_id AND told IN ('queued', 'sending')
     RETURNING session_id,
    ended_at
)
UPDATE sessions s SET retry_at = now() FROM h
 WHERE s.id = h.session_id AND :state <> 'queued' AND s.leased_by IS NULL
   AND s.retry_at > now() AND s.retry_at <= h.ended_at + make_interval(secs => :notice_seconds)
""")
"""Store the outcome of a notice; an answer that only waited for the notice becomes due."""
_LEFT_BY_THE_DEAD = Named("""
UPDATE handovers h SET told = 'uncertain' FROM addresses a
 WHERE a.id = h.address_id AND h.told = 'sending' AND a.channel = 'telegram'
   AND a.account = ANY (:accounts::text[])
RETURNING h.id
""")
_FIND_SESSION = Named("SELECT id FROM sessions WHERE public_id = :public_id")
_BEGIN_NOTIFYING = Named("""
UPDATE handovers SET told = 'sending' WHERE id = :handover_id AND told = 'queued' RETURNING id
""")
_NAME_OF_OPERATOR = Named("SELECT name FROM operators WHERE id = :operator_id")
_FIND_ASSIGNEE = Named("SELECT id FROM operators o WHERE name = :name AND may_write(o)")
