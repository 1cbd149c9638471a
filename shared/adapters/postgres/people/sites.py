"""Store of widget sites and their sealed secrets; changes are compare-and-set with an audit entry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, column, func, table, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, delete, select

from shared.adapters.postgres.db.pool import Named, store_method
from shared.adapters.postgres.people.admin_store import (
    AdminSession,
    AdminStore,
    AgentTable,
    RefusedOriginTable,
    SiteSecretTable,
    SiteTable,
)
from shared.config.sites import SiteView
from shared.ports import SealedSecret


class PostgresSites(AdminStore):
    """Store of sites; each method is one transaction and raises StorageUnavailable.

    Changes are appended to the audit log; `by` is the actor there.
    """

    @store_method
    async def list_all(self) -> list[SiteView]:
        """Return all sites, ordered by name."""
        return await self._rows()

    @store_method
    async def find(self, name: str) -> SiteView | None:
        """Return the site with this name; None if there is none."""
        return next(iter(await self._rows(col(SiteTable.name) == name)), None)

    async def _rows(self, *which: ColumnElement[bool]) -> list[SiteView]:
        async with self._begin() as session:
            return [
                _build_view(*row) for row in await session.exec(_SITES.where(*which).order_by(SiteTable.name))
            ]

    @store_method
    async def add(self, site: SiteView, *, by: str) -> bool:
        """Add a site; return False, without effect, if its name is taken or its agent does not exist."""
        async with self._begin() as session:
            agent = await _agent(session, site.agent)
            if agent is None:
                return False
            new = insert(SiteTable).values(name=site.name, agent_id=agent, **_columns(site))
            made = await session.scalar(new.on_conflict_do_nothing().returning(col(SiteTable.name)))
            if made is not None:
                await session.audit("site.made", by=by, about=site.name, detail={"agent": agent})
        return made is not None

    @store_method
    async def change(self, site: SiteView, *, by: str) -> int | None:
        """Replace a site's settings and return the new version.

        Returns None, without effect, if its version is no longer `site.version`. An unknown agent leaves the
        present one.
        """
        change = update(SiteTable).where(
            col(SiteTable.name) == site.name, col(SiteTable.version) == site.version
        )
        async with self._begin() as session:
            agent = await _agent(session, site.agent)
            given = {} if agent is None else {"agent_id": agent}
            now = {"version": SiteTable.version + 1, **given, **_columns(site)}
            row: SiteTable | None = await session.scalar(change.values(now).returning(SiteTable))
            if row is None:
                return None
            detail = {"agent": row.agent_id, "version": row.version}
            await session.audit("site.changed", by=by, about=site.name, detail=detail)
        return row.version

    @store_method
    async def assign_agent(self, name: str, agent: str, *, by: str) -> bool:
        """Assign an agent to new conversations of a site.

        Returns False, without effect, if the site or the agent does not exist.
        """
        async with self._begin() as session:
            site, agent_id = await _lock_site(session, name), await _agent(session, agent)
            if site is None or agent_id is None:
                return False
            site.agent_id, site.version = agent_id, site.version + 1
            await session.audit("site.changed", by=by, about=name, detail={"agent": agent_id})
        return True

    @store_method
    async def list_refused_origins(self, name: str) -> Sequence[RefusedOriginTable]:
        """Return the origins whose pages asked for the site's chat and were refused, the latest first.

        Each has the number of refusals and the time of the last one.
        """
        theirs = select(RefusedOriginTable).where(RefusedOriginTable.site == name)
        async with self._begin() as session:
            return (await session.exec(theirs.order_by(col(RefusedOriginTable.last_at).desc()))).all()

    @store_method
    async def allow_origin(self, name: str, origin: str, *, by: str) -> None:
        """Add an origin to a site's allowed ones and remove it from the refused ones.

        Adds nothing if the site is unknown or allows the origin already. `by` is the actor in the audit log.
        """
        gone = delete(RefusedOriginTable).where(
            col(RefusedOriginTable.site) == name, col(RefusedOriginTable.origin) == origin
        )
        async with self._begin() as session:
            site = await _lock_site(session, name)
            await session.exec(gone)
            if site is None or origin in site.allowed_origins:
                return
            site.allowed_origins, site.version = [*site.allowed_origins, origin], site.version + 1
            await session.audit("site.origin_allowed", by=by, about=name, detail={"origin": origin})

    @store_method
    async def list_secrets(self, name: str) -> Sequence[tuple[str, datetime]]:
        """Return ids and creation times of a site's secrets, oldest first, without the secrets themselves."""
        theirs = select(SiteSecretTable.secret_id, SiteSecretTable.created_at).where(
            SiteSecretTable.site == name
        )
        async with self._begin() as session:
            by_age = theirs.order_by(col(SiteSecretTable.created_at), col(SiteSecretTable.slot))
            return (await session.exec(by_age)).all()

    @store_method
    async def list_sealing_keys(self) -> frozenset[str]:
        """Return the ids of the keys with which values in this database are sealed."""
        async with self._begin() as session:
            rows = await (await session.driver()).fetch(_SEALING_KEYS)
        return frozenset(row["key_id"] for row in rows)

    @store_method
    async def list_process_keys(self) -> frozenset[str]:
        """Return ids of the secret keys that processes reported by heartbeat in the last 60 seconds."""
        async with self._begin() as session:
            rows = await (await session.driver()).fetch(_PROCESS_KEYS)
        return frozenset(row["key_id"] for row in rows)

    @store_method
    async def add_secret(self, name: str, secret_id: str, sealed: SealedSecret, *, by: str) -> bool:
        """Add a secret to a site; return False, without effect, if it has two already or does not exist."""
        async with self._begin() as session:
            if await _lock_site(session, name) is None:
                return False
            taken = set(await session.exec(select(SiteSecretTable.slot).where(SiteSecretTable.site == name)))
            free = next((slot for slot in (1, 2) if slot not in taken), None)
            if free is None:
                return False
            session.add(
                SiteSecretTable(
                    site=name, slot=free, secret_id=secret_id, key_id=sealed.key_id, sealed=sealed.data
                )
            )
            await session.audit("site.secret_added", by=by, about=name, detail={"secret": secret_id})
        return True

    @store_method
    async def revoke_secret(self, name: str, secret_id: str, *, by: str) -> bool:
        """Delete a secret, and with it the tokens of all signed-in visitors of the site.

        Returns False, without effect, if it does not exist.
        """
        old = delete(SiteSecretTable).where(
            col(SiteSecretTable.site) == name, col(SiteSecretTable.secret_id) == secret_id
        )
        async with self._begin() as session:
            gone = await session.scalar(old.returning(col(SiteSecretTable.slot)))
            if gone is not None:
                await (await session.driver()).execute(*_LOG_OUT(site=name))
                await session.audit("site.secret_revoked", by=by, about=name, detail={"secret": secret_id})
        return gone is not None


