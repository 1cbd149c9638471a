"""What a message holds besides words: its file or, where there is none, what it says in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.telegram.inbound.updates import Media, MediaKind

if TYPE_CHECKING:
    from aiogram import types

NOTE_CHARS = 1_000
MOST_PIXELS = 100_000
_FILES: tuple[MediaKind, ...] = (
    "animation",  # before `document`, which Telegram sets beside it
    "document",
    "voice",
    "audio",
    "video",
    "video_note",
    "sticker",
)
_OTHER = (
    "live_photo",
    "paid_media",
    "story",
    "checklist",
    "game",
    "giveaway",
    "giveaway_winners",
    "invoice",
    "rich_message",
)


def parse_media(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    if message.photo:
        largest = max(message.photo, key=lambda size: (size.width * size.height, size.file_size or 0))
        return Media(
            kind="photo",
            file_id=largest.file_id,
            unique_id=largest.file_unique_id,
            size=largest.file_size,
            mime="image/jpeg",
            width=_side(largest.width),
            height=_side(largest.height),
        )
    for kind in _FILES:
        found = getattr(message, kind, None)
        if found is not None:
            return _file(kind, found)
    return _describe_contentless(message) or _other(message)


def _file(kind: MediaKind, found: object) -> Media:
    """Each kind of file has these fields or lacks them; none has others that we need."""
    return Media(
        kind=kind,
        file_id=getattr(found, "file_id", ""),
        unique_id=getattr(found, "file_unique_id", ""),
        size=getattr(found, "file_size", None),
        name=getattr(found, "file_name", None) or "",
        mime=getattr(found, "mime_type", None) or "",
        width=_side(getattr(found, "width", None)),
        height=_side(getattr(found, "height", None)),
        seconds=getattr(found, "duration", None),
        note=getattr(found, "emoji", None) or "",
    )


def _describe_contentless(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    if (venue := message.venue) is not None:
        at = f"{venue.location.latitude:.5f}, {venue.location.longitude:.5f}"
        return _note("location", f"{venue.title}, {venue.address} ({at})")
    if (location := message.location) is not None:
        return _note("location", f"{location.latitude:.5f}, {location.longitude:.5f}")
    if (contact := message.contact) is not None:
        names = (contact.first_name, contact.last_name, contact.phone_number)
        return _note("contact", " ".join(word for word in names if word))
    if (poll := message.poll) is not None:
        return _note("poll", f"{poll.question} – {' | '.join(option.text for option in poll.options)}")
    if (dice := message.dice) is not None:
        return _note("dice", f"{dice.emoji} {dice.value}")
    return None


def _other(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    name = next((name for name in _OTHER if getattr(message, name, None) is not None), None)
    return None if name is None else _note("other", name.replace("_", " "))


def _note(kind: MediaKind, words: str) -> Media:
    return Media(kind=kind, note=" ".join(words.split())[:NOTE_CHARS])


def _side(pixels: int | None) -> int:
    """0 for what is no size of a picture."""
    return pixels if pixels is not None and 0 < pixels <= MOST_PIXELS else 0
