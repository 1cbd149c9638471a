"""Storage that is well or is not, for whoever asks it before holding an error against something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from shared.core.values.errors import EvertalkError, StorageUnavailable


def broken_line() -> Exception:
    """As of a connection that died in the middle of its protocol."""
    return asyncpg.InternalClientError('cannot switch to state 12; protocol is in the "failed" state')


class Doubtful:
    """`asking` is an AskStorage; `asked` tells how often something unexpected came by."""

    def __init__(self, *, well: bool = False) -> None:
        self.well = well
        self.asked = 0
        self.was_asked = asyncio.Event()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        try:
            yield
        except EvertalkError:
            raise
        except Exception as error:
            self.asked += 1
            self.was_asked.set()
            if not self.well:
                raise StorageUnavailable("not known to be well") from error
            raise
