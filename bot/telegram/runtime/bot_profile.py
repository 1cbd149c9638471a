"""Sets the command menus and descriptions of a bot, and sends only those that changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from aiogram.methods import SetMyCommands, SetMyDescription, SetMyShortDescription

from bot.telegram.client.calls import CallDone, Priority, is_undecided
from bot.telegram.client.command_menus import build_command_menus, list_menu_languages
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.texts import get_texts
from shared.core.values.errors import StorageUnavailable

log = structlog.get_logger(__name__)

RETRY_SECONDS = 300.0
"""Seconds until calls that have to be repeated are made again."""
PATIENCE_SECONDS = 1_800.0
"""Seconds that one call may wait in the queue and through rate limits; a start makes up to 100 calls."""

ProfileMethod = Literal["setMyCommands", "setMyDescription", "setMyShortDescription"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCall:
    """Call of the Bot API that sets one command menu or description.

    `key` names it, `params` are its arguments.
    """

    method: ProfileMethod
    key: str
    params: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Short hash of the arguments, to compare with what was sent before."""
        content = json.dumps(self.params, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def list_profile_calls(context: BotContext) -> tuple[ProfileCall, ...]:
    """Return the calls that set all command menus and descriptions of a bot, in all languages."""
    calls = []
    for menu in build_command_menus(
        context.config.audience, humans=context.has_handover, speaks=context.can_speak
    ):
        commands = [{"command": name, "description": what} for name, what in menu.commands]
        params = {"commands": commands, "scope": {"type": menu.scope}, "language_code": menu.language}
        key = f"setMyCommands:{menu.scope}:{menu.language}"
        calls.append(ProfileCall(method="setMyCommands", key=key, params=params))
    for language in list_menu_languages():
        say = get_texts(language).say
        calls += [
            ProfileCall(
                method="setMyDescription",
                key=f"setMyDescription:{language}",
                params={"description": say("description"), "language_code": language},
            ),
            ProfileCall(
                method="setMyShortDescription",
                key=f"setMyShortDescription:{language}",
                params={"short_description": say("about"), "language_code": language},
            ),
        ]
    return tuple(calls)


class BotProfile:
    """Updater of one bot's command menus and descriptions; run only by the holder of the bot's lease."""

    def __init__(self, context: BotContext) -> None:
        self._context = context
        self._bot_id = context.identity.bot_id
        self._bots = context.stores.telegram_chats

    async def run(self) -> None:
        """Update the profile; retry every `RETRY_SECONDS` until no call is left.

        A call that Telegram refuses is not repeated; an unavailable database is retried.
        """
        while True:
            try:
                if await self.update():
                    return
            except StorageUnavailable as error:
                log.warning("bot_profile_unavailable", bot=self._bot_id, reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def update(self) -> bool:
        """Make the calls whose arguments changed since they were sent.

        Return False if a call has to be repeated. A call that Telegram refuses counts as made. Raises
        StorageUnavailable.
        """
        known = await self._bots.load_profile(self._bot_id)
        due = [call for call in list_profile_calls(self._context) if known.get(call.key) != call.digest]
        made: dict[str, str] = {}
        try:
            for call in due:
                if not await self._make(call):
                    return False
                made[call.key] = call.digest
        finally:
            if made:
                await self._bots.record_profile(self._bot_id, made)
        if due:
            log.info("bot_profile_set", bot=self._bot_id, calls=len(due))
        return True

    async def _make(self, call: ProfileCall) -> bool:
        """Make one call; return False if it has to be repeated because it was postponed or not answered.

        A refused call counts as made, since Telegram would refuse it again.
        """
        outcome = await self._context.sender.call(
            _build_method(call),
            chat_id=self._bot_id,  # no chat has this id, so a rate limit of the profile delays no chat
            priority=Priority.CLEANUP,
            patience=PATIENCE_SECONDS,
            repeatable=True,
            counts=False,
        )
        if not isinstance(outcome, CallDone):
            log.warning("bot_profile_failed", bot=self._bot_id, key=call.key, outcome=str(outcome))
        return not is_undecided(outcome)


def _build_method(call: ProfileCall) -> Any:
    methods: dict[ProfileMethod, Any] = {
        "setMyCommands": SetMyCommands,
        "setMyDescription": SetMyDescription,
        "setMyShortDescription": SetMyShortDescription,
    }
    return methods[call.method].model_validate(dict(call.params))
