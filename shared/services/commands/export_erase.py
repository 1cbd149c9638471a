"""Commands on a person's data: `/forget everything` and `/export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import Markdown, bullets
from shared.core.privacy.erasure import Preview, Report
from shared.locales import Catalogue
from shared.services.commands.command_call import (
    Choice,
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Offering,
)


class EverythingEraser(Protocol):
    """Service that erases all data of a person after a confirmation.

    `preview_erasure` counts what is stored, and accepts a confirmation for ten minutes. `take_confirmation`
    uses it up, and returns False without one. `erase_everything` returns an unfinished report if a worker
    must continue; raises OnHold.
    """

    async def preview_erasure(self, session_id: int) -> Preview: ...
    async def take_confirmation(self, session_id: int) -> bool: ...
    async def erase_everything(self, session_id: int, actor: str) -> Report: ...


class MessageCounter(Protocol):
    """Service that counts the messages of a person's export."""

    async def count_messages(self, session_id: int) -> int: ...


class EraseEverythingCommand:
    """Erasure of all data of a person, by `/forget everything` after a preview and a confirmation.

    The question is stored, so that any process can handle the answer.
    """

    def __init__(self, forgetting: EverythingEraser) -> None:
        self._forgetting = forgetting

    async def forget(self, call: CommandInvocation) -> CommandReply:
        """Show the preview for `everything`, erase for `everything yes`, and explain the command otherwise.

        Without a preview in the last ten minutes nothing is erased. Raises OnHold.
        """
        match " ".join(call.args.casefold().split()):
            case "everything":
                return await self._ask(call)
            case "everything yes":
                return await self._erase(call)
        return False, call.texts.say("forget_how")

    async def _ask(self, call: CommandInvocation) -> CommandReply:
        preview = await self._forgetting.preview_erasure(call.session_id)
        if not preview.anything:
            return True, call.texts.say("nothing_to_forget")
        say = call.texts.say
        words = "\n\n".join(
            [say("forget_preview_head"), _amounts(preview.counts, call.texts), say("forget_preview")]
        )
        return True, Offering(words, [Choice(label=call.texts.say("erase_all"), args="everything yes")])

    async def _erase(self, call: CommandInvocation) -> CommandReply:
        if not await self._forgetting.take_confirmation(call.session_id):
            return False, call.texts.say("forget_unasked")
        actor = "person" if call.address_id is not None else "operator"
        report = await self._forgetting.erase_everything(call.session_id, actor)
        if not report.finished:
            return True, call.texts.say("forgetting_goes_on")
        told = ["forgotten", *(["forgotten_telegram"] if call.channel == "telegram" else [])]
        rows = _amounts(report.counts, call.texts)
        head = call.texts.say("forgotten_head") + (f"\n\n{rows}\n\n" if rows else " ")
        return True, head + " ".join(map(call.texts.say, told))


def _amounts(counts: Mapping[str, int], texts: Catalogue) -> Markdown:
    names = ("entries", "compactions", "notes", "artifacts", "attachments", "pins")
    return bullets(
        [texts.say(f"forgettable_{name}", count=counts[name]) for name in names if counts.get(name)]
    )


class ExportCommand:
    """Handler of `/export`, which says where the file is; the web gets it by REST, Telegram as a document."""

    def __init__(self, store: MessageCounter) -> None:
        self._store = store

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/export` by command name."""
        return {"export": self._export}

    async def _export(self, call: CommandInvocation) -> CommandReply:
        if call.args.casefold() not in ("", "json"):
            raise BadArguments.from_key("bad_export")
        if not await self._store.count_messages(call.session_id):
            return False, call.texts.say("nothing_to_export")
        return True, call.texts.say("export_ready")
