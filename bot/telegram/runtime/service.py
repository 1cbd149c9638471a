"""All bots of this process: put together here, started as soon as Telegram knows them, ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog
from aiohttp import web

from bot.telegram.client.aiogram_loader import AiogramLoader
from bot.telegram.client.bot_api import BotApi, InvalidBotToken
from bot.telegram.client.group_admins import GroupAdmins
from bot.telegram.client.sender import Sender, create_bot
from bot.telegram.handlers.access_requests import AccessRequests
from bot.telegram.handlers.callback_queries import CallbackQueryHandler
from bot.telegram.handlers.command_handler import TelegramCommandHandler
from bot.telegram.handlers.inline_queries import InlineQueryHandler
from bot.telegram.handlers.memory_list import MemoryList
from bot.telegram.handlers.quick_actions import QuickActions
from bot.telegram.handlers.search_results import SearchResults
from bot.telegram.handlers.update_handler import UpdateHandler
from bot.telegram.inbound.batching_driver import MessageBatcher
from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.inbound.chat_access import AccessRules, ChatAccessPolicy
from bot.telegram.inbound.media_files import FileReader
from bot.telegram.inbound.message_batching import BatchTimeouts
from bot.telegram.inbound.polling import fetch_bot_identity
from bot.telegram.inbound.update_parser import allowed_updates
from bot.telegram.inbound.webhook import PATH, WebhookConfig, make_webhook_handler
from bot.telegram.outbound.alerts import TelegramAlertSender
from bot.telegram.outbound.buttons import build_answer_buttons, is_setting_on
from bot.telegram.outbound.delivery import AnswerDelivery, SummaryNotices
from bot.telegram.outbound.delivery_context import DeliveryContext
from bot.telegram.outbound.delivery_texts import ChatDeliveryTexts
from bot.telegram.outbound.handover_notices import HandoverNotices
from bot.telegram.outbound.native_drafts import AnswerForm
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.outbound.voice_notes import VOICE_NOTE_SECONDS, VoiceNotes
from bot.telegram.runtime.bot_runner import BotRunner, LeaseGuard, make_steady_clock
from bot.telegram.runtime.turn_dispatch import TelegramTurnDispatcher
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.bootstrap.app import App
from shared.config.bots import BotConfig
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.ports import TURN_DUE, TYPING
from shared.runtime.tasks import BackgroundTasks
from shared.services.admin.alert_sender import SEND_SECONDS, AlertSender
from shared.services.voice.speaking import SpeakingService

log = structlog.get_logger(__name__)

HANDOVER_NOTICE_SECONDS = 0.7
"""Before the answer that follows such a word, which has to wait a little longer."""
UNCERTAIN_NOTICE_SECONDS = 1.0
DECISION_NOTICE_SECONDS = 1.0


class TelegramService:
    """One per process. `start`, then `close`; a bot that Telegram refuses does not hinder the others."""

    def __init__(
        self, app: App, bots: Sequence[BotConfig], *, settings: Settings, library: AiogramLoader | None = None
    ) -> None:
        self._app = app
        self._library = library or AiogramLoader()
        self._bots = bots
        self._settings = settings
        self._stores = app.stores
        self._desks: dict[int, BotContext] = {}
        self._voices: dict[int, Notifier] = {}
        self._senders: dict[int, Sender] = {}
        self._runners: dict[int, BotRunner] = {}
        self._requests: dict[int, AccessRequests] = {}
        self._apis: list[BotApi] = []
        self._tasks = BackgroundTasks()
        self._closing = False
        notices = SummaryNotices(self._desks.get, self._voices.get)
        self._delivery = AnswerDelivery(self._post(), tasks=self._tasks)
        self._last_words = HandoverNotices(
            self._stores.handovers,
            self._stores.telegram_chats,
            senders=self._senders,
            desk_of=self._desks.get,
            crash_point=app.crash_point,
        )
        self._alerts = TelegramAlertSender(
            AlertSender(app.stores.alerts, worker_id=app.worker_id, crash_point=app.crash_point),
            bot_id=bots[0].bot_id if bots else None,
            chats=settings.alert_telegram_chats,
            senders=self._senders,
            held=self._held,
            dashboard_url=f"{settings.base_url}/dashboard",
        )
        self._answering = TelegramTurnDispatcher(
            app.sessions,
            self._delivery,
            self._stores.telegram_chats,
            held=self._held,
            afterwards=notices.send_after_answer,
        )

    @property
    def has_webhooks(self) -> bool:
        return any(bot.mode == "webhook" for bot in self._bots)

    def start(self) -> None:
        self._tasks.start(self._warm_up())
        self._answering.start()
        self._tasks.run_forever(self._listen)
        self._tasks.run_forever(self._bring_last_words)
        self._tasks.run_forever(self._tell_of_the_uncertain)
        self._tasks.run_forever(self._tell_decisions)
        self._tasks.run_forever(self._app.alert_monitor.run_sweeps)
        self._app.promotion.on_promotion(self._stores.telegram_inbox.store_again)
        if self._settings.alert_telegram_chats:
            self._tasks.run_forever(self._bring_alerts)
        if self._app.speaking is not None:
            self._tasks.run_forever(partial(self._bring_voice_notes, self._app.speaking))
        for config in self._bots:
            self._tasks.start(self._open(config))

    async def _warm_up(self) -> None:
        """aiogram before what only answers need, unless somebody waits for an answer already."""
        await self._library.load(after=self._app.models.wait_until_loaded())
        await self._app.warm_up.run()
        log.info("bots_warmed_up")

    async def close(self) -> None:
        """No new updates, then the answers that are nearly there, then the lines."""
        self._closing = True
        await asyncio.gather(*(runner.close() for runner in self._runners.values()))
        await self._answering.close()
        await self._tasks.drain(2.0)
        for desk in self._desks.values():
            await desk.sender.close()
        for api in self._apis:
            await api.close()

    def add_routes(self, server: web.Application) -> None:
        """Where Telegram posts updates of bots in webhook mode."""
        modes = {bot.bot_id: bot.mode for bot in self._bots}
        secret = self._settings.telegram_webhook_secret

        def secret_of(bot_id: int) -> str | None:
            return secret.get_secret_value() if secret and modes.get(bot_id) == "webhook" else None

        handler = make_webhook_handler(self._stores.telegram_inbox, secret_of=secret_of, on_stored=self._came)
        server.router.add_post(PATH, handler)

    def _came(self, bot_id: int) -> None:
        runner = self._runners.get(bot_id)
        if runner is not None:
            runner.wake()

    async def _listen(self) -> None:
        """A turn of one of our chats may wait behind one that another channel has just answered; and a human
        who has the conversation writes."""
        async for _, message in self._app.announcer.listen():
            if message.get("t") == TURN_DUE["t"]:
                self._answering.wake()
            elif message.get("t") == TYPING["t"] and isinstance(address := message.get("address"), int):
                self._tasks.start(self._show_typing(address))

    async def _show_typing(self, address_id: int) -> None:
        try:
            place = await self._stores.telegram_chats.place(address_id)
        except StorageUnavailable:
            return  # It is passing: the next key pressed says it again.
        if place is not None and not place.unreachable and place.bot_id in self._held():
            await self._senders[place.bot_id].send_typing(get_chat_target(place))

    def _held(self) -> list[int]:
        return [bot_id for bot_id, runner in self._runners.items() if runner.is_serving]

    async def _bring_last_words(self) -> None:
        """After hand-overs: that the assistant answers again."""
        while True:
            await asyncio.sleep(HANDOVER_NOTICE_SECONDS)
            if held := self._held():
                try:
                    await self._last_words.send_due(held)
                except StorageUnavailable as error:
                    log.warning("handover_notices_unavailable", reason=str(error))

    async def _tell_of_the_uncertain(self) -> None:
        """Answers that may not have arrived, where nobody could say so at once."""
        while True:
            await asyncio.sleep(UNCERTAIN_NOTICE_SECONDS)
            if held := self._held():
                try:
                    await self._delivery.uncertain.send_due(held)
                except StorageUnavailable as error:
                    log.warning("uncertain_notices_unavailable", reason=str(error))

    async def _bring_voice_notes(self, speaking: SpeakingService) -> None:
        notes = VoiceNotes(
            speaking, self._stores.speech, self._stores.telegram_chats,
            senders=self._senders, tasks=self._tasks, crash_point=self._app.crash_point,
        )  # fmt: skip
        while True:
            await asyncio.sleep(VOICE_NOTE_SECONDS)
            if held := self._held():
                try:
                    await notes.send_due(held)
                except StorageUnavailable as error:
                    log.warning("voice_notes_unavailable", reason=str(error))

    async def _tell_decisions(self) -> None:
        """To whom an owner, the dashboard or a shell has let in or refused."""
        while True:
            await asyncio.sleep(DECISION_NOTICE_SECONDS)
            held = [bot_id for bot_id in self._held() if bot_id in self._voices]
            if held:
                try:
                    for row in await self._stores.telegram_access.decisions_to_tell(held):
                        await self._requests[row.bot_id].tell_decision(row)
                except StorageUnavailable as error:
                    log.warning("access_decisions_unavailable", reason=str(error))

    async def _bring_alerts(self) -> None:
        while True:
            try:
                await self._alerts.send_due()
            except StorageUnavailable as error:
                log.warning("alert_storage_unavailable", reason=str(error))
            await asyncio.sleep(SEND_SECONDS)

    async def _open(self, config: BotConfig) -> None:
        """Tries for ever while Telegram or Postgres are away."""
        api = BotApi(config.token.get_secret_value(), **self._api_url)
        self._apis.append(api)
        try:
            identity = await fetch_bot_identity(api)
        except InvalidBotToken as refused:
            log.error("bot_token_rejected", bot=config.bot_id, advice=refused.advice)
            await self._refused(config, refused.advice)
            return
        while True:
            try:
                await self._enrol(config, identity.username)
                break
            except StorageUnavailable as error:
                log.warning("bot_registration_failed", bot=config.bot_id, reason=str(error))
                await asyncio.sleep(1.0)
        if self._closing:
            return
        desk = BotContext(
            config=config,
            identity=replace(
                identity,
                reads_channels=self._settings.telegram_channels,
                answers_inline=self._settings.telegram_inline,
            ),
            api=api,
            sender=Sender(
                identity.bot_id,
                partial(create_bot, config.token.get_secret_value(), api_url=self._settings.telegram_api_url),
            ),
            stores=self._stores,
            humans=self._settings.has_handover,
            speaks=self._app.speaking is not None,
        )
        voice = self._open_desk(desk)
        log.info("bot_ready", bot=desk.bot_id, username=identity.username, mode=config.mode)
        await self._library.wait_until_ready()
        self._senders[desk.bot_id], self._voices[desk.bot_id] = desk.sender, voice
        self._answering.on_bot_serving()

    def _open_desk(self, desk: BotContext) -> Notifier:
        """Its turns are answered from now on; nothing of them is sent before there is a sender."""
        app, bot_id, now = self._app, desk.bot_id, make_steady_clock()
        self._desks[bot_id] = desk
        voice = Notifier(desk.sender, self._stores.telegram_chats)
        rules = AccessRules(mode=desk.config.access, listed=desk.config.allowed)
        door = ChatAccessPolicy(self._stores.telegram_access, bot_id=bot_id, rules=rules, now=now)
        admins = GroupAdmins(desk.api)
        wishes = QuickActions(app.sessions, self._stores.edits, self._answering.dispatch)
        remembered = MemoryList(desk, voice=voice, notes=app.stores.notes, announcer=app.announcer)
        searching = SearchResults(desk, voice=voice, timezone=self._settings.timezone)
        commanding = TelegramCommandHandler(
            desk, voice=voice, commands=app.commands, exporting=app.exporter, wishes=wishes, admins=admins,
            remembered=remembered, searching=searching, demo=app.models.offline, offered=self._offered,
        )  # fmt: skip
        requests = self._requests[bot_id] = AccessRequests(
            desk, voice=voice, alert_chats=self._settings.alert_telegram_chats
        )
        pressing = CallbackQueryHandler(
            desk, door=door, voice=voice, commands=app.commands, conversation=app.sessions,
            wishes=wishes, admins=admins, remembered=remembered, searching=searching, forgetting=app.erasure,
            delivery=self._delivery, requests=requests, offered=self._offered,
        )  # fmt: skip
        inline = InlineQueryHandler(
            desk, door=door, voice=voice, conversation=app.sessions, answer=self._answering.dispatch
        )
        files = FileReader(desk.api, listens=app.hearing.limits if app.hearing else None)
        hearing = UpdateHandler(
            desk, door=door, voice=voice, files=files, commanding=commanding,
            pressing=pressing, conversation=app.sessions, answer=self._answering.dispatch,
            counter=app.counter, now=now, start=self._tasks.start, uncertain=self._delivery.uncertain,
            requests=requests, inline=inline, hearing=app.hearing,
        )  # fmt: skip
        hold = LeaseGuard()
        lanes = MessageBatcher(
            hearing.handle_batch, now=now, on_failed=hearing.handle_failed_batch,
            on_late=hearing.handle_late, patience=BatchTimeouts(),
            is_command=commanding.is_command, sure=hold.wait_until_valid, storage_limiter=app.limit_storage,
        )  # fmt: skip
        runner = self._runners[bot_id] = BotRunner(
            desk, hearing, lanes, hold=hold, worker_id=app.worker_id, webhook=self._webhook_of(desk),
            library=self._library, on_serving=self._answering.on_bot_serving, crash_point=app.crash_point,
            storage_limiter=app.limit_storage,
        )  # fmt: skip
        runner.start()
        return voice

    def _post(self) -> DeliveryContext:
        return DeliveryContext(
            senders=self._senders,
            deliveries=self._stores.deliveries,
            notices=self._stores.uncertain_notices,
            places=self._stores.telegram_chats,
            texts=ChatDeliveryTexts(self._desks.get),
            keyboard=build_answer_buttons,
            question=self._stores.telegram_chats.question,
            files=self._stores.attachments.body,
            wants=self._wants,
            want_voice_note=self._stores.speech.want_note if self._app.speaking else None,
            reacts=self._settings.telegram_reactions,
            crash_point=self._app.crash_point,
            tracer=self._app.tracer,
        )

    def _wants(self, place: ChatRow, form: AnswerForm) -> bool:
        return form in self._offered and is_setting_on(place, form)

    @property
    def _offered(self) -> frozenset[str]:
        """What a chat may switch: native drafts and rich messages only where the operator allows them."""
        allowed = {"notices"}
        if self._settings.telegram_drafts:
            allowed.add("drafts")
        if self._settings.telegram_rich:
            allowed.add("rich")
        return frozenset(allowed)

    @property
    def _api_url(self) -> dict[str, str]:
        url = self._settings.telegram_api_url
        return {"base_url": url} if url else {}

    def _webhook_of(self, desk: BotContext) -> WebhookConfig | None:
        config = desk.config
        if config.mode != "webhook":
            return None
        secret = self._settings.telegram_webhook_secret
        assert secret is not None, "settings demand it"
        base = (self._settings.public_url or f"http://127.0.0.1:{self._settings.telegram_port}").rstrip("/")
        url = base + PATH.format(bot_id=config.bot_id)
        return WebhookConfig(
            url=url, secret=secret.get_secret_value(), allowed_updates=tuple(allowed_updates(desk.identity))
        )

    async def _enrol(self, config: BotConfig, username: str) -> None:
        await self._stores.telegram_chats.enrol(
            config.bot_id,
            username=username,
            agent=config.agent,
            audience=config.audience,
            access=config.access,
            mode=config.mode,
        )

    async def _refused(self, config: BotConfig, advice: str) -> None:
        """For the dashboard and the doctor; the bot may never have been enrolled before."""
        try:
            await self._enrol(config, "")
            await self._stores.telegram_chats.tell_problem(config.bot_id, advice)
        except StorageUnavailable as error:
            log.warning("problem_report_failed", bot=config.bot_id, reason=str(error))
