"""Router of commands: those of all channels, and those that exist only on Telegram."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

import structlog
from aiogram import Router
from aiogram.dispatcher.event.telegram import TelegramEventObserver
from aiogram.dispatcher.flags import get_flag
from aiogram.filters import Command
from aiogram.types import InlineKeyboardMarkup, Message, TelegramObject

from bot.telegram.client.calls import is_refused
from bot.telegram.client.group_admins import GroupAdmins, GroupRole
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.handlers.topics import TopicConversations
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.message_batching import MessageBatch
from bot.telegram.inbound.updates import IncomingMessage
from bot.telegram.outbound.buttons import (
    CHOSEN_BY_BUTTON,
    build_choice_buttons,
    build_erase_buttons,
    build_place_buttons,
    build_reminder_buttons,
    build_settings_buttons,
    build_summary_buttons,
)
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import explain_privacy, get_chat_texts, get_command_texts, list_commands, say_hello
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.commands import Command as CommandEntry
from shared.core.commands.commands import (
    commands_for,
    may_in_group,
    nearest_commands,
)
from shared.core.commands.texts import unknown_command
from shared.core.privacy.export import ExportFormat
from shared.core.tools.reminders import Reminder
from shared.core.values.errors import EvertalkError
from shared.services.commands.command_service import CommandService
from shared.services.privacy.export import DataExporter

log = structlog.get_logger(__name__)

MAX_ARGUMENT_WORDS = 2
"""Maximum words after an unknown command; with more, the text is a message that begins with a slash."""
QUESTION_MARKS = ("?", "？", "؟")
"""Ends of a text after an unknown command that make it a message that begins with a slash."""
ROLE_PATIENCE_SECONDS = 30.0
"""Seconds that a command may wait for Telegram's answer about the sender's role, including rate limits."""


RUN_ONCE_COMMANDS = ("undo", "new", "separator", "unlink")
"""Shared commands, besides `compact`, that must not run twice: their update is marked as handled first, so a
crash drops them.
"""

NextHandler = Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]]


class CommandHandlers:
    """Handlers of one bot for commands; the middleware has checked the access of the chat before."""

    def __init__(
        self,
        context: BotContext,
        *,
        notifier: Notifier,
        commands: CommandService,
        exporter: DataExporter,
        quick_actions: QuickActions,
        admins: GroupAdmins,
        memory_list: MemoryList,
        search_results: SearchResults,
        topics: TopicConversations,
        demo: bool,
        offered: frozenset[str],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._context = context
        self._notifier = notifier
        self._commands = commands
        self._exporter = exporter
        self._quick_actions = quick_actions
        self._admins = admins
        self._memory_list = memory_list
        self._demo = demo
        self._offered = offered
        """Names of settings that the operator lets a chat change."""
        self._search_results = search_results
        self._topics = topics
        self._start = start

    def build_router(self) -> Router:
        """Build the router.

        Updates of commands with the flag `once` are marked as handled before they run.
        """
        once = {"once": True}
        router = Router(name="commands")
        for observer in (router.message, router.channel_post, router.edited_message):
            observer.filter(self._is_meant)
            observer.middleware(self._check_role)
            observer.middleware(self._mark_handled)
            on = partial(_register, observer)
            on(self._send_welcome, "start")
            on(self._compact, "compact", flags={**once, "in_background": True})
            on(self._send_help, "help")
            on(self._handle_pin, "pin")
            on(self._handle_unpin, "unpin")
            on(self._explain, "why")
            on(self._send_export, "export")
            on(self._show_memory, "memory")
            on(self._search_results.show, "search")
            on(self._show_settings, "settings")
            on(self._retry_answer, "retry")
            on(self._stop_answer, "stop")
            observer.register(
                self._open_topic, _named("new"), self._topics.has_topics, flags=once
            )  # fmt: skip
            on(self._run_shared, *RUN_ONCE_COMMANDS, flags=once)
            observer.register(self._run_shared, self._is_shared)
            observer.register(self._answer_unknown)
        return router

    def is_known(self, name: str) -> bool:
        """Return whether the bot has a command of this name."""
        table = commands_for(channel="telegram", audience=self._context.config.audience, speaks=True)
        return name == "start" or any(one.name == name for one in table)

    def is_command(self, message: IncomingMessage) -> bool:
        """Return whether a message is a command to this bot, known or unknown; an edited message never is."""
        command = message.command
        if command is None or command.is_for_other_bot or message.is_edited:
            return False
        return self._may_be_meant(message)

    def _may_be_meant(self, message: IncomingMessage) -> bool:
        """Return whether a message that begins with a slash is meant as a command.

        An unknown command is an ordinary message if its text has several lines. In a private chat it is one,
        too, if a sentence or question follows and no known command has a similar name.
        """
        command = message.command
        if command is None or self.is_known(command.name):
            return command is not None
        if "\n" in command.args:
            return False
        is_sentence = len(command.args.split()) > MAX_ARGUMENT_WORDS or command.args.endswith(QUESTION_MARKS)
        if not is_sentence or not message.chat.is_private:
            return True
        return bool(nearest_commands(command.name, [one.name for one in self._list_commands()]))

    async def _is_meant(self, _: Message, batch: MessageBatch | None = None) -> bool:
        return batch is not None and self.is_command(batch.addressed_message)

    async def _is_shared(self, _: Message, batch: MessageBatch) -> bool:
        command = batch.addressed_message.command
        return command is not None and self.is_known(command.name)

    async def _check_role(self, handler: NextHandler, event: TelegramObject, data: dict[str, Any]) -> Any:
        """Middleware: run the handler only if the sender may use the command; otherwise send a notice.

        Some commands are for a group's administrators only. Adds the message as `said` and its arguments as
        `args`.
        """
        said, chat = cast("MessageBatch", data["batch"]).addressed_message, cast("ChatRow", data["chat"])
        assert said.command is not None
        data |= {"said": said, "args": said.command.args}
        name = said.command.name
        role: GroupRole = "admin"
        if not said.chat.is_private and self.is_known(name):
            role = await self._find_role(chat, said, name)
        if role == "admin":
            return await handler(event, data)
        text = get_chat_texts(chat).say("admins_only" if role == "member" else "not_now")
        await self._notifier.send(get_chat_target(chat), text, reply_to=said.message_id)
        await self._mark(data["batch"])
        return None

    async def _mark_handled(self, handler: NextHandler, event: TelegramObject, data: dict[str, Any]) -> Any:
        """Middleware: run the handler, then mark the update as handled; with the flag `once`, mark it first.

        A command with that flag does not run if the update was already marked.
        """
        batch, run = cast("MessageBatch", data["batch"]), partial(handler, event, data)
        if not get_flag(data, "once"):
            await run()
            await self._mark(batch)
        elif await self._mark(batch):  # otherwise another process has run the command
            running = self._run_once(run, cast("ChatRow", data["chat"]), batch.addressed_message)
            if get_flag(data, "in_background"):
                # Compaction waits for a model, so it runs in the background and delays no message of the
                # chat.
                self._start(running)
            else:
                await running

    async def _run_once(
        self, run: Callable[[], Awaitable[Any]], chat: ChatRow, said: IncomingMessage
    ) -> None:
        """Run a command whose update is already marked as handled; it is not retried.

        An EvertalkError is logged, and the chat gets a notice.
        """
        try:
            await run()
        except EvertalkError as error:
            name = said.command.name if said.command else ""
            log.warning("command_failed", command=name, code=error.code, reason=str(error))
            await self._notifier.send(get_chat_target(chat), get_chat_texts(chat).say("not_now"))

    async def _mark(self, batch: MessageBatch) -> bool:
        """Mark the updates as handled; return False if all of them had been marked before."""
        inbox = self._context.stores.telegram_inbox
        return await inbox.mark_handled(self._context.identity.bot_id, batch.update_ids) > 0

    async def _answer_unknown(self, _: Message, chat: ChatRow, said: IncomingMessage) -> None:
        """Reply that a command is unknown, with similar names.

        In a group only if the command names this bot.
        """
        command = said.command
        if command is None or (not said.chat.is_private and not command.is_for_this_bot):
            return
        nearest = nearest_commands(command.name, [one.name for one in self._list_commands()])
        text = unknown_command(command.name, nearest, get_command_texts(chat))
        await self._notifier.send(get_chat_target(chat), text, reply_to=said.message_id)

    def _list_commands(self) -> tuple[CommandEntry, ...]:
        return commands_for(
            channel="telegram", audience=self._context.config.audience, speaks=self._context.can_speak
        )

    async def _find_role(self, chat: ChatRow, message: IncomingMessage, name: str) -> GroupRole:
        """Return whether the sender may use the command: `admin` yes, `member` no, `unknown` if Telegram did
        not answer.
        """
        if (
            may_in_group(name, admin=False) or message.chat.kind == "channel"
        ):  # only administrators post in a channel
            return "admin"
        user_id = message.sender.user_id
        return await self._admins.find_role(chat.chat_id, user_id, patience=ROLE_PATIENCE_SECONDS)

    async def _run_shared(self, _: Message, chat: ChatRow, said: IncomingMessage, args: str) -> None:
        assert said.command is not None
        await self._run(chat, said.command.name, args)

    async def _open_topic(self, _: Message, chat: ChatRow, args: str) -> None:
        """Open a topic for a new conversation.

        If Telegram refuses, start the conversation in the same chat.
        """
        if is_refused(await self._topics.open(chat, args)):
            await self._run(chat, "new", args)

    async def _run(self, chat: ChatRow, name: str, args: str) -> None:
        """Run a shared command, and send its result with the buttons that belong to it."""
        texts = get_chat_texts(chat)
        outcome = await self._commands.run(
            session_id=chat.session_id, address_id=chat.address_id, name=name, args=args,
            channel="telegram", audience=self._context.config.audience, language=texts.language,
        )  # fmt: skip
        buttons = build_place_buttons(chat, outcome.places)
        if name == "forget" and args.strip().casefold() == "everything":
            buttons = build_erase_buttons(chat) if outcome.choices else None
        elif name in CHOSEN_BY_BUTTON:
            buttons = build_choice_buttons(chat, name, outcome.choices)
        if outcome.success and name == "reminders":
            buttons = build_reminder_buttons(chat, await list_reminders(self._context, chat))
        await self._notifier.send(get_chat_target(chat), outcome.result, keyboard=buttons)

    async def _compact(self, _: Message, chat: ChatRow, args: str) -> None:
        """Compact the conversation, show a notice while it runs, and replace the notice by the result."""
        notices: list[int | None] = []

        async def report(_message: str, _percent: int | None) -> None:
            if not notices:
                notices.append(None)
                text = get_chat_texts(chat).say("summarising")
                notices[0] = await self._notifier.send(get_chat_target(chat), text, silent=True)

        self._context.compacting.add(chat.session_id)
        try:
            outcome = await self._commands.run(
                session_id=chat.session_id, address_id=chat.address_id, name="compact",
                args=args, progress=report, channel="telegram",
                audience=self._context.config.audience, language=get_chat_texts(chat).language,
            )  # fmt: skip
            buttons = await self._note_summary(chat) if outcome.success else None
        finally:
            self._context.compacting.discard(chat.session_id)
        await self._notifier.replace_or_send(
            get_chat_target(chat), next(iter(notices), None), outcome.result, keyboard=buttons
        )

    async def _note_summary(self, chat: ChatRow) -> InlineKeyboardMarkup | None:
        """Record that the chat knows the newest summary, and return its buttons; None without a summary."""
        chats = self._context.stores.telegram_chats
        if (summary := await chats.load_newest_summary(chat.session_id)) is None:
            return None
        await chats.change_settings(chat.address_id, {"noted": summary.compaction_id})
        return build_summary_buttons(chat, summary.compaction_id)

    async def _send_welcome(self, _: Message, chat: ChatRow, said: IncomingMessage) -> None:
        text = say_hello(
            get_chat_texts(chat), name=said.sender.name, demo=self._demo, public=self._context.public
        )
        await self._notifier.send(get_chat_target(chat), text)

    async def _send_help(self, _: Message, chat: ChatRow, said: IncomingMessage, args: str) -> None:
        if args:
            await self._run(chat, "help", args)
            return
        texts = get_chat_texts(chat)
        rows = [
            (f"/{command.name} {command.args}".rstrip(), command.describe(texts.language))
            for command in self._list_commands()
        ]
        reads_all_messages = self._context.identity.reads_all_messages
        hint = "" if said.chat.is_private else explain_privacy(texts, reads_all_messages=reads_all_messages)
        await self._notifier.send(get_chat_target(chat), list_commands(texts, rows, groups=hint))

    async def _handle_pin(self, _: Message, chat: ChatRow, said: IncomingMessage) -> None:
        await self.pin(chat, said.reply_to_message_id, reply_to=said.message_id)

    async def pin(self, chat: ChatRow, message_id: int | None, *, reply_to: int | None = None) -> None:
        """Pin a message of the chat, or the newest answer if `message_id` is None, and report the result in
        the chat.

        `reply_to` is the message id that the report replies to, None for no reply.
        """
        await self._run_on_message(chat, "pin", message_id, reply_to=reply_to)

    async def _handle_unpin(self, _: Message, chat: ChatRow, said: IncomingMessage, args: str) -> None:
        if said.reply_to_message_id is None:
            await self._run(chat, "unpin", args)
        else:
            await self._run_on_message(chat, "unpin", said.reply_to_message_id, reply_to=said.message_id)

    async def _explain(self, _: Message, chat: ChatRow, said: IncomingMessage, args: str) -> None:
        """Explain the answer that the command replies to, or the one that its arguments name."""
        if said.reply_to_message_id is None or args.strip():
            await self._run(chat, "why", args)
        else:
            await self._run_on_message(chat, "why", said.reply_to_message_id, reply_to=said.message_id)

    async def _run_on_message(
        self, chat: ChatRow, name: str, message_id: int | None, *, reply_to: int | None
    ) -> None:
        """Run a command for one message of the chat and send its result.

        `message_id` None runs it without arguments.
        """
        seq = None if message_id is None else await self._find_seq(chat, message_id)
        texts = get_chat_texts(chat)
        if message_id is not None and seq is None:
            await self._notifier.send(get_chat_target(chat), texts.say("unknown_message"), reply_to=reply_to)
            return
        outcome = await self._commands.run(
            session_id=chat.session_id, address_id=chat.address_id, name=name,
            args=f"m{seq}" if seq else "", channel="telegram", audience=self._context.config.audience,
            language=texts.language,
        )  # fmt: skip
        await self._notifier.send(
            get_chat_target(chat), outcome.result, keyboard=build_place_buttons(chat, outcome.places),
            reply_to=reply_to, silent=True,
        )  # fmt: skip

    async def _find_seq(self, chat: ChatRow, message_id: int) -> int | None:
        """Return the log entry number of a message, or of the answer that it shows.

        None if it is of another session.
        """
        chats = self._context.stores.telegram_chats
        found = await chats.find_message(chat.bot_id, chat.chat_id, message_id)
        if found is None or found.session_id != chat.session_id:
            return None
        return (
            found.seq if found.seq is not None else await chats.find_answer_seq(found.session_id, found.turn)
        )

    async def _send_export(self, _: Message, chat: ChatRow, args: str) -> None:
        """Send the conversation as a Markdown file, or as JSON if the argument is `json`."""
        texts, exporter = get_chat_texts(chat), self._exporter
        kind: ExportFormat = "json" if args.strip().casefold() == "json" else "md"
        said = await exporter.count_messages(chat.session_id)
        if not said:
            await self._notifier.send(get_chat_target(chat), get_command_texts(chat).say("nothing_to_export"))
            return
        content = await exporter.export(chat.session_id, kind, language=texts.language)
        await self._notifier.send_file(
            get_chat_target(chat),
            name=exporter.build_file_name(kind),
            content=content,
            caption=texts.say("export_caption", count=said),
        )

    async def _show_memory(self, _: Message, chat: ChatRow, args: str) -> None:
        await self._memory_list.show(chat, args.strip())

    async def _show_settings(self, _: Message, chat: ChatRow) -> None:
        buttons = build_settings_buttons(chat, offered=self._offered)
        await self._notifier.send(
            get_chat_target(chat), get_chat_texts(chat).say("settings_title"), keyboard=buttons
        )

    async def _stop_answer(self, _: Message, chat: ChatRow) -> None:
        """Stop the running answer.

        Send a message only if no answer runs, since a stopped answer shows that itself.
        """
        if not await self._quick_actions.stop(chat):
            await self._notifier.send(get_chat_target(chat), get_command_texts(chat).say("nothing_to_stop"))

    async def _retry_answer(self, _: Message, chat: ChatRow, said: IncomingMessage) -> None:
        """Read messages again whose recordings or files failed.

        Without such messages, request a new answer.
        """
        if unheard := chat.settings.get("unheard"):
            stores = self._context.stores
            changes = {"unheard": None, "reread": list(unheard), "reread_by": said.update_id}
            await stores.telegram_chats.change_settings(chat.address_id, changes)
            if await stores.telegram_inbox.reopen(chat.bot_id, list(unheard)):
                return
        if not await self._quick_actions.retry(chat, update_id=said.update_id):
            await self._notifier.send(get_chat_target(chat), get_command_texts(chat).say("nothing_to_retry"))


def _register(
    observer: TelegramEventObserver,
    handler: Callable[..., Awaitable[None]],
    *names: str,
    flags: dict[str, Any] | None = None,
) -> None:
    """Register a handler for the commands with these names.

    The parser has checked that they are for this bot.
    """
    observer.register(handler, _named(*names), flags=flags)


def _named(*names: str) -> Command:
    return Command(*names, ignore_case=True, ignore_mention=True)


async def list_reminders(context: BotContext, chat: ChatRow) -> list[Reminder]:
    """Return the pending reminders of a chat's session, ordered by number."""
    found = await context.stores.reminders.list_for_session(chat.session_id)
    return [one for one in found if one.state == "pending"]
