"""Store of alerts: opened and ended by the current state of the database, and sent once to each target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.adapters.postgres.dashboard import alerts_sql as sql
from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.core.ops.alerts import (
    EXPIRES_HOURS,
    MOST_TRIES,
    Alert,
    AlertOutcomeUnknown,
    AlertRefused,
    NotSent,
    Outage,
    Outcome,
    Sending,
    Sent,
    check_detail,
    wait_seconds,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Limits from which a state becomes an alert; `cap_micro` is in micro-dollars, None without a cap.

    `worker_seconds` is the time without a heartbeat of any worker, and `handover_seconds` the time that a
    hand-over waits; 0 disables alerts of hand-overs. `timezone` decides when a day of spending begins.
    """

    timezone: str = "UTC"
    cap_micro: int | None = None
    handover_seconds: float = 0.0
    worker_seconds: int = 30
    over_seconds: float = 60.0
    """Seconds for which a problem must be absent before its alert ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """Numbers of alerts that a sweep opened and ended."""

    opened: int
    ended: int


class PostgresAlerts(PoolStore):
    """Store of alerts; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def sweep(self, rules: Rules, *, worker_id: int, targets: Sequence[str]) -> SweepOutcome | None:
        """Open and end alerts by the current state; return None while another process does so.

        Stores messages about opened alerts to `targets`, and about ended ones to those notified of the
        opening; `claim` gets them. Sends of dead processes end, and due messages to other targets fail.
        `worker_id` is this process. Repeating it changes nothing.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(sql.LOCK):
                return None
            await connection.execute(sql.END_INTERRUPTED_SENDS)
            sweep = sql.SWEEP(**dataclasses.asdict(rules), worker_id=worker_id, targets=list(targets))
            row = await connection.fetchrow(*sweep)
            await connection.execute(*sql.GIVE_UP(targets=list(targets), hours=EXPIRES_HOURS))
        assert row is not None
        return SweepOutcome(opened=row["opened"], ended=row["ended"])

    @store_method
    async def claim(self, targets: Sequence[str], *, worker_id: int) -> Sending | None:
        """Claim and return the next due message to one of these targets; None if none is due.

        The caller sends it and calls `record_outcome`. The end of an alert is not due before its beginning
        was sent.
        """
        row = await self._pool.fetchrow(*sql.CLAIM(targets=list(targets), worker_id=worker_id))
        if row is None:
            return None
        alert = build_value(Alert, row, detail=check_detail(row["kind"], row["detail"]))
        return build_value(Sending, row, send_id=row["id"], alert=alert)

    @store_method
    async def record_outcome(self, sending: Sending, outcome: Outcome, *, worker_id: int) -> bool:
        """Store the outcome of a send; return False, without effect, if this process no longer has the claim.

        A send that surely did not arrive is due again after a growing delay, up to MOST_TRIES attempts.
        """
        ours = {"send_id": sending.send_id, "worker_id": worker_id}
        if isinstance(outcome, NotSent) and sending.attempt < MOST_TRIES:
            seconds = max(wait_seconds(sending.attempt), min(outcome.retry_after or 0.0, 3600.0))
            change = sql.RETRY_SEND(**ours, code=outcome.code, seconds=seconds)
        else:
            state, code = _describe_outcome(outcome)
            change = sql.END_SEND(**ours, state=state, code=code)
        return await self._pool.fetchval(*change) is not None

    @store_method
    async def send_test(self, targets: Sequence[str], *, by: str) -> UUID:
        """Store a test alert, already ended, with a due message to every target; return its public id.

        The audit log has `by` as its actor.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            made: UUID = await connection.fetchval(*sql.ADD_TEST_ALERT(targets=list(targets), by=by))
            detail = {"targets": len(targets)}
            await append_audit(
                connection, actor=by, action="alert.test", about=f"alert:{made}", detail=detail
            )
        return made

    @store_method
    async def count_older_processes(self, worker_id: int) -> int:
        """Return how many living processes of this one's role registered before it."""
        return int(await self._pool.fetchval(*sql.OLDER_PROCESSES(worker_id=worker_id)))

    @store_method
    async def record_outage(self, outage: Outage, results: Mapping[str, Outcome | None]) -> None:
        """Store an outage of the database that has ended, with the outcome of its message per target.

        An outcome of None means that it is unknown. A message about the end is then due to each target that
        may know of the beginning. Repeating it changes nothing.
        """
        described = [_describe_result(result) for result in results.values()]
        await self._pool.execute(
            *sql.ADD_OUTAGE(
                public_id=outage.public_id, detail=dict(outage.detail), opened_at=outage.opened_at,
                targets=list(results), keys=[outage.build_key(target) for target in results],
                states=[state for state, _ in described], errors=[code for _, code in described],
            )
        )  # fmt: skip

    @store_method
    async def has_sender(self) -> bool:
        """Return whether a web or bot process is alive; these send alerts."""
        return bool(await self._pool.fetchval(sql.HAS_SENDER))

    @store_method
    async def mark_seen(self, public_id: UUID, *, by: str) -> bool | None:
        """Mark an alert as seen; return whether that changed it, or None if there is no such alert."""
        row = await self._pool.fetchrow(
            *_MARK_SEEN(public_id=public_id, by=by),
        )
        return row["changed"] if row is not None else None

    @store_method
    async def list_results(self, public_id: UUID) -> list[tuple[str, str, str]]:
        """Return (target, state, failure code) of the messages about an alert's beginning.

        The code is "" without a failure.
        """
        rows = await self._pool.fetch(
            *_RESULTS(public_id=public_id),
        )
        return [(row["target"], row["state"], row["error"]) for row in rows]


def _describe_result(result: Outcome | None) -> tuple[str, str]:
    return ("uncertain", "cut_off") if result is None else _describe_outcome(result)


def _describe_outcome(outcome: Outcome) -> tuple[str, str]:
    """Return the state that an outcome leads to, and its failure code, "" for a success."""
    match outcome:
        case Sent():
            return "sent", ""
        case AlertOutcomeUnknown(code=code):
            return "uncertain", code
        case NotSent(code=code) | AlertRefused(code=code):
            return "failed", code


_MARK_SEEN = Named("""
WITH a AS (SELECT id, seen_at FROM alerts WHERE public_id = :public_id FOR UPDATE), u AS (
  UPDATE alerts SET seen_at = now(), seen_by = :by FROM a
   WHERE alerts.id = a.id AND a.seen_at IS NULL RETURNING 1)
SELECT EXISTS (SELECT FROM u) AS changed FROM a
""")
_RESULTS = Named("""
SELECT s.target, s.state, s.error FROM alert_sends s JOIN alerts a ON a.id = s.alert_id
 WHERE a.public_id = :public_id AND s.phase = 'opened' ORDER BY s.id
""")
