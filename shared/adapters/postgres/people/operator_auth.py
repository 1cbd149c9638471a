"""Logins of operators, their sessions, and the hash-chained audit log of what they read and changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import asyncpg

from shared.adapters.postgres.db.connecting import connect
from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.adapters.postgres.people.audit_chain import check_chain
from shared.adapters.postgres.people.login_tries import (
    LoginPlaces,
    LoginTries,
    address_key,
    build_keys,
    remember_place,
)
from shared.core.identity.operators import COMMAND_LINE, ROLES, OfTheProvider, Role
from shared.core.identity.passwords import find_weakness
from shared.core.values.errors import StorageUnavailable
from shared.core.values.user_agent import browser_name

if TYPE_CHECKING:
    from argon2 import PasswordHasher

How = Literal["link", "password", "provider"]
"""Way of the first step of a login: link, password or identity provider."""

LINK_MINUTES = 15
"""Minutes for which a login link is valid."""
STEP_MINUTES = 5
"""Minutes for the second step of a login."""
IDLE_MINUTES = 30
"""Minutes without a request after which a session ends."""
SESSION_HOURS = 12
"""Hours after which a session ends."""
MAX_PASSWORD_CHARS = 1000
"""Maximum characters of a password at login that are compared."""

_TOKEN_BYTES = 32
_STATEMENT_SECONDS = 10.0
_HASH_SECONDS = 15.0
_MAX_WAITING_HASHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """Operator of a valid session."""

    operator_id: int
    name: str
    role: Role
    has_password: bool
    display_name: str = ""
    picture: str = ""
    """Key of the picture that people see next to the name; "" without one."""
    by_provider: bool = False
    """Whether the operator belongs to an identity provider and can log in only through it."""

    def has_role(self, role: Role) -> bool:
        """Return whether the operator has at least this role."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class TooManyTries:
    """Refusal of a login attempt before any hashing; the next one is allowed after `retry_after_seconds`."""

    retry_after_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeNeeded:
    """Result of a login that needs a second factor; `token` proves the first step."""

    token: str


class WeakPassword(ValueError):
    """The password is too short, too long, or commonly guessed; the text says which."""


