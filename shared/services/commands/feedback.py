"""Command `/feedback`: stores people's opinions about answers."""

from __future__ import annotations

from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply

FEEDBACK_CHARS = 2_000
"""Most characters of one opinion."""


class FeedbackStore(Protocol):
    """Store of opinions about a session's newest answer; returns False if there is no answer yet."""

    async def record_feedback(self, session_id: int, words: str, *, source: str) -> bool: ...


class FeedbackCommands:
    """Handler of `/feedback`."""

    def __init__(self, feedback: FeedbackStore) -> None:
        self._feedback = feedback

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/feedback` by command name."""
        return {"feedback": self._tell}

    async def _tell(self, call: CommandInvocation) -> CommandReply:
        """Store an opinion about the newest answer, which operators read next to that turn."""
        if not call.args:
            return False, call.texts.say("feedback_how")
        if len(call.args) > FEEDBACK_CHARS:
            raise BadArguments.from_key("feedback_too_long", count=FEEDBACK_CHARS)
        told = await self._feedback.record_feedback(call.session_id, call.args, source=call.channel)
        return told, call.texts.say("feedback_kept" if told else "feedback_of_nothing")
