"""Files that are sent while they are read: none is too long, each is whole or known to be cut off."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, NotRequired

import structlog
from aiohttp import web
from typing_extensions import TypedDict

from shared.core.privacy.export import ExportFormat
from shared.core.values.errors import EvertalkError
from web.rest.arguments import In
from web.rest.kinds import describe

Format = Annotated[ExportFormat, In("query", "format"), describe("format of the export; JSON by default")]
log = structlog.get_logger(__name__)

NAME_HEADER = "X-File-Name"
"""Percent-encoded; a header, because addresses end up in the logs of proxies."""
MOST_AT_ONCE = 5
"""Files of one message."""
FileName = Annotated[
    str,
    In("header", NAME_HEADER),
    describe("file name, percent-encoded", json_schema_extra={"maxLength": 2_000}),
]
Attachment = TypedDict("Attachment", {
    "id": str, "name": str, "mime": str, "size": int, "url": str, "width": NotRequired[int],
    "height": NotRequired[int],
    "cut": NotRequired[Annotated[bool, describe("true if only the beginning of the file is read")]],
    "heard": NotRequired[Annotated[str, describe("transcript of a recording, added to the message")]],
})  # fmt: skip
EXPORT_SECONDS = 600.0
WRITE_SECONDS = 30.0
"""Seconds without progress after which a reader counts as gone."""
PIECE_CHARS = 65_536
_MARK = "\ufeff"
"""Without it a widely used spreadsheet takes the file for Windows-1252."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


async def send_file(
    request: web.Request,
    pieces: AsyncIterator[str],
    *,
    name: str,
    kind: str,
    headers: Mapping[str, str],
    seconds: float | None = EXPORT_SECONDS,
) -> web.StreamResponse:
    """Send pieces as a file; an error before the first piece is answered as an error."""
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
        # Cut off it is known to be incomplete; a second answer could not be told from the file.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _write(response: web.StreamResponse, piece: str) -> None:
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
    """Send rows as CSV; `name` has no suffix and holds no foreign text."""
    pieces = _pieces(columns, rows)
    return await send_file(
        request, pieces, name=f"{name}.csv", kind="text/csv; charset=utf-8", headers=headers, seconds=None
    )


async def _pieces(columns: Sequence[str], rows: AsyncIterator[Sequence[object]]) -> AsyncIterator[str]:
    written, chars = [_MARK + csv_line(columns)], 0
    async for row in rows:
        written.append(csv_line(row))
        chars += len(written[-1])
        if chars >= PIECE_CHARS:
            yield "".join(written)
            written, chars = [], 0
    yield "".join(written)


def csv_line(cells: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([safe_cell(cell) for cell in cells])
    return line.getvalue()


def safe_cell(cell: object) -> object:
    """Return a cell for a CSV file; a text that a spreadsheet would compute gets a quote mark before it.

    None becomes an empty text, numbers stay numbers, and NUL characters are left out.
    """
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\x00", "")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
