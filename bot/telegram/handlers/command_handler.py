"""Commands as they are given in a chat: the shared ones, and those that only Telegram can carry out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from bot.telegram.client.group_admins import GroupAdmins
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.inbound.bot_context import BotContext, get_chat_texts, get_command_texts
from bot.telegram.inbound.updates import IncomingMessage
from bot.telegram.outbound.buttons import (
    CHOSEN_BY_BUTTON,
    build_choice_buttons,
    build_erase_buttons,
    build_reminder_buttons,
    build_settings_buttons,
    build_summary_buttons,
)
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import explain_privacy, list_commands, say_hello
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.commands import (
    Audience,
    Channel,
    Command,
    commands_for,
    may_in_group,
    nearest_commands,
)
from shared.core.commands.texts import unknown_command
from shared.core.privacy.export import ExportFormat
from shared.core.tools.reminders import Reminder
from shared.services.commands.command_call import Choice, ReportProgress
from shared.services.privacy.export import DataExporter

log = structlog.get_logger(__name__)


class BotCommandResult(Protocol):
    @property
    def success(self) -> bool: ...
    @property
    def result(self) -> str: ...
    @property
    def choices(self) -> Sequence[Choice]: ...


class BotCommandRunner(Protocol):
    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str = "",
        cid: str | None = None,
        progress: ReportProgress | None = None,
        channel: Channel = "web",
        audience: Audience = "personal",
        language: str = "",
    ) -> BotCommandResult: ...


class TelegramCommandHandler:
    """For one bot. Whoever calls has checked that the chat may talk at all."""

    def __init__(
        self,
        desk: BotContext,
        *,
        voice: Notifier,
        commands: BotCommandRunner,
        exporting: DataExporter,
        wishes: QuickActions,
        admins: GroupAdmins,
        remembered: MemoryList,
        searching: SearchResults,
        demo: bool,
        offered: frozenset[str],
    ) -> None:
        self._desk = desk
        self._voice = voice
        self._commands = commands
        self._exporting = exporting
        self._wishes = wishes
        self._admins = admins
        self._remembered = remembered
        self._demo = demo
        self._offered = offered
        """Settings that this deployment lets a chat change."""
        self._own: dict[str, Callable[[ChatRow, IncomingMessage], Awaitable[None]]] = {
            "start": self._start,
            "help": self._help,
            "pin": self._pin,
            "unpin": self._unpin,
            "export": self._export,
            "memory": self._memory,
            "search": searching.show,
            "settings": self._settings,
            "retry": self._retry,
        }

    def is_command(self, spoken: IncomingMessage) -> bool:
        """Whether somebody meant one, known here or not; with a slash before several lines they did not."""
        command = spoken.command
        if command is None or command.is_for_other_bot or spoken.is_edited:
            return False
        return self._is_known(command.name) or "\n" not in command.args

    def _is_known(self, name: str) -> bool:
        table = commands_for(channel="telegram", audience=self._desk.audience, speaks=True)
        return name == "start" or any(one.name == name for one in table)

    async def handle(self, place: ChatRow, spoken: IncomingMessage) -> None:
        assert spoken.command is not None
        name, args = spoken.command.name, spoken.command.args
        if not self._is_known(name):
            await self._unknown(place, spoken, name)
            return
        if not spoken.chat.is_private and not await self._may(place, spoken, name):
            await self._voice.send(
                get_chat_target(place), get_chat_texts(place).say("admins_only"), reply_to=spoken.message_id
            )
            return
        own = self._own.get(name)
        if own is not None:
            await own(place, spoken)
        else:
            await self._shared(place, name, args)

    async def _unknown(self, place: ChatRow, spoken: IncomingMessage, name: str) -> None:
        """Costs no call of a model. In a group it is another bot's, unless it names this one."""
        if not spoken.chat.is_private and not (spoken.command and spoken.command.is_for_this_bot):
            return
        nearest = nearest_commands(name, [command.name for command in self._table()])
        words = unknown_command(name, nearest, get_command_texts(place))
        await self._voice.send(get_chat_target(place), words, reply_to=spoken.message_id)

    def _table(self) -> tuple[Command, ...]:
        return commands_for(channel="telegram", audience=self._desk.audience, speaks=self._desk.speaks)

    async def _may(self, place: ChatRow, spoken: IncomingMessage, name: str) -> bool:
        if may_in_group(name, admin=False) or spoken.chat.kind == "channel":  # only administrators post
            return True
        return await self._admins.is_admin(place.chat_id, spoken.sender.user_id)

    async def _shared(self, place: ChatRow, name: str, args: str) -> None:
        texts = get_chat_texts(place)
        outcome = await self._commands.run(
            session_id=place.session_id, address_id=place.address_id, name=name, args=args,
            progress=self._tell_progress(place) if name == "compact" else None,
            channel="telegram", audience=self._desk.audience, language=texts.language,
        )  # fmt: skip
        buttons = None
        if outcome.success and name == "compact":
            summary = await self._desk.stores.telegram_chats.newest_summary(place.session_id)
            if summary is not None:
                buttons = build_summary_buttons(place, summary.link_id)
                await self._desk.stores.telegram_chats.change_settings(
                    place.address_id, {"noted": summary.link_id}
                )
        if name == "forget" and args.strip().casefold() == "everything":
            buttons = build_erase_buttons(place) if outcome.choices else None
        elif name in CHOSEN_BY_BUTTON:
            buttons = build_choice_buttons(place, name, outcome.choices)
        if outcome.success and name == "reminders":
            buttons = build_reminder_buttons(place, await list_reminders(self._desk, place))
        await self._voice.send(get_chat_target(place), outcome.result, keyboard=buttons)

    def _tell_progress(self, place: ChatRow) -> ReportProgress:
        """Once, and only of what takes a while: where there is nothing to do, that is all that is said."""
        told = False

        async def tell(message: str, percent: int | None) -> None:
            nonlocal told
            if not told:
                told = True
                await self._voice.send(
                    get_chat_target(place), get_chat_texts(place).say("summarising"), silent=True
                )

        return tell

    async def _start(self, place: ChatRow, spoken: IncomingMessage) -> None:
        words = say_hello(
            get_chat_texts(place), name=spoken.sender.name, demo=self._demo, public=self._desk.public
        )
        await self._voice.send(get_chat_target(place), words)

    async def _help(self, place: ChatRow, spoken: IncomingMessage) -> None:
        if spoken.command is not None and spoken.command.args:
            await self._shared(place, "help", spoken.command.args)
            return
        texts = get_chat_texts(place)
        rows = [
            (f"/{command.name} {command.args}".rstrip(), command.describe(texts.language))
            for command in self._table()
        ]
        hears_all = self._desk.identity.hears_all
        hint = "" if spoken.chat.is_private else explain_privacy(texts, hears_all=hears_all)
        await self._voice.send(get_chat_target(place), list_commands(texts, rows, groups=hint))

    async def _pin(self, place: ChatRow, spoken: IncomingMessage) -> None:
        await self.pin(place, spoken.reply_to_message_id, reply_to=spoken.message_id)

    async def pin(self, place: ChatRow, message_id: int | None, *, reply_to: int | None = None) -> None:
        """By a reply, by Telegram's own pin, or, with neither, the newest answer."""
        await self._about(place, "pin", message_id, reply_to=reply_to)

    async def _unpin(self, place: ChatRow, spoken: IncomingMessage) -> None:
        assert spoken.command is not None
        if spoken.reply_to_message_id is None:
            await self._shared(place, "unpin", spoken.command.args)
        else:
            await self._about(place, "unpin", spoken.reply_to_message_id, reply_to=spoken.message_id)

    async def _about(
        self, place: ChatRow, name: str, message_id: int | None, *, reply_to: int | None
    ) -> None:
        """A command about a message of this chat."""
        seq = None if message_id is None else await self._seq_of(place, message_id)
        texts = get_chat_texts(place)
        if message_id is not None and seq is None:
            await self._voice.send(get_chat_target(place), texts.say("unknown_message"), reply_to=reply_to)
            return
        outcome = await self._commands.run(
            session_id=place.session_id, address_id=place.address_id, name=name,
            args=f"m{seq}" if seq else "", channel="telegram", audience=self._desk.audience,
            language=texts.language,
        )  # fmt: skip
        await self._voice.send(get_chat_target(place), outcome.result, reply_to=reply_to, silent=True)

    async def _seq_of(self, place: ChatRow, message_id: int) -> int | None:
        """The entry behind a message of the chat; a message of another session is none of ours."""
        places = self._desk.stores.telegram_chats
        found = await places.message(place.bot_id, place.chat_id, message_id)
        if found is None or found.session_id != place.session_id:
            return None
        return found.seq if found.seq is not None else await places.answer_seq(found.session_id, found.turn)

    async def _export(self, place: ChatRow, spoken: IncomingMessage) -> None:
        texts, exporting = get_chat_texts(place), self._exporting
        assert spoken.command is not None
        kind: ExportFormat = "json" if spoken.command.args.strip().casefold() == "json" else "md"
        said = await exporting.count_messages(place.session_id)
        if not said:
            await self._voice.send(get_chat_target(place), get_command_texts(place).say("nothing_to_export"))
            return
        content = await exporting.export(place.session_id, kind, language=texts.language)
        await self._voice.send_file(
            get_chat_target(place),
            name=exporting.build_file_name(kind),
            content=content,
            caption=texts.say("export_caption", count=said),
        )

    async def _memory(self, place: ChatRow, spoken: IncomingMessage) -> None:
        assert spoken.command is not None
        await self._remembered.show(place, spoken.command.args.strip())

    async def _settings(self, place: ChatRow, spoken: IncomingMessage) -> None:
        buttons = build_settings_buttons(place, offered=self._offered)
        await self._voice.send(
            get_chat_target(place), get_chat_texts(place).say("settings_title"), keyboard=buttons
        )

    async def _retry(self, place: ChatRow, spoken: IncomingMessage) -> None:
        if unheard := place.settings.get("unheard"):
            stores = self._desk.stores
            await stores.telegram_chats.change_settings(place.address_id, {"unheard": None})
            if await stores.telegram_inbox.reopen(place.bot_id, list(unheard)):
                return
        if not await self._wishes.retry(place, update_id=spoken.update_id):
            await self._voice.send(get_chat_target(place), get_command_texts(place).say("nothing_to_retry"))


async def list_reminders(desk: BotContext, place: ChatRow) -> list[Reminder]:
    """Those that wait, in the order of their numbers."""
    found = await desk.stores.reminders.list_for_session(place.session_id)
    return [one for one in found if one.state == "pending"]