class Passwords:
    """Hasher of passwords by argon2id, one at a time in a separate thread.

    A hash in the event loop would block conversations.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="argon2")
        self._hasher: PasswordHasher | None = None
        self._nobody = ""
        self._waiting = 0

    @property
    def busy(self) -> bool:
        """Whether 8 passwords wait for hashing, so that the caller should refuse the next."""
        return self._waiting >= _MAX_WAITING_HASHES

    async def hash(self, password: str) -> str:
        """Return the Argon2 hash of a password, computed in a thread.

        Raises TimeoutError after 15 seconds.
        """
        return str(await self._run_in_thread(lambda: self._argon2().hash(password)))

    async def matches(self, stored: str | None, password: str) -> bool:
        """Return whether a password matches a stored hash.

        Returns False if `stored` is None (no such operator), after equal work. Raises TimeoutError after
        15 seconds.
        """
        return bool(await self._run_in_thread(lambda: self._verify(stored, password)))

    def close(self) -> None:
        """Cancel waiting hashes and wait for the running one; blocks the calling thread."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _run_in_thread(self, work: Callable[[], Any]) -> Any:
        self._waiting += 1
        try:
            async with asyncio.timeout(_HASH_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def _argon2(self) -> PasswordHasher:
        if self._hasher is None:
            from argon2 import PasswordHasher, Type

            # The smallest of OWASP's equivalent settings: the web process has a memory budget.
            self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)
            self._nobody = self._hasher.hash(secrets.token_urlsafe())
        return self._hasher

    def _verify(self, stored: str | None, password: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        hasher = self._argon2()
        try:
            matched = hasher.verify(stored or self._nobody, password)
        except (VerificationError, InvalidHashError):
            return False
        return bool(matched) and stored is not None


class Operators(PoolStore):
    """Store of logins and sessions; tokens are stored as hashes only. It raises StorageUnavailable."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        *,
        passwords: Passwords | None = None,
        place_key: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """Create the store; `place_key` returns the key for hashes of login places, None stores no places."""
        super().__init__(pool)
        self._passwords = passwords or Passwords()
        self._tries = LoginTries(pool)
        self.places = LoginPlaces(pool, place_key)

    async def log_in(
        self, *, name: str, password: str, source: str, browser: str = ""
    ) -> str | TooManyTries | CodeNeeded | None:
        """Log an operator in by password; return a session token, or None if name or password is wrong.

        `source` is the client's address, `browser` its User-Agent. Counts the attempt and appends a refusal
        to the audit log. Returns TooManyTries, before any hashing, if attempts must wait, and CodeNeeded if a
        second factor is required. Raises TimeoutError if hashing takes over 15 seconds.
        """
        if self._passwords.busy:
            return TooManyTries(retry_after_seconds=5)
        found = await self._find_operator(name[:200])
        open_to_all = found is None or not (
            found["has_factor"] or await self.places.has_place(found["id"], source)
        )
        keys = build_keys(name=name, address=source, everywhere="account" if open_to_all else None)
        wait = await self._tries.begin(keys, operator_id=found["id"] if found else None)
        if wait:
            return TooManyTries(retry_after_seconds=wait)
        stored = found["password_hash"] if found else None
        matched = await self._passwords.matches(stored, password[:MAX_PASSWORD_CHARS])
        if found is None or not matched:
            await self.record(actor="nobody", action="login.refused", detail={"source": source})
            return None
        # With a second factor the attempt stays counted: knowing the password must not make guesses of codes
        # free.
        if (step := await self._step(found["id"], how="password")) is not None:
            return step
        await self._tries.record_success(keys)
        return await self.begin(found["id"], how="password", source=source, browser=browser)

    @store_method
    async def use_link(
        self, *, token: str, source: str, browser: str = ""
    ) -> str | TooManyTries | CodeNeeded | None:
        """Log an operator in by a login link, which is used up.

        Returns a session token, or None if the link is unknown, used or expired or the operator is disabled.
        Returns TooManyTries if attempts from the network of `source` must wait, and CodeNeeded if a second
        factor is required.
        """
        keys = address_key(source)
        wait = await self._tries.begin(keys)
        if wait:
            return TooManyTries(retry_after_seconds=wait)
        outcome = await self._spend_link(hash_secret(token), source=source, browser=browser)
        if isinstance(outcome, str):
            # The login is committed; if Postgres fails now, the counted attempt expires.
            with suppress(StorageUnavailable):
                await self._tries.record_success(keys)
        return outcome

    async def _spend_link(self, token_hash: bytes, *, source: str, browser: str) -> str | CodeNeeded | None:
        """Use up a link and begin its login in one transaction; a failed login leaves the link valid."""
        async with self._pool.acquire(timeout=_STATEMENT_SECONDS) as connection, connection.transaction():
            operator_id = await connection.fetchval(*_OWNER_OF_LINK(token_hash=token_hash))
            await hold_operator(connection, operator_id)
            spent = await connection.fetchval(
                *_SPEND_LINK(token_hash=token_hash),
            )
            if not spent:
                return None
            if (step := await _begin_step(connection, operator_id, how="link")) is not None:
                return step
            await remember_place(connection, operator_id, self.places.key_of(operator_id, source))
            return await begin_login(connection, operator_id, how="link", source=source, browser=browser)

    @store_method
    async def authenticate(self, token: str, *, present: bool = True) -> SignedIn | None:
        """Return the operator of a session token.

        None if it is unknown or expired, or if the operator is disabled. A session expires after
        SESSION_HOURS, or after IDLE_MINUTES without a request. `present` False, for refreshes without a
        person, does not count as a request.
        """
        row = await self._pool.fetchrow(
            *_AUTHENTICATE(token_hash=hash_secret(token), present=present),
        )
        if row is None:
            return None
        return build_value(SignedIn, row, operator_id=row["id"])

    @store_method
    async def log_out(self, token: str) -> None:
        """Delete the session of a token; an unknown token has no effect."""
        await self._pool.execute(
            *_LOG_OUT(token_hash=hash_secret(token)),
        )

    async def set_password(self, operator_id: int, password: str, *, by: str, keep: str = "") -> None:
        """Store a new password, and end the operator's other sessions and their push subscriptions.

        The session whose token is `keep` stays; login links and unfinished logins are deleted. `by` is the
        actor in the audit log. Raises WeakPassword, OfTheProvider for an operator of an identity provider,
        and TimeoutError if hashing takes over 15 seconds.
        """
        name, by_provider = await self._load_password_user(operator_id)
        if by_provider:
            raise OfTheProvider
        if why := find_weakness(password, name=name):
            raise WeakPassword(why)
        hashed = await self._passwords.hash(password)
        await self._store_password(operator_id, hashed, hash_secret(keep), by)

    @store_method
    async def _step(self, operator_id: int, *, how: How) -> CodeNeeded | None:
        return await _begin_step(self._pool, operator_id, how=how)

    @store_method
    async def _find_operator(self, name: str) -> asyncpg.Record | None:
        return await self._pool.fetchrow(
            *_FIND_OPERATOR(name=name),
        )

    @store_method
    async def _load_password_user(self, operator_id: int) -> tuple[str, bool]:
        """Return an operator's name, and whether an identity provider logs them in."""
        row = await self._pool.fetchrow(*_LOAD_PASSWORD_USER(operator_id=operator_id))
        return ("", False) if row is None else (row["name"], row["by_provider"])

    @store_method
    async def _store_password(self, operator_id: int, hashed: str, keep: bytes, by: str) -> None:
        change = _STORE_PASSWORD(operator_id=operator_id, hashed=hashed, keep=keep)
        async with self._pool.acquire(timeout=_STATEMENT_SECONDS) as connection, connection.transaction():
            await connection.execute(*change)
            about = await connection.fetchval(*_ABOUT_OPERATOR(operator_id=operator_id))
            await append_audit(connection, actor=by, action="password.set", about=about or "")

    @store_method
    async def hide_checklist(self, operator_id: int, *, on: bool) -> None:
        """Hide the checklist on the overview of this operator, or show it again if `on` is False."""
        await self._pool.execute(
            *_HIDE_CHECKLIST(operator_id=operator_id, on=on),
        )

    @store_method
    async def record(
        self, *, actor: str, action: str, about: str = "", detail: Mapping[str, Any] | None = None
    ) -> None:
        """Append an entry to the audit log; `detail` has ids and numbers only, None if there are none."""
        async with self._pool.acquire(timeout=_STATEMENT_SECONDS) as connection, connection.transaction():
            await append_audit(connection, actor=actor, action=action, about=about, detail=detail)

    @store_method
    async def record_once(self, *, actor: str, action: str, about: str = "", minutes: int = 15) -> None:
        """Append an audit entry unless the same one was appended in the last `minutes`.

        The same means actor, action and object.
        """
        told = await self._pool.fetchval(
            *_WAS_RECORDED(actor=actor, action=action, about=about, minutes=minutes),
        )
        if not told:
            await self.record(actor=actor, action=action, about=about)

    async def find_broken_audit_link(self) -> int | None:
        """Return the id of the first audit row that breaks the hash chain; None if the chain is intact."""
        broken = (await check_chain(self._pool))["broken_at"]
        return None if broken is None else int(broken["id"])

    async def close(self) -> None:
        """Cancel waiting hashes of passwords and wait for the running one."""
        await asyncio.to_thread(self._passwords.close)

    @store_method
    async def begin(self, operator_id: int, *, how: How, source: str, browser: str = "") -> str | None:
        """Begin a session without further checks and return its token; None if the operator is disabled.

        `how` is the way of the login, stored with the session and in the audit log.
        """
        async with self._pool.acquire(timeout=_STATEMENT_SECONDS) as connection, connection.transaction():
            token = await begin_login(connection, operator_id, how=how, source=source, browser=browser)
            if token is not None and how == "password":
                await remember_place(connection, operator_id, self.places.key_of(operator_id, source))
            return token


async def hold_operator(
    connection: asyncpg.Connection[asyncpg.Record] | Any, operator_id: int | None
) -> None:
    """Lock an operator's row before any dependent row, so that concurrent changes wait; None locks no row.

    The lock is a write: it waits for a `LOCK TABLE operators` before the transaction holds another lock.
    """
    await connection.execute(*_HOLD_OPERATOR(operator_id=operator_id))


async def _begin_step(
    connection: asyncpg.Connection[asyncpg.Record] | asyncpg.Pool[asyncpg.Record] | Any,
    operator_id: int,
    *,
    how: How,
) -> CodeNeeded | None:
    """Begin the second step of a login; return None if the operator has no confirmed second factor."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    made = await connection.fetchval(
        *_BEGIN_STEP(token_hash=hash_secret(token), operator_id=operator_id, how=how),
    )
    return None if made is None else CodeNeeded(token=token)


async def begin_login(
    connection: asyncpg.Connection[asyncpg.Record] | Any,
    operator_id: int,
    *,
    how: How,
    source: str,
    browser: str = "",
) -> str | None:
    """Begin a session in the caller's transaction; return its token, None if the operator is disabled.

    It lasts SESSION_HOURS. Expired sessions of all operators are deleted, and the login is appended to the
    audit log.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    name = await connection.fetchval(
        *_BEGIN_LOGIN(
            token_hash=hash_secret(token),
            operator_id=operator_id,
            how=how,
            source=source[:100],
            browser=browser_name(browser),
        ),
    )
    if name is None:
        return None
    await append_audit(connection, actor=name, action="login", detail={"how": how, "source": source})
    return token


async def append_audit(
    connection: asyncpg.Connection[asyncpg.Record] | Any,
    *,
    actor: str,
    action: str,
    about: str = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Append an entry to the audit log's hash chain in the caller's transaction.

    Locks the chain until the commit, so that entries follow each other. `about` is the object, `detail` has
    ids and numbers only, never text.
    """
    # A separate statement: the next one must see the row that the previous holder of the lock wrote.
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext('evertalk.audit'))", timeout=10)
    line = _APPEND_AUDIT(actor=actor, action=action, about=about, detail=json.dumps(detail or {}))
    await connection.execute(*line, timeout=_STATEMENT_SECONDS)


async def create_login_link(database_url: str) -> str:
    """Create a link that logs the first active admin in, once, within 15 minutes; return its token.

    Operators of an identity provider are skipped; an `admin` is created if no such admin exists. Commits on a
    separate connection, with an audit entry. Raises StorageUnavailable and exceptions of asyncpg.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    connection = await connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE operators IN SHARE ROW EXCLUSIVE MODE", timeout=10)
            operator_id = await connection.fetchval(
                """SELECT id FROM operators WHERE disabled_at IS NULL AND role = 'admin' AND issuer IS NULL
                    ORDER BY id LIMIT 1"""
            ) or await connection.fetchval(
                """INSERT INTO operators (name, role)
                   SELECT CASE WHEN EXISTS (SELECT FROM operators WHERE name = 'admin')
                          THEN 'admin-' || (SELECT count(*) FROM operators) ELSE 'admin' END, 'admin'
                   RETURNING id"""
            )
            await connection.execute("DELETE FROM login_links WHERE expires_at <= now()")
            await connection.execute(
                *_ADD_LINK(token_hash=hash_secret(token), operator_id=operator_id),
            )
            about = await connection.fetchval(*_ABOUT_OPERATOR(operator_id=operator_id))
            await append_audit(connection, actor=COMMAND_LINE, action="login_link.made", about=about)
    finally:
        await connection.close(timeout=5)
    return token


def hash_secret(token: str) -> bytes:
    """Return the SHA-256 by which a token is stored; its 256 random bits make a plain hash enough."""
    return hashlib.sha256(token.encode()).digest()


_APPEND_AUDIT = Named("""
INSERT INTO audit (at, actor, action, object, detail, prev_hash, hash)
SELECT n.at, n.actor, n.action, n.object, n.detail, p.prev,
       sha256(p.prev || convert_to(jsonb_build_array(
         extract(epoch FROM n.at)::text, n.actor, n.action, n.object, n.detail)::text, 'UTF8'))
  FROM (SELECT clock_timestamp() AS at, :actor::text AS actor, :action::text AS action,
        :about::text AS object,
               :detail::text::jsonb AS detail) n,
       (SELECT coalesce((SELECT hash FROM audit ORDER BY id DESC LIMIT 1), '') AS prev) p
""")
"""Append an audit entry whose hash includes that of the entry before.

The caller holds the lock of the chain.
"""


_OWNER_OF_LINK = Named("SELECT operator_id FROM login_links WHERE token_hash = :token_hash")
_SPEND_LINK = Named("""
UPDATE login_links l SET used_at = now() FROM operators o
 WHERE l.token_hash = :token_hash AND l.used_at IS NULL AND l.expires_at > now()
   AND o.id = l.operator_id AND o.disabled_at IS NULL
RETURNING true
""")
_AUTHENTICATE = Named(
    """
WITH found AS (
  SELECT s.token_hash, s.seen_at, o.id, o.name, o.role, o.display_name,
         coalesce((SELECT p.key FROM operator_pictures p WHERE p.operator_id = o.id), '')
           AS picture,
         o.password_hash IS NOT NULL AS has_password, o.issuer IS NOT NULL AS by_provider
    FROM operator_sessions s JOIN operators o ON o.id = s.operator_id
   WHERE s.token_hash = :token_hash AND s.expires_at > now() AND o.disabled_at IS NULL
     AND s.seen_at > now() - make_interval(mins => :idle_minutes)
), seen AS (
  UPDATE operator_sessions s SET seen_at = now() FROM found f
   WHERE s.token_hash = f.token_hash AND :present AND f.seen_at < now() - interval '1 minute'
)
SELECT * FROM found
""",
    idle_minutes=IDLE_MINUTES,
)
"""Select the operator of a valid session, and update its last use at most once a minute."""
_LOG_OUT = Named("DELETE FROM operator_sessions WHERE token_hash = :token_hash")
_FIND_OPERATOR = Named("""
SELECT o.id, o.password_hash, f.confirmed_at IS NOT NULL AS has_factor
  FROM operators o LEFT JOIN operator_factors f ON f.operator_id = o.id
 WHERE o.name = :name AND o.disabled_at IS NULL AND o.issuer IS NULL
""")
_LOAD_PASSWORD_USER = Named("""
SELECT name, issuer IS NOT NULL AS by_provider FROM operators WHERE id = :operator_id
""")
_ABOUT_OPERATOR = Named("SELECT 'operator:' || public_id FROM operators WHERE id = :operator_id")
_STORE_PASSWORD = Named("""
WITH changed AS (UPDATE operators SET password_hash = :hashed WHERE id = :operator_id),
     links AS (DELETE FROM login_links WHERE operator_id = :operator_id),
     steps AS (DELETE FROM operator_steps WHERE operator_id = :operator_id),
     push AS (DELETE FROM push_subscriptions WHERE operator_id = :operator_id AND login_hash <> :keep)
DELETE FROM operator_sessions WHERE operator_id = :operator_id AND token_hash <> :keep
""")
_HIDE_CHECKLIST = Named("""
UPDATE operators SET checklist_hidden_at = CASE WHEN :on THEN now() END WHERE id = :operator_id
""")
_WAS_RECORDED = Named("""
SELECT EXISTS (SELECT FROM audit WHERE actor = :actor AND action = :action AND object = :about
 AND at > now() - make_interval(mins => :minutes))
""")
_HOLD_OPERATOR = Named("UPDATE operators SET last_login_at = last_login_at WHERE id = :operator_id")
_BEGIN_STEP = Named(
    """
INSERT INTO operator_steps (token_hash, operator_id, how, expires_at)
SELECT :token_hash, operator_id, :how, now() + make_interval(mins => :step_minutes) FROM operator_factors
 WHERE operator_id = :operator_id AND confirmed_at IS NOT NULL RETURNING operator_id
""",
    step_minutes=STEP_MINUTES,
)
_BEGIN_LOGIN = Named(
    """
WITH lapsed AS (
  DELETE FROM operator_sessions WHERE expires_at <= now()
), who AS (
  UPDATE operators SET last_login_at = now() WHERE id = :operator_id AND disabled_at IS NULL
  RETURNING id, name
), begun AS (
  INSERT INTO operator_sessions
         (token_hash, operator_id, expires_at, how, source, browser)
  SELECT :token_hash, id, now() + make_interval(hours => :session_hours), :how, :source, :browser FROM who
)
SELECT name FROM who
""",
    session_hours=SESSION_HOURS,
)
"""Insert a session unless the operator is disabled, and delete expired ones."""
_ADD_LINK = Named(
    """
INSERT INTO login_links (token_hash, operator_id, expires_at)
VALUES (:token_hash, :operator_id, now() + make_interval(mins => :link_minutes))
""",
    link_minutes=LINK_MINUTES,
)
