"""Store of turns: accepts messages, claims turns, loads entries, and records tool steps and answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import reduce
from operator import attrgetter
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from shared.adapters.postgres.db.pool import (
    Connection,
    Named,
    PoolStore,
    Record,
    build_value,
    store_method,
)
from shared.adapters.postgres.turns import answer_sql, spend_sql, turn_sql
from shared.adapters.postgres.turns.allowance import Allowance
from shared.adapters.postgres.turns.answer_sql import AUDIT_NUMBERS, AUDIT_SHORT, USAGE
from shared.adapters.postgres.turns.view_cache import CachedView, ViewCache
from shared.core.context.agents import (
    LOOK_AT_PICTURE,
    for_guests,
    with_chosen_compaction,
    with_chosen_model,
    without_tool,
)
from shared.core.session.artifacts import Artifact, digest_prefix
from shared.core.session.failed_messages import FAILED_FORMS, show_failed
from shared.core.session.session import Entry, FrozenPrefix, View, backoff_from_json
from shared.core.session.turns import (
    Accepted,
    AnswerStored,
    Caps,
    Claim,
    ContextAudit,
    DueJob,
    Inbound,
    MessageReceipt,
    Outcome,
    Spending,
    SpendingWarning,
    StepOutcome,
    compaction_from_json,
    frozen_from_json,
    message_payload,
    notes_from_json,
    notice_payload,
)
from shared.core.values.errors import (
    CapReached,
    EvertalkError,
    LeaseLost,
    SessionMoved,
    StorageUnavailable,
    UnknownSession,
    cap_reached,
)
from shared.core.values.messages import (
    Block,
    Image,
    Text,
    ToolUse,
    blocks_from_json,
    blocks_to_json,
    text_of,
)
from shared.core.values.money import Shortage

WOKEN_AT_ONCE = 20
"""Maximum waiting turns that are woken when a provider answers again."""
_USUAL = (
    turn_sql.ACCEPT_AND_CLAIM, turn_sql.ACCEPT, turn_sql.CLAIM, turn_sql.LOAD, answer_sql.ANSWER,
)  # fmt: skip
"""Statements of a usual turn without a receipt, which `rehearse` prepares."""
REHEARSED_CONNECTIONS = 4
"""Connections on which statements are prepared; the first messages use a few at once."""
REHEARSALS = 5
"""Calls of a statement on a connection until PostgreSQL keeps its plan."""


class PostgresTurns(PoolStore):
    """Store of turns; each method writes in one transaction, and raises StorageUnavailable.

    Every write after a claim is fenced by the turn's epoch: a process that lost its lease gets LeaseLost.
    """

    def __init__(self, pool: asyncpg.Pool[Record], *, slice_taken: Callable[[], None] = lambda: None) -> None:
        super().__init__(pool)
        self._views = ViewCache()
        self._allowance = Allowance(pool, taken=slice_taken)

    async def rehearse(self) -> None:
        """Run the statements of a usual turn without a session, so that the first turn finds them prepared.

        Nothing is stored. Raises StorageUnavailable.
        """
        await asyncio.gather(*(self._rehearse() for _ in range(REHEARSED_CONNECTIONS)))

    @store_method
    async def _rehearse(self) -> None:
        async with self._pool.acquire() as connection:
            rehearsal = connection.transaction()
            await rehearsal.start()
            try:
                for statement in _USUAL * REHEARSALS:
                    await connection.fetch(*statement.rehearse(session_id=0))
            finally:
                await rehearsal.rollback()

    @store_method
    async def accept(self, inbound: Inbound, *, channel: str, tokens: int) -> Accepted:
        """Store a person's message, once per dedupe key. Raises UnknownSession or SessionMoved.

        A receipt stores the channel's own rows in the same transaction. With a receipt, LeaseLost means that
        another process stores the message, and that this one changed nothing.
        """
        arguments = build_message_arguments(inbound, channel, tokens)
        receipt = inbound.receipt
        try:
            if receipt is None:
                row = await self._pool.fetchrow(*turn_sql.ACCEPT(**arguments))
            else:
                row = await self._accept_with_receipt(inbound, receipt, arguments)
        except asyncpg.UniqueViolationError:
            row = None  # the same message came twice at the same moment: the other one is stored now
        if repeated := row is None:
            row = await self._pool.fetchrow(
                *turn_sql.ACCEPTED_BEFORE(session_id=inbound.session_id, dedupe_key=inbound.dedupe_key)
            )
            if receipt is not None:
                row = await self._find_stored(inbound, receipt, is_stored=row is not None) or row
        if row is None:
            raise await self._explain_refusal(inbound)
        return Accepted(
            session_id=inbound.session_id,
            seq=row["seq"],
            turn=row["turn_no"],
            event_seq=row["event_seq"],
            repeated=repeated,
            at_ms=int(row["at"].timestamp() * 1000),
        )

    @store_method
    async def accept_and_claim(
        self,
        inbound: Inbound,
        *,
        channel: str,
        tokens: int,
        worker_id: int,
        caps: Caps,
        micro_per_input_token: float,
        micro_output: float,
    ) -> tuple[Accepted, Claim] | None:
        """Store a message, as `accept` does, and claim its turn, if the conversation is idle.

        Returns None, and stores nothing, if it is not idle; call `accept` and `claim` then. The claim has the
        session's entries, if this process remembers them or remembers none. Its `entries` is None if they
        contain pictures or have changed since; call `load` then.
        """
        known = self._views.take(inbound.session_id)
        hold = self._allowance.hold()
        statement = turn_sql.ACCEPT_AND_CLAIM(
            **build_message_arguments(inbound, channel, tokens), worker_id=worker_id,
            micro_per_input_token=micro_per_input_token, micro_output=micro_output, timezone=caps.timezone,
            limits=caps.limits, loan=hold.row, version=known and known.version,
            last_seq=known and known.entries[-1].seq,
        )  # fmt: skip
        try:
            if inbound.receipt is None:
                row = await self._pool.fetchrow(*statement)
            else:
                async with self._pool.acquire() as connection, connection.transaction():
                    row = await _store_with_receipt(connection, inbound, inbound.receipt, statement)
        except asyncpg.SerializationError:
            self._allowance.release_hold(hold)
            raise
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError):
            row = None  # it came twice at once, or `claim` is to tell why its turn cannot be taken
        if row is None:
            self._allowance.release_hold(hold)
            return None
        said = Entry(
            seq=row["seq"], turn=row["turn_no"], step=row["seq"], role="user", author="person",
            blocks=inbound.blocks, tokens=tokens, at=row["opened_at"],
        )  # fmt: skip
        before = known if known is not None and row["is_known"] else None
        rows = await self._read_before(row) if known is None else None
        entries = _with_the_message(said, before, rows)
        times = row["turn_times"] if before is None else before.turn_times
        times = (said.at, *times[: turn_sql.TURN_TIMES - 1])
        claim = _claim_from(row, worker_id, entries, turn_times=times)
        if self._allowance.record_claim(hold, row, anonymous=claim.anonymous):
            claim = replace(claim, near_caps=True)
        accepted = Accepted(
            session_id=inbound.session_id,
            seq=row["seq"],
            turn=row["turn_no"],
            event_seq=row["event_seq"],
            repeated=False,
            at_ms=int(row["opened_at"].timestamp() * 1000),
        )
        return accepted, await self._with_frozen(claim, row)

    async def _read_before(self, row: Record) -> Sequence[Record] | None:
        """Return the entries before the message of a claim; None if they cannot be read.

        The turn is claimed already: `load` then reads them for its answer.
        """
        with suppress(StorageUnavailable):
            return await self._fetch_entries(row["id"], row["base_turn"], row["turn_no"] - 1)
        return None

    @store_method
    async def _fetch_entries(self, session_id: int, base_turn: int, through_turn: int) -> Sequence[Record]:
        return await self._pool.fetch(
            *turn_sql.LOAD(session_id=session_id, base_turn=base_turn, through_turn=through_turn)
        )

    async def _accept_with_receipt(
        self, inbound: Inbound, receipt: MessageReceipt, arguments: Mapping[str, object]
    ) -> Record | None:
        """Store the message and its channel's own rows; return None if neither may be stored."""
        async with self._pool.acquire() as connection, connection.transaction():
            statements = [turn_sql.ACCEPT(**arguments)]
            turn = await receipt.find_joined_turn(connection, inbound)
            if turn is not None:
                statements.insert(0, turn_sql.ACCEPT_LATE(**arguments, turn=turn))
            return await _store_with_receipt(connection, inbound, receipt, *statements)

    async def _find_stored(
        self, inbound: Inbound, receipt: MessageReceipt, *, is_stored: bool
    ) -> Record | None:
        """Return the entry that already contains the message; None if there is none. Raises LeaseLost."""
        async with self._pool.acquire() as connection, connection.transaction():
            seq = await receipt.find_stored(connection, inbound, is_stored=is_stored)
            if seq is None:
                return None
            return await connection.fetchrow(*turn_sql.STORED_AS(session_id=inbound.session_id, seq=seq))

    async def _explain_refusal(self, inbound: Inbound) -> EvertalkError:
        moved = await self._pool.fetchval(
            *turn_sql.GOES_ON_ELSEWHERE(
                session_id=inbound.session_id,
                address_id=inbound.address_id,
            )
        )
        return (SessionMoved if moved else UnknownSession)(f"session {inbound.session_id}")

    @store_method
    async def claim(
        self,
        session_id: int,
        *,
        channel: str,
        worker_id: int,
        caps: Caps,
        micro_per_input_token: float,
        micro_output: float,
    ) -> Claim | None:
        """Claim the session's oldest unanswered turn.

        Returns None if there is none, it is not due yet, a living process has it, it belongs to another
        channel, a human has the conversation, or `worker_id` is not alive itself.
        """
        hold = self._allowance.hold()
        try:
            row = await self._pool.fetchrow(
                *turn_sql.CLAIM(
                    session_id=session_id, worker_id=worker_id, channel=channel,
                    micro_per_input_token=micro_per_input_token, micro_output=micro_output,
                    timezone=caps.timezone, limits=caps.limits, loan=hold.row,
                ),
            )  # fmt: skip
        except asyncpg.SerializationError:
            self._allowance.release_hold(hold)
            raise
        if row is None:
            self._allowance.release_hold(hold)
            return None
        near = self._allowance.record_claim(hold, row, anonymous=row["anonymous"]) or row["is_near"]
        told: Mapping[str, Any] = {**row, "is_near": near}
        if row["head"] is not None and row["head_compaction"] is None:
            # The claim waited for the commit of a compaction: its row is new, but the compaction was not
            # visible yet.
            told = {**told, "head_compaction": await self._load_compaction(row["head"])}
        return await self._with_frozen(_claim_from(told, worker_id), told)

    async def _with_frozen(self, claim: Claim, row: Record | Mapping[str, Any]) -> Claim:
        """Return the claim with its frozen prefix (stored notes and pins), if it has notes or pins.

        The turn is claimed already: if the prefix cannot be read, the request is built without it.
        """
        if not (claim.view.notes or row["has_pins"]):
            return claim
        with suppress(StorageUnavailable):
            frozen = await self._load_frozen(claim.session_id, claim.view.base_turn, row["head"])
            return replace(claim, view=replace(claim.view, frozen=frozen))
        return claim

    @store_method
    async def _load_frozen(self, session_id: int, base_turn: int, head: int | None) -> FrozenPrefix | None:
        return frozen_from_json(
            await self._pool.fetchval(
                *turn_sql.FROZEN(
                    session_id=session_id,
                    base_turn=base_turn,
                    head=head,
                )
            )
        )

    async def _load_compaction(self, compaction_id: int) -> Any:
        return await self._pool.fetchval(*turn_sql.COMPACTION(compaction_id=compaction_id))

    @store_method
    async def load(self, session_id: int, *, base_turn: int, through_turn: int) -> tuple[Entry, ...]:
        """Return the live entries in the order of the context, hidden pins first.

        Former answers that newer ones replace are included. Pictures come with their descriptions.
        """
        rows = await self._fetch_entries(session_id, base_turn, through_turn)
        return await add_descriptions(self._pool, [_entry(*row) for row in rows])

    @store_method
    async def record_tool_calls(
        self,
        claim: Claim,
        *,
        blocks: Sequence[Block],
        tokens: int,
        calls: Sequence[ToolUse],
        spent: Sequence[Spending],
    ) -> int:
        """Store the model's message and its tool calls before any tool runs; return the entry's number.

        Raises LeaseLost.
        """
        statement = turn_sql.TOOL_CALLS(
            **_fence(claim),
            blocks=blocks_to_json(blocks),
            tokens=tokens,
            calls=[{"id": call.id, "name": call.name} for call in calls],
        )
        async with self._pool.acquire() as connection, connection.transaction():
            seq = _refuse_lost_lease(await connection.fetchval(*statement), claim)
            await record_calls(
                connection, spent, session_id=claim.session_id, contact_id=claim.contact_id, turn=claim.turn
            )
        return seq

    @store_method
    async def record_tool_results(
        self,
        claim: Claim,
        *,
        blocks: Sequence[Block],
        tokens: int,
        outcomes: Mapping[str, StepOutcome],
        artifacts: Sequence[Artifact] = (),
    ) -> int:
        """Store the results of tools, and artifacts that the results show in part, in one commit.

        Returns the entry's number. Raises LeaseLost.
        """
        statement = turn_sql.TOOL_RESULTS(
            **_fence(claim),
            blocks=blocks_to_json(blocks),
            tokens=tokens,
            outcomes=[{"id": id_, "status": status} for id_, status in outcomes.items()],
            artifacts=[{"body": one.body, "tokens": one.tokens} for one in artifacts],
        )
        seq = await self._pool.fetchval(*statement)
        return _refuse_lost_lease(seq, claim)

    @store_method
    async def keep_artifacts(self, claim: Claim, artifacts: Sequence[tuple[int, Artifact]]) -> None:
        """Store the whole texts of entries that a request will show in part, as (entry's number, artifact).

        Repeating it has no effect. Raises LeaseLost.
        """
        rows = [{"seq": seq, "body": one.body, "tokens": one.tokens} for seq, one in artifacts]
        statement = turn_sql.KEEP_ARTIFACTS(**_fence(claim), artifacts=rows)
        _refuse_lost_lease(await self._pool.fetchval(*statement), claim)

    @store_method
    async def open_artifact(self, session_id: int, artifact: str) -> str | None:
        """Return the whole text of an artifact; None if this session has no artifact with that id.

        Raises ArtifactNotReadable if `artifact` is not an id.
        """
        body: str | None = await self._pool.fetchval(
            *turn_sql.OPEN_ARTIFACT(session_id=session_id, artifact=digest_prefix(artifact))
        )
        return body

    @store_method
    async def read_message(self, session_id: int, seq: int) -> str | None:
        """Return the text of a person's message and of its files; None if there is no such message."""
        blocks = await self._pool.fetchval(*turn_sql.SAID(session_id=session_id, seq=seq))
        return None if blocks is None else text_of(blocks_from_json(blocks))

    @store_method
    async def record_answer(self, claim: Claim, outcome: Outcome) -> AnswerStored:
        """End the turn: store answer, usage, audit, delivery and due job in one commit. Raises LeaseLost."""
        said, written = (None, None) if outcome.blocks is None else _split_text(outcome.blocks)
        statement = answer_sql.ANSWER(
            **_fence(claim),
            blocks=written,
            words=said,
            tokens=outcome.tokens,
            context_tokens=outcome.context_tokens,
            context_limit=outcome.context_limit,
            context_reserved=outcome.context_reserved,
            token_ratio=outcome.token_ratio,
            token_scale=outcome.token_scale and dict(outcome.token_scale),
            turn_tokens=outcome.turn_tokens,
            measured_by=outcome.measured_by,
            state=outcome.state,
            error_code=outcome.error_code,
            refused_scope=outcome.refused_scope,
            screen=dict(outcome.screen),
            sums=sum_spending(outcome.spent),
            reservation_id=claim.reservation_id,
            settled_micro=outcome.settled_micro,
            release_hold=outcome.release_hold,
            view_epoch=claim.view.view_epoch if outcome.view_epoch is None else outcome.view_epoch,
            first_text_seconds=(
                None if outcome.first_text_at is None else time.monotonic() - outcome.first_text_at
            ),
            **_get_only_call(outcome.spent),
            **_get_audit(outcome.audit, claim.turn),
        )
        job = None
        if len(outcome.spent) > 1 or outcome.prunes or outcome.prompt_parts or outcome.job:
            async with self._pool.acquire() as connection, connection.transaction():
                row = await connection.fetchrow(*statement)
                if row is not None:
                    job = await _record_extras(connection, claim, outcome, row)
        else:
            row = await self._pool.fetchrow(*statement)
        if row is None:
            raise LeaseLost(f"turn {claim.turn} of session {claim.session_id}")
        known = outcome.settled_micro if outcome.state == "answered" else None
        self._allowance.settle(claim.reservation_id, known)
        if (grown := _grown(claim, outcome, row, said, written)) is not None:
            self._views.keep(claim.session_id, grown)
        return build_value(AnswerStored, row, payload=_payload(claim, outcome, row), job=job)

    @store_method
    async def postpone(
        self,
        claim: Claim,
        *,
        seconds: float,
        fault: bool,
        notice: Mapping[str, Any] | None,
        spent: Sequence[Spending] = (),
        settled_micro: int = 0,
        waits_for: str | None = None,
    ) -> tuple[int, Mapping[str, Any]] | None:
        """Postpone a turn by `seconds`; `notice` is shown to the person, once per turn.

        `waits_for` names a provider whose next answer makes the turn due earlier, see `wake_waiting_turns`.
        `spent` are calls that are not booked yet: they are booked in the same transaction, and the
        reservation is settled at `settled_micro` micro-dollars. Returns the number and payload of the
        notice's event, None without a notice. Raises LeaseLost.
        """
        told = None if notice is None else dict(notice)
        async with self._pool.acquire() as connection, connection.transaction():
            postpone = turn_sql.POSTPONE(
                **_fence(claim), seconds=seconds, notice=told, faults=int(fault), waits_for=waits_for
            )
            row = await connection.fetchrow(*postpone)
            if row is None:
                raise LeaseLost(f"turn {claim.turn} of session {claim.session_id}")
            if spent:
                unbooked = await _drop_booked(connection, claim, spent)
                await settle_calls(
                    connection, unbooked, reservation_id=claim.reservation_id, settled_micro=settled_micro,
                    session_id=claim.session_id, contact_id=claim.contact_id, turn=claim.turn,
                )  # fmt: skip
        if spent:
            self._allowance.settle(claim.reservation_id, settled_micro)
        if notice is None:
            return None
        payload = notice_payload(
            event_seq=row["event_seq"], at=row["at"], extra={"turn": claim.turn, **notice}
        )
        return row["event_seq"], payload

    @store_method
    async def can_be_joined(self, session_id: int, *, turn: int) -> bool:
        """Return whether a late part of the person's message can still be added to this turn."""
        return (
            await self._pool.fetchval(
                *turn_sql.CAN_BE_JOINED(
                    session_id=session_id,
                    turn=turn,
                )
            )
            is not None
        )

    @store_method
    async def hold(self, session_id: int, *, turn: int, seconds: float) -> bool:
        """Delay the oldest unanswered turn by `seconds`, so that late parts of its message can arrive.

        Returns False if the turn is claimed or answered.
        """
        return (
            await self._pool.fetchval(
                *turn_sql.HOLD(
                    session_id=session_id,
                    turn=turn,
                    seconds=seconds,
                )
            )
            is not None
        )

    @store_method
    async def wake_waiting_turns(self, providers: Sequence[str]) -> None:
        """Make turns due that wait for one of these providers; at most WOKEN_AT_ONCE, oldest first."""
        await self._pool.execute(*turn_sql.WAKE(providers=list(providers), limit=WOKEN_AT_ONCE))

    @store_method
    async def release_turns(self, session_ids: Collection[int], *, worker_id: int) -> None:
        """Release these sessions' turns that the process `worker_id` has claimed."""
        await self._pool.execute(*turn_sql.LET_GO(session_ids=list(session_ids), worker_id=worker_id))

    @store_method
    async def record_waste(self, claim: Claim, spent: Sequence[Spending]) -> None:
        """Book model calls without a result.

        Does not check the lease, since the calls are paid. The turn's reservation stays: it pays for the next
        calls, too, and the end of the attempt settles it.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await record_calls(
                connection, spent, session_id=claim.session_id, contact_id=claim.contact_id, turn=claim.turn
            )

    @store_method
    async def record_lost(self, claim: Claim, *, model: str, input_tokens: int) -> int:
        """Book an estimate for calls of this turn whose process died; return the number of calls.

        Raises LeaseLost.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            lost = await connection.fetchrow(
                *spend_sql.SETTLE_LOST(
                    **_fence(claim), reservation_id=claim.reservation_id,
                    had_call=claim.after_death and claim.reservation_id is None,
                )
            )  # fmt: skip
            if lost is None:
                raise LeaseLost(f"turn {claim.turn} of session {claim.session_id}")
            call = Spending(
                model=model, input_tokens=input_tokens, known=False, cost_micro=None, aborted=True
            )
            number: int = lost["calls"]
            await record_calls(
                connection, (call,) * number, session_id=claim.session_id, contact_id=lost["contact_id"],
                turn=claim.turn,
            )  # fmt: skip
        return number

    @store_method
    async def record_delegated(
        self,
        session_id: int,
        *,
        contact_id: int,
        turn: int,
        spent: Sequence[Spending],
        purpose: str = "delegate",
    ) -> None:
        """Book model calls that a tool of a turn has made; the tool settles its own reservations."""
        async with self._pool.acquire() as connection, connection.transaction():
            await record_calls(
                connection, spent, session_id=session_id, contact_id=contact_id, turn=turn, purpose=purpose
            )

    @store_method
    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None:
        """End a reservation; `spent_micro` micro-dollars of it were used."""
        await self._pool.execute(
            *spend_sql.RELEASE_RESERVATION(
                reservation_id=reservation_id,
                spent_micro=spent_micro,
            )
        )
        self._allowance.settle(reservation_id)

    @store_method
    async def reserve(
        self, session_id: int, micro: int, *, caps: Caps, turn: int | None = None, job_id: int | None = None
    ) -> int | None:
        """Reserve `micro` micro-dollars before a model call, and return the reservation's id.

        Returns None if no spending cap applies. Raises CapReached.
        """
        row = await self._pool.fetchrow(
            *spend_sql.RESERVE(
                session_id=session_id, micro=micro, timezone=caps.timezone, limits=caps.limits, turn=turn,
                job_id=job_id,
            ),
        )  # fmt: skip
        assert row is not None
        if row["shortages"]:
            raise find_reached_cap(row["shortages"], caps)
        reservation_id: int | None = row["id"]
        return reservation_id

    @store_method
    async def raise_reservation(self, reservation_id: int, micro: int, *, caps: Caps) -> None:
        """Raise a reservation to `micro` micro-dollars in all; a larger one stays as it is.

        Raises CapReached, and leaves the reservation unchanged.
        """
        before = self._allowance.count_held_micro(reservation_id)
        refused = await self._allowance.raise_reservation(reservation_id, micro, caps=caps)
        if refused:
            raise _build_cap_error(refused, caps)
        try:
            await self._raise_row(reservation_id, micro, caps)
        except CapReached:
            self._allowance.lower_reservation(reservation_id, before)
            raise

    @store_method
    async def _raise_row(self, reservation_id: int, micro: int, caps: Caps) -> None:
        row = await self._pool.fetchrow(
            *spend_sql.RAISE_RESERVATION(
                reservation_id=reservation_id,
                micro=micro,
                limits=caps.limits,
            )
        )
        if row is not None and row["shortages"]:
            raise find_reached_cap(row["shortages"], caps, mine_micro=row["mine"])

    @store_method
    async def lower_reservation(self, reservation_id: int, micro: int) -> None:
        """Lower a reservation to `micro` micro-dollars, the cost so far, while the turn waits for money."""
        await self._pool.execute(*spend_sql.LOWER_RESERVATION(reservation_id=reservation_id, micro=micro))
        if self._allowance.count_held_micro(reservation_id) > micro:
            self._allowance.lower_reservation(reservation_id, micro)

    @store_method
    async def mark_may_be_sent(self, reservation_id: int) -> None:
        """Mark a reservation before a model call is sent, so that the call is booked even after a crash."""
        await self._pool.execute(*spend_sql.MARK_MAY_BE_SENT(reservation_id=reservation_id))

    async def renew_allowance(self, *, worker_id: int, caps: Caps, call_micro: int = 0) -> None:
        """Renew the budget slices of this process; call it with each heartbeat. Raises StorageUnavailable."""
        await self._allowance.renew_slices(worker_id=worker_id, caps=caps, call_micro=call_micro)

    async def return_allowance(self) -> None:
        """Return the unspent budget of this process, which must begin no more turns; repeating it has no
        effect.

        Not one transaction: after an error a part is returned, and the rest once the process counts as dead.
        """
        await self._allowance.release_all()

    @store_method
    async def record_spending_warning(
        self, claim: Claim, *, caps: Caps, notice: Mapping[str, Any]
    ) -> SpendingWarning | None:
        """Mark caps that this turn has nearly used up, and return those that were not marked today.

        Returns None if there are none. For a cap of the person or the session, `notice` becomes an event of
        the session.
        """
        row = await self._pool.fetchrow(
            *spend_sql.WARN(
                session_id=claim.session_id, timezone=caps.timezone, limits=caps.limits, turn=claim.turn,
                notice=dict(notice),
            ),
        )  # fmt: skip
        if row is None or not row["scopes"]:
            return None
        scopes = tuple(str(scope).partition(":")[0] for scope in row["scopes"])
        if row["event_seq"] is None:
            return SpendingWarning(scopes=scopes)
        payload = notice_payload(
            event_seq=row["event_seq"], at=row["at"], extra={"turn": claim.turn, **notice}
        )
        return SpendingWarning(scopes=scopes, event_seq=row["event_seq"], payload=payload)

    @store_method
    async def list_unanswered(
        self, channel: str, *, accounts: Sequence[str] | None = None, limit: int = 100
    ) -> list[int]:
        """Return at most `limit` sessions whose next turn is due and not claimed by a living process.

        `accounts` are the channel's bots or sites; None means all of them.
        """
        self._views.evict_old()  # every process asks again and again
        named = None if accounts is None else list(accounts)
        rows = await self._pool.fetch(*turn_sql.UNANSWERED(channel=channel, limit=limit, accounts=named))
        return [row["id"] for row in rows]

    @store_method
    async def request_stop(self, session_id: int) -> bool:
        """Ask the process that answers to stop, and make a waiting turn due, so that it ends.

        Returns False if the session has no unanswered turn, or its next one was never claimed.
        """
        return bool(await self._pool.fetchval(*turn_sql.REQUEST_STOP(session_id=session_id)))

    @store_method
    async def load_held_turns(self, worker_id: int) -> dict[int, bool]:
        """Return, by session leased to this process, whether a stop of its turn was requested."""
        rows = await self._pool.fetch(*turn_sql.HELD(worker_id=worker_id))
        return {row["id"]: row["stop_requested"] for row in rows}

    def clear_view_cache(self) -> None:
        """Clear the remembered views after a promotion of a standby database.

        The new server may use the numbers of lost transactions again, so versions no longer differ.
        """
        self._views = ViewCache()


