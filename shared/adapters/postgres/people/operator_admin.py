"""Store for the administration of operators: invitations, roles, locks and logins.

One active admin always remains.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, delete, select

from shared.adapters.postgres.db.pool import Named, store_method
from shared.adapters.postgres.people.admin_store import (
    AdminSession,
    AdminStore,
    LoginLinkTable,
    LoginPlaceTable,
    LoginTriesTable,
    OperatorPictureTable,
    OperatorSessionTable,
    OperatorStepTable,
    OperatorTable,
)
from shared.adapters.postgres.people.operator_auth import IDLE_MINUTES, hash_secret, hold_operator
from shared.core.identity.operators import (
    INVITATION_HOURS,
    LastAdmin,
    OfTheProvider,
    OperatorExists,
    OperatorLocked,
    Role,
    StaleOperator,
    UnknownOperator,
    check_display_name,
    check_operator_name,
    check_picture,
    check_role,
)

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """Invitation of an operator; `token` logs in once and is never shown again."""

    id: UUID
    name: str
    token: str
    expires_at: datetime


class OperatorAdmin(AdminStore):
    """Administration of operators; every change has an audit entry with its author `by`.

    Each method is one transaction and raises StorageUnavailable.
    """

    @store_method
    async def list_all(self) -> list[dict[str, Any]]:
        """Return all operators with their open logins, as objects of the API.

        They are ordered by name, locked ones last.
        """
        text = await self._pool.fetchval(*_ALL())
        found: list[dict[str, Any]] = json.loads(text)
        return found

    @store_method
    async def list_logins(self, operator_id: int, token: str = "") -> list[dict[str, Any]]:
        """Return the operator's open logins as objects of the API, newest first.

        That of the session token `token` comes first and is marked as `this`.
        """
        text = await self._pool.fetchval(*_OWN(operator_id=operator_id, token_hash=hash_secret(token)))
        found: list[dict[str, Any]] = json.loads(text)
        return found

    @store_method
    async def set_display_name(self, operator_id: int, name: str, *, by: str) -> None:
        """Set the name that people see with an operator's next messages; "" hides the operator's name.

        Raises BadOperator if it is invalid.
        """
        shown = check_display_name(name)
        change = update(OperatorTable).where(col(OperatorTable.id) == operator_id).values(display_name=shown)
        async with self._begin() as session:
            await session.exec(change)
            await session.audit("operator.display_name", by=by, about=by)

    @store_method
    async def set_picture(self, operator_id: int, content: bytes | None, *, by: str) -> str:
        """Store the picture of an operator for later messages, or delete it if `content` is None.

        Returns its key, "" without a picture. Raises BadOperator if it is no picture of an allowed kind and
        size.
        """
        key = "" if content is None else hashlib.sha256(check_picture(content)).hexdigest()[:32]
        async with self._begin() as session:
            if content is None:
                await session.exec(
                    delete(OperatorPictureTable).where(col(OperatorPictureTable.operator_id) == operator_id)
                )
            else:
                values = {"operator_id": operator_id, "key": key, "content": content}
                new = insert(OperatorPictureTable).values(values)
                await session.exec(new.on_conflict_do_update(index_elements=["operator_id"], set_=values))
            await session.audit("operator.picture", by=by, about=by)
        return key

    @store_method
    async def load_picture(self, key: str) -> bytes | None:
        """Return the bytes of the picture with this key; None if it is unknown."""
        found: bytes | None = await self._pool.fetchval(*_PICTURE(key=key))
        return found

    @store_method
    async def invite(self, name: str, role: str, *, by: str) -> Invitation:
        """Create an operator and return the invitation with a login link, valid for INVITATION_HOURS.

        Raises BadOperator for an invalid name or role, and OperatorExists for a taken name, in any case of
        letters.
        """
        name, wanted = check_operator_name(name), check_role(role)
        async with self._begin() as session:
            await _lock_admins(session)
            if (
                await session.exec(select(1).where(func.lower(OperatorTable.name) == func.lower(name)))
            ).first():
                raise OperatorExists(name)
            row = await _make_operator(session, name=name, role=wanted)
            await session.audit("operator.invited", by=by, about=_about(row), detail={"role": wanted})
            return await _link(session, row)

    @store_method
    async def link(self, operator: UUID, *, by: str) -> Invitation:
        """Create a login link for an existing operator, in place of earlier unused ones.

        The link is valid for INVITATION_HOURS. Raises UnknownOperator, OfTheProvider if an identity provider
        logs the operator in, and OperatorLocked.
        """
        async with self._begin() as session:
            row = await _find_operator(session, operator)
            if row.issuer is not None:
                raise OfTheProvider
            if row.disabled_at is not None:
                raise OperatorLocked
            await hold_operator(await session.driver(), row.id)
            await session.audit("login_link.made", by=by, about=_about(row))
            return await _link(session, row)

    @store_method
    async def change(
        self,
        operator: UUID,
        *,
        by: str,
        version: int | None = None,
        role: str | None = None,
        locked: bool | None = None,
    ) -> dict[str, Any]:
        """Change an operator's role or lock, and return the operator; None leaves a value as it is.

        Locking ends all logins and links at once; unlocking deletes failed login attempts. Raises
        StaleOperator if the operator's version is not `version`; with None it is not compared. Raises
        UnknownOperator, LastAdmin if no unlocked admin would be left, OfTheProvider for the role of a
        provider's operator, and BadOperator for an invalid role.
        """
        wanted = None if role is None else check_role(role)
        async with self._begin() as session:
            await _lock_admins(session)
            row = await _find_operator(session, operator)
            if version is not None and version != row.version:
                raise StaleOperator(current=_build_row(row))
            changes = _changes(row, role=wanted, locked=locked)
            if not changes:
                return _build_row(row)
            if "role" in changes and row.issuer is not None:
                raise OfTheProvider
            await _keep_an_admin(session, row, changes)
            row.role, row.version = changes.get("role", row.role), row.version + 1
            if "locked" in changes:
                row.disabled_at = await session.scalar(select(func.now())) if changes["locked"] else None
            await _apply_change(session, row, changes, by=by)
            return _build_row(row)

    @store_method
    async def end_login(self, operator: UUID, login: UUID, *, by: str) -> bool:
        """End one login of an operator; return False if it does not exist any more.

        Raises UnknownOperator.
        """
        async with self._begin() as session:
            return await _end(session, await _find_operator(session, operator), by=by, login=login) > 0

    @store_method
    async def end_logins(self, operator: UUID, *, by: str) -> int:
        """End all logins of an operator with their push subscriptions; return the number of logins.

        Raises UnknownOperator.
        """
        async with self._begin() as session:
            return await _end(session, await _find_operator(session, operator), by=by)

    @store_method
    async def end_own(self, operator_id: int, *, keep: str, login: UUID | None = None) -> int:
        """End the operator's own login `login`, or, if None, all logins but that of the session token `keep`.

        Returns the number ended. The login of `keep` never ends.
        """
        async with self._begin() as session:
            row = await session.get_one(OperatorTable, operator_id)
            return await _end(session, row, by=row.name, login=login, keep=keep)

    @store_method
    async def find_by_name(self, name: str) -> UUID:
        """Return the public id of the operator with this login name, in any case of letters.

        Raises UnknownOperator.
        """
        called = select(OperatorTable.public_id).where(func.lower(OperatorTable.name) == func.lower(name))
        async with self._begin() as session:
            found = (await session.exec(called.order_by(col(OperatorTable.name) != name))).first()
        if found is None:
            raise UnknownOperator(advice=f"No operator is called {name}; ./evertalk operator list shows all.")
        return found

    @store_method
    async def find_password_user(self, operator: UUID) -> int:
        """Return the internal id of an operator who may have a password.

        Raises UnknownOperator, and OfTheProvider if an identity provider logs the operator in.
        """
        async with self._begin() as session:
            row = await _find_operator(session, operator)
        if row.issuer is not None:
            raise OfTheProvider
        return row.id

    @store_method
    async def upsert_from_provider(self, *, issuer: str, subject: str, name: str, role: Role) -> int | None:
        """Create an operator of the identity provider, or update the role; return the internal id.

        The operator is found by `issuer` and `subject`. A new operator whose name is taken gets a number
        appended. Returns None if an admin has locked the operator in this program.
        """
        async with self._begin() as session:
            await _lock_admins(session)
            known = select(OperatorTable).where(
                OperatorTable.issuer == issuer, OperatorTable.subject == subject
            )
            row = (await session.exec(known)).one_or_none()
            if row is None:
                name = await _free_name(session, name)
                row = await _make_operator(session, name=name, role=role, issuer=issuer, subject=subject)
                detail = {"role": role, "from": "provider"}
                await session.audit("operator.made", by=name, about=_about(row), detail=detail)
            if row.disabled_at is not None:
                return None
            if row.role != role:
                row.role, row.version = role, row.version + 1
                detail = {"role": role}
                await session.audit(
                    "operator.changed", by="identity provider", about=_about(row), detail=detail
                )
            return row.id


async def _lock_admins(session: AdminSession) -> None:
    """Lock the operators' table, so that two admins who demote each other cannot both succeed."""
    await (await session.driver()).execute("LOCK TABLE operators IN SHARE ROW EXCLUSIVE MODE")


