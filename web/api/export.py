"""`GET /api/v1/export?format=md|json`: a visitor's own data as a file, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shared.core.privacy.export import EXPORTS, MIME, ExportFormat
from shared.services.privacy.export import DataExporter
from web.rest.arguments import In
from web.rest.calls import Call
from web.rest.files import send_file
from web.rest.kinds import choice
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal, cross_origin_headers
from web.server.http_server import HEADERS

router = OperationRouter("conversations")
_FORMATS: dict[str, ExportFormat] = {"md": "md", "markdown": "md", "json": "json"}
Format = Annotated[str, In("query", "format"), choice("format of the export; Markdown by default", *_FORMATS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportHandlers:
    """Handler of the export of a person's own data as Markdown or JSON."""

    exporter: DataExporter

    @router.on(
        "GET /export", visitor=True, scope="sessions:read", rate="exports", refusals=(404,), media=EXPORTS,
        head=False,
    )  # fmt: skip
    async def export(self, call: Call, *, wanted: Format = "md") -> Reply:
        """Export the person's data as a file."""
        if (kind := _FORMATS.get(wanted)) is None:
            raise HttpRefusal(400, "bad_format", "`format` is md or json.")
        exporting = self.exporter
        headers = {**HEADERS, "Cache-Control": "no-store", **await cross_origin_headers(call.request)}
        return await send_file(
            call.request,
            exporting.stream(call.session_id, kind, language=call.language),
            name=exporting.build_file_name(kind),
            kind=MIME[kind],
            headers=headers,
        )
