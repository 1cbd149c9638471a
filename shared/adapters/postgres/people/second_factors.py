"""Store of operators' second factors: an authenticator app, and recovery codes in case it is lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from shared.adapters.encryption import Encryption, Sealed
from shared.adapters.postgres.db.pool import Named, Pool, PoolStore, store_method
from shared.adapters.postgres.people.login_tries import LoginTries, build_keys, remember_place
from shared.adapters.postgres.people.operator_auth import (
    How,
    Operators,
    TooManyTries,
    append_audit,
    begin_login,
    hash_secret,
    hold_operator,
)
from shared.core.identity.operators import OfTheProvider
from shared.core.identity.totp import (
    KEY_BYTES,
    RECOVERY_BYTES,
    RECOVERY_CODES,
    app_address,
    format_key,
    format_recovery_codes,
    matching_step,
    recovery_digest,
)
from shared.core.values.errors import EvertalkError, StorageUnavailable

ISSUER = "Evertalk"
"""Name of the program that authenticator apps show."""
SECONDS = 10.0
"""Maximum seconds to wait for a connection."""
PENDING_MINUTES = 30
"""Minutes in which a new factor must be confirmed."""


class WrongCode(EvertalkError):
    """The code is neither one of the app nor a recovery code, or was used."""

    sentence = "The code is not the one of the app, or was used."
    code = "wrong_code"
    advice = "That code is not right, or was used already. Wait for the next one that the app shows."


class NoSuchFactor(EvertalkError):
    """The operator has no second factor to confirm or remove, or the first step of the login has expired."""

    sentence = "No second factor to confirm or remove."
    code = "no_second_factor"
    advice = "There is no second factor. Start again on the page Account."


class HasFactor(EvertalkError):
    """The operator has a second factor already."""

    sentence = "The operator has a second factor already."
    code = "has_second_factor"
    advice = "You already have a second factor. Remove it first, then set up another."


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorBegun:
    """Key of a new second factor, as text and as `otpauth` address for an app.

    Both are shown to the operator once.
    """

    key: str
    address: str


class SecondFactors(PoolStore):
    """Store of the second factors of operators; its methods raise StorageUnavailable.

    Checks of codes raise CannotUnseal if the secret key has changed since the factor was set up.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        operators: Operators,
        encryption: Callable[[], Encryption],
        crash_point: Callable[[str], None],
    ) -> None:
        """Take a factory of the encryption, called in a thread when a factor begins or a code is checked."""
        super().__init__(pool)
        self._operators = operators
        self._encryption = encryption
        self._crash_point = crash_point
        self._tries = LoginTries(pool)

    @store_method
    async def load_state(self, operator_id: int) -> tuple[datetime, int] | None:
        """Return (time of confirmation, number of unused recovery codes) of an operator's second factor.

        Returns None without a confirmed factor.
        """
        row = await self._pool.fetchrow(
            *_LOAD_STATE(operator_id=operator_id),
        )
        return None if row is None else (row["confirmed_at"], row["codes"])

    @store_method
    async def begin(self, operator_id: int) -> FactorBegun:
        """Store a new unconfirmed second factor and return its key; it is valid from its first code.

        It must be confirmed within PENDING_MINUTES, and replaces another unconfirmed one. Raises HasFactor if
        one is confirmed, and OfTheProvider for an operator of an identity provider or a disabled one.
        """
        key = secrets.token_bytes(KEY_BYTES)
        sealed = (await asyncio.to_thread(self._encryption)).seal(key, about=_about(operator_id))
        name = await self._pool.fetchval(
            *_BEGIN(
                operator_id=operator_id,
                key_id=sealed.key_id,
                data=sealed.data,
            )
        )
        if name is None:
            raise HasFactor if await self.load_state(operator_id) else OfTheProvider
        return FactorBegun(key=format_key(key), address=app_address(key, name=name, issuer=ISSUER))

    async def confirm(
        self, operator_id: int, code: str, *, source: str, keep: str = ""
    ) -> tuple[str, ...] | TooManyTries:
        """Confirm a new factor by a code of the app, and end the operator's other logins.

        Returns the recovery codes, which are shown once and stored as hashes. The session of the token `keep`
        stays. Returns TooManyTries, without a check, if attempts must wait. Raises WrongCode, and
        NoSuchFactor without an unconfirmed factor.
        """
        drawn = [secrets.token_bytes(RECOVERY_BYTES) for _ in range(RECOVERY_CODES)]
        codes = format_recovery_codes(drawn)
        wait = await self._count_try(operator_id, source)
        if isinstance(wait, TooManyTries):
            return wait
        await self._confirm(operator_id, code, [recovery_digest(one) for one in codes], hash_secret(keep))
        await self._forgive(wait)
        return codes

    async def remove(self, operator_id: int, code: str, *, source: str) -> TooManyTries | None:
        """Remove the factor by a code of the app or a recovery code, with an audit entry.

        Returns None if it was removed, TooManyTries if attempts must wait. Raises WrongCode and NoSuchFactor.
        """
        if await self.load_state(operator_id) is None:
            raise NoSuchFactor
        wait = await self._count_try(operator_id, source)
        if isinstance(wait, TooManyTries):
            return wait
        await self._remove(operator_id, code)
        await self._forgive(wait)
        return None

    async def log_in(
        self, *, token: str, code: str, source: str, browser: str = ""
    ) -> str | TooManyTries | None:
        """Complete a login by a code; return the session's token, or None if the code is wrong.

        `token` is that of the first step; `code` may be a recovery code, which is used up. Returns
        TooManyTries, without a check, if attempts must wait. A refusal is appended to the audit log. Raises
        NoSuchFactor if the first step has expired.
        """
        step = await self._find_step(token)
        if step is None:
            raise NoSuchFactor
        wait = await self._count_try(step["operator_id"], source)
        if isinstance(wait, TooManyTries):
            return wait
        try:
            begun = await self._take_step(
                step["operator_id"], code, hash_secret(token), source=source, browser=browser
            )
        except WrongCode:
            detail = {"source": source, "how": "code"}
            await self._operators.record(actor="nobody", action="login.refused", detail=detail)
            return None
        await self._forgive(wait, tries=2)
        return begun

    @store_method
    async def _find_step(self, token: str) -> asyncpg.Record | None:
        return await self._pool.fetchrow(*_STEP(token_hash=hash_secret(token)))

    async def _count_try(self, operator_id: int, source: str) -> dict[str, bytes] | TooManyTries:
        """Count an attempt: by address together with passwords, and from everywhere separately.

        A separate count is safe, since callers have the password.
        """
        name = await self._name(operator_id)
        known = await self._operators.places.has_place(operator_id, source)
        keys = build_keys(name=name, address=source, everywhere=None if known else "codes")
        wait = await self._tries.begin(keys, operator_id=operator_id)
        return TooManyTries(retry_after_seconds=wait) if wait else keys

    async def _forgive(self, counted: dict[str, bytes], *, tries: int = 1) -> None:
        """Subtract counted attempts after a success; if that fails, they expire."""
        with suppress(StorageUnavailable):
            await self._tries.record_success(counted, tries=tries)

    @store_method
    async def _name(self, operator_id: int) -> str:
        name = await self._pool.fetchval(*_NAME_OF_OPERATOR(operator_id=operator_id))
        return str(name or "")

    @store_method
    async def _confirm(self, operator_id: int, code: str, recovery: list[bytes], keep: bytes) -> None:
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            row = await connection.fetchrow(*_PENDING(operator_id=operator_id))
            if row is None:
                raise NoSuchFactor
            step = await self._matching(row, code)
            if step is None:
                raise WrongCode
            await connection.execute(
                *_CONFIRM(operator_id=operator_id, step=step, recovery=recovery),
            )
            await connection.execute(*_END_OTHERS(operator_id=operator_id, keep=keep))
            await _audit(connection, row, "second_factor.on")

    @store_method
    async def _remove(self, operator_id: int, code: str) -> None:
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            row = await self._use_code(connection, operator_id, code)
            await connection.execute(*_DELETE_FACTOR(operator_id=operator_id))
            await connection.execute(*_DELETE_STEPS(operator_id=operator_id))
            await _audit(connection, row, "second_factor.off")

    @store_method
    async def _take_step(
        self, operator_id: int, code: str, token_hash: bytes, *, source: str, browser: str
    ) -> str | None:
        """Use up a code and begin the session in one transaction; a failed login costs no recovery code."""
        async with self._pool.acquire(timeout=SECONDS) as connection, connection.transaction():
            await hold_operator(connection, operator_id)
            await self._use_code(connection, operator_id, code)
            self._crash_point("mid_login")
            how: How | None = await connection.fetchval(*_TAKE_STEP(token_hash=token_hash))
            if how is None:
                raise WrongCode  # another browser was faster with the same half of a login
            key = self._operators.places.key_of(operator_id, source)
            await remember_place(connection, operator_id, key)
            return await begin_login(connection, operator_id, how=how, source=source, browser=browser)

    async def _use_code(self, connection: Any, operator_id: int, code: str) -> asyncpg.Record:
        """Use up a code of the app or a recovery code, and return the factor's row.

        Raises WrongCode and NoSuchFactor.
        """
        row: asyncpg.Record | None = await connection.fetchrow(*_CONFIRMED(operator_id=operator_id))
        if row is None:
            raise NoSuchFactor
        step = await self._matching(row, code)
        if step is not None:
            await connection.execute(*_USE_CODE(operator_id=operator_id, step=step))
            return row
        digest = recovery_digest(code)
        if digest not in row["recovery"]:
            raise WrongCode
        await connection.execute(
            *_USE_RECOVERY_CODE(operator_id=operator_id, digest=digest),
        )
        await _audit(connection, row, "second_factor.recovery", left=len(row["recovery"]) - 1)
        return row

    async def _matching(self, row: asyncpg.Record, code: str) -> int | None:
        sealed = Sealed(key_id=row["key_id"], data=bytes(row["sealed"]))
        key = (await asyncio.to_thread(self._encryption)).open(sealed, about=_about(row["operator_id"]))
        return matching_step(key, code, seconds=row["seconds"], after=row["last_step"])