async def _make_operator(session: AdminSession, **columns: object) -> OperatorTable:
    new = insert(OperatorTable).values(columns).returning(OperatorTable)
    row: OperatorTable = (await session.exec(new)).scalars().one()
    return row


async def _find_operator(session: AdminSession, operator: UUID) -> OperatorTable:
    row = (await session.exec(select(OperatorTable).where(OperatorTable.public_id == operator))).one_or_none()
    if row is None:
        raise UnknownOperator
    return row


def _changes(row: OperatorTable, *, role: Role | None, locked: bool | None) -> dict[str, Any]:
    wanted = {"role": role, "locked": locked}
    stands = {"role": row.role, "locked": row.disabled_at is not None}
    return {name: value for name, value in wanted.items() if value is not None and value != stands[name]}


async def _keep_an_admin(session: AdminSession, row: OperatorTable, changes: Mapping[str, Any]) -> None:
    goes = changes.get("locked") or changes.get("role", "admin") != "admin"
    if row.role != "admin" or row.disabled_at is not None or not goes:
        return
    admins = select(1).where(OperatorTable.role == "admin", col(OperatorTable.disabled_at).is_(None))
    if (await session.exec(admins.where(OperatorTable.id != row.id))).first() is None:
        raise LastAdmin


async def _apply_change(
    session: AdminSession, row: OperatorTable, changes: Mapping[str, Any], *, by: str
) -> None:
    """Apply the consequences of a change, with its audit entry.

    A locked operator is logged out at once; for an unlocked one failed login attempts are deleted.
    """
    gone: dict[bool | None, tuple[Any, ...]] = {
        True: (OperatorSessionTable, LoginLinkTable, OperatorStepTable, LoginPlaceTable),
        False: (LoginTriesTable,),
    }
    for table in gone.get(changes.get("locked"), ()):
        await session.exec(delete(table).where(table.operator_id == row.id))
    if changes.get("locked"):
        driver = await session.driver()
        await driver.execute(*_END_ALL_PUSH(operator_id=row.id))
    if "locked" in changes:
        action = "operator.locked" if changes["locked"] else "operator.unlocked"
        await session.audit(action, by=by, about=_about(row))
    if "role" in changes:
        await session.audit("operator.changed", by=by, about=_about(row), detail={"role": changes["role"]})


