"""Channel for new environments: the supervisor writes lines of JSON to the standard input of a running
process.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Mapping

LONGEST_LINE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a line; a longer one closes the channel."""
_STDIN = 0


def write_environment(former: Mapping[str, str], wanted: Mapping[str, str]) -> bytes:
    """Return the line of JSON that changes the environment `former` into `wanted`; null deletes a
    variable.
    """
    changes = {
        name: wanted.get(name) for name in sorted({*former, *wanted}) if former.get(name) != wanted.get(name)
    }
    return json.dumps(changes).encode() + b"\n"


class GivenEnvironment:
    """Reader of the supervisor's lines on standard input; a process may have only one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        os.set_blocking(_STDIN, False)
        self._loop.add_reader(_STDIN, self._take)

    @classmethod
    def open(cls) -> GivenEnvironment | None:
        """Return the reader; None if standard input is not a pipe, so that no supervisor writes to it."""
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(_STDIN).st_mode) or stat.S_ISSOCK(os.fstat(_STDIN).st_mode)
        except OSError:
            return None
        return cls() if is_pipe else None

    async def read(self) -> bytes:
        """Return the next line, without its line break; wait without limit, also after the channel was
        closed.
        """
        return await self._lines.get()

    def close(self) -> None:
        """Stop reading standard input; lines that have arrived can still be read."""
        self._loop.remove_reader(_STDIN)

    def _take(self) -> None:
        try:
            piece = os.read(_STDIN, 65_536)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece or len(self._rest) > LONGEST_LINE_BYTES:
            self.close()
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line)
