"""Starts all Telegram bots of this process, connects their parts, and closes them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import structlog
from aiogram import Bot
from aiohttp import web

from bot.telegram.client.group_admins import GroupAdmins
from bot.telegram.client.sender import Sender
from bot.telegram.client.session import InvalidBotToken, create_bot
from bot.telegram.handlers.access_requests import AccessRequests
from bot.telegram.handlers.button_handlers import ButtonAccess, ButtonHandlers
from bot.telegram.handlers.chat_admission import BatchAdmission, ChatAdmission
from bot.telegram.handlers.chat_changes import ChatChanges
from bot.telegram.handlers.command_handlers import CommandHandlers
from bot.telegram.handlers.dispatcher import BotDispatcher
from bot.telegram.handlers.guest_queries import GuestQueryHandler
from bot.telegram.handlers.inline_queries import InlineQueryHandler
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.message_handlers import MessageHandlers
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.handlers.secretary_drafts import SecretaryDrafts
from bot.telegram.handlers.secretary_messages import SecretaryMessages
from bot.telegram.handlers.topics import TopicConversations
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import AccessRules, ChatAccessPolicy
from bot.telegram.inbound.inbox import fetch_bot_identity
from bot.telegram.inbound.media_files import FileReader
from bot.telegram.inbound.message_batching import MessageBatcher
from bot.telegram.inbound.secretary_rules import SecretaryRules
from bot.telegram.inbound.update_parser import list_allowed_updates
from bot.telegram.inbound.webhook import PATH, WebhookConfig, make_webhook_handler
from bot.telegram.outbound.alerts import TelegramAlertSender
from bot.telegram.outbound.buttons import build_answer_buttons
from bot.telegram.outbound.delivery import AnswerDelivery, SummaryNotices, TelegramTurnDispatcher
from bot.telegram.outbound.delivery_context import DeliveryContext, DeliveryTexts
from bot.telegram.outbound.guest_delivery import GuestDelivery
from bot.telegram.outbound.handover_notices import HandoverNotices
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.secretary_delivery import SecretaryDelivery
from bot.telegram.outbound.voice_notes import VOICE_NOTE_SECONDS, VoiceNotes
from bot.telegram.runtime.bot_runner import BotRunner, LeaseGuard, make_steady_clock
from shared.bootstrap.app import App
from shared.bootstrap.outages import run_outage_alerts
from shared.config.bots import BotConfig
from shared.config.fields.kinds import TelegramGuests
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.ports import TURN_DUE, TYPING
from shared.runtime import BackgroundTasks
from shared.services.admin.alert_sender import SEND_SECONDS, AlertSender

log = structlog.get_logger(__name__)

HANDOVER_NOTICE_SECONDS = 0.7
"""Seconds between two checks for handover notices; shorter than the delay of the answer that follows."""
UNCERTAIN_NOTICE_SECONDS = 1.0
"""Seconds between two checks for notices about uncertain answers."""
DECISION_NOTICE_SECONDS = 1.0
"""Seconds between two checks for access decisions that must be sent."""
DRAFT_END_SECONDS = 60.0
"""Seconds between two checks for open drafts of secretary mode, which expire while the mode is off."""


class TelegramService:
    """Service that runs all Telegram bots of this process, from `start` to `close`.

    A bot whose token Telegram refuses does not affect the others.
    """

    def __init__(
        self,
        app: App,
        bots: Sequence[BotConfig],
        *,
        settings: Settings,
        warm_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Create the service; `warm_up` loads the code and tables for answers, by default those of `app`."""
        self._app = app
        self._load = warm_up or app.warm_up.run
        self._bots = bots
        self._settings = settings
        self._stores = app.stores
        self._contexts: dict[int, BotContext] = {}
        self._notifiers: dict[int, Notifier] = {}
        self._senders: dict[int, Sender] = {}
        self._runners: dict[int, BotRunner] = {}
        self._access_requests: dict[int, AccessRequests] = {}
        self._clients: list[Bot] = []
        self._tasks = BackgroundTasks()
        self._warm = asyncio.Event()
        """Set when the model client and the tables of an answer are loaded."""
        self._closing = False
        notices = SummaryNotices(self._contexts.get, self._notifiers.get, app.sessions)
        self._delivery = AnswerDelivery(self._build_delivery_context(), tasks=self._tasks)
        self._handover_notices = HandoverNotices(
            self._stores.handovers,
            self._stores.telegram_chats,
            senders=self._senders,
            find_context=self._contexts.get,
            crash_point=app.crash_point,
        )
        self._alerts = TelegramAlertSender(
            AlertSender(app.stores.alerts, worker_id=app.worker_id, crash_point=app.crash_point),
            bot_id=bots[0].bot_id if bots else None,
            chats=settings.alert_telegram_chats,
            senders=self._senders,
            list_held_bots=self._list_held_bots,
            dashboard_url=f"{settings.base_url}/dashboard",
        )
        self._guests = GuestDelivery(
            self._stores.guest_queries,
            self._stores.deliveries,
            senders=self._senders,
            list_held_bots=self._list_held_bots,
            tasks=self._tasks,
            crash_point=app.crash_point,
        )
        self._secretary_rules = SecretaryRules(
            mode=settings.telegram_secretary,
            chats=settings.telegram_secretary_chats,
            listed=frozenset(settings.telegram_secretary_list),
            automatic=frozenset(settings.telegram_secretary_auto),
            hours=settings.telegram_secretary_hours,
        )
        self._secretary = SecretaryDelivery(
            self._stores.secretary,
            self._stores.deliveries,
            self._stores.telegram_chats,
            rules=self._secretary_rules,
            senders=self._senders,
            list_held_bots=self._list_held_bots,
            tasks=self._tasks,
            crash_point=app.crash_point,
        )
        self._dispatcher = TelegramTurnDispatcher(
            app.sessions,
            self._delivery,
            self._stores.telegram_chats,
            guests=self._stores.guest_queries,
            open_guest_sink=self._guests.open_sink,
            secretary=self._secretary,
            list_held_bots=self._list_held_bots,
            on_idle=notices.send_after_answer,
        )

    @property
    def has_webhooks(self) -> bool:
        """Whether at least one bot receives its updates by webhook."""
        return any(bot.mode == "webhook" for bot in self._bots)

    def start(self) -> None:
        """Start all loops and connect each bot in the background; returns without waiting."""
        self._tasks.start(self._warm_up())
        self._dispatcher.start()
        self._tasks.run_forever(self._listen_for_events)
        self._tasks.run_forever(self._guests.run)
        if self._secretary_rules.mode != "off":
            self._tasks.run_forever(self._secretary.run)
        else:
            self._send_every(DRAFT_END_SECONDS, self._secretary.end_overdue, "drafts_unavailable")
        self._send_every(
            HANDOVER_NOTICE_SECONDS, self._handover_notices.send_due, "handover_notices_unavailable"
        )
        uncertain = self._delivery.uncertain
        self._send_every(UNCERTAIN_NOTICE_SECONDS, uncertain.send_due, "uncertain_notices_unavailable")
        self._send_every(DECISION_NOTICE_SECONDS, self._send_decisions, "access_decisions_unavailable")
        self._tasks.run_forever(self._app.alert_monitor.run_sweeps)
        self._app.promotion.on_promotion(self._stores.telegram_inbox.store_again)
        if self._settings.alert_telegram_chats:
            self._tasks.run_forever(self._send_alerts)
            channels = self._alerts.open_channels
            self._tasks.run_forever(partial(run_outage_alerts, self._app, channels, is_alone=True))
        if self._app.speaking is not None:
            notes = VoiceNotes(
                self._app.speaking, self._stores.speech, self._stores.telegram_chats,
                senders=self._senders, tasks=self._tasks, crash_point=self._app.crash_point,
            )  # fmt: skip
            self._send_every(VOICE_NOTE_SECONDS, notes.send_due, "voice_notes_unavailable")
        for config in self._bots:
            self._tasks.start(self._connect_bot(config))

    async def _warm_up(self) -> None:
        """Load the model client, token and price tables, and prepared statements, so that the first answer is
        fast.

        An unavailable database is only logged.
        """
        await self._load()
        try:
            await self._app.announcer.connect()
            await self._app.sessions.rehearse()
            await self._stores.telegram_inbox.rehearse()
        except StorageUnavailable as error:
            log.warning("rehearsal_failed", reason=str(error))  # the first turn loads what is missing
        finally:
            self._warm.set()
        log.info("bots_warmed_up")

    @property
    def is_warm(self) -> bool:
        """Whether the model client and the tables for answers are loaded."""
        return self._warm.is_set()

    async def close(self) -> None:
        """Stop receiving updates, finish the running answers, then close all connections."""
        self._closing = True
        await asyncio.gather(*(runner.close() for runner in self._runners.values()))
        await self._dispatcher.close()
        await self._app.sessions.release_unanswered()
        await self._tasks.drain(2.0)
        for context in self._contexts.values():
            await context.sender.close()
        for client in self._clients:
            await client.session.close()

    def add_routes(self, server: web.Application) -> None:
        """Add the route to which Telegram posts updates for bots in webhook mode."""
        modes = {bot.bot_id: bot.mode for bot in self._bots}
        secret = self._settings.telegram_webhook_secret

        def find_secret(bot_id: int) -> str | None:
            return secret.get_secret_value() if secret and modes.get(bot_id) == "webhook" else None

        handler = make_webhook_handler(
            self._stores.telegram_inbox, find_secret=find_secret, on_stored=self._on_update_stored
        )
        server.router.add_post(PATH, handler)

    def _on_bot_serving(self) -> None:
        """Look for undelivered answers and guest queries after this process became the holder of a bot's
        lease.
        """
        self._dispatcher.on_bot_serving()
        self._guests.wake()

    def _on_update_stored(self, bot_id: int) -> None:
        runner = self._runners.get(bot_id)
        if runner is not None:
            runner.wake()

    async def _listen_for_events(self) -> None:
        """Wake the dispatcher when a turn is due, and show `typing` in a chat while an operator types.

        Both are announced by other processes. A turn becomes due when another channel finished the turn
        before it.
        """
        async for _, message in self._app.announcer.listen():
            if message.get("t") == TURN_DUE["t"]:
                self._dispatcher.wake()
            elif message.get("t") == TYPING["t"] and isinstance(address := message.get("address"), int):
                self._tasks.start(self._show_typing(address))

    async def _show_typing(self, address_id: int) -> None:
        try:
            chat = await self._stores.telegram_chats.find_chat(address_id)
        except StorageUnavailable:
            return  # The next key press of the operator announces it again.
        if chat is not None and not chat.unreachable and chat.bot_id in self._list_held_bots():
            await self._senders[chat.bot_id].send_typing(get_chat_target(chat))

    def _list_held_bots(self) -> list[int]:
        """Return ids of the bots whose lease this process holds and whose deliveries are recovered."""
        return [bot_id for bot_id, runner in self._runners.items() if runner.is_serving]

    def _send_every(self, seconds: float, send: Callable[[list[int]], Awaitable[None]], failed: str) -> None:
        """Every `seconds`, call `send` with the ids of held bots, if there are any.

        StorageUnavailable is logged as event `failed`.
        """

        async def loop() -> None:
            while True:
                await asyncio.sleep(seconds)
                if held := self._list_held_bots():
                    try:
                        await send(held)
                    except StorageUnavailable as error:
                        log.warning(failed, reason=str(error))

        self._tasks.run_forever(loop)

    async def _send_decisions(self, held: list[int]) -> None:
        """Tell people the access decisions that an owner made in Telegram, on the dashboard or by command
        line.
        """
        if ready := [bot_id for bot_id in held if bot_id in self._notifiers]:
            for row in await self._stores.telegram_access.list_unsent_decisions(ready):
                await self._access_requests[row.bot_id].send_decision(row)

    async def _send_alerts(self) -> None:
        while True:
            try:
                await self._alerts.send_due()
            except StorageUnavailable as error:
                log.warning("alert_storage_unavailable", reason=str(error))
            await asyncio.sleep(SEND_SECONDS)

    async def _connect_bot(self, config: BotConfig) -> None:
        """Connect a bot and start it; retry without end while Telegram or Postgres is unavailable.

        If Telegram rejects the token, log and store that, and do not start the bot.
        """
        try:
            client = create_bot(config.token.get_secret_value(), api_url=self._settings.telegram_api_url)
            self._clients.append(client)
            identity = await fetch_bot_identity(client)
        except InvalidBotToken as refused:
            log.error("bot_token_rejected", bot=config.bot_id, advice=refused.advice)
            await self._record_refusal(config, refused.advice)
            return
        while True:
            try:
                await self._register_bot(config, identity.username)
                break
            except StorageUnavailable as error:
                log.warning("bot_registration_failed", bot=config.bot_id, reason=str(error))
                await asyncio.sleep(1.0)
        if self._closing:
            return
        context = BotContext(
            config=config,
            identity=replace(
                identity,
                reads_channels=self._settings.telegram_channels,
                answers_inline=self._settings.telegram_inline,
                answers_guests=self._find_guests(config) != "off",
                is_secretary=self._secretary_rules.mode != "off" and config.audience != "public",
            ),
            bot=client,
            sender=Sender(client),
            stores=self._stores,
            public=config.audience == "public",
            has_handover=self._settings.has_handover,
            can_speak=self._app.speaking is not None,
        )
        notifier = self._start_bot(context)
        log.info("bot_ready", bot=context.identity.bot_id, username=identity.username, mode=config.mode)
        self._senders[identity.bot_id], self._notifiers[identity.bot_id] = context.sender, notifier
        self._dispatcher.on_bot_serving()

    def _start_bot(self, context: BotContext) -> Notifier:
        """Build the handlers and the runner of a bot, and start the runner.

        Return the notifier of the bot.
        """
        app, bot_id, now = self._app, context.identity.bot_id, make_steady_clock()
        self._contexts[bot_id] = context
        notifier = Notifier(context.sender, self._stores.telegram_chats)
        rules = AccessRules(mode=context.config.access, listed=context.config.allowed)
        access_policy = ChatAccessPolicy(self._stores.telegram_access, bot_id=bot_id, rules=rules, now=now)
        admins = GroupAdmins(context.sender)
        quick_actions = QuickActions(app.sessions, self._stores.edits, self._dispatcher.dispatch)
        memory_list = MemoryList(context, notifier=notifier, announcer=app.announcer)
        search_results = SearchResults(context, notifier=notifier, timezone=self._settings.timezone)
        start, answer = self._tasks.start, self._dispatcher.dispatch
        topics = TopicConversations(context, notifier=notifier, start=start)
        command_handlers = CommandHandlers(
            context, notifier=notifier, commands=app.commands, exporter=app.exporter,
            quick_actions=quick_actions, admins=admins, memory_list=memory_list,
            search_results=search_results, topics=topics, demo=app.models.offline,
            offered=self._offered_settings, start=start,
        )  # fmt: skip
        access_requests = self._access_requests[bot_id] = AccessRequests(
            context, notifier=notifier, alert_chats=self._settings.alert_telegram_chats
        )
        button_access = ButtonAccess(
            context, access_policy=access_policy, admins=admins, notifier=notifier,
            uncertain=self._delivery.uncertain,
        )  # fmt: skip
        button_handlers = ButtonHandlers(
            context, access=button_access, notifier=notifier, commands=app.commands, sessions=app.sessions,
            quick_actions=quick_actions, memory_list=memory_list, search_results=search_results,
            erasure=app.erasure, delivery=self._delivery, offered=self._offered_settings,
        )  # fmt: skip
        inline = InlineQueryHandler(
            context, access_policy=access_policy, notifier=notifier, sessions=app.sessions, answer=answer,
            start=start,
        )  # fmt: skip
        guests = GuestQueryHandler(
            context, access_policy=access_policy, sessions=app.sessions,
            answer=self._dispatcher.dispatch_guest, on_stored=self._guests.wake,
            seconds_since=lambda message: (now() - message.sent_at).total_seconds(),
            guests=self._find_guests(context.config),
            most_per_hour=self._settings.telegram_guest_questions,
        )  # fmt: skip
        files = FileReader(context.bot, recording_limits=app.hearing.limits if app.hearing else None)
        customers = SecretaryMessages(
            context, access_policy=access_policy, notifier=notifier, files=files, hearing=app.hearing,
            sessions=app.sessions, erasure=app.erasure, delivery=self._secretary,
            rules=self._secretary_rules, answer=self._dispatcher.dispatch_customer,
        )  # fmt: skip
        drafts = SecretaryDrafts(
            context, access_policy=access_policy, notifier=notifier, delivery=self._secretary,
            crash_point=app.crash_point,
        )  # fmt: skip
        admission = ChatAdmission(
            context, access_policy=access_policy, notifier=notifier, access_requests=access_requests,
            start=start,
        )  # fmt: skip
        message_handlers = MessageHandlers(
            context, notifier=notifier, files=files, sessions=app.sessions, dispatch=answer, now=now,
            start=start, hearing=app.hearing, topics=topics,
        )  # fmt: skip
        chat_changes = ChatChanges(
            context, admission=admission, command_handlers=command_handlers, sessions=app.sessions
        )
        routes = (
            command_handlers, drafts, message_handlers, access_requests, button_handlers, inline, guests,
            customers, chat_changes,
        )  # fmt: skip
        dispatcher = BotDispatcher(
            context.bot,
            routers=[each.build_router() for each in routes],
            batch_admission=BatchAdmission(context, admission=admission, uncertain=self._delivery.uncertain),
        )
        lease_guard = LeaseGuard()
        batcher = MessageBatcher(
            dispatcher.feed_batch, now=now, on_failed=message_handlers.handle_failed_batch,
            on_late=message_handlers.handle_late, is_command=command_handlers.is_command,
            wait_for_lease=lease_guard.wait_until_valid, storage_limiter=app.limit_storage,
        )  # fmt: skip
        runner = self._runners[bot_id] = BotRunner(
            context, dispatcher, batcher, lease_guard=lease_guard, worker_id=app.worker_id,
            webhook=self._get_webhook(context), wait_until_warm=self._warm.wait,
            on_serving=self._on_bot_serving, crash_point=app.crash_point,
            storage_limiter=app.limit_storage,
        )  # fmt: skip
        runner.start()
        return notifier

    def _build_delivery_context(self) -> DeliveryContext:
        return DeliveryContext(
            senders=self._senders,
            deliveries=self._stores.deliveries,
            notices=self._stores.uncertain_notices,
            chats=self._stores.telegram_chats,
            texts=DeliveryTexts(self._contexts.get),
            keyboard=build_answer_buttons,
            files=self._stores.attachments.load_body,
            offered=self._offered_settings,
            want_voice_note=self._stores.speech.request_note if self._app.speaking else None,
            most_messages=self._settings.telegram_messages,
            reacts=self._settings.telegram_reactions,
            crash_point=self._app.crash_point,
            tracer=self._app.tracer,
        )

    @property
    def _offered_settings(self) -> frozenset[str]:
        """Names of the settings that people can change for a chat.

        `drafts` and `rich` are included only if the operator allows them.
        """
        allowed = {"notices", "announce"}
        if self._settings.telegram_drafts:
            allowed.add("drafts")
        if self._settings.telegram_rich:
            allowed.add("rich")
        return frozenset(allowed)

    def _find_guests(self, config: BotConfig) -> TelegramGuests:
        """Return whose questions in guest chats get an answer: the setting, else `off` for a public bot or
        `known`.
        """
        return self._settings.telegram_guests or ("off" if config.audience == "public" else "known")

    def _get_webhook(self, context: BotContext) -> WebhookConfig | None:
        """Return where Telegram shall post updates of this bot; None if it polls."""
        config = context.config
        if config.mode != "webhook":
            return None
        secret = self._settings.telegram_webhook_secret
        assert secret is not None, "settings demand it"
        base = (self._settings.public_url or f"http://127.0.0.1:{self._settings.telegram_port}").rstrip("/")
        url = base + PATH.format(bot_id=config.bot_id)
        return WebhookConfig(
            url=url,
            secret=secret.get_secret_value(),
            allowed_updates=tuple(list_allowed_updates(context.identity)),
        )

    async def _register_bot(self, config: BotConfig, username: str) -> None:
        await self._stores.telegram_chats.enrol(
            config.bot_id,
            username=username,
            agent=config.agent,
            audience=config.audience,
            access=config.access,
            mode=config.mode,
        )

    async def _record_refusal(self, config: BotConfig, advice: str) -> None:
        """Store why Telegram refused the bot, for the dashboard and the doctor.

        Registers the bot if it is new.
        """
        try:
            await self._register_bot(config, "")
            await self._stores.telegram_chats.record_problem(config.bot_id, advice)
        except StorageUnavailable as error:
            log.warning("problem_report_failed", bot=config.bot_id, reason=str(error))