async def _end(
    session: AdminSession, row: OperatorTable, *, by: str, login: UUID | None = None, keep: str = ""
) -> int:
    end = delete(OperatorSessionTable).where(
        col(OperatorSessionTable.operator_id) == row.id,
        col(OperatorSessionTable.token_hash) != hash_secret(keep),
    )
    if login is not None:
        end = end.where(col(OperatorSessionTable.public_id) == login)
    else:
        # Also of expired logins, whose browsers would still be notified.
        driver = await session.driver()
        await driver.execute(*_END_PUSH(operator_id=row.id, keep=hash_secret(keep)))
    ended = len((await session.exec(end.returning(col(OperatorSessionTable.public_id)))).all())
    if ended:
        await session.audit("login.revoked", by=by, about=_about(row), detail={"logins": ended})
    return ended


_END_PUSH = Named("DELETE FROM push_subscriptions WHERE operator_id = :operator_id AND login_hash <> :keep")


async def _link(session: AdminSession, row: OperatorTable) -> Invitation:
    """Create a login link and delete the operator's older ones."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    unused = col(LoginLinkTable.used_at).is_(None)
    await session.exec(delete(LoginLinkTable).where(col(LoginLinkTable.operator_id) == row.id, unused))
    end = func.now() + timedelta(hours=INVITATION_HOURS)
    new = insert(LoginLinkTable).values(token_hash=hash_secret(token), operator_id=row.id, expires_at=end)
    expires_at = (await session.exec(new.returning(col(LoginLinkTable.expires_at)))).scalar_one()
    return Invitation(id=row.public_id, name=row.name, token=token, expires_at=expires_at)


async def _free_name(session: AdminSession, name: str) -> str:
    lower = func.lower(OperatorTable.name)
    taken = set(await session.exec(select(lower).where(func.starts_with(lower, func.lower(name)))))
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name} {number}"
    return free


def _about(row: OperatorTable) -> str:
    return f"operator:{row.public_id}"


def _build_row(row: OperatorTable) -> dict[str, Any]:
    return {
        "id": str(row.public_id),
        "name": row.name,
        "role": row.role,
        "locked": row.disabled_at is not None,
        "version": row.version,
    }


_ALL = Named(
    """
