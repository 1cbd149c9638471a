"""What kind of file it may be, by what Telegram says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.telegram.inbound.updates import Media

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
