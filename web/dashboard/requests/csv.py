"""Sends rows as a CSV file while they are read, so that no list is too long, and no cell is a formula."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from web.dashboard.access import HEADERS, AuthedRequest

PIECE_CHARS = 65_536
WRITE_SECONDS = 30.0
"""A reader who takes nothing for so long is gone."""
_MARK = "\ufeff"
"""Without it a widely used spreadsheet takes the file for Windows-1252."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


async def stream_csv(
    visit: AuthedRequest, name: str, columns: Sequence[str], rows: AsyncIterator[Sequence[object]]
) -> web.StreamResponse:
    """`name` without `.csv`, of words of ours. What fails before the first rows is still a proper error."""
    written = io.StringIO()
    written.write(_MARK + csv_line(columns))
    response: web.StreamResponse | None = None
    async for row in rows:
        written.write(csv_line(row))
        if written.tell() >= PIECE_CHARS:
            response = response or await _begun(visit, name)
            await _send(response, written)
    response = response or await _begun(visit, name)
    await _send(response, written)
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write_eof()
    return response


def csv_line(cells: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([safe_cell(cell) for cell in cells])
    return line.getvalue()


def safe_cell(cell: object) -> object:
    """Numbers stay numbers, unknown is empty; a text that a spreadsheet would compute gets a quote mark."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\x00", "")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


async def _begun(visit: AuthedRequest, name: str) -> web.StreamResponse:
    response = web.StreamResponse(headers=HEADERS)
    response.content_type, response.charset = "text/csv", "utf-8"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    await response.prepare(visit.request)
    return response


async def _send(response: web.StreamResponse, written: io.StringIO) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(written.getvalue().encode("utf-8", "replace"))
    written.seek(0)
    written.truncate()
