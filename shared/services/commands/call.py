"""One call of a command: who asks, with which words, in which language."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shared.core.command_texts import CommandTexts
from shared.core.commands import Command
from shared.core.upkeep import Refused

Progress = Callable[[str, int | None], Awaitable[None]]
"""`(message, percent)`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    session_id: int
    args: str
    offered: Sequence[Command]
    progress: Progress
    language: str
    texts: CommandTexts


Said = tuple[bool, str]
"""Whether it worked, and the words for the person."""
Doer = Callable[[Call], Awaitable[Said]]


def refused(call: Call, refusal: Refused) -> Said:
    return False, call.texts.refusals.get(refusal.reason) or refusal.advice