async def reset_factor(pool: Pool, operator_id: int, *, by: str) -> bool:
    """Delete an operator's second factor without a code, and unfinished logins, for the command line.

    Writes an audit entry with the actor `by`. Returns False, without effect, if there was none.
    """
    async with pool.acquire(timeout=SECONDS) as connection, connection.transaction():
        row = await connection.fetchrow(*_ANY(operator_id=operator_id))
        if row is None:
            return False
        await connection.execute(*_RESET_FACTOR(operator_id=operator_id))
        await connection.execute(*_RESET_FACTOR_2(operator_id=operator_id))
        await append_audit(
            connection, actor=by, action="second_factor.reset", about=f"operator:{row['public_id']}"
        )
    return True


async def _audit(connection: Any, row: asyncpg.Record, action: str, **detail: int) -> None:
    await append_audit(
        connection, actor=row["name"], action=action, about=f"operator:{row['public_id']}", detail=detail
    )


def _about(operator_id: int) -> str:
    return f"operator-factor:{operator_id}"


_BEGIN = Named("""
WITH who AS (
  SELECT id, name FROM operators WHERE id = :operator_id AND issuer IS NULL AND disabled_at IS NULL
), made AS (
  INSERT INTO operator_factors AS f (operator_id, key_id, sealed) SELECT id, :key_id, :data FROM who
  ON CONFLICT (operator_id) DO UPDATE SET key_id = :key_id, sealed = :data, last_step = 0, created_at = now()
   WHERE f.confirmed_at IS NULL RETURNING operator_id
) SELECT w.name FROM who w JOIN made m ON m.operator_id = w.id
""")
"""Insert or replace an unconfirmed second factor; a confirmed one is never replaced."""
_ANY = Named("""
SELECT f.*, o.name, o.public_id, extract(epoch FROM clock_timestamp())::float8 AS seconds
  FROM operator_factors f JOIN operators o ON o.id = f.operator_id
 WHERE f.operator_id = :operator_id
   FOR UPDATE OF f
""")
"""Select and lock a second factor, so that parallel attempts cannot reuse a code."""
_CONFIRMED = Named("""
SELECT f.*, o.name, o.public_id, extract(epoch FROM clock_timestamp())::float8 AS seconds
  FROM operator_factors f JOIN operators o ON o.id = f.operator_id
 WHERE f.operator_id = :operator_id
   AND f.confirmed_at IS NOT NULL AND o.disabled_at IS NULL
   FOR UPDATE OF f
""")
"""Select and lock a confirmed second factor; no row for a locked operator."""
_PENDING = Named(
    """
SELECT f.*, o.name, o.public_id, extract(epoch FROM clock_timestamp())::float8 AS seconds
  FROM operator_factors f JOIN operators o ON o.id = f.operator_id
 WHERE f.operator_id = :operator_id
   AND f.confirmed_at IS NULL AND f.created_at > now() - make_interval(mins => :pending_minutes)
   FOR UPDATE OF f
""",
    pending_minutes=PENDING_MINUTES,
)
"""Select and lock a second factor that can still be confirmed."""
_STEP = Named("""
SELECT operator_id, how FROM operator_steps WHERE token_hash = :token_hash AND expires_at > now()
""")
_END_OTHERS = Named("""
WITH push AS (DELETE FROM push_subscriptions WHERE operator_id = :operator_id AND login_hash <> :keep)
DELETE FROM operator_sessions WHERE operator_id = :operator_id AND token_hash <> :keep
""")
_LOAD_STATE = Named("""
SELECT confirmed_at, cardinality(recovery) AS codes FROM operator_factors
 WHERE operator_id = :operator_id AND confirmed_at IS NOT NULL
""")
_NAME_OF_OPERATOR = Named("SELECT name FROM operators WHERE id = :operator_id")
_CONFIRM = Named("""
UPDATE operator_factors SET confirmed_at = now(), last_step = :step, recovery = :recovery
 WHERE operator_id = :operator_id
""")
_DELETE_FACTOR = Named("DELETE FROM operator_factors WHERE operator_id = :operator_id")
_DELETE_STEPS = Named("DELETE FROM operator_steps WHERE operator_id = :operator_id")
_TAKE_STEP = Named("DELETE FROM operator_steps WHERE token_hash = :token_hash RETURNING how")
_USE_CODE = Named("UPDATE operator_factors SET last_step = :step WHERE operator_id = :operator_id")
_USE_RECOVERY_CODE = Named("""
UPDATE operator_factors SET recovery = array_remove(recovery, :digest) WHERE operator_id = :operator_id
""")
_RESET_FACTOR = Named("DELETE FROM operator_factors WHERE operator_id = :operator_id")
_RESET_FACTOR_2 = Named("DELETE FROM operator_steps WHERE operator_id = :operator_id")
