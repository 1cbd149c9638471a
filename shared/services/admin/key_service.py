"""API keys for operators: the rules by which they are created and revoked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shared.core.identity.api_keys import Scope, check_days, check_name, check_scopes
from shared.core.values.errors import EvertalkError, NotFound


class ApiKeyStore(Protocol):
    """Store of API keys, of which only hashes are stored.

    `create` returns the token, None if the name is taken; raises UnknownLimit for an unknown site or agent.
    `revoke` returns False if no valid key has the name or prefix.
    """

    async def create(
        self, name: str, scopes: tuple[Scope, ...], *, days: int | None, site: str | None,
        agent: str | None, by: str,
    ) -> str | None: ...  # fmt: skip
    async def revoke(self, name_or_prefix: str, *, by: str) -> bool: ...


class ApiKeyExists(EvertalkError):
    """The name of an API key is taken."""

    sentence = "The name of an API key is taken."
    code = "name_taken"
    advice = "A key with that name already exists. Revoke it first, or choose another name."


class ApiKeyNotFound(NotFound):
    """No valid API key has this name or prefix."""

    sentence = "No valid API key has this name or prefix."
    advice = "There is no such key."


class ApiKeyService:
    """Changes of API keys, each in the audit log under its actor `by`. Raises StorageUnavailable."""

    def __init__(self, keys: ApiKeyStore) -> None:
        self._keys = keys

    async def create_key(
        self, name: str, scopes: Iterable[str], *, days: int | None = None, site: str | None = None,
        agent: str | None = None, by: str,
    ) -> str:  # fmt: skip
        """Create a key and return its token, which cannot be read again.

        It is valid for `days` days and limited to a site or an agent; None means without limit. Raises
        BadKey, UnknownLimit, ApiKeyExists.
        """
        token = await self._keys.create(
            check_name(name), check_scopes(scopes), days=check_days(days), site=site, agent=agent, by=by
        )
        if token is None:
            raise ApiKeyExists(name)
        return token

    async def revoke_key(self, name_or_prefix: str, *, by: str) -> None:
        """Revoke a key at once. Raises ApiKeyNotFound."""
        if not await self._keys.revoke(name_or_prefix, by=by):
            raise ApiKeyNotFound(name_or_prefix)
