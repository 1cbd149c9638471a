"""The operators' door at addresses that visitors and programs share with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from aiohttp import web

from web.parts import Handler

Role = Literal["viewer", "operator", "admin"]


class Operator(Protocol):
    """Who is logged in."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    def may(self, role: Role) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAuth:
    """Who answers at an address of ours when no visitor asks; without a dashboard, nobody."""

    originals: Handler | None = None
    messages: Handler | None = None
    attachments: Handler | None = None
    who: Callable[[web.Request], Awaitable[Operator | None]] | None = None
    audit: Callable[..., Awaitable[None]] | None = None
    streams: Callable[[], int] = int
    """How many screens of operators follow what changes."""

    async def signed_in(self, request: web.Request) -> Operator | None:
        return None if self.who is None else await self.who(request)

    async def record(self, **what: Any) -> None:
        """What cannot be put on record is not done: raises StorageUnavailable."""
        assert self.audit is not None, "somebody is signed in"
        await self.audit(**what)


OPERATORS: web.AppKey[OperatorAuth] = web.AppKey("operators", OperatorAuth)