async def _lock_site(session: AdminSession, name: str) -> SiteTable | None:
    return (
        await session.exec(select(SiteTable).where(SiteTable.name == name).with_for_update())
    ).one_or_none()


async def _agent(session: AdminSession, name: str) -> int | None:
    """Return the id of an agent, and lock the agent against deletion until the transaction ends.

    Returns None if unknown.
    """
    held = select(AgentTable.id).where(AgentTable.name == name).with_for_update(read=True, key_share=True)
    return (await session.exec(held)).one_or_none()


def _columns(site: SiteView) -> dict[str, object]:
    return {
        "audience": site.audience, "allowed_origins": list(site.origins), "config": dict(site.config),
    }  # fmt: skip


_ADDRESSES = table("addresses", column("channel"), column("account"))
_SITES = select(
    SiteTable,
    AgentTable.name,
    select(func.count())
    .select_from(_ADDRESSES)
    .where(_ADDRESSES.c.channel == "web", _ADDRESSES.c.account == SiteTable.name)
    .scalar_subquery(),
).join(AgentTable)
_LOG_OUT = Named("DELETE FROM visitors WHERE site = :site AND identified")


def _build_view(site: SiteTable, agent: str, visitors: int) -> SiteView:
    return SiteView(
        name=site.name, agent=agent, audience=site.audience, origins=tuple(site.allowed_origins),
        config=site.config, version=site.version, visitors=visitors,
    )  # fmt: skip


_SEALING_KEYS = """
SELECT key_id FROM site_secrets
 UNION SELECT key_id FROM stored_settings WHERE key_id IS NOT NULL
 UNION SELECT key_id FROM operator_factors
 UNION SELECT key_id FROM push_keys
"""
_PROCESS_KEYS = """
SELECT DISTINCT health #>> '{same,key}' AS key_id FROM workers
 WHERE stopped_at IS NULL AND beat > now() - interval '60 seconds' AND health #> '{same,key}' IS NOT NULL
"""