def build_entry(row: Record) -> Entry:
    """Return the entry of a row of the log; its content may be shortened by a prune decision."""
    return _entry(
        row["seq"], row["turn_no"], row["step"], row["role"], row["author"], row["blocks"], row.get("words"),
        row["tokens"], row["at"], row["replaces_seq"], row["pinned"], row["form"], row["shown"],
    )  # fmt: skip


def _entry(
    seq: int, turn: int, step: int, role: Any, author: Any, blocks: Any, words: str | None, tokens: int,
    at: datetime, replaces: int | None, pinned: bool, form: Any, shown: Any,
) -> Entry:  # fmt: skip
    """Return an entry from the columns of `turn_sql.LOAD`, in their order.

    For a person's message whose turn failed, `form` is the error code.
    """
    is_failed = form in FAILED_FORMS
    entry = Entry(
        seq=seq, turn=turn, step=step, role=role, author=author,
        blocks=blocks_from_json(blocks) if words is None else (Text(text=words),),
        tokens=tokens, at=at, replaces=replaces, pinned=pinned, pruned=None if is_failed else form,
        pruned_as=shown,
    )  # fmt: skip
    return show_failed(entry, form) if is_failed else entry


def build_message_arguments(inbound: Inbound, channel: str, tokens: int) -> dict[str, Any]:
    """Return the parameters with which statements store a person's message."""
    extra: dict[str, Any] = {"cid": inbound.cid} if inbound.cid else {}
    if inbound.attached:
        extra["attachments"] = [one.to_payload() for one in inbound.attached]
    said, written = _split_text(inbound.blocks)
    return {
        "session_id": inbound.session_id,
        "dedupe_key": inbound.dedupe_key,
        "channel": channel,
        "address_id": inbound.address_id,
        "blocks": written,
        "words": said,
        "tokens": tokens,
        "cid": inbound.cid if inbound.dedupe_key != f"web:{inbound.cid}" else None,
        "payload": extra,
    }


