"""What people do with their own data: `/forget everything` and `/export`."""

from __future__ import annotations

from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.privacy.erasure import Preview, Report
from shared.services.commands.command_call import Call, Doer, Said


class ForgetsAll(Protocol):
    async def preview_everything(self, session_id: int) -> Preview: ...
    async def confirmed(self, session_id: int) -> bool: ...
    async def everything(self, session_id: int, actor: str) -> Report: ...


class HasWords(Protocol):
    async def said(self, session_id: int) -> int: ...


class ForgetEverything:
    """Shown first, then confirmed; the question is stored, so that any process hears the answer."""

    def __init__(self, forgetting: ForgetsAll) -> None:
        self._forgetting = forgetting

    async def forget(self, call: Call) -> Said:
        match " ".join(call.args.casefold().split()):
            case "everything":
                return await self._ask(call)
            case "everything yes":
                return await self._do(call)
        return False, call.texts.forget_how

    async def _ask(self, call: Call) -> Said:
        preview = await self._forgetting.preview_everything(call.session_id)
        if not preview.anything:
            return True, call.texts.nothing_to_forget
        return True, call.texts.forget_preview(counts=preview.counts)

    async def _do(self, call: Call) -> Said:
        if not await self._forgetting.confirmed(call.session_id):
            return False, call.texts.forget_unasked
        actor = "person" if call.address_id is not None else "operator"
        report = await self._forgetting.everything(call.session_id, actor)
        if not report.finished:
            return True, call.texts.forgetting_goes_on
        return True, call.texts.forgotten(counts=report.counts, telegram=call.channel == "telegram")


class ExportCommand:
    """The words only: on the web the file itself comes by REST, in a chat of Telegram as a document."""

    def __init__(self, store: HasWords) -> None:
        self._store = store

    @property
    def doers(self) -> dict[str, Doer]:
        return {"export": self._export}

    async def _export(self, call: Call) -> Said:
        if call.args.casefold() not in ("", "json"):
            raise BadArguments("/export takes nothing, or the word json.")
        if not await self._store.said(call.session_id):
            return False, call.texts.nothing_to_export
        return True, call.texts.export_ready
