"""Loads what a first answer needs while its process already serves: nobody who writes first waits for it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shared.ports import TokenCounter


class LoadableModels(Protocol):
    """Models whose library is loaded beside other work."""

    def start_loading(self) -> None: ...
    async def wait_until_loaded(self) -> None: ...


class WarmUp:
    """In threads: the process hears, stores and beats meanwhile."""

    def __init__(self, models: LoadableModels, counter: TokenCounter) -> None:
        self._models = models
        self._counter = counter
        self.is_done = False
        """Also when something cannot be loaded: whoever needs it says why, and waiting would not bring it."""

    async def run(self) -> None:
        # One after the other: two that load at once are no sooner done, and leave holes in memory.
        await asyncio.to_thread(self._counter.count_tokens, "warm")
        self._models.start_loading()
        await self._models.wait_until_loaded()
        self.is_done = True
