"""Leases: tasks that one process at a time performs, such as polling a bot, while its heartbeats arrive."""

from __future__ import annotations

from shared.adapters.postgres.db.pool import PoolStore, store_method

LEASE_SECONDS = 4
"""Seconds after the last heartbeat of a process at which its leases expire; it sends one each second.

The database's function `worker_is_alive` has the same number.
"""

_TAKE = """
INSERT INTO leases AS l (name, leased_by, epoch) VALUES ($1, $2, 1)
ON CONFLICT (name) DO UPDATE
   SET leased_by = $2, epoch = l.epoch + (l.leased_by IS DISTINCT FROM $2)::int,
       taken_at = CASE WHEN l.leased_by = $2 THEN l.taken_at ELSE now() END
 WHERE l.leased_by = $2 OR NOT EXISTS (
         SELECT FROM workers w WHERE w.id = l.leased_by AND worker_is_alive(w))
RETURNING epoch
"""


class PostgresLeases(PoolStore):
    """Store of leases; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def take(self, name: str, *, worker_id: int) -> int | None:
        """Take a free lease or keep one's own; return its epoch, or None if another living process has it.

        A lease is free if it is new, was released, or its process has died. `worker_id` is the caller's
        registration. The epoch rises with each new holder.
        """
        epoch: int | None = await self._pool.fetchval(_TAKE, name, worker_id)
        return epoch

    @store_method
    async def release(self, name: str, *, worker_id: int) -> None:
        """Release the lease that this process holds; no effect if another process has it.

        The next process takes it at once.
        """
        await self._pool.execute(
            "UPDATE leases SET leased_by = NULL WHERE name = $1 AND leased_by = $2", name, worker_id
        )
