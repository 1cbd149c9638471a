"""Values of one call of a command: its caller, arguments and language, and kinds of answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.core.commands.commands import Audience, Channel, Command
from shared.core.session.session_state import ChangeRefused
from shared.locales import Catalogue

ReportProgress = Callable[[str, int | None], Awaitable[None]]
"""Function that shows a message and the progress in percent to the caller; None shows no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInvocation:
    """One call of a command, as its handler receives it: caller, place, arguments and language.

    The name is not in it: each handler serves one command. `offered` are the commands for this caller;
    `audience` is `personal` or `public`.
    """

    session_id: int
    address_id: int | None
    """Id of the address from which it was called; None if an operator calls it."""
    channel: Channel
    audience: Audience
    args: str
    offered: Sequence[Command]
    progress: ReportProgress
    texts: Catalogue
    cid: str | None = None
    """Key of the call by which a repeat is recognised; None if its sender does not repeat it."""


class Ephemeral(str):
    """Text that is shown to the caller only and not stored."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Numbered message in a text; on channels with buttons, one of them leads to it."""

    number: int
    session_id: int
    seq: int
    label: str = ""
    """Day and first words of the message, as plain text."""


class Guide(Ephemeral):
    """Ephemeral text with the messages that its numbers lead to."""

    __slots__ = ("places",)
    places: tuple[Place, ...]

    def __new__(cls, text: str, places: Iterable[Place]) -> Guide:
        made = super().__new__(cls, text)
        made.places = tuple(places)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Button that calls the same command with the arguments `args`; `label` is its text."""

    label: str
    args: str


class Offering(str):
    """Text that asks for a choice, with the buttons for it."""

    __slots__ = ("choices",)
    choices: tuple[Choice, ...]

    def __new__(cls, words: str, choices: Iterable[Choice]) -> Offering:
        made = super().__new__(cls, words)
        made.choices = tuple(choices)
        return made


CommandReply = tuple[bool, str]
"""True if the command succeeded, and the Markdown text for the person."""
CommandHandler = Callable[[CommandInvocation], Awaitable[CommandReply]]
"""Function that runs one command and returns its reply."""


class CommandGroup(Protocol):
    """Group of commands on one subject; `handlers` returns them by command name."""

    @property
    def handlers(self) -> dict[str, CommandHandler]: ...


def build_refusal(call: CommandInvocation, refusal: ChangeRefused) -> CommandReply:
    """Return the failed reply that explains in the caller's language why a change was refused."""
    return False, call.texts.say(f"refused_{refusal.reason}", **refusal.values)
