"""Command `/retry`: answers the last question again on channels whose clients can replace the
former answer.
"""

from __future__ import annotations

from typing import Literal, Protocol

from shared.ports import ALL_PROCESSES, TURN_DUE, Announcer
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply, Ephemeral


class RetryStore(Protocol):
    """Store that opens a turn which answers the last question again.

    Returns `begun`; `woken` if a postponed turn is due now; `busy` while the question is unanswered;
    `nothing` without a question in view; `with_human` while an operator has the conversation. A repeat with
    the same `dedupe_key` has no effect.
    """

    async def request_retry(
        self, session_id: int, *, channel: str, address_id: int | None, dedupe_key: str | None
    ) -> Literal["begun", "woken", "busy", "nothing", "with_human"]: ...


class RetryCommand:
    """Handler of `/retry`."""

    def __init__(self, store: RetryStore, announcer: Announcer, *, channel: str = "web") -> None:
        """Set up the command; `channel` is the one whose processes answer.

        Telegram has another implementation.
        """
        self._store = store
        self._announcer = announcer
        self._channel = channel

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/retry` by command name."""
        return {"retry": self._retry}

    async def _retry(self, call: CommandInvocation) -> CommandReply:
        begun = await self._store.request_retry(
            call.session_id,
            channel=self._channel,
            address_id=call.address_id,
            dedupe_key=f"again:{call.cid}" if call.cid else None,
        )
        if begun == "busy":
            return False, Ephemeral(call.texts.say("still_answering"))
        if begun == "with_human":
            return False, Ephemeral(call.texts.say("link_refused_with_human"))
        if begun == "nothing":
            return False, Ephemeral(call.texts.say("nothing_to_retry"))
        await self._announcer.announce(ALL_PROCESSES, TURN_DUE)
        return True, Ephemeral(call.texts.say("answering_again" if begun == "begun" else "trying_again"))
