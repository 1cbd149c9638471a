"""Downloads the files that people send, and opens them as a picture, text or recording."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog
from aiogram import Bot
from aiogram.exceptions import (
    AiogramError,
    TelegramBadRequest,
    TelegramForbiddenError,
    TelegramNotFound,
    TelegramUnauthorizedError,
)

from bot.telegram.client.session import (
    BoundedFile,
    DownloadFailed,
    FileTooLarge,
    InvalidBotToken,
    describe_call_error,
    get_retry_seconds,
)
from bot.telegram.inbound.updates import Media
from shared.adapters.files.file_reading import read_file
from shared.adapters.files.sandbox_client import OPEN_SECONDS, SandboxClient
from shared.adapters.files.sandbox_worker import LONGEST_SIDE
from shared.core.values.files import (
    JPEG,
    MOST_BYTES,
    MOST_TEXT_CHARS,
    Document,
    NotRead,
    Picture,
    picture_mime,
)
from shared.core.values.recordings import Recording, RecordingLimits, audio_mime, header_seconds

UnsupportedReason = Literal["cannot_hear", "cannot_watch", "cannot_see_sticker", "file_unknown_kind"]
"""Reason why a kind of file is not read, as the key of the text for the person."""

_UNSUPPORTED: dict[str, UnsupportedReason] = {
    "voice": "cannot_hear",
    "audio": "cannot_hear",
    "video": "cannot_watch",
    "video_note": "cannot_watch",
    "animation": "cannot_watch",
    "sticker": "cannot_see_sticker",
}
_TEXT_MIMES = frozenset(
    {"application/json", "application/xml", "application/x-yaml", "application/toml", "application/sql"}
    | {"application/javascript", "application/x-sh", "application/x-python", "application/x-ndjson"}
)
_TEXT_ENDINGS = frozenset({
    "txt", "md", "markdown", "rst", "log", "csv", "tsv", "json", "jsonl", "yaml", "yml", "toml", "ini",
    "cfg", "conf", "env", "xml", "html", "htm", "css", "js", "mjs", "ts", "tsx", "jsx", "py", "pyi",
    "rb", "go", "rs", "java", "kt", "kts", "c", "h", "cc", "cpp", "hpp", "cs", "php", "pl", "lua", "sh",
    "bash", "zsh", "fish", "ps1", "bat", "sql", "r", "jl", "swift", "scala", "clj", "ex", "exs", "erl",
    "hs", "ml", "vue", "svelte", "tex", "bib", "diff", "patch", "gradle", "make", "mk", "cmake",
    "dockerfile", "proto", "graphql", "srt", "vtt", "po",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMethod:
    """Way to read a file: as picture, as text, by transcription, or by looking at its first bytes (`look`).

    With `none` the file is not read; `refusal` says why.
    """

    kind: Literal["picture", "text", "look", "listen", "none"]
    refusal: UnsupportedReason | None = None


AUDIO_KINDS = frozenset({"voice", "audio", "video_note"})
"""Kinds of media that are transcribed."""


def choose_read_method(media: Media, *, can_transcribe: bool = False) -> ReadMethod:
    """Return how to read a file by its kind, MIME type and file ending.

    Recordings are read only if `can_transcribe` is True.
    """
    mime, ending = media.mime.lower().partition(";")[0], media.name.lower().rpartition(".")[2]
    spoken = media.kind in AUDIO_KINDS or (media.kind == "document" and mime.startswith("audio/"))
    if can_transcribe and spoken and media.file_id:
        return ReadMethod(kind="listen")
    if media.kind in _UNSUPPORTED:
        return ReadMethod(kind="none", refusal=_UNSUPPORTED[media.kind])
    if not media.file_id:
        return ReadMethod(kind="none", refusal="file_unknown_kind")
    if media.kind == "photo":
        return ReadMethod(kind="picture")
    if mime.startswith("audio/"):
        return ReadMethod(kind="none", refusal="cannot_hear")
    if (
        mime.startswith("video/") and ending not in _TEXT_ENDINGS
    ):  # Telegram gives TypeScript files (.ts) a video type
        return ReadMethod(kind="none", refusal="cannot_watch")
    if mime.startswith("text/") or mime in _TEXT_MIMES or ending in _TEXT_ENDINGS:
        return ReadMethod(kind="text")
    return ReadMethod(kind="look")


log = structlog.get_logger(__name__)

DOWNLOAD_SECONDS = 60
"""Maximum seconds for the download of one file."""
CALL_SECONDS = 20
"""Maximum seconds for the call that asks for a file's address."""
TRIES = 3
"""Maximum attempts at a download."""
FILES_AT_ONCE = 2
"""Maximum simultaneous downloads of one bot."""

