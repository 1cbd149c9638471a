"""Store of browsers' push subscriptions, the notices that are due to them, and the signing key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.adapters.encryption import Sealed
from shared.adapters.postgres.db.pool import Named, Pool, PoolStore, store_method
from shared.core.identity.push import PushNotice, PushTarget

BROWSERS_AT_MOST = 10
"""Maximum browsers of one person or operator; the newest stay."""
MOST_FAILURES = 10
"""Consecutive failures after which a browser's subscription is deleted."""
PATIENCE_SECONDS = 8
"""Seconds after which an unseen message leads to a notice; until then a process may report an open page."""
MOST_CONVERSATIONS = 3
"""Maximum conversations of which one operator's browser is notified at once; the newest are chosen."""


class PostgresPush(PoolStore):
    """Store of push subscriptions; each method writes in one transaction. Raises StorageUnavailable."""

    def __init__(self, pool: Pool, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        super().__init__(pool)
        self._patience_seconds = patience_seconds

    @store_method
    async def load_key(self) -> tuple[str, Sealed] | None:
        """Return the public key and the sealed key pair that sign notices; None before `keep_key`."""
        row = await self._pool.fetchrow("SELECT public_key, key_id, sealed FROM push_keys")
        return None if row is None else (row["public_key"], Sealed(key_id=row["key_id"], data=row["sealed"]))

    @store_method
    async def keep_key(self, public_key: str, sealed: Sealed) -> tuple[str, Sealed]:
        """Store the signing key unless another process has stored one first; return the stored key."""
        row = await self._pool.fetchrow(
            *_KEEP_KEY(
                public_key=public_key,
                key_id=sealed.key_id,
                data=sealed.data,
            )
        )
        assert row is not None
        return row["public_key"], Sealed(key_id=row["key_id"], data=row["sealed"])

    @store_method
    async def subscribe_operator(
        self, target: PushTarget, *, operator_id: int, login_hash: bytes
    ) -> bool | None:
        """Subscribe an operator's browser; the newest 10 browsers of the operator stay subscribed.

        Returns True if the browser is new, False if its subscription was renewed, and None if the login
        `login_hash` has ended or the operator is disabled. A browser has one subscription: that of another
        owner is replaced.
        """
        return await self._subscribe(target, operator_id=operator_id, login_hash=login_hash)

    @store_method
    async def subscribe_visitor(
        self, target: PushTarget, *, visitor_hash: bytes, renews: bool = False
    ) -> bool | None:
        """Subscribe a visitor's browser; the newest 10 browsers of the visitor stay subscribed.

        Returns True if the browser is new, False if its subscription was renewed, and None if the visitor's
        token has expired. With `renews`, also None if the visitor has no subscription left, as after deleting
        their data.
        """
        return await self._subscribe(target, visitor_hash=visitor_hash, renews=renews)

    async def _subscribe(
        self,
        target: PushTarget,
        *,
        operator_id: int | None = None,
        login_hash: bytes | None = None,
        visitor_hash: bytes | None = None,
        renews: bool = False,
    ) -> bool | None:
        browser = {"endpoint": target.endpoint, "p256dh": target.p256dh, "auth": target.auth}
        whose = {"operator_id": operator_id, "login_hash": login_hash, "visitor_hash": visitor_hash}
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_ONE_AT_A_TIME)
            added: bool | None = await connection.fetchval(
                *_ADD(**browser, **whose, language=target.language, renews=renews)
            )
            await connection.execute(
                *_FORGET_OLDEST(
                    operator_id=operator_id,
                    visitor_hash=visitor_hash,
                    most=BROWSERS_AT_MOST,
                )
            )
        return added

    @store_method
    async def unsubscribe(
        self, endpoint: str, *, operator_id: int | None = None, visitor_hash: bytes | None = None
    ) -> None:
        """Delete a browser's subscription if it belongs to this operator or visitor; no effect otherwise.

        The caller passes one of the two; None matches no owner.
        """
        await self._pool.execute(
            *_REMOVE(
                endpoint=endpoint,
                operator_id=operator_id,
                visitor_hash=visitor_hash,
            )
        )

    @store_method
    async def find_operator_target(self, endpoint: str, *, operator_id: int) -> PushTarget | None:
        """Return the subscription that this operator has in the browser `endpoint`; None if there is none."""
        row = await self._pool.fetchrow(*_FIND(endpoint=endpoint, operator_id=operator_id))
        return None if row is None else PushTarget(**dict(row))

    @store_method
    async def claim(
        self, *, operators: Sequence[int], addresses: Sequence[int], at_work: bool
    ) -> list[PushNotice]:
        """Record who has a page open in this process, and claim the notices for those who have none anywhere.

        `operators` and `addresses` are ids of those with an open page. A claimed notice counts as sent, so a
        browser gets each at most once; the caller sends it. `at_work` is False outside of working hours, when
        operators get none.
        """
        if not await self._pool.fetchval(_ANY):
            return []
        rows: list[Any] = []
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_ONE_AT_A_TIME)
            if operators or addresses:
                await connection.execute(
                    *_PRESENT(
                        operators=list(operators),
                        addresses=list(addresses),
                        patience_seconds=self._patience_seconds,
                    )
                )
            for statement in (_FOR_VISITORS, _FOR_OPERATORS)[: 1 + at_work]:
                rows += await connection.fetch(*statement(patience_seconds=self._patience_seconds))
        return [_notice(dict(row)) for row in rows]

    @store_method
    async def record_outcome(self, target_id: int, *, delivered: bool, gone: bool = False) -> None:
        """Record whether a notice reached the push service; a success sets the count of failures to 0.

        A subscription that is `gone` or failed MOST_FAILURES times in a row is deleted.
        """
        if delivered:
            await self._pool.execute(*_DELIVERED(target_id=target_id))
        else:
            await self._pool.execute(
                *_FAILED(
                    target_id=target_id,
                    gone=gone,
                    most_failures=MOST_FAILURES - 1,
                )
            )


