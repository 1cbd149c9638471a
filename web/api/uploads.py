"""Files of the widget: `POST /api/v1/uploads` takes one, `GET /api/v1/attachments/{id}` gives it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote

import structlog
from aiohttp import web

from shared.adapters.files.file_reading import has_scans, read_file, read_scans
from shared.adapters.files.sandbox_client import SandboxClient, SenderThrottled
from shared.adapters.postgres.turns.uploads import (
    PostgresUploads,
    StoredUpload,
    UnknownFile,
    UploadLimitReached,
)
from shared.core.context.untrusted_text import file_text
from shared.core.values.files import (
    MOST_BYTES,
    MOST_FILE_CHARS,
    OTHER_MIMES,
    PAPER_MIMES,
    PDF,
    PICTURE_MIMES,
    PLAIN,
    Attached,
    Document,
    NotRead,
    Picture,
    Served,
    clean_name,
)
from shared.core.values.messages import Block, Text
from shared.core.values.recordings import (
    AUDIO_MIMES,
    RECORDING_NOTE,
    Recording,
    audio_mime,
    guess_language,
    header_seconds,
    transcript_text,
)
from shared.services.voice.hearing import HearingService
from web.auth.visitors import Known, Site, Visitors
from web.ports import FileUploads
from web.protocol.answers import ABSENT
from web.protocol.wire import RateLimited
from web.rest.api_key_auth import KEY, record
from web.rest.calls import Call
from web.rest.files import MOST_AT_ONCE, Attachment, FileName
from web.rest.kinds import FileId
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal, cross_origin_headers
from web.server.client_limiter import ClientLimiter
from web.server.rate_limits import Amounts, ClientLimits, Places, RateWindows

log = structlog.get_logger(__name__)

router = OperationRouter("files")
IDLE_SECONDS = 15.0
"""Seconds without a byte after which an upload is aborted."""
BODY_SECONDS = 120.0
"""Seconds in which the whole body of an upload must arrive."""
RECEIVED_AT_ONCE = 8
"""Maximum uploads in progress in this process, since each may hold a whole file in memory."""
FOR_EVERYBODY = 4
"""Uploads in progress from which on an address that already uploads a file is refused another."""
WINDOW_SECONDS = 60.0
"""Seconds over which uploads and downloads are counted for their rate limits."""
HOUR_SECONDS = 3_600.0
"""Seconds over which the uploaded bytes of an address are counted."""

_REASONS = {
    "file_empty": "There is nothing in this file that could be read.",
    "file_unreadable": "This file is damaged or too large to be opened.",
    "file_locked": "This file is locked by a password. Please send it without one.",
    "file_unknown_kind": "Pictures, texts, PDF, office files and e-books can be read, and this is none.",
}


class StoredMessages(Protocol):
    """Store that the uploads need, to tell whether a message was stored."""

    async def has_message(self, session_id: int, dedupe_key: str) -> bool:
        """Return whether the session has a message with this dedupe key."""
        ...


class Uploads:
    """File uploads of the web process, shared by all requests."""

    def __init__(
        self,
        store: PostgresUploads,
        messages: StoredMessages,
        *,
        hearing: HearingService | None = None,
        most_bytes: int = MOST_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self.store = store
        self.most_bytes = most_bytes
        self._messages = messages
        self.hearing = hearing
        self._idle_seconds = idle_seconds
        self._body_seconds = body_seconds
        self._openings = SandboxClient()
        self._places = Places()
        self._asked = RateWindows(WINDOW_SECONDS)
        self._shown = RateWindows(WINDOW_SECONDS)
        self._bytes = Amounts(HOUR_SECONDS)

    @property
    def windows(self) -> Mapping[str, RateWindows]:
        """Rate windows that count over all processes, by name: `uploads` and `files` (downloads).

        Bytes and uploads in progress are counted by each process alone.
        """
        return {"uploads": self._asked, "files": self._shown}

    def describe_limits(self, site: Site, audience: str) -> dict[str, Any] | None:
        """Return the upload limits for a welcome message; None if this site accepts no files."""
        said = site.config.uploads
        if not (audience == "personal" if said is None else said):
            return None
        mimes = [*PICTURE_MIMES, PDF, *PAPER_MIMES, *OTHER_MIMES, PLAIN]
        if self.hearing is None:
            return {"most": MOST_AT_ONCE, "bytes": self.most_bytes, "mimes": mimes}
        limits = self.hearing.limits
        voice = {"seconds": limits.minutes * 60, "bytes": limits.bytes}
        return {
            "most": MOST_AT_ONCE, "bytes": self.most_bytes, "mimes": [*mimes, *AUDIO_MIMES], "voice": voice,
        }  # fmt: skip

    @property
    def receiving(self) -> int:
        """Number of uploads in progress in this process."""
        return self._places.open("")

    async def transcribe(self, request: web.Request, known: Known, attached: Attached) -> str:
        """Return the transcript of an uploaded recording, and store it.

        Empty for other files, and without a speech service. Raises what `HearingService.hear` raises.
        """
        if self.hearing is None or attached.mime not in AUDIO_MIMES:
            return ""
        session_id = known.row.session_id
        [kept] = await self.store.load_for_message(session_id, [attached.id])
        served = await self.store.load_for_session(attached.id, session_id=session_id)
        body = b"" if served is None else served.body
        spoken = Recording(body=body, mime=attached.mime, seconds=header_seconds(body, attached.mime))
        language = guess_language(request.headers.get("Accept-Language", ""))
        return await self.hearing.hear(session_id, kept.attachment_id, spoken, language=language)

    async def load_for_message(
        self,
        session_id: int,
        ids: Sequence[str],
        *,
        dedupe_key: str,
        text: str = "",
        most_chars: int = MOST_FILE_CHARS,
    ) -> tuple[str, tuple[Block, ...], tuple[Attached, ...]]:
        """Return the text with its transcripts, the blocks for the model, and the attachments for screens.

        `dedupe_key` is that of the message. `most_chars` limits the text of all documents together. Raises
        UnknownFile, also for a recording without a transcript. If a repeated message names files that it has
        used up, the block is a placeholder: they are stored with it.
        """
        if not ids:
            return text, (), ()
        try:
            kept = await self.store.load_for_message(session_id, list(dict.fromkeys(ids)))
        except UnknownFile:
            if await self._messages.has_message(session_id, dedupe_key):
                stand_in = Text(text="…")  # never stored: beside files, words may be missing
                return text, (stand_in,), ()
            raise
        return (
            _add_transcripts(text, kept),
            _build_blocks(await self._add_scans(session_id, kept), most_chars),
            tuple(one.attached for one in kept),
        )

    async def _add_scans(self, session_id: int, kept: Sequence[StoredUpload]) -> list[StoredUpload]:
        """Let the scanned pages of a PDF, which have no text, follow it as pictures."""
        found: list[StoredUpload] = []
        for one in kept:
            found.append(one)
            if one.attached.mime == PDF and has_scans(one.words or ""):
                found += await self._load_scans(session_id, one)
        return found

    async def _load_scans(self, session_id: int, paper: StoredUpload) -> tuple[StoredUpload, ...]:
        served = await self.store.load_for_session(paper.attached.id, session_id=session_id)
        opened = partial(self._openings.open, sender=f"session:{session_id}")
        try:
            pictures = await read_scans(b"" if served is None else served.body, opened=opened)
        except TimeoutError:
            log.warning("file_reader_busy", reason="too many are being opened")
            return ()
        stored = [
            await self.store.keep(
                session_id, one.bytes, one, name=f"{paper.attached.name} {number}", most_per_day=2**62
            )
            for number, one in enumerate(pictures, 1)
        ]
        return await self.store.load_for_message(session_id, [one.id for one in stored])

    async def receive(
        self, request: web.Request, session_id: int, name: str, limits: ClientLimits, address: str
    ) -> Attached:
        """Store an upload, and return it. An equal file of the same conversation is not stored again.

        Raises HttpRefusal, RateLimited, StorageUnavailable and TimeoutError.
        """
        self._check_rate(str(session_id), address, limits)
        async with self._reserve_slot(str(session_id), address, limits):
            content = await self._read_body(request, address)
            if (attached := await self.store.find_by_content(session_id, content, name=name)) is not None:
                return attached
            found = await self._read_content(content, name, address, limits, _list_languages(request))
            try:
                return await self.store.keep(
                    session_id, content, found, name=name, most_per_day=limits.upload_bytes_per_day
                )
            except UploadLimitReached as error:
                raise HttpRefusal(429, error.code, error.advice) from error

    async def load(self, known: Known, public_id: str, limits: ClientLimits) -> Served | None:
        """Return a file of the caller's conversation; None if there is none. Raises RateLimited."""
        if wait := self._shown.take(str(known.row.session_id), limits.files_shown):
            raise RateLimited(retry_after_seconds=wait, what="files")
        return await self.store.load_for_session(public_id, session_id=known.row.session_id)

    def _check_rate(self, session: str, address: str, limits: ClientLimits) -> None:
        wait = self._asked.take(f"s{session}", limits.uploads)
        wait = wait or self._asked.take(f"a{address}", 2 * limits.uploads)
        wait = wait or self._bytes.wait(address, limits.upload_bytes_per_hour)
        if wait:
            raise RateLimited(retry_after_seconds=wait, what="files")

    @asynccontextmanager
    async def _reserve_slot(self, session: str, address: str, limits: ClientLimits) -> AsyncIterator[None]:
        wanted = (
            (f"s{session}", limits.uploads_at_once),
            (f"a{address}", limits.uploads_at_once),
            ("", RECEIVED_AT_ONCE),
        )
        if self._places.open("") >= FOR_EVERYBODY and self._places.open(f"a{address}"):
            raise RateLimited(retry_after_seconds=2.0, what="files at once")
        taken: list[str] = []
        try:
            for key, most in wanted:
                if not self._places.take(key, most):
                    raise RateLimited(retry_after_seconds=2.0, what="files at once")
                taken.append(key)
            yield
        finally:
            for key in taken:
                self._places.leave(key)

    async def _read_body(self, request: web.Request, address: str) -> bytes:
        """Counted as it comes: what a client says of the size may only refuse, never allow."""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise HttpRefusal(415, "bad_encoding", "The file must come as it is, not packed.")
        if (request.content_length or 0) > self.most_bytes:
            raise self._too_large()
        received = bytearray()
        try:
            async with asyncio.timeout(self._body_seconds):
                while chunk := await self._chunk(request):
                    received += chunk
                    if len(received) > self.most_bytes:
                        raise self._too_large()
        finally:
            self._bytes.add(address, len(received))
        return bytes(received)

    async def _chunk(self, request: web.Request) -> bytes:
        async with asyncio.timeout(self._idle_seconds):
            return await request.content.readany()

    def _too_large(self) -> HttpRefusal:
        return HttpRefusal(
            413, "file_too_large", f"{self.most_bytes // 2**20} MB are the most.", most=self.most_bytes
        )

    async def _read_content(
        self,
        content: bytes,
        name: str,
        address: str,
        limits: ClientLimits,
        languages: tuple[str, ...],
    ) -> Picture | Document | Recording:
        """Read an upload as picture, document or recording; recordings are not decoded.

        Only a few files are opened at a time, and one per client address. Raises RateLimited and HttpRefusal.
        """
        if self.hearing is not None and (mime := audio_mime(content)) is not None:
            self.hearing.check_length(header_seconds(content, mime))
            if len(content) > self.hearing.limits.bytes:
                raise self._too_large()
            return Recording(body=content, mime=mime)
        opened = partial(self._openings.open, sender=address, most_seconds=limits.opening_seconds)
        try:
            found = await read_file(content, name, opened=opened, languages=languages)
        except SenderThrottled as error:
            raise RateLimited(retry_after_seconds=error.retry_after_seconds, what="files") from error
        if isinstance(found, NotRead):
            raise HttpRefusal(422, found.reason, _REASONS[found.reason])
        return found


