"""Store by which API keys are found and their actions recorded.

`api_key_admin.py` creates and revokes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.operator_auth import append_audit, hash_secret
from shared.core.identity.api_keys import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """API key without its token; `site` and `agent` None mean no limit."""

    id: int
    name: str
    prefix: str
    """First characters of the token, by which people recognise it; the whole token is not stored."""
    scopes: tuple[Scope, ...]
    site: str | None
    agent_id: int | None
    agent: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """Hour of the last use; None before the first one."""
    revoked_at: datetime | None

    @property
    def actor(self) -> str:
        """Name under which the key's actions are in the audit log, such as `key:7`."""
        return f"key:{self.id}"


class PostgresApiKeys(PoolStore):
    """Store of API keys; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def find(self, token: str) -> ApiKey | None:
        """Return the valid key of a token; None if it is unknown, expired or revoked.

        Stores the hour of its use. The key is found by the token's hash, so that response times reveal
        nothing.
        """
        digest = hash_secret(token)
        row = await self._pool.fetchrow(*_FIND(token_hash=digest))
        if row is None or not secrets.compare_digest(row["token_hash"], digest):
            return None
        return build_api_key(dict(row), row["agent"])

    @store_method
    async def record(self, key: ApiKey, action: str, *, about: str, detail: Mapping[str, Any]) -> None:
        """Append an action of a key to the audit log; `detail` has ids and numbers only."""
        async with self._pool.acquire() as connection, connection.transaction():
            await append_audit(connection, actor=key.actor, action=action, about=about, detail=detail)


_FIND = Named("""
WITH used AS (
  UPDATE api_keys SET last_used_at = date_trunc('hour', now())
   WHERE token_hash = :token_hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
     AND (last_used_at IS NULL OR last_used_at < date_trunc('hour', now()))
)
SELECT k.*, a.name AS agent FROM api_keys k LEFT JOIN agents a ON a.id = k.agent_id
 WHERE token_hash = :token_hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
""")
"""Select the valid key of a token with its agent's name, and store its use at most once an hour."""


def build_api_key(row: Mapping[str, Any], agent: str | None) -> ApiKey:
    """Return the API key of a row; `agent` is the name of its agent, None without a limit."""
    names = (field.name for field in fields(ApiKey) if field.name not in ("agent", "scopes"))
    return ApiKey(scopes=tuple(row["scopes"]), agent=agent, **{name: row[name] for name in names})
