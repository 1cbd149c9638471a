"""What the dashboard asks of the commands: to run one for a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class CommandsLike(Protocol):
    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str,
        cid: str | None,
        progress: Callable[..., Awaitable[None]] | None,
    ) -> Any:
        """What came of it: a mapping, or a value with `success`, `result` and `error`."""
        ...
