"""What an answer that has ended is sent as: messages, with a file where it goes on, or a rich message."""

from __future__ import annotations

from dataclasses import dataclass

from bot.telegram.markup import (
    LIVE_UNITS,
    MAX_PARTS,
    MessagePart,
    RenderedText,
    RichBlock,
    build_rich_blocks,
    render,
    split,
)
from bot.telegram.outbound.delivery_context import DeliveryContext
from bot.telegram.texts import escape_markdown
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.turns.deliveries import EndedTurn
from shared.core.values.files import Attached

EMPTY_ANSWER = "…"
_REPLACEABLE_STATES = ("queued", "sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """With the limits of the live view no text changes its message at the end, and none goes away."""

    parts: tuple[MessagePart, ...]
    document: str | None = None
    files: tuple[Attached, ...] = ()
    blocks: tuple[RichBlock, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.parts) + (self.document is not None) + len(self.files)

    def file_at(self, part: int) -> Attached | None:
        """What a part is that is neither words nor the document with all of them."""
        at = part - len(self.parts) - (self.document is not None)
        return self.files[at] if at >= 0 else None


def build_outgoing_message(post: DeliveryContext, place: ChatRow, ended: EndedTurn) -> OutgoingMessage:
    parts = split(_rendered(post, place, ended), limit=LIVE_UNITS) or (MessagePart(text=EMPTY_ANSWER),)
    if len(parts) > MAX_PARTS:
        return OutgoingMessage(parts=parts[:MAX_PARTS], document=_answer_text(ended), files=ended.files)
    return OutgoingMessage(parts=parts, files=ended.files, blocks=_blocks(post, place, ended))


def _rendered(post: DeliveryContext, place: ChatRow, ended: EndedTurn) -> RenderedText:
    if is_notice(ended):
        return RenderedText(text=post.texts.notice(place, ended.error_code, ended.text))
    if ended.state != "stopped":
        return render(_answer_text(ended))
    if not ended.text.strip():
        return RenderedText(text=post.texts.stopped(place))
    return render(ended.text).followed_by(post.texts.stopped(place))


def _blocks(post: DeliveryContext, place: ChatRow, ended: EndedTurn) -> tuple[RichBlock, ...] | None:
    """None as soon as something is in the chat for good, on its way, or shown in more than one message."""
    begun = any(row.state not in _REPLACEABLE_STATES or row.part > 0 for row in ended.parts)
    if begun or ended.files or ended.state != "answered" or not post.can_use(place, "rich"):
        return None
    return build_rich_blocks(_answer_text(ended))


def _answer_text(ended: EndedTurn) -> str:
    """A human's words begin with who writes: in a chat everything comes from the bot."""
    return (
        f"👤 **{escape_markdown(ended.operator, most=60)}**\n\n{ended.text}" if ended.operator else ended.text
    )


def is_notice(ended: EndedTurn) -> bool:
    return ended.state in ("refused", "failed")