def _notice(row: dict[str, Any]) -> PushNotice:
    browser = {name: row.pop(name) for name in ("id", "endpoint", "p256dh", "auth", "language")}
    return PushNotice(target=PushTarget(**browser), **row)


_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('evertalk.push'))"
_ANY = "SELECT EXISTS (SELECT FROM push_subscriptions)"
_KEEP_KEY = Named("""
INSERT INTO push_keys (public_key, key_id, sealed) VALUES (:public_key, :key_id, :data)
ON CONFLICT (id) DO UPDATE SET id = push_keys.id RETURNING public_key, key_id, sealed
""")
_ADD = Named("""
WITH owner AS (
  SELECT FROM operator_sessions s JOIN operators o ON o.id = s.operator_id AND o.disabled_at IS NULL
   WHERE s.token_hash = :login_hash::bytea AND s.operator_id = :operator_id::bigint AND s.expires_at > now()
     FOR KEY SHARE OF s
), visitor AS (
  SELECT FROM visitors WHERE token_hash = :visitor_hash::bytea AND expires_at > now() FOR KEY SHARE
)
INSERT INTO push_subscriptions AS p (endpoint, p256dh, auth, operator_id, login_hash, visitor_hash, language)
SELECT :endpoint, :p256dh, :auth, :operator_id, :login_hash, :visitor_hash, :language
 WHERE EXISTS (SELECT FROM owner) OR EXISTS (SELECT FROM visitor) AND (NOT :renews::boolean
    OR EXISTS (SELECT FROM push_subscriptions WHERE visitor_hash = :visitor_hash))
ON CONFLICT (endpoint) DO UPDATE SET
  p256dh = excluded.p256dh, auth = excluded.auth, operator_id = excluded.operator_id,
  login_hash = excluded.login_hash, visitor_hash = excluded.visitor_hash, language = excluded.language,
  renewed_at = now(), here_at = now(), failures = 0
RETURNING xmax = 0
""")
"""Store the subscription of a browser whose owner is signed in.

The owner's row is locked until the commit.
"""
_FORGET_OLDEST = Named("""
DELETE FROM push_subscriptions WHERE id IN (
  SELECT id FROM push_subscriptions WHERE operator_id = :operator_id OR visitor_hash IN (
    SELECT v.token_hash FROM visitors mine JOIN addresses home ON home.id = mine.address_id
      JOIN addresses a ON (a.channel, a.account, a.chat) = (home.channel, home.account, home.chat)
      JOIN visitors v ON v.address_id = a.id WHERE mine.token_hash = :visitor_hash)
   ORDER BY renewed_at DESC, id DESC OFFSET :most)
""")
"""Delete all but the newest `most` subscriptions of an operator, or of a visitor at all their tokens."""
_REMOVE = Named("""
DELETE FROM push_subscriptions WHERE endpoint = :endpoint
   AND (operator_id = :operator_id OR visitor_hash = :visitor_hash)
""")
_FIND = Named("""
SELECT id, endpoint, p256dh, auth, language FROM push_subscriptions WHERE endpoint = :endpoint
   AND operator_id = :operator_id
""")
_PRESENT = Named("""
UPDATE push_subscriptions SET here_at = now()
 WHERE here_at < now() - make_interval(secs => :patience_seconds / 2)
   AND (operator_id = ANY (:operators) OR id IN (
  SELECT p.id FROM push_subscriptions p JOIN visitors v ON v.token_hash = p.visitor_hash
    JOIN addresses a ON a.id = v.address_id
   WHERE EXISTS (SELECT FROM addresses here WHERE here.id = ANY (:addresses)
                    AND (here.channel, here.account, here.chat) = (a.channel, a.account, a.chat))))
""")
"""Mark subscriptions of people who look at the page; each at most twice per patience."""
_FOR_VISITORS = Named("""
WITH due AS (
  SELECT p.id, s.public_id::text AS session, said.at, said.name, w.name AS site,
         coalesce(w.config ->> 'title', '') AS title
    FROM push_subscriptions p JOIN visitors v ON v.token_hash = p.visitor_hash AND v.expires_at > now()
    JOIN sites w ON w.name = v.site JOIN addresses home ON home.id = v.address_id
    JOIN addresses a ON (a.channel, a.account, a.chat) = (home.channel, home.account, home.chat)
    JOIN sessions s ON s.id = a.session_id
     AND s.last_active_at > greatest(p.told_at, p.here_at, now() - interval '1 day')
   CROSS JOIN LATERAL (
         SELECT e.at, CASE e.author WHEN 'operator' THEN v.payload ->> 'name' ELSE '' END AS name
           FROM (SELECT * FROM events WHERE session_id = s.id ORDER BY event_seq DESC LIMIT 50) v
           JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
           JOIN turns t ON t.session_id = v.session_id AND t.turn_no = v.turn_no AND t.address_id = a.id
          WHERE v.kind = 'msg' AND e.author IN ('assistant', 'operator')
            AND e.at > greatest(p.told_at, p.here_at, now() - interval '1 day')
            AND e.at < now() - make_interval(secs => :patience_seconds)
          ORDER BY v.event_seq DESC LIMIT 1) said
), told AS (
  UPDATE push_subscriptions p SET told_at = d.at FROM (SELECT id, max(at) AS at FROM due GROUP BY id) d
   WHERE p.id = d.id RETURNING p.id, p.endpoint, p.p256dh, p.auth, p.language
)
SELECT told.*, 'answer' AS kind, due.session, coalesce(due.name, '') AS name, due.site, due.title
  FROM told JOIN due USING (id)
""")
"""Claim notices to visitors about answers at the address where they wrote."""
_FOR_OPERATORS = Named(
    """
WITH wanted AS (
  SELECT s.public_id::text AS session, h.state, h.operator_id, p.display_name AS name,
         greatest(CASE WHEN h.state = 'waiting' THEN h.asked_at END, (
           SELECT max(e.at) FROM turn_entries te JOIN entries e USING (session_id, seq)
            WHERE te.session_id = s.id AND te.turn_no > s.answered_turn AND e.author = 'person')) AS at
    FROM handovers h JOIN sessions s ON s.id = h.session_id JOIN contacts p ON p.id = s.contact_id
   WHERE h.ended_at IS NULL AND awake_at(h) <= now()
), due AS (
  SELECT p.id, w.*, row_number() OVER (PARTITION BY p.id ORDER BY w.at DESC) AS number
    FROM wanted w JOIN push_subscriptions p ON w.state = 'waiting' OR w.operator_id = p.operator_id
    JOIN operators o ON o.id = p.operator_id AND o.disabled_at IS NULL AND may_write(o)
   WHERE w.at > greatest(p.told_at, p.here_at) AND w.at < now() - make_interval(secs => :patience_seconds)
), told AS (
  UPDATE push_subscriptions p SET told_at = d.at FROM (SELECT id, max(at) AS at FROM due GROUP BY id) d
   WHERE p.id = d.id RETURNING p.id, p.endpoint, p.p256dh, p.auth, p.language
)
SELECT told.*, CASE due.state WHEN 'waiting' THEN 'waits' ELSE 'wrote' END AS kind, due.session, due.name
  FROM told JOIN due USING (id) WHERE due.number <= :most_conversations
""",
    most_conversations=MOST_CONVERSATIONS,
)
"""Claim notices to operators; the same commit marks them as sent, so that none is sent twice."""
_DELIVERED = Named("UPDATE push_subscriptions SET succeeded_at = now(), failures = 0 WHERE id = :target_id")
_FAILED = Named("""
WITH gone AS (DELETE FROM push_subscriptions WHERE id = :target_id AND (:gone OR failures >= :most_failures))
UPDATE push_subscriptions SET failures = failures + 1 WHERE id = :target_id
   AND NOT (:gone OR failures >= :most_failures)
""")
