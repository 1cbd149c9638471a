"""Traits of the channels that the engine of turns needs; it asks for none of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTraits:
    """How a channel shows answers, and how a request names it."""

    place: str
    """Where the person writes, as a request tells it."""
    is_pushed: bool
    """Whether answers are stored as deliveries, which the channel sends; else clients read events."""


CHANNELS: Final[Mapping[str, ChannelTraits]] = {
    "telegram": ChannelTraits(place="on Telegram", is_pushed=True),
    "web": ChannelTraits(place="in the web chat", is_pushed=False),
}
PUSHED: Final = tuple(name for name, traits in CHANNELS.items() if traits.is_pushed)
"""Channels whose answers are stored as deliveries."""
GUEST_CHANNEL: Final = "telegram_guest"
"""Channel of the addresses of guest chats, whose ids may be those of other chats of the same bot."""
SECRETARY_CHANNEL: Final = "telegram_business"
"""Channel of the addresses of customers, whose ids may be those of other chats of the same bot."""
UNNAMED_PLACE: Final = "in a chat"
"""Where a person writes whose channel has no traits."""


def find_place(channel: str) -> str:
    """Return where a person writes, for a request."""
    traits = CHANNELS.get(channel)
    return traits.place if traits else UNNAMED_PLACE
