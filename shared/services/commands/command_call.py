"""One call of a command: who asks, with which words, in which language."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.core.commands.commands import Audience, Channel, Command
from shared.core.session.session_state import ChangeRefused
from shared.locales import Catalogue

ReportProgress = Callable[[str, int | None], Awaitable[None]]
"""`(message, percent)`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInvocation:
    session_id: int
    address_id: int | None
    """The place it was given in; None when an operator gives it."""
    channel: Channel
    audience: Audience
    args: str
    offered: Sequence[Command]
    progress: ReportProgress
    texts: Catalogue
    cid: str | None = None
    """Idempotency key of the call, if its sender may repeat it."""


class Ephemeral(str):
    """Text for the caller only: it is shown and not stored."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Numbered message in a text; where there are buttons, one of them leads to it."""

    number: int
    session_id: int
    seq: int
    label: str = ""
    """Day and first words of the message, as plain text."""


class Guide(Ephemeral):
    """Ephemeral text with the messages that it names."""

    __slots__ = ("places",)
    places: tuple[Place, ...]

    def __new__(cls, text: str, places: Iterable[Place]) -> Guide:
        made = super().__new__(cls, text)
        made.places = tuple(places)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Button that runs the same command with other arguments."""

    label: str
    args: str


class Offering(str):
    """Words that ask for a choice; where there are buttons, it is made with one."""

    __slots__ = ("choices",)
    choices: tuple[Choice, ...]

    def __new__(cls, words: str, choices: Iterable[Choice]) -> Offering:
        made = super().__new__(cls, words)
        made.choices = tuple(choices)
        return made


CommandReply = tuple[bool, str]
"""Success of a command, and the text for the person."""
CommandHandler = Callable[[CommandInvocation], Awaitable[CommandReply]]


class CommandGroup(Protocol):
    """A room full of commands."""

    @property
    def handlers(self) -> dict[str, CommandHandler]: ...


def build_refusal(call: CommandInvocation, refusal: ChangeRefused) -> CommandReply:
    return False, call.texts.say(f"refused_{refusal.reason}", **refusal.values)
