"""What an answer that has ended is sent as: messages, a beginning with a file, or a rich message."""

from __future__ import annotations

from dataclasses import dataclass

from bot.telegram.markup import (
    LIVE_UNITS,
    MOST_PARTS,
    Part,
    Rendered,
    RichBlock,
    render,
    rich_blocks,
    split,
)
from bot.telegram.post import Post
from bot.telegram.texts.shown import literal
from shared.adapters.postgres.telegram.chats import PlaceRow
from shared.adapters.postgres.turns.deliveries import EndedTurn

NOTHING = "…"
_OPEN = ("queued", "sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The limit is that of the live view, so that no text changes its message at the end."""

    parts: tuple[Part, ...]
    document: str | None = None
    blocks: tuple[RichBlock, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.parts) + (self.document is not None)


def letter_of(post: Post, place: PlaceRow, ended: EndedTurn) -> Letter:
    parts = split(_rendered(post, place, ended), limit=LIVE_UNITS) or (Part(text=NOTHING),)
    if len(parts) > MOST_PARTS:
        return Letter(parts=parts[:1], document=_words(ended))
    return Letter(parts=parts, blocks=_blocks(post, place, ended))


def _rendered(post: Post, place: PlaceRow, ended: EndedTurn) -> Rendered:
    if is_notice(ended):
        return Rendered(text=post.texts.notice(place, ended.error_code, ended.text))
    if ended.state != "stopped":
        return render(_words(ended))
    if not ended.text.strip():
        return Rendered(text=post.texts.stopped(place))
    return render(ended.text).followed_by(post.texts.stopped(place))


def _blocks(post: Post, place: PlaceRow, ended: EndedTurn) -> tuple[RichBlock, ...] | None:
    """None as soon as something is in the chat for good, or on its way."""
    begun = any(row.state not in _OPEN or (row.part > 0 and row.state == "queued") for row in ended.parts)
    if begun or ended.state != "answered" or not post.uses(place, "rich"):
        return None
    return rich_blocks(_words(ended))


def _words(ended: EndedTurn) -> str:
    """A human's words begin with who writes: in a chat everything comes from the bot."""
    return f"👤 **{literal(ended.operator, most=60)}**\n\n{ended.text}" if ended.operator else ended.text


def is_notice(ended: EndedTurn) -> bool:
    return ended.state in ("refused", "failed")
