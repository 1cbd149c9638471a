"""The last question, answered once more: `/retry`, where a screen can show the newer answer for the older."""

from __future__ import annotations

from typing import Literal, Protocol

from shared.ports import DUE_ELSEWHERE, EVERYBODY, Announcer
from shared.services.commands.command_call import Call, Doer, Passing, Said


class AgainStore(Protocol):
    async def again(
        self, session_id: int, *, channel: str, address_id: int | None, dedupe_key: str | None
    ) -> Literal["begun", "woken", "busy", "nothing", "with_human"]: ...


class AgainCommand:
    def __init__(self, store: AgainStore, announcer: Announcer, *, channel: str = "web") -> None:
        """`channel` is whose processes answer; Telegram has a way of its own."""
        self._store = store
        self._announcer = announcer
        self._channel = channel

    @property
    def doers(self) -> dict[str, Doer]:
        return {"retry": self._retry}

    async def _retry(self, call: Call) -> Said:
        begun = await self._store.again(
            call.session_id,
            channel=self._channel,
            address_id=call.address_id,
            dedupe_key=f"again:{call.cid}" if call.cid else None,
        )
        if begun == "busy":
            return False, Passing(call.texts.still_answering)
        if begun == "with_human":
            return False, Passing(call.texts.link_refusals["with_human"])
        if begun == "nothing":
            return False, Passing(call.texts.nothing_to_retry)
        await self._announcer.announce(EVERYBODY, DUE_ELSEWHERE)
        return True, Passing(call.texts.answering_again if begun == "begun" else call.texts.trying_again)