UnreadableReason = Literal[
    "file_too_large",
    "file_unavailable",
    "file_unknown_kind",
    "file_unreadable",
    "file_empty",
    "file_locked",
    "cannot_hear",
    "cannot_watch",
    "cannot_see_sticker",
    "recording_too_long",
]
"""Reason why a file was not read, as the key of the text for the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotRead:
    """File that was refused or could not be read; `reason` is the key of the text for the person."""

    reason: UnreadableReason
    name: str


FileResult = Picture | Document | Recording | CannotRead


class _NoFilePath(Exception):
    """Raised if Telegram describes a file without a usable path."""


class FileReader:
    """Reader of files that were sent to one bot."""

    def __init__(
        self,
        bot: Bot,
        *,
        max_bytes: int = MOST_BYTES,
        max_chars: int = MOST_TEXT_CHARS,
        open_seconds: float = OPEN_SECONDS,
        pause_seconds: float = 1.0,
        recording_limits: RecordingLimits | None = None,
    ) -> None:
        """Create a reader.

        Without `recording_limits`, recordings are refused. `open_seconds` limits the opening of one file;
        `pause_seconds` is the delay before a retry.
        """
        self._recording_limits = recording_limits
        self._bot = bot
        self._max_bytes = max_bytes
        self._max_chars = max_chars
        self._open_seconds = open_seconds
        self._pause_seconds = pause_seconds
        self._slots = asyncio.Semaphore(FILES_AT_ONCE)
        self._openings = SandboxClient()

    async def read(self, media: Media, *, sender: str = "", languages: tuple[str, ...] = ()) -> FileResult:
        """Download a file and open it; return CannotRead if that is refused or fails.

        Files of one `sender` are opened one at a time. `languages` are the person's language tags, a hint for
        text encodings. Raises InvalidBotToken.
        """
        method = choose_read_method(media, can_transcribe=self._recording_limits is not None)
        name = media.name or media.kind
        if method.refusal is not None:
            return CannotRead(reason=method.refusal, name=name)
        if (reason := self._check_limits(media, method)) is not None:
            return CannotRead(reason=reason, name=name)
        async with self._slots:
            found = await self._fetch(media, name)
        if isinstance(found, CannotRead):
            return found
        return await self._open(found, media, method, name, sender, languages)

    def _check_limits(self, media: Media, method: ReadMethod) -> UnreadableReason | None:
        """Return why a file is too large or too long by the size and length that Telegram states.

        None if it is not.
        """
        if (
            method.kind == "listen"
            and self._recording_limits
            and (media.seconds or 0) > self._recording_limits.minutes * 60
        ):
            return "recording_too_long"
        return "file_too_large" if (media.size or 0) > self.get_max_bytes(media.kind) else None

    def get_max_bytes(self, kind: str) -> int:
        """Return the maximum size in bytes for this kind of file."""
        heard = self._recording_limits is not None and kind in AUDIO_KINDS
        return (
            min(self._max_bytes, self._recording_limits.bytes)
            if heard and self._recording_limits
            else self._max_bytes
        )

    async def _fetch(self, media: Media, name: str) -> bytes | CannotRead:
        """Return the content of a file, or CannotRead if it is too large, refused, or unavailable after TRIES
        attempts.

        Network faults and server errors are retried, refusals are not. Raises InvalidBotToken.
        """
        for attempt in range(1, TRIES + 1):
            try:
                return await self._download(media)
            except FileTooLarge:
                return CannotRead(reason="file_too_large", name=name)
            except TelegramUnauthorizedError as refused:
                raise InvalidBotToken(f"getFile: {refused.message}") from None
            except (TelegramBadRequest, TelegramForbiddenError, TelegramNotFound) as refused:
                large = "too big" in refused.message
                log.warning("file_download_rejected", reason=refused.message)
                return CannotRead(reason="file_too_large" if large else "file_unavailable", name=name)
            except (AiogramError, DownloadFailed, _NoFilePath) as error:
                if 400 <= getattr(error, "status", 0) < 500:
                    log.warning("file_download_rejected", reason=str(error))
                    return CannotRead(reason="file_unavailable", name=name)
                log.warning("file_download_failed", reason=describe_call_error(error))
                await asyncio.sleep(min(max(self._pause_seconds * attempt, get_retry_seconds(error)), 30.0))
        return CannotRead(reason="file_unavailable", name=name)

    async def _download(self, media: Media) -> bytes:
        file = await self._bot.get_file(media.file_id, request_timeout=CALL_SECONDS)
        path = file.file_path
        if path is None or ".." in path or "://" in path:
            raise _NoFilePath
        if file.file_size is not None and file.file_size > self._max_bytes:
            raise FileTooLarge(f"{file.file_size} bytes")
        content = BoundedFile(self._max_bytes)
        await self._bot.download_file(path, content, timeout=DOWNLOAD_SECONDS)
        return content.getvalue()

    async def _open(
        self,
        content: bytes,
        media: Media,
        method: ReadMethod,
        name: str,
        sender: str,
        languages: tuple[str, ...],
    ) -> FileResult:
        if not content:
            return CannotRead(reason="file_empty", name=name)
        if method.kind == "listen":
            return _build_recording(content, media) or CannotRead(reason="file_unreadable", name=name)
        try:
            found = await self._read(content, media, method, name, sender, languages)
        except TimeoutError:
            log.warning("file_reader_busy", reason="too many are being opened")
            return CannotRead(reason="file_unavailable", name=name)
        if not isinstance(found, NotRead):
            return found
        surely = method.kind == "text" and found.reason == "file_unknown_kind"
        return CannotRead(reason="file_unreadable" if surely else found.reason, name=name)

    async def _read(
        self,
        content: bytes,
        media: Media,
        method: ReadMethod,
        name: str,
        sender: str,
        languages: tuple[str, ...],
    ) -> Picture | Document | NotRead:
        mime = picture_mime(content)
        opened = partial(self._openings.open, sender=sender, seconds=self._open_seconds)
        if mime is None and method.kind == "picture":
            return NotRead(reason="file_unreadable")
        if mime is not None and (whole := self._use_original(content, mime, media)) is not None:
            return whole
        return await read_file(content, name, opened=opened, most_chars=self._max_chars, languages=languages)

    def _use_original(self, content: bytes, mime: str, media: Media) -> Picture | None:
        """Return a JPEG photo unchanged if no side exceeds LONGEST_SIDE pixels; None for other files."""
        fits = 0 < max(media.width, media.height) <= LONGEST_SIDE
        if media.kind != "photo" or mime != JPEG or not fits:
            return None
        return Picture(bytes=content, mime=mime, width=media.width, height=media.height)


def _build_recording(content: bytes, media: Media) -> Recording | None:
    """Return a recording whose audio format its first bytes show; None if they show none.

    Its length is the larger of those that Telegram and the file's header state, None if both are unknown.
    Nothing is decoded.
    """
    if (mime := audio_mime(content)) is None:
        return None
    durations = [one for one in (media.seconds, header_seconds(content, mime)) if one is not None]
    return Recording(body=content, mime=mime, seconds=max(durations, default=None))
