"""`GET /api/v1/export?format=md|json`: a visitor's own data as a file, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from shared.core.privacy.export import MIME, ExportFormat
from shared.core.values.errors import EvertalkError
from web.api.responses import caller, check_rate
from web.parts import PARTS, Parts
from web.security import HttpRefusal, cross_origin_headers
from web.server.http_server import HEADERS

log = structlog.get_logger(__name__)

EXPORT_SECONDS = 600.0
EXPORT_PATH = "/api/v1/export"


async def export(request: web.Request) -> web.StreamResponse:
    parts = request.app[PARTS]
    known = await caller(request)
    kind = _kind(request.query.get("format", "md"))
    check_rate(request, parts, known, "exports")
    pieces = parts.exporting.stream(known.row.session_id, kind)
    # Read before the head goes out: whoever cannot have it is told so by the status.
    first = await anext(pieces)
    response = web.StreamResponse(headers={**_headers(parts, kind), **await cross_origin_headers(request)})
    try:
        async with asyncio.timeout(EXPORT_SECONDS):
            await response.prepare(request)
            await _written(response, first, pieces)
    except ConnectionError:
        log.info("export_hung_up", session_id=known.row.session_id)
    except (EvertalkError, TimeoutError) as error:
        log.warning("export_broken_off", session_id=known.row.session_id, reason=str(error))
        # Cut off it is known to be incomplete; a second answer could not be told from the file.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _written(response: web.StreamResponse, first: str, pieces: AsyncIterator[str]) -> None:
    await response.write(first.encode())
    async for piece in pieces:
        await response.write(piece.encode())
    await response.write_eof()


def _headers(parts: Parts, kind: ExportFormat) -> dict[str, str]:
    return {
        **HEADERS,
        "Content-Type": MIME[kind],
        "Content-Disposition": f'attachment; filename="{parts.exporting.build_file_name(kind)}"',
        "Cache-Control": "no-store",
    }


def _kind(name: str) -> ExportFormat:
    match name:
        case "md" | "markdown":
            return "md"
        case "json":
            return "json"
    raise HttpRefusal(400, "bad_format", "`format` is md or json.")
