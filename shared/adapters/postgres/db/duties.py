"""Schedule of duties, the worker's periodic tasks: when each is due, and which worker performs it."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method

# Commits of claims and ends do not wait for the disk: a claim lost in a crash is simply made again.
# One worker performs a duty at a time, and once in each period: the claim sets the next time. Times lie on
# whole periods, as those of arq's cron jobs. A worker that claims a duty it already holds has lost track of
# it.
_CLAIM = Named("""
INSERT INTO duties AS d (name, seconds, due_at, leased_by, epoch, started_at)
VALUES (:name, :seconds::int,
        to_timestamp((floor(extract(epoch FROM now()) / :seconds::int) + 1) * :seconds::int),
        :worker_id, 1, now())
ON CONFLICT (name) DO UPDATE
   SET seconds = excluded.seconds, due_at = excluded.due_at, leased_by = excluded.leased_by,
       epoch = d.epoch + 1, started_at = now()
 WHERE (d.due_at <= now() OR d.leased_by IS NOT NULL OR d.due_at > excluded.due_at)
   AND (d.leased_by IS NULL OR d.leased_by = excluded.leased_by OR NOT EXISTS (
        SELECT FROM workers w WHERE w.id = d.leased_by AND worker_is_alive(w)))
RETURNING epoch, set_config('synchronous_commit', 'off', true)
""")
"""Claim a due duty for one worker in each period.

The epoch invalidates the claim of one that took too long.
"""
_END = Named("""
UPDATE duties
   SET leased_by = NULL, duration_ms = :duration_ms, runs = runs + 1,
       failed_runs = failed_runs + (:error::text <> '')::int,
       failures = CASE WHEN :error::text = '' THEN 0 ELSE failures + 1 END,
       succeeded_at = CASE WHEN :error::text = '' THEN now() ELSE succeeded_at END,
       last_error = left(:error::text, 500), due_at = CASE WHEN :more::boolean THEN now() ELSE due_at END
 WHERE name = :name AND epoch = :epoch
RETURNING set_config('synchronous_commit', 'off', true)
""")
"""Record the end of a run whose claim is still valid; `more` makes the duty due at once."""
# After a clock was set back, due times may be too far away: none is further than a period.
_OVERDUE = Named("""
SELECT n.name FROM unnest(:names::text[]) AS n(name) LEFT JOIN duties d ON d.name = n.name
 WHERE d.name IS NULL
    OR d.leased_by IS NULL
       AND (d.due_at <= now() - make_interval(secs => :patience::float8)
            OR d.due_at > now() + make_interval(secs => d.seconds))
    OR d.leased_by IS NOT NULL AND NOT EXISTS (
       SELECT FROM workers w WHERE w.id = d.leased_by AND worker_is_alive(w))
""")
"""Select names of duties that no living worker performs in time, or that are not stored yet."""


class PostgresDuties(PoolStore):
    """Store of the schedule; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def claim(self, name: str, *, seconds: int, worker_id: int) -> int | None:
        """Claim a duty, if it is due, for this worker; return the claim's epoch, else None.

        A duty is also claimed early if the worker that performs it has died, or is this worker itself. Of
        several workers one gets the claim. `seconds` is the duty's period: the claim sets the next due time
        to the next multiple of it.
        """
        claim = _CLAIM(name=name, seconds=seconds, worker_id=worker_id)
        epoch: int | None = await self._pool.fetchval(*claim)
        return epoch

    @store_method
    async def end(
        self, name: str, *, epoch: int, duration_ms: int, error: str = "", more: bool = False
    ) -> None:
        """Record how the run with this epoch ended; no effect if the duty was claimed again since.

        `error` is "" after a success; at most 500 characters of it are stored. `more` makes the duty due at
        once instead of at the next multiple of its period.
        """
        await self._pool.execute(
            *_END(name=name, epoch=epoch, duration_ms=duration_ms, error=error, more=more)
        )

    @store_method
    async def list_overdue(self, names: list[str], *, patience_seconds: float) -> list[str]:
        """Return those of `names` that no living worker performs in time.

        A duty is listed if it is overdue by `patience_seconds`, is not stored yet, or was claimed by a worker
        that has died. After a clock was set back, one that is due further ahead than a period is listed as
        well.
        """
        rows = await self._pool.fetch(*_OVERDUE(names=names, patience=patience_seconds))
        return [row["name"] for row in rows]