SELECT coalesce(jsonb_agg(jsonb_build_object(
         'id', o.public_id, 'name', o.name, 'role', o.role, 'version', o.version,
         'locked', o.disabled_at IS NOT NULL, 'locked_at', o.disabled_at,
         'has_password', o.password_hash IS NOT NULL,
         'has_second_factor', EXISTS (SELECT FROM operator_factors f
                                       WHERE f.operator_id = o.id AND f.confirmed_at IS NOT NULL),
         'by_provider', o.issuer IS NOT NULL, 'created_at', o.created_at, 'last_login_at', o.last_login_at,
         'link_until', (SELECT max(l.expires_at) FROM login_links l
                         WHERE l.operator_id = o.id AND l.used_at IS NULL AND l.expires_at > now()),
         'refused_until', (SELECT max(t.refused_until) FROM login_tries t
                            WHERE t.operator_id = o.id AND t.refused_until > now()),
         'logins', coalesce((
           SELECT jsonb_agg(jsonb_build_object(
                    'id', s.public_id, 'at', s.created_at, 'seen_at', s.seen_at, 'expires_at', s.expires_at,
                    'how', s.how, 'source', s.source, 'browser', s.browser)
                    ORDER BY s.created_at DESC, s.public_id)
             FROM operator_sessions s
            WHERE s.operator_id = o.id AND s.expires_at > now()
              AND s.seen_at > now() - make_interval(mins => :idle_minutes)), '[]')
       ) ORDER BY o.disabled_at IS NOT NULL, lower(o.name)), '[]')::text
  FROM operators o
""",
    idle_minutes=IDLE_MINUTES,
)
"""Select all operators with their open logins as JSON; locked operators come last."""
_OWN = Named(
    """
SELECT coalesce(jsonb_agg(jsonb_build_object(
                  'id', s.public_id, 'at', s.created_at, 'seen_at', s.seen_at, 'expires_at', s.expires_at,
                  'how', s.how, 'source', s.source, 'browser', s.browser,
                  'this', s.token_hash = :token_hash)
                ORDER BY s.token_hash = :token_hash DESC, s.created_at DESC, s.public_id), '[]')::text
  FROM operator_sessions s
 WHERE s.operator_id = :operator_id AND s.expires_at > now()
   AND s.seen_at > now() - make_interval(mins => :idle_minutes)
""",
    idle_minutes=IDLE_MINUTES,
)
"""Select an operator's open logins as JSON, this one first, then the newest."""
_PICTURE = Named("SELECT content FROM operator_pictures WHERE key = :key LIMIT 1")
_END_ALL_PUSH = Named("DELETE FROM push_subscriptions WHERE operator_id = :operator_id")
