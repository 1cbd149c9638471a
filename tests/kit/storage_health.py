"""A test's stand-in for the check whether storage works, which is done before an error counts against
something.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from shared.core.values.errors import EvertalkError, StorageUnavailable


def broken_line() -> Exception:
    """Return the error of a connection that broke in the middle of its protocol."""
    return asyncpg.InternalClientError('cannot switch to state 12; protocol is in the "failed" state')


class Doubtful:
    """A storage check that finds storage healthy if `well` is set.

    `asking` is an AskStorage; `asked` counts unexpected errors.
    """

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