def _split_text(blocks: Sequence[Block]) -> tuple[str | None, list[dict[str, Any]] | None]:
    """Return blocks in the form of a row: (text, None) for a plain text, else (None, JSON)."""
    match blocks:
        case [Text(text=text) as said] if said == Text(text=text):
            return text, None
    return None, blocks_to_json(blocks)


async def add_descriptions(
    connection: asyncpg.Pool[Record] | PoolConnectionProxy[Record], entries: Sequence[Entry]
) -> tuple[Entry, ...]:
    """Return the entries with the descriptions of their pictures; without pictures nothing is queried."""
    wanted = [block.attachment_id for entry in entries for block in entry.blocks if isinstance(block, Image)]
    if not wanted:
        return tuple(entries)
    rows = await connection.fetch(*_DESCRIPTIONS(ids=wanted))
    told = {row["id"]: row["description"] for row in rows}

    def with_words(block: Block) -> Block:
        if not isinstance(block, Image):
            return block
        return replace(block, description=told.get(block.attachment_id, ""))

    return tuple(replace(entry, blocks=tuple(map(with_words, entry.blocks))) for entry in entries)


def build_view(
    row: Record | Mapping[str, Any], entries: Sequence[Entry] = (), *, open_turn: int | None
) -> View:
    """Build a view from a session's row, which has `head_compaction`, `notes` and perhaps `frozen`."""
    base = row["base_turn"]
    return View(
        session_id=row["id"],
        base_turn=base,
        flushed_turn=row["flushed_turn"],
        view_epoch=row["view_epoch"],
        cycle=row["cycle"],
        head=compaction_from_json(row["head_compaction"]),
        entries=tuple(entry for entry in entries if entry.turn > base),
        pins=tuple(entry for entry in entries if entry.turn <= base),
        notes=notes_from_json(row["notes"]),
        frozen=frozen_from_json(row.get("frozen")),
        context_tokens=row["context_tokens"],
        open_turn=open_turn,
        hold_compaction=row["hold_compaction"],
        flush_thresholds=frozenset(row["thresholds"] or ()),
        backoff=backoff_from_json(row["compaction_backoff"]),
    )


