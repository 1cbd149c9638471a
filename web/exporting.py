"""`GET /api/v1/export?format=md|json`: a visitor's own data as a file, page by page."""

from __future__ import annotations

import asyncio

from aiohttp import web

from shared.core.exporting import MIME, ExportFormat
from web.parts import PARTS, Parts
from web.security import Refusal, cross_origin_headers
from web.visitors import Known
from web.wire import RateLimited

EXPORT_SECONDS = 600.0
EXPORT_PATH = "/api/v1/export"


async def export(request: web.Request) -> web.StreamResponse:
    parts = request.app[PARTS]
    known = await _caller(parts, request)
    kind = _kind(request.query.get("format", "md"))
    _check_rate(parts, request, known)
    pieces = parts.exporting.pieces(known.row.session_id, kind)
    # Read before the head goes out: whoever cannot have it is told so by the status.
    first = await anext(pieces)
    response = web.StreamResponse(headers={**_headers(parts, kind), **await cross_origin_headers(request)})
    await response.prepare(request)
    async with asyncio.timeout(EXPORT_SECONDS):
        await response.write(first.encode())
        async for piece in pieces:
            await response.write(piece.encode())
        await response.write_eof()
    return response


def _headers(parts: Parts, kind: ExportFormat) -> dict[str, str]:
    return {
        "Content-Type": MIME[kind],
        "Content-Disposition": f'attachment; filename="{parts.exporting.file_name(kind)}"',
        "Cache-Control": "no-store",
    }


def _kind(name: str) -> ExportFormat:
    match name:
        case "md" | "markdown":
            return "md"
        case "json":
            return "json"
    raise Refusal(400, "bad_format", "`format` is md or json.")


async def _caller(parts: Parts, request: web.Request) -> Known:
    known = await parts.visitors.caller(request)
    if known is None:
        headers = {"WWW-Authenticate": "Bearer"}
        raise Refusal(401, "unauthorized", "A visitor's token is needed.", headers=headers)
    return known


def _check_rate(parts: Parts, request: web.Request, known: Known) -> None:
    wait = parts.session_windows.take(str(known.row.session_id), parts.limits_for(request).messages)
    if wait:
        raise RateLimited(retry_after_seconds=wait, what="exports")