def _list_languages(request: web.Request) -> tuple[str, ...]:
    """Return the languages that the browser accepts, in the order of the header."""
    accepted = request.headers.get("Accept-Language", "")[:200].split(",")
    return tuple(filter(None, (one.partition(";")[0].strip() for one in accepted)))


def _add_transcripts(text: str, kept: Sequence[StoredUpload]) -> str:
    """Add the transcripts of recordings to the text, unless it has them already.

    Raises UnknownFile for a recording without a transcript.
    """
    for one in kept:
        if one.attached.mime in AUDIO_MIMES:
            if not one.words:
                raise UnknownFile("a recording that nobody has listened to")
            heard = transcript_text(one.words)
            text = text if heard in text else "\n\n".join(filter(None, (text, heard)))
    return text


def _build_blocks(kept: Sequence[StoredUpload], budget: int) -> tuple[Block, ...]:
    """Return uploads as blocks; the texts of all files together have at most `budget` characters."""
    blocks: list[Block] = []
    for one in kept:
        if one.picture is not None:
            blocks.append(one.picture)
            continue
        words = one.words or ""
        if one.attached.mime in AUDIO_MIMES:
            blocks.append(Text(text=RECORDING_NOTE, attachment_id=one.attachment_id))
            continue
        part = words[:budget] + ("\n(The rest of this file was left out.)" if len(words) > budget else "")
        blocks.append(Text(text=file_text(one.attached.name, part), attachment_id=one.attachment_id))
        budget = max(0, budget - len(words))
    return tuple(blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadHandlers:
    """Handlers of files that visitors send and see."""

    limiter: ClientLimiter
    uploads: FileUploads
    visitors: Visitors

    @router.on(
        "POST /uploads", visitor=True, scope="messages:write", takes="application/octet-stream",
        refusals=(404, 422),
    )  # fmt: skip
    async def upload(
        self,
        call: Call,
        *,
        file_name: FileName = "",
    ) -> Attachment:
        """Upload a file for a message.

        The body is the file. Its type is detected from the content, not from the name. The same bytes return
        the same file. Recordings are transcribed if the deployment has a speech service; if that fails,
        upload the file again.
        """
        request, known = call.request, call.person
        # A page of one site has no business with the visitors of another.
        if "Origin" in request.headers and not await self.visitors.is_page_allowed(
            request, site=known.row.site
        ):
            raise HttpRefusal(403, "foreign_origin", "This page is not allowed to use the chat.")
        about = f"session:{known.row.session_public_id}"
        # A program sends for many people: each of them has the room that a browser's address has.
        address = about if KEY in request else self.limiter.client_key(request)
        if self.uploads.describe_limits(known.site, known.audience) is None:
            raise HttpRefusal(403, "files_not_allowed", "Files cannot be sent here.")
        await record(request, "files.send", about=about)
        name = clean_name(unquote(file_name, errors="replace"))
        attached = await self.uploads.receive(
            request, known.row.session_id, name, self.limiter.limits_for(request), address
        )
        log.info("file_stored", session_id=known.row.session_id, mime=attached.mime, size=attached.size)
        heard = await self.uploads.transcribe(request, known, attached)
        return Attachment(**attached.to_payload(), heard=heard or ABSENT)

    @router.on(
        "GET /attachments/{id}", visitor=True, scope="sessions:read", refusals=(404,), media="*/*",
        missing="There is no such file in this conversation.",
    )  # fmt: skip
    async def download(self, call: Call, file: FileId) -> Reply:
        """Download a file of the conversation."""
        found = await self.uploads.load(call.person, file, self.limiter.limits_for(call.request))
        if found is None:
            return None
        headers = {**found.headers(), **await cross_origin_headers(call.request)}
        return web.Response(body=found.body, headers=headers)
