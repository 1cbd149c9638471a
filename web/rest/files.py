"""Downloads that are sent while they are read; a client can tell a complete file from an aborted one."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import structlog
from aiohttp import web

from shared.core.privacy.export import ExportFormat
from shared.core.values.errors import EvertalkError
from web.protocol.answers import ABSENT, Absent
from web.rest.arguments import In
from web.rest.kinds import describe

Format = Annotated[ExportFormat, In("query", "format"), describe("format of the export; JSON by default")]
log = structlog.get_logger(__name__)

NAME_HEADER = "X-File-Name"
"""Request header with the percent-encoded file name; not in the address, which proxies log."""
MOST_AT_ONCE = 5
"""Maximum files of one message."""
FileName = Annotated[
    str,
    In("header", NAME_HEADER),
    describe("file name, percent-encoded", json_schema_extra={"maxLength": 2_000}),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    id: str
    name: str
    mime: str
    size: int
    url: str
    width: int | Absent = ABSENT
    height: int | Absent = ABSENT
    cut: Annotated[bool, describe("true if only the beginning of the file is read")] | Absent = ABSENT
    heard: Annotated[str, describe("transcript of a recording, added to the message")] | Absent = ABSENT


EXPORT_SECONDS = 600.0
"""Maximum seconds for a whole download."""
WRITE_SECONDS = 30.0
"""Seconds without progress after which the client counts as disconnected."""
PIECE_CHARS = 65_536
"""Characters that are collected before they are sent."""
_MARK = "\ufeff"
"""Byte order mark; without it a common spreadsheet reads the file as Windows-1252."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters at the beginning of a cell that make a spreadsheet compute it."""


async def send_file(
    request: web.Request,
    pieces: AsyncIterator[str],
    *,
    name: str,
    kind: str,
    headers: Mapping[str, str],
    seconds: float | None = EXPORT_SECONDS,
) -> web.StreamResponse:
    """Send pieces of text as a file to download.

    Errors before the first piece are raised. After that, an error or more than `seconds` aborts the
    connection, so that the file is known to be incomplete; `seconds` None means no limit.
    """
    first = await anext(pieces)
    told = {"Content-Type": kind, "Content-Disposition": f'attachment; filename="{name}"'}
    response = web.StreamResponse(headers={**headers, **told})
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await _write(response, first)
            async for piece in pieces:
                await _write(response, piece)
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write_eof()
    except ConnectionError:
        log.info("export_client_disconnected", file=name)
    except (EvertalkError, TimeoutError) as error:
        log.warning("export_aborted", file=name, reason=str(error))
        # An aborted file is known to be incomplete; an error text would look like part of the file.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _write(response: web.StreamResponse, piece: str) -> None:
    """Send one piece. Raises TimeoutError if the client does not read it in time."""
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(piece.encode("utf-8", "replace"))


async def send_csv(
    request: web.Request,
    rows: AsyncIterator[Sequence[object]],
    *,
    name: str,
    columns: Sequence[str],
    headers: Mapping[str, str],
) -> web.StreamResponse:
    """Send rows as a CSV file to download; `name` is without suffix and must not contain text of users."""
    pieces = _write_pieces(columns, rows)
    return await send_file(
        request, pieces, name=f"{name}.csv", kind="text/csv; charset=utf-8", headers=headers, seconds=None
    )


async def _write_pieces(columns: Sequence[str], rows: AsyncIterator[Sequence[object]]) -> AsyncIterator[str]:
    """Yield the CSV file in pieces of about PIECE_CHARS."""
    written, chars = [_MARK + csv_line(columns)], 0
    async for row in rows:
        written.append(csv_line(row))
        chars += len(written[-1])
        if chars >= PIECE_CHARS:
            yield "".join(written)
            written, chars = [], 0
    yield "".join(written)


def csv_line(cells: Sequence[object]) -> str:
    """Return a line of a CSV file."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([safe_cell(cell) for cell in cells])
    return line.getvalue()


def safe_cell(cell: object) -> object:
    """Return the value of a CSV cell; a text that a spreadsheet would compute gets an apostrophe before it.

    None becomes an empty text, numbers stay numbers, and NUL characters are removed.
    """
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\x00", "")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
