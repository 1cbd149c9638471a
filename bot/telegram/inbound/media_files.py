"""Fetches what people send as files, and turns it into a picture or a text that a model can read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import structlog

from bot.telegram.client.bot_api import CallRefused, FileTooLarge, InvalidBotToken, TelegramUnavailable
from bot.telegram.inbound.updates import Media
from shared.adapters.files.file_reading import read_file
from shared.adapters.files.sandbox_client import OPEN_SECONDS, Openings
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
    """How to read it: as a picture, as text, by listening, or by looking at its bytes first."""

    kind: Literal["picture", "text", "look", "listen", "none"]
    refusal: UnsupportedReason | None = None


SPOKEN = frozenset({"voice", "audio", "video_note"})


def choose_read_method(media: Media, *, listens: bool = False) -> ReadMethod:
    """`listens`: something here turns speech into words."""
    mime, ending = media.mime.lower().partition(";")[0], media.name.lower().rpartition(".")[2]
    spoken = media.kind in SPOKEN or (media.kind == "document" and mime.startswith("audio/"))
    if listens and spoken and media.file_id:
        return ReadMethod(kind="listen")
    if media.kind in _UNSUPPORTED:
        return ReadMethod(kind="none", refusal=_UNSUPPORTED[media.kind])
    if not media.file_id:
        return ReadMethod(kind="none", refusal="file_unknown_kind")
    if media.kind == "photo":
        return ReadMethod(kind="picture")
    if mime.startswith("audio/"):
        return ReadMethod(kind="none", refusal="cannot_hear")
    if mime.startswith("video/") and ending not in _TEXT_ENDINGS:  # Telegram takes .ts for a film
        return ReadMethod(kind="none", refusal="cannot_watch")
    if mime.startswith("text/") or mime in _TEXT_MIMES or ending in _TEXT_ENDINGS:
        return ReadMethod(kind="text")
    return ReadMethod(kind="look")


log = structlog.get_logger(__name__)

DOWNLOAD_SECONDS = 60.0
TRIES = 3

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotRead:
    """`reason` is a key of the texts that people read."""

    reason: UnreadableReason
    name: str


FileResult = Picture | Document | Recording | CannotRead


class FileApi(Protocol):
    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, seconds: float = 20.0
    ) -> Any: ...

    async def download(self, path: str, *, most_bytes: int, seconds: float) -> bytes: ...


class FileReader:
    """For one bot. `read` never raises for what a file holds; raises TokenRefused when the bot is dead."""

    def __init__(
        self,
        api: FileApi,
        *,
        most_bytes: int = MOST_BYTES,
        most_chars: int = MOST_TEXT_CHARS,
        open_seconds: float = OPEN_SECONDS,
        at_once: int = 2,
        pause_seconds: float = 1.0,
        listens: RecordingLimits | None = None,
    ) -> None:
        """`listens` where something turns speech into words."""
        self._listens = listens
        self._api = api
        self._most_bytes = most_bytes
        self._most_chars = most_chars
        self._open_seconds = open_seconds
        self._pause_seconds = pause_seconds
        self._places = asyncio.Semaphore(at_once)
        self._openings = Openings()

    async def read(self, media: Media, *, sender: str = "") -> FileResult:
        """Of one sender one file is opened at a time."""
        way = choose_read_method(media, listens=self._listens is not None)
        name = media.name or media.kind
        if way.refusal is not None:
            return CannotRead(reason=way.refusal, name=name)
        if (reason := self._reason_to_leave(media, way)) is not None:
            return CannotRead(reason=reason, name=name)
        async with self._places:
            found = await self._fetched(media, name)
        if isinstance(found, CannotRead):
            return found
        return await self._opened(found, media, way, name, sender)

    def _reason_to_leave(self, media: Media, way: ReadMethod) -> UnreadableReason | None:
        """By what Telegram says of it, before anything is fetched."""
        if way.kind == "listen" and self._listens and (media.seconds or 0) > self._listens.minutes * 60:
            return "recording_too_long"
        return "file_too_large" if (media.size or 0) > self.most_bytes(media.kind) else None

    def most_bytes(self, kind: str) -> int:
        """Of one file of this kind."""
        heard = self._listens is not None and kind in SPOKEN
        return min(self._most_bytes, self._listens.bytes) if heard and self._listens else self._most_bytes

    async def _fetched(self, media: Media, name: str) -> bytes | CannotRead:
        """A file is asked for again only when nobody answered."""
        for attempt in range(1, TRIES + 1):
            try:
                return await self._download(media)
            except FileTooLarge:
                return CannotRead(reason="file_too_large", name=name)
            except InvalidBotToken:
                raise
            except CallRefused as refused:
                large = "too big" in refused.description
                if large or not refused.retry_after_seconds or attempt == TRIES:
                    log.warning("file_download_rejected", reason=str(refused))
                    return CannotRead(reason="file_too_large" if large else "file_unavailable", name=name)
                await asyncio.sleep(min(refused.retry_after_seconds, 30.0))
            except TelegramUnavailable as error:
                log.warning("file_download_failed", reason=str(error))
                await asyncio.sleep(self._pause_seconds * attempt)
        return CannotRead(reason="file_unavailable", name=name)

    async def _download(self, media: Media) -> bytes:
        described = await self._api.call("getFile", {"file_id": media.file_id})
        path = described.get("file_path") if isinstance(described, dict) else None
        size = described.get("file_size") if isinstance(described, dict) else None
        if not isinstance(path, str) or ".." in path or "://" in path:
            raise TelegramUnavailable("getFile: no path")
        if isinstance(size, int) and size > self._most_bytes:
            raise FileTooLarge(f"{size} bytes")
        return await self._api.download(path, most_bytes=self._most_bytes, seconds=DOWNLOAD_SECONDS)

    async def _opened(
        self, content: bytes, media: Media, way: ReadMethod, name: str, sender: str
    ) -> FileResult:
        if not content:
            return CannotRead(reason="file_empty", name=name)
        if way.kind == "listen":
            return _recording(content, media) or CannotRead(reason="file_unreadable", name=name)
        try:
            found = await self._read(content, media, way, name, sender)
        except TimeoutError:
            log.warning("file_read_timed_out", reason="too many are being opened")
            return CannotRead(reason="file_unavailable", name=name)
        if not isinstance(found, NotRead):
            return found
        surely = way.kind == "text" and found.reason == "file_unknown_kind"
        return CannotRead(reason="file_unreadable" if surely else found.reason, name=name)

    async def _read(
        self, content: bytes, media: Media, way: ReadMethod, name: str, sender: str
    ) -> Picture | Document | NotRead:
        mime = picture_mime(content)
        opened = partial(self._openings.open, sender=sender, seconds=self._open_seconds)
        if mime is None and way.kind == "picture":
            return NotRead(reason="file_unreadable")
        if mime is not None and (whole := self._as_it_is(content, mime, media)) is not None:
            return whole
        return await read_file(content, name, opened=opened, most_chars=self._most_chars)

    def _as_it_is(self, content: bytes, mime: str, media: Media) -> Picture | None:
        """Telegram's own photos are mostly small enough already; what is not is opened elsewhere."""
        fits = 0 < max(media.width, media.height) <= LONGEST_SIDE
        if media.kind != "photo" or mime != JPEG or not fits:
            return None
        return Picture(bytes=content, mime=mime, width=media.width, height=media.height)


def _recording(content: bytes, media: Media) -> Recording | None:
    """By its first bytes; as long as Telegram or its header says, whichever is more. Nothing is decoded."""
    if (mime := audio_mime(content)) is None:
        return None
    told = [one for one in (media.seconds, header_seconds(content, mime)) if one is not None]
    return Recording(body=content, mime=mime, seconds=max(told, default=None))
