"""Store for creating and revoking API keys; each change has an audit entry."""

from __future__ import annotations

import secrets
from datetime import timedelta

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, or_, select

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people.admin_store import (
    AdminSession,
    AdminStore,
    AgentTable,
    ApiKeyTable,
    SiteTable,
)
from shared.adapters.postgres.people.api_keys import ApiKey, build_api_key
from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.core.identity.api_keys import TOKEN_MARK, Scope, UnknownLimit

PREFIX_CHARS = len(TOKEN_MARK) + 6
"""Characters of a token by which people recognise its key."""
_TOKEN_BYTES = 32
_LIVES = col(ApiKeyTable.revoked_at).is_(None)


class ApiKeyAdmin(AdminStore):
    """Administration of API keys; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def create(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        *,
        days: int | None = None,
        site: str | None = None,
        agent: str | None = None,
        by: str,
    ) -> str | None:
        """Create a key and return its token, which cannot be read again; None if a valid key has the name.

        `days` is its lifetime, None means no end; `site` and `agent` limit its access, None means no limit.
        Raises UnknownLimit if they do not exist.
        """
        token = TOKEN_MARK + secrets.token_urlsafe(_TOKEN_BYTES)
        async with self._begin() as session:
            new = insert(ApiKeyTable).values(
                name=name, prefix=token[:PREFIX_CHARS], token_hash=hash_secret(token), scopes=list(scopes),
                site=site, agent_id=await _limits(session, site=site, agent=agent),
                expires_at=None if days is None else func.now() + timedelta(days=days),
            ).on_conflict_do_nothing(index_elements=[ApiKeyTable.name], index_where=_LIVES)  # fmt: skip
            key_id = await session.scalar(new.returning(col(ApiKeyTable.id)))
            if key_id is None:
                return None
            await session.audit("key.made", by=by, about=f"key:{key_id}", detail={"scopes": list(scopes)})
        return token

    @store_method
    async def list_all(self) -> list[ApiKey]:
        """Return all keys, revoked ones last, else by name."""
        keys = select(ApiKeyTable, AgentTable.name).join(AgentTable, isouter=True)
        by_life = keys.order_by(~_LIVES, col(ApiKeyTable.name), col(ApiKeyTable.id))
        async with self._begin() as session:
            return [build_api_key(key.model_dump(), agent) for key, agent in await session.exec(by_life)]

    @store_method
    async def revoke(self, name_or_prefix: str, *, by: str) -> bool:
        """Revoke the keys with this name or prefix; return False if no unrevoked key has it."""
        called = or_(ApiKeyTable.name == name_or_prefix, ApiKeyTable.prefix == name_or_prefix)
        end = update(ApiKeyTable).where(_LIVES, called).values(revoked_at=func.now())
        async with self._begin() as session:
            ended = (await session.exec(end.returning(col(ApiKeyTable.id)))).scalars().all()
            for key_id in ended:
                await session.audit("key.revoked", by=by, about=f"key:{key_id}")
        return bool(ended)


async def _limits(session: AdminSession, *, site: str | None, agent: str | None) -> int | None:
    if site is not None and await session.get(SiteTable, site) is None:
        raise UnknownLimit(f"There is no site {site}; ./evertalk site list shows which there are.")
    if agent is None:
        return None
    agent_id = (await session.exec(select(AgentTable.id).where(AgentTable.name == agent))).one_or_none()
    if agent_id is None:
        raise UnknownLimit(f"There is no agent {agent}; ./evertalk agent list shows which there are.")
    return agent_id
