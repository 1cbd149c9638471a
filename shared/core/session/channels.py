"""Traits of channels, so that the engine of turns need not know any channel by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTraits:
    """Properties of a channel on which requests and the sending of answers depend."""

    place: str
    """Place where the person writes, as the request says it, such as "on Telegram"."""
    is_pushed: bool
    """True if the program sends answers as deliveries; False if clients read them as events."""


CHANNELS: Final[Mapping[str, ChannelTraits]] = {
    "telegram": ChannelTraits(place="on Telegram", is_pushed=True),
    "web": ChannelTraits(place="in the web chat", is_pushed=False),
}
"""Traits of the channels whose place and delivery requests depend on, by name."""
PUSHED: Final = tuple(name for name, traits in CHANNELS.items() if traits.is_pushed)
"""Names of the channels whose answers are stored as deliveries and sent by the program."""
GUEST_CHANNEL: Final = "telegram_guest"
"""Channel name of guest chats; separate, because their ids can equal those of other chats of the same bot."""
SECRETARY_CHANNEL: Final = "telegram_business"
"""Channel name of a business account's customers; separate, since their ids can equal other chats' of the
bot.
"""
UNNAMED_PLACE: Final = "in a chat"
"""Place that requests name for a channel without traits."""


def find_place(channel: str) -> str:
    """Return the place where a person writes, as requests say it; `UNNAMED_PLACE` for an unknown channel."""
    traits = CHANNELS.get(channel)
    return traits.place if traits else UNNAMED_PLACE