def config_of(row: Record | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the agent's configuration as it applies in this conversation.

    The person's choices replace the agent's, and tools that cannot work here are left out.
    """
    config = with_chosen_model(row["agent_config"], row["model"])
    config = with_chosen_compaction(config, row["compaction"], row["compact_at"])
    useless = {"ask_human": row["nobody_comes"], LOOK_AT_PICTURE.name: row["no_pictures"]}
    if row["is_guest"]:
        config = for_guests(config)
    return reduce(without_tool, [name for name in useless if useless[name]], config)


def _with_the_message(
    said: Entry, known: CachedView | None, rows: Sequence[Record] | None
) -> tuple[Entry, ...] | None:
    """Return the entries of a claim with its new message; None if they must be loaded.

    Those before it are of the cached view, or of `rows`, which were read with the claim. Neither is given if
    the cached view has changed.
    """
    unseen: tuple[Entry, ...]
    if known is not None:
        before, unseen = known.entries, (said,)
    elif rows is not None:
        before = tuple(_entry(*row) for row in rows)
        unseen = (*before, said)
    else:
        return None
    if any(isinstance(block, Image) for entry in unseen for block in entry.blocks):
        return None  # what they show is looked up by `load`
    return (*before, said)


def _grown(claim: Claim, outcome: Outcome, row: Record, words: str | None, blocks: Any) -> CachedView | None:
    """Return the cached view with the new answer; None if anything else changed the session since the claim.

    Each new entry takes a number, and any other change of the view raises its epoch.
    """
    if claim.entries is None or outcome.blocks is None or outcome.state != "answered" or outcome.prunes:
        return None
    said, seq, view_epoch = claim.entries[-1], row["seq"], outcome.view_epoch
    if seq != said.seq + 1 or row["view_moved"] or view_epoch not in (None, claim.view.view_epoch):
        return None
    if "replaces" in outcome.screen:
        return None
    answer = _entry(
        seq, claim.turn, seq, "assistant", "assistant", blocks, words, outcome.tokens, row["at"], None, False,
        None, None,
    )  # fmt: skip
    return CachedView(version=row["version"], entries=(*claim.entries, answer), turn_times=claim.turn_times)


def _claim_from(
    row: Record | Mapping[str, Any],
    worker_id: int,
    entries: tuple[Entry, ...] | None = None,
    *,
    turn_times: tuple[datetime, ...] | None = None,
) -> Claim:
    return build_value(
        Claim,
        row,
        session_id=row["id"],
        turn=row["turn_no"],
        epoch=row["turn_epoch"],
        worker_id=worker_id,
        agent=row["agent_name"],
        agent_config=config_of(row),
        turn_times=tuple(row["turn_times"]) if turn_times is None else turn_times,
        process_faults=row["process_faults"],
        near_caps=row["is_near"],
        view=build_view(row, open_turn=row["turn_no"]),
        entries=entries,
    )


def find_reached_cap(rows: Sequence[Mapping[str, Any]], caps: Caps, *, mine_micro: int = 0) -> CapReached:
    """Return the error for the reached caps; the cap with the least room comes first.

    `mine_micro` is the amount that the caller has reserved already.
    """
    shortages = [
        Shortage(
            scope=row["scope"].partition(":")[0],
            cap_micro=row["cap"],
            spent_micro=row["spent"],
            held_micro=max(0, row["held"] - mine_micro),
        )
        for row in rows
    ]
    return _build_cap_error(shortages, caps)


def _build_cap_error(shortages: Sequence[Shortage], caps: Caps) -> CapReached:
    ordered = sorted(shortages, key=lambda one: (one.once_settled_micro, one.left_micro, one.scope))
    return cap_reached(ordered[0].scope, timezone=caps.timezone, shortages=ordered)


async def _store_with_receipt(
    connection: Connection,
    inbound: Inbound,
    receipt: MessageReceipt,
    *statements: tuple[str, *tuple[object, ...]],
) -> Record | None:
    """Run the first statement that stores the message, between the lock and the rows of its receipt.

    Returns its row; None if the receipt or every statement refuses.
    """
    if not await receipt.lock(connection):
        return None
    for statement in statements:
        row = await connection.fetchrow(*statement)
        if row is not None:
            await receipt.record(
                connection, session_id=inbound.session_id, seq=row["seq"], turn=row["turn_no"]
            )
            return row
    return None


async def record_calls(
    connection: Connection,
    spent: Sequence[Spending],
    *,
    session_id: int,
    contact_id: int | None,
    turn: int | None = None,
    job_id: int | None = None,
    purpose: str = "chat",
) -> None:
    """Insert model calls into the ledger and add them to the sums of their session, in this transaction.

    Without `contact_id` they are the session's contact's.
    """
    if spent:
        await _insert_calls(
            connection, spent, session_id=session_id, contact_id=contact_id, turn=turn, job_id=job_id,
            purpose=purpose,
        )  # fmt: skip
        await connection.execute(*spend_sql.ADD_TOTALS(session_id=session_id, sums=sum_spending(spent)))


async def _insert_calls(connection: Connection, spent: Sequence[Spending], **place: object) -> None:
    await connection.execute(*spend_sql.RECORD_CALLS(usage=build_usage_rows(spent), **place))


async def _drop_booked(connection: Connection, claim: Claim, spent: Sequence[Spending]) -> Sequence[Spending]:
    """Return the calls without those that a commit of the same attempt has booked, whose reply was lost."""
    ids = [call.request_id for call in spent if call.request_id]
    if not ids:
        return spent
    booked = await connection.fetchval(
        *spend_sql.LIST_BOOKED(session_id=claim.session_id, turn=claim.turn, request_ids=ids)
    )
    return [call for call in spent if call.request_id not in booked]


async def settle_calls(
    connection: Connection,
    spent: Sequence[Spending],
    *,
    reservation_id: int | None,
    settled_micro: int,
    **place: Any,
) -> None:
    """Record calls as `record_calls` does, and settle their reservation, in this transaction."""
    await record_calls(connection, spent, **place)
    if reservation_id is not None:
        await connection.execute(
            *spend_sql.SETTLE_RESERVATION(reservation_id=reservation_id, settled_micro=settled_micro)
        )


async def _record_extras(
    connection: Connection, claim: Claim, outcome: Outcome, row: Record
) -> DueJob | None:
    """Store what a turn's end has beyond `ANSWER`, in its transaction; return its job if that is due.

    A job is not stored if the view has moved, since the old view called for it.
    """
    if len(outcome.spent) > 1:
        await _insert_calls(
            connection, outcome.spent, session_id=claim.session_id, contact_id=row["contact_id"],
            turn=claim.turn, job_id=None, purpose="chat",
        )  # fmt: skip
    if outcome.prunes:
        prunes = [{"seq": one.seq, "form": one.form, "shown": one.shown} for one in outcome.prunes]
        await connection.execute(
            *answer_sql.KEEP_PRUNES(session_id=claim.session_id, turn=claim.turn, prunes=prunes)
        )
    if outcome.prompt_parts:
        parts = [{"sha256": key, "body": body} for key, body in outcome.prompt_parts.items()]
        await connection.execute(*answer_sql.KEEP_PARTS(parts=parts))
    if outcome.job is None or row["view_moved"]:
        return None
    asked = await connection.fetchrow(
        *answer_sql.REQUEST_JOB(session_id=claim.session_id, **asdict(outcome.job))
    )
    if asked is None or not asked["is_due"]:
        return None
    return DueJob(id=asked["id"], kind=outcome.job.kind)


def _fence(claim: Claim) -> dict[str, int]:
    return {
        "session_id": claim.session_id,
        "epoch": claim.epoch,
        "worker_id": claim.worker_id,
        "turn": claim.turn,
    }


def _refuse_lost_lease(seq: int | None, claim: Claim) -> int:
    if seq is None:
        raise LeaseLost(f"turn {claim.turn} of session {claim.session_id}")
    return seq


def build_usage_rows(spent: Sequence[Spending]) -> list[dict[str, Any]]:
    """Return model calls as rows of the ledger."""
    return [dict(zip(USAGE, _usage_values(call), strict=True)) for call in spent]


def _usage_values(call: Spending) -> tuple[Any, ...]:
    """Return the values of a model call in the order of USAGE."""
    return (
        "aborted" if call.aborted else "done", call.model, call.input_tokens, call.output_tokens,
        call.cache_read_tokens, call.cache_write_tokens, call.known, call.cost_micro, call.request_id,
    )  # fmt: skip


def sum_spending(spent: Sequence[Spending]) -> list[int]:
    """Return sums of tokens (input, output, cached, cache-written), micro-dollars and unpriced calls."""
    return [
        sum(call.input_tokens for call in spent),
        sum(call.output_tokens for call in spent),
        sum(call.cache_read_tokens for call in spent),
        sum(call.cache_write_tokens for call in spent),
        sum(call.cost_micro or 0 for call in spent),
        sum(call.cost_micro is None for call in spent),
    ]


_CALL_PARAMETERS = tuple(f"call_{name}" for name in USAGE)
_AUDIT_PARAMETERS = tuple(f"audit_{name}" for name in (*AUDIT_NUMBERS, *AUDIT_SHORT))


def _get_only_call(spent: Sequence[Spending]) -> dict[str, Any]:
    """Return the parameters of `ANSWER` for its call; nulls if there is none or more than one."""
    if len(spent) != 1:
        return dict.fromkeys(_CALL_PARAMETERS)
    return dict(zip(_CALL_PARAMETERS, _usage_values(spent[0]), strict=True))


def _get_audit(audit: ContextAudit | None, turn: int) -> dict[str, Any]:
    """Return the parameters of `ANSWER` for its audit; nulls without one."""
    if audit is None:
        return dict.fromkeys(_AUDIT_PARAMETERS)
    return dict(zip(_AUDIT_PARAMETERS, _audit_values(audit, turn), strict=True))


_audit_numbers: Callable[[ContextAudit], tuple[Any, ...]] = attrgetter(*AUDIT_NUMBERS)
_PARTS = ("system", "memory", "summary", "history", "tools")


def _audit_values(audit: ContextAudit, turn: int) -> tuple[Any, ...]:
    """Return the values of an audit in the order of AUDIT_NUMBERS and AUDIT_SHORT.

    Parts of the recipe that the view `turn_context_audit` can compute are left out.
    """
    known = {"open": turn, "system": 1, "tools": True, "seqs": [[audit.entry_from, audit.entry_through]]}
    rest = {name: value for name, value in audit.recipe.items() if name not in known or value != known[name]}
    plan = json.dumps(rest, ensure_ascii=False, separators=(",", ":")) if audit.recipe else None
    return (
        *_audit_numbers(audit), list(audit.prune_seqs) or None, "".join(audit.part_hashes) or None, plan,
        *(audit.parts.get(name) for name in _PARTS),
    )  # fmt: skip


def _payload(claim: Claim, outcome: Outcome, row: Record) -> dict[str, Any]:
    if outcome.blocks is None:
        extra = {"turn": claim.turn, **outcome.screen}
        return notice_payload(event_seq=row["event_seq"], at=row["at"], extra=extra)
    return message_payload(
        seq=row["seq"],
        turn=claim.turn,
        author="assistant",
        blocks=outcome.blocks,
        at=row["at"],
        extra=outcome.screen,
    )


_DESCRIPTIONS = Named("SELECT id, description FROM attachments WHERE id = ANY (:ids)")
