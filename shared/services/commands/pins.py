"""Commands on pinned messages: `/pin`, `/unpin` and `/pins`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import Markdown, excerpt, number_lines
from shared.core.ops.session_stats import PinnedMessage
from shared.locales import Catalogue
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.commands.usage import UsageStateStore
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.session_service import SessionService

PIN_TOKENS = 2_000
"""Most tokens of all pins together in a session whose context was not measured yet."""
_MID = re.compile(r"m([1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


class PinStore(Protocol):
    """Store of pinned messages.

    `pin` returns `pinned`, `already`, `too_many` above `most_tokens` for all pins together, or another word
    for an unknown message. `unpin` returns `unpinned` or `not_pinned`. `find_message` returns None for an
    unknown `seq`; None as `seq` means the newest answer.
    """

    async def pin(self, session_id: int, seq: int, *, most_tokens: int) -> str: ...
    async def unpin(self, session_id: int, seq: int) -> str: ...
    async def list_pins(self, session_id: int) -> Sequence[PinnedMessage]: ...
    async def find_message(self, session_id: int, seq: int | None) -> PinnedMessage | None: ...


class PinCommands:
    """Handlers of `/pin`, `/unpin` and `/pins`."""

    def __init__(
        self,
        *,
        pins: PinStore,
        store: UsageStateStore,
        sessions: SessionService,
        requests: RequestBuilder,
    ) -> None:
        self._pins = pins
        self._store = store
        self._sessions = sessions
        self._requests = requests

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handlers of `/pin`, `/unpin` and `/pins` by command name."""
        return {"pin": self._pin, "unpin": self._unpin, "pins": self._list}

    async def _pin(self, call: CommandInvocation) -> CommandReply:
        """Pin a message named by its id, such as `m12`; without an id, the newest answer.

        Raises BadArguments for another argument; an unknown id or too many pins get a reply.
        """
        meant = _MID.fullmatch(call.args)
        if call.args and meant is None:
            raise BadArguments.from_key("bad_pin")
        message = await self._pins.find_message(call.session_id, int(meant[1]) if meant else None)
        if message is None:
            return False, call.texts.say("pin_unknown")
        most = await self._most_tokens(call.session_id)
        result = await self._pins.pin(call.session_id, message.seq, most_tokens=most)
        if result == "pinned":
            return True, call.texts.say("pinned", words=excerpt(message.text))
        keys = {"already": "pinned_before", "too_many": "pin_too_long"}
        return result == "already", call.texts.say(keys.get(result, "pin_unknown"))

    async def _most_tokens(self, session_id: int) -> int:
        """Return the most tokens that all pins may have together: the policy's share of the context limit."""
        measured = await self._sessions.measure_context(session_id)
        if measured is None:
            return PIN_TOKENS
        state = await self._store.load_state(session_id)
        return self._requests.resolve_policy(state.agent_config).keeping.find_pin_room(measured.limit)

    async def _unpin(self, call: CommandInvocation) -> CommandReply:
        pinned = await self._pins.list_pins(call.session_id)
        if not pinned:
            return False, call.texts.say("no_pins")
        if not call.args and len(pinned) > 1:
            return False, f"{call.texts.say('which_pin')}\n\n{_render_pins(pinned, call.texts)}"
        meant = _find_pin(call.args, pinned)
        if meant is None or await self._pins.unpin(call.session_id, meant.seq) != "unpinned":
            return False, call.texts.say("not_pinned")
        return True, call.texts.say("unpinned", words=excerpt(meant.text))

    async def _list(self, call: CommandInvocation) -> CommandReply:
        pinned = await self._pins.list_pins(call.session_id)
        return True, _render_pins(pinned, call.texts) if pinned else call.texts.say("no_pins")


def _find_pin(args: str, pinned: Sequence[PinnedMessage]) -> PinnedMessage | None:
    """Return the pin named by its id or by its number in the list, or the only one; None if there is none.

    Raises BadArguments for any other argument.
    """
    if not args:
        return pinned[0]
    if found := _MID.fullmatch(args):
        return next((one for one in pinned if one.seq == int(found[1])), None)
    if not _NUMBER.fullmatch(args):
        raise BadArguments.from_key("bad_unpin")
    number = int(args)
    return pinned[number - 1] if number <= len(pinned) else None


def _render_pins(pinned: Sequence[PinnedMessage], texts: Catalogue) -> Markdown:
    rows = number_lines([texts.say("pins_row", words=excerpt(one.text)) for one in pinned])
    return f"{texts.say('pins_head')}\n\n{rows}"
