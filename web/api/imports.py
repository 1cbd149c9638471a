"""REST of imports: people upload an export in pieces, look at it, import it, and undo it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from shared.adapters.postgres.memory.import_files import PostgresImportFiles
from shared.adapters.postgres.memory.import_summaries import PostgresImportSummaries
from shared.adapters.postgres.memory.past_imports import PostgresPastImports
from shared.core.memory.past import MOST_FILE_BYTES, PIECE_BYTES, ImportFile, PastImport
from web.ports import WebEraser
from web.rest.api_key_auth import record
from web.rest.arguments import BadField, In
from web.rest.calls import Call
from web.rest.kinds import DONE, Digits, Success, describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

router = OperationRouter("imports", visitor=True, refusals=(403, 404, 409))
PIECE_SECONDS = 60.0
"""Seconds in which a piece must arrive."""
FileId = Annotated[UUID, describe("id of an upload")]
ImportId = Annotated[UUID, describe("id of an import")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInFile:
    """Content of an uploaded export, counted before it is imported."""

    source: Annotated[str, describe("program that made the file")]
    messages: int
    chats: int
    first_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedExport:
    """Export of another program that is being uploaded, checked or imported."""

    id: UUID
    size: int
    received: Annotated[int, describe("bytes that are stored; the next piece begins there")]
    state: Annotated[
        Literal["receiving", "looking", "ready", "importing", "done", "failed"],
        describe("`receiving` pieces, `looking` through the file, `ready` to be imported, then `importing`"),
    ]
    found: FoundInFile | None
    stored: Annotated[int, describe("messages that are imported")]
    error: Annotated[
        str,
        describe(
            "reason of a failure: `unknown_kind`, `unreadable`, `packed_too_large`, `locked` or `empty`"
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastImported:
    """Finished or running import of a person's earlier conversations."""

    id: UUID
    source: str
    messages: int
    at: datetime
    first_at: datetime | None
    last_at: datetime | None
    whole: Annotated[bool, describe("false while it runs, or if it was interrupted")]
    summaries: Annotated[
        Literal["off", "due", "done", "capped", "stopped"],
        describe("state of its summaries: `due` while they are written, `capped` once the budget is used up"),
    ]
    summarised_percent: Annotated[int, describe("percentage of turns that summaries cover", ge=0, le=100)]
    cost_micro: Annotated[int, describe("cost of the summaries in micro-dollars", ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """A person's imports, and their upload, of which there is one at a time."""

    file: UploadedExport | None
    imports: list[PastImported]
    piece_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceStored:
    """State of an upload after a piece was stored."""

    received: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportHandlers:
    """Handlers of imported conversations."""

    import_files: PostgresImportFiles
    past_imports: PostgresPastImports
    import_summaries: PostgresImportSummaries
    eraser: WebEraser

    @router.on("GET /imports", rate="reads", scope="memory:read")
    async def list_imports(self, call: Call) -> Imports:
        """List imports of the person, and the upload.

        Newest first.
        """
        _check_allowed(call)
        file = await self.import_files.find(call.session_id)
        made = await self.past_imports.list_imports(call.session_id)
        return Imports(
            file=None if file is None else _upload(file),
            imports=list(map(_imported, made)),
            piece_bytes=PIECE_BYTES,
            most_bytes=MOST_FILE_BYTES,
        )

    @router.on(
        "POST /imports",
        status=201,
        rate="commands",
        scope="memory:write",
        strict=True,
        refusals=(403, 404, 409, 413, 503),
    )
    async def begin_import(
        self,
        call: Call,
        *,
        size: Annotated[int, describe("size of the file in bytes", ge=1)],
        mark: Annotated[
            str, describe("mark of the file, such as its name and time, by which an upload is resumed"),
            Field(max_length=100, json_schema_extra={"minLength": 1}),
        ],
    ) -> UploadedExport:  # fmt: skip
        """Open an upload of an export.

        The same size and mark return the upload that was interrupted; another file replaces it. Exports of
        Telegram, ChatGPT, Claude and WhatsApp are recognised by their content.
        """
        _check_allowed(call)
        if size > MOST_FILE_BYTES:
            raise HttpRefusal(
                413, "file_too_large", f"{MOST_FILE_BYTES // 2**20} MB are the most.", most=MOST_FILE_BYTES
            )
        await _record(call, "imports.upload")
        file = await self.import_files.begin(call.session_id, size=size, mark=mark)
        return _upload(file)

    @router.on("PUT /imports/{id}", scope="memory:write", takes="application/octet-stream",
               refusals=(403, 404, 408, 413, 415))  # fmt: skip
    async def add_import_piece(
        self,
        call: Call,
        file_id: FileId,
        *,
        start: Annotated[int, In("query"), Digits(), describe("position of the piece in the file, in bytes")],
    ) -> PieceStored:
        """Upload a piece of the export.

        The body is at most `piece_bytes` long. `received` in the response says where the next piece begins; a
        piece that begins elsewhere changes nothing.
        """
        _check_allowed(call)
        await _record(call, "imports.upload")
        file = await self._find_file(call, file_id)
        body = await _read_piece(call)
        received = await self.import_files.add_piece(file, start, body)
        if received is None:
            raise _unknown()
        return PieceStored(received=received, state="looking" if received == file.size else "receiving")

    @router.on("POST /imports/{id}/start", rate="commands", scope="memory:write", strict=True)
    async def start_import(
        self,
        call: Call,
        file_id: FileId,
        *,
        me: Annotated[
            str, describe("name of the person in the file, for exports of WhatsApp", max_length=100)
        ] = "",
    ) -> Success:
        """Run the import of an upload in the background."""
        _check_allowed(call)
        await _record(call, "imports.start")
        file = await self._find_file(call, file_id)
        if file.state != "importing" and not await self.import_files.start(file, me=me.strip()):
            raise HttpRefusal(409, "not_ready", "This file cannot be imported now.")
        return DONE

    @router.on("DELETE /imports/{id}", rate="commands", scope="memory:write")
    async def undo_import(self, call: Call, import_id: ImportId) -> Success:
        """Undo an import, or cancel an upload.

        All messages of the import are erased. Repeating the call returns 404.
        """
        await _record(call, "imports.undo")
        file = await self.import_files.find(call.session_id)
        if file is not None and file.public_id == str(import_id):
            # The worker erases what it has imported of a file that is gone.
            await self.import_files.delete(file)
            return DONE
        made = next(
            (
                one
                for one in await self.past_imports.list_imports(call.session_id)
                if one.id == str(import_id)
            ),
            None,
        )
        if made is None:
            raise _unknown()
        await self.eraser.erase_import(made.session_id, "person")
        return DONE

    @router.on("POST /imports/{id}/summaries", rate="commands", scope="memory:write", strict=True)
    async def switch_import_summaries(
        self,
        call: Call,
        import_id: ImportId,
        *,
        on: Annotated[bool, describe("true summarises the import, false stops its summaries")],
    ) -> Success:
        """Pause or resume summaries of an import.

        Repeating the call has no effect.
        """
        _check_allowed(call)
        await _record(call, "imports.summaries")
        if not await self.import_summaries.switch(call.session_id, str(import_id), on=on):
            raise _unknown()
        return DONE

    async def _find_file(self, call: Call, file_id: UUID) -> ImportFile:
        file = await self.import_files.find(call.session_id)
        if file is None or file.public_id != str(file_id):
            raise _unknown()
        return file


def _check_allowed(call: Call) -> None:
    if not call.person.may_import:
        raise HttpRefusal(403, "imports_not_allowed", "Conversations cannot be imported here.")


async def _read_piece(call: Call) -> bytes:
    """Read the body, cut off while it arrives if it is too long. Raises HttpRefusal, BadField."""
    request = call.request
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "bad_encoding", "The piece must come as it is, not packed.")
    received = bytearray()
    async with asyncio.timeout(PIECE_SECONDS):
        while chunk := await request.content.readany():
            received += chunk
            if len(received) > PIECE_BYTES:
                raise HttpRefusal(413, "piece_too_large", f"{PIECE_BYTES} bytes are the most of a piece.")
    if not received:
        raise BadField("The piece is empty.")
    return bytes(received)


async def _record(call: Call, action: str) -> None:
    await record(call.request, action, about=f"session:{call.person.row.session_public_id}")


def _unknown() -> HttpRefusal:
    return HttpRefusal(404, "unknown_import", "There is no such import.")


def _upload(file: ImportFile) -> UploadedExport:
    found = file.found
    return UploadedExport(
        id=UUID(file.public_id),
        size=file.size,
        received=file.received,
        state=file.state,
        found=None
        if found is None
        else FoundInFile(
            source=found.source,
            messages=found.messages,
            chats=found.chats,
            first_at=found.first_at,
            last_at=found.last_at,
        ),
        stored=file.stored,
        error=file.error,
    )


def _imported(one: PastImport) -> PastImported:
    return PastImported(
        id=UUID(one.id),
        source=one.source,
        messages=one.messages,
        at=one.began_at,
        first_at=one.first_at,
        last_at=one.last_at,
        whole=one.is_whole,
        summaries=one.summaries,
        summarised_percent=one.summarised_percent,
        cost_micro=one.cost_micro,
    )
