"""Store of failed logins, which survive restarts, and of places where operators have logged in."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method

SECONDS = 10.0
"""Maximum seconds to wait for a connection."""
FREE_TRIES: Mapping[str, int] = {"pair": 5, "address": 20, "account": 50, "codes": 50}
"""Failures before the first wait, by kind of count.

"pair" counts per name and network, "address" per network, "account" per name from everywhere, and "codes" per
name for second factors. Strangers can exhaust "account"; it blocks neither known places nor accounts with a
second factor. "codes" requires the password.
"""
FIRST_WAIT_SECONDS = 60
"""First wait in seconds; each further failure doubles it, up to MOST_WAIT_SECONDS."""
MOST_WAIT_SECONDS = 900
"""Longest wait in seconds after a failed login."""
FORGET_HOURS = 24
"""Hours after the last failure at which its count begins at zero again."""
PLACES_AT_MOST = 20
"""Maximum stored login places of one operator, the newest."""


class LoginTries(PoolStore):
    """Counter of login attempts; each method is one transaction and raises StorageUnavailable.

    An attempt counts as failed before it is checked, so that parallel ones count too.
    """

    @store_method
    async def begin(self, keys: Mapping[str, bytes], *, operator_id: int | None = None) -> int:
        """Count an attempt as failed under all `keys` and return 0.

        If one of the keys must wait, returns the seconds to wait and counts nothing. `keys` are those of
        `build_keys`; `operator_id` is the operator whose counts they are, None if unknown.
        """
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            # Locked in one order, so that two attempts cannot deadlock.
            places = sorted(keys.items(), key=lambda item: item[1])
            await connection.execute(
                *_ADD(keys=[key for _, key in places]),
            )
            wait = await connection.fetchval(*_WAIT(keys=[key for _, key in places]))
            if not wait:
                await connection.execute(
                    *_COUNT(
                        keys=[key for _, key in places],
                        free=[FREE_TRIES[name] for name, _ in places],
                        operator_ids=[None if name == "address" else operator_id for name, _ in places],
                    ),
                )
        return int(wait)

    @store_method
    async def record_success(self, keys: Mapping[str, bytes], *, tries: int = 1) -> None:
        """Delete the failures of name and network after a success, and end all waits of `keys`.

        From the other counts `tries` attempts are subtracted.
        """
        await self._pool.execute(*_TAKE_BACK(keys=list(keys.values()), pair=keys.get("pair"), tries=tries))


class LoginPlaces(PoolStore):
    """Store of the networks from which operators have logged in.

    Networks are stored as keyed hashes, since all could be tried.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], key: Callable[[], bytes | None]) -> None:
        """Use the key that `key` returns; without one no place is known or stored."""
        super().__init__(pool)
        self._key = key

    def key_of(self, operator_id: int, address: str) -> bytes | None:
        """Return the keyed hash of an operator's network; None if there is no key."""
        if (key := self._key()) is None:
            return None
        about = f"evertalk.login-place.1\n{operator_id}\n{network_of(address)}"
        return hmac.digest(key, about.encode("utf-8", "replace"), "sha256")

    @store_method
    async def has_place(self, operator_id: int, address: str) -> bool:
        """Return whether the operator has logged in from the network of this address; False without a key."""
        found: bool = await self._pool.fetchval(
            *_HAS_PLACE(key=self.key_of(operator_id, address), operator_id=operator_id),
        )
        return found


async def remember_place(connection: Any, operator_id: int, key: bytes | None) -> None:
    """Store an operator's network, hashed as `key`, in the caller's transaction; none if `key` is None.

    Of one operator the newest PLACES_AT_MOST networks stay.
    """
    if key is not None:
        await connection.execute(*_REMEMBER(key=key, operator_id=operator_id))


def build_keys(
    *, name: str, address: str, everywhere: Literal["account", "codes"] | None = "account"
) -> dict[str, bytes]:
    """Return the hashed keys of the counts for a login, by `pair`, `address` and the value of `everywhere`.

    With `everywhere` None, there is no count that spans all networks. The keys are hashed, since people type
    passwords into the name field.
    """
    name = name.casefold()[:200]
    keys = {"pair": _digest("pair", name, network_of(address)), **address_key(address)}
    return keys if everywhere is None else {**keys, everywhere: _digest(everywhere, name)}


def address_key(address: str) -> dict[str, bytes]:
    """Return the key of the count for an address's network, as `LoginTries` takes it, under the name
    "address".

    Alone it is for logins without a typed name: by link or identity provider.
    """
    return {"address": _digest("address", network_of(address))}


def network_of(address: str) -> str:
    """Return the network of an IP address: the address itself for IPv4, its /56 for IPv6.

    A /56 often belongs to one customer. Another text is returned as it is, cut to 100 characters.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 56), strict=False))


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).digest()


_WAIT = Named("""
SELECT coalesce(ceil(extract(epoch FROM max(refused_until) FILTER (WHERE refused_until > clock_timestamp())
         - clock_timestamp())), 0)::int
  FROM (SELECT refused_until FROM login_tries WHERE key = ANY(:keys::bytea[]) ORDER BY key FOR UPDATE) t
""")
_COUNT = Named(
    """
WITH counted AS (
  SELECT t.key, g.free, g.operator_id,
         1 + CASE WHEN t.last_at < now() - make_interval(hours => :forget_hours) THEN 0 ELSE t.failures END
           AS failures
    FROM unnest(:keys::bytea[], :free::int[], :operator_ids::bigint[]) AS g(key, free, operator_id)
    JOIN login_tries t ON t.key = g.key
)
UPDATE login_tries t
   SET failures = c.failures, last_at = clock_timestamp(), operator_id = c.operator_id,
       refused_until = CASE WHEN c.failures >= c.free THEN clock_timestamp() + make_interval(
         secs => least(:most_wait_seconds, :first_wait_seconds * 2.0 ^ least(c.failures - c.free, 10))) END
  FROM counted c WHERE t.key = c.key
""",
    forget_hours=FORGET_HOURS,
    most_wait_seconds=MOST_WAIT_SECONDS,
    first_wait_seconds=FIRST_WAIT_SECONDS,
)
"""Add a failure to each key; each one beyond the free ones doubles the wait."""
_TAKE_BACK = Named("""
WITH gone AS (DELETE FROM login_tries WHERE key = :pair)
UPDATE login_tries SET failures = greatest(failures - :tries, 0), refused_until = NULL
 WHERE key = ANY(:keys::bytea[]) AND key IS DISTINCT FROM :pair
""")
_REMEMBER = Named(
    """
WITH old AS (
  DELETE FROM login_places WHERE key IN (
    SELECT key FROM login_places WHERE operator_id = :operator_id AND key <> :key
     ORDER BY at DESC, key OFFSET :others_at_most)
)
INSERT INTO login_places (key, operator_id) VALUES (:key, :operator_id) ON CONFLICT (key) DO UPDATE
   SET at = now()
""",
    others_at_most=PLACES_AT_MOST - 1,
)
"""Store a login place, and delete the oldest one above the maximum."""
_ADD = Named("INSERT INTO login_tries (key) SELECT unnest(:keys::bytea[]) ON CONFLICT (key) DO NOTHING")
_HAS_PLACE = Named("SELECT EXISTS (SELECT FROM login_places WHERE key = :key AND operator_id = :operator_id)")
