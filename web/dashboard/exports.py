"""What is kept of people as files for operators: sent piece by piece, or known to be cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from shared.adapters.postgres.dashboard.read_models import BadQuery
from shared.bootstrap.foundation import SystemClock
from shared.core.privacy.export import MIME, ExportFormat
from shared.core.values.errors import EvertalkError
from shared.services.privacy.export import DataExporter
from web.dashboard.access import HEADERS, AuthedRequest

log = structlog.get_logger(__name__)

EXPORT_SECONDS = 600.0


def wanted_format(visit: AuthedRequest) -> ExportFormat:
    """`?format=json|md`; raises BadQuery."""
    match visit.request.query.get("format", "json"):
        case "md":
            return "md"
        case "json":
            return "json"
    raise BadQuery("format is md or json")


async def stream_person(visit: AuthedRequest, session_id: int) -> web.StreamResponse:
    """Everything that is kept of whoever is reached by the conversation."""
    kind, exporting = wanted_format(visit), _exporting(visit)
    return await _streamed(visit, exporting.stream(session_id, kind), exporting.build_file_name(kind), kind)


async def stream_conversation(visit: AuthedRequest, session_id: int, *, name: str) -> web.StreamResponse:
    """One conversation and what was remembered in it."""
    kind, exporting = wanted_format(visit), _exporting(visit)
    pieces = exporting.stream(session_id, kind, alone=True)
    return await _streamed(visit, pieces, exporting.build_file_name(kind, of=name), kind)


def _exporting(visit: AuthedRequest) -> DataExporter:
    return DataExporter(store=visit.desk.stores.export, clock=SystemClock())


async def _streamed(
    visit: AuthedRequest, pieces: AsyncIterator[str], name: str, kind: ExportFormat
) -> web.StreamResponse:
    # Read before the head goes out: whoever cannot have it is told so by the status.
    first = await anext(pieces)
    disposition = {"Content-Type": MIME[kind], "Content-Disposition": f'attachment; filename="{name}"'}
    response = web.StreamResponse(headers={**HEADERS, **disposition})
    try:
        async with asyncio.timeout(EXPORT_SECONDS):
            await response.prepare(visit.request)
            await response.write(first.encode())
            async for piece in pieces:
                await response.write(piece.encode())
            await response.write_eof()
    except ConnectionError:
        log.info("export_hung_up")
    except (EvertalkError, TimeoutError) as error:
        log.warning("export_broken_off", reason=str(error))
        # Cut off it is known to be incomplete; a second answer could not be told from the file.
        if visit.request.transport is not None:
            visit.request.transport.abort()
    return response
