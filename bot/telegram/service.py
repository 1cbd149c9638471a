"""All bots of this process: put together here, started as soon as Telegram knows them, ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog
from aiohttp import web

from bot.telegram.access import AccessRules, Doorkeeper
from bot.telegram.admins import Admins
from bot.telegram.alerts import TelegramAlerts
from bot.telegram.answering import Answering
from bot.telegram.api import BotApi, TokenRefused
from bot.telegram.buttons import is_on, under_answer
from bot.telegram.commanding import Commanding
from bot.telegram.delivery import Delivery
from bot.telegram.desk import Desk, Stores
from bot.telegram.drafts import Form
from bot.telegram.files import FileReader
from bot.telegram.hearing import Hearing
from bot.telegram.hold import Hold
from bot.telegram.lane_driver import Lanes
from bot.telegram.lanes import Patience
from bot.telegram.last_words import LastWords
from bot.telegram.library import Library
from bot.telegram.notices import Notices
from bot.telegram.polling import identify
from bot.telegram.post import Post
from bot.telegram.pressing import Pressing
from bot.telegram.remembered import Remembered
from bot.telegram.runner import Runner, steady_clock
from bot.telegram.sender import Sender, open_bot
from bot.telegram.voice import Voice
from bot.telegram.webhook import PATH, WebhookMode, make_webhook_handler
from bot.telegram.wishes import Wishes
from bot.telegram.words import PlaceWords
from shared.adapters.postgres.telegram.chats import PlaceRow
from shared.bootstrap.app import App
from shared.config.bots import BotConfig
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.ports import DUE_ELSEWHERE
from shared.runtime.tasks import Tasks
from shared.services.admin.alert_sender import SEND_SECONDS, Bringing

log = structlog.get_logger(__name__)

LAST_WORDS_SECONDS = 0.7
"""Before the answer that follows such a word, which has to wait a little longer."""
UNCERTAIN_SECONDS = 1.0


class TelegramService:
    """One per process. `start`, then `close`; a bot that Telegram refuses does not hinder the others."""

    def __init__(
        self, app: App, bots: Sequence[BotConfig], *, settings: Settings, library: Library | None = None
    ) -> None:
        self._app = app
        self._library = library or Library()
        self._bots = bots
        self._settings = settings
        self._stores = Stores.of(app)
        self._desks: dict[int, Desk] = {}
        self._voices: dict[int, Voice] = {}
        self._senders: dict[int, Sender] = {}
        self._runners: dict[int, Runner] = {}
        self._apis: list[BotApi] = []
        self._tasks = Tasks()
        self._closing = False
        notices = Notices(self._desks.get, self._voices.get)
        self._delivery = Delivery(self._post(), tasks=self._tasks)
        self._last_words = LastWords(
            self._stores.handovers,
            self._stores.places,
            senders=self._senders,
            desk_of=self._desks.get,
            crash_point=app.crash_point,
        )
        self._alerts = TelegramAlerts(
            Bringing(app.alerts, worker_id=app.worker_id, crash_point=app.crash_point),
            bot_id=bots[0].bot_id if bots else None,
            chats=settings.alert_telegram_chats,
            senders=self._senders,
            held=self._held,
            dashboard_url=f"{settings.base_url}/dashboard",
        )
        self._answering = Answering(
            app.conversation,
            self._delivery,
            self._stores.places,
            held=self._held,
            afterwards=notices.after_answer,
        )

    @property
    def webhooks(self) -> bool:
        return any(bot.mode == "webhook" for bot in self._bots)

    def start(self) -> None:
        self._tasks.start(self._warm_up())
        self._answering.start()
        self._tasks.forever(self._listen)
        self._tasks.forever(self._bring_last_words)
        self._tasks.forever(self._tell_of_the_uncertain)
        self._tasks.forever(self._app.alerting.watch)
        self._app.promotion.then(self._stores.inbox.store_again)
        if self._settings.alert_telegram_chats:
            self._tasks.forever(self._bring_alerts)
        for config in self._bots:
            self._tasks.start(self._open(config))

    async def _warm_up(self) -> None:
        """aiogram before what only answers need, unless somebody waits for an answer already."""
        await self._library.fetch(after=self._app.models.loaded())
        await self._app.warm_up.run()
        log.info("bots_warm")

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

        handler = make_webhook_handler(self._stores.inbox, secret_of=secret_of, on_stored=self._came)
        server.router.add_post(PATH, handler)

    def _came(self, bot_id: int) -> None:
        runner = self._runners.get(bot_id)
        if runner is not None:
            runner.something_came()

    async def _listen(self) -> None:
        """A turn of one of our chats may wait behind one that another channel has just answered."""
        async for _, message in self._app.announcer.listen():
            if message.get("t") == DUE_ELSEWHERE["t"]:
                self._answering.look_now()

    def _held(self) -> list[int]:
        return [bot_id for bot_id, runner in self._runners.items() if runner.holds]

    async def _bring_last_words(self) -> None:
        """After hand-overs: that the assistant answers again."""
        while True:
            await asyncio.sleep(LAST_WORDS_SECONDS)
            if held := self._held():
                try:
                    await self._last_words.bring(held)
                except StorageUnavailable as error:
                    log.warning("last_words_not_read", reason=str(error))

    async def _tell_of_the_uncertain(self) -> None:
        """Answers that may not have arrived, where nobody could say so at once."""
        while True:
            await asyncio.sleep(UNCERTAIN_SECONDS)
            if held := self._held():
                try:
                    await self._delivery.uncertain.bring(held)
                except StorageUnavailable as error:
                    log.warning("uncertain_not_read", reason=str(error))

    async def _bring_alerts(self) -> None:
        while True:
            try:
                await self._alerts.bring()
            except StorageUnavailable as error:
                log.warning("alerts_wait_for_storage", reason=str(error))
            await asyncio.sleep(SEND_SECONDS)

    async def _open(self, config: BotConfig) -> None:
        """Tries for ever while Telegram or Postgres are away."""
        api = BotApi(config.token.get_secret_value(), **self._api_url)
        self._apis.append(api)
        try:
            identity = await identify(api)
        except TokenRefused as refused:
            log.error("token_refused", bot=config.bot_id, advice=refused.advice)
            await self._refused(config, refused.advice)
            return
        while True:
            try:
                await self._enrol(config, identity.username)
                break
            except StorageUnavailable as error:
                log.warning("bot_not_enrolled", bot=config.bot_id, reason=str(error))
                await asyncio.sleep(1.0)
        if self._closing:
            return
        desk = Desk(
            config=config,
            identity=identity,
            api=api,
            sender=Sender(
                identity.bot_id,
                partial(open_bot, config.token.get_secret_value(), api_url=self._settings.telegram_api_url),
            ),
            stores=self._stores,
            humans=self._settings.hands_over,
        )
        voice = self._open_desk(desk)
        log.info("bot_ready", bot=desk.bot_id, username=identity.username, mode=config.mode)
        await self._library.ready()
        self._senders[desk.bot_id], self._voices[desk.bot_id] = desk.sender, voice
        self._answering.bot_serves()

    def _open_desk(self, desk: Desk) -> Voice:
        """Its turns are answered from now on; nothing of them is sent before there is a sender."""
        app, bot_id, now = self._app, desk.bot_id, steady_clock()
        self._desks[bot_id] = desk
        voice = Voice(desk.sender, self._stores.places)
        rules = AccessRules(mode=desk.config.access, listed=desk.config.allowed)
        door = Doorkeeper(self._stores.access, bot_id=bot_id, rules=rules, now=now)
        admins = Admins(desk.api)
        wishes = Wishes(app.conversation, self._stores.edits, self._answering.answer)
        remembered = Remembered(desk, voice=voice, notes=app.notes, announcer=app.announcer)
        commanding = Commanding(
            desk, voice=voice, commands=app.commands, exporting=app.exporting, wishes=wishes, admins=admins,
            remembered=remembered, demo=app.models.offline, offered=self._offered,
        )  # fmt: skip
        pressing = Pressing(
            desk, door=door, voice=voice, commands=app.commands, conversation=app.conversation,
            wishes=wishes, admins=admins, remembered=remembered, forgetting=app.forgetting,
            delivery=self._delivery, offered=self._offered,
        )  # fmt: skip
        hearing = Hearing(
            desk, door=door, voice=voice, files=FileReader(desk.api), commanding=commanding,
            pressing=pressing, conversation=app.conversation, answer=self._answering.answer,
            counter=app.counter, now=now, start=self._tasks.start, uncertain=self._delivery.uncertain,
        )  # fmt: skip
        hold = Hold()
        lanes = Lanes(
            hearing.gathered, now=now, on_failed=hearing.failed, patience=Patience(),
            is_command=commanding.knows, sure=hold.sure, asking_storage=app.asking_storage,
        )  # fmt: skip
        runner = self._runners[bot_id] = Runner(
            desk, hearing, lanes, hold=hold, worker_id=app.worker_id, webhook=self._webhook_of(desk.config),
            library=self._library, on_serving=self._answering.bot_serves, crash_point=app.crash_point,
            asking_storage=app.asking_storage,
        )  # fmt: skip
        runner.start()
        return voice

    def _post(self) -> Post:
        return Post(
            senders=self._senders,
            deliveries=self._stores.deliveries,
            notices=self._stores.notices,
            places=self._stores.places,
            texts=PlaceWords(self._desks.get),
            keyboard=under_answer,
            question=self._stores.places.question,
            wants=self._wants,
            crash_point=self._app.crash_point,
            tracer=self._app.tracer,
        )

    def _wants(self, place: PlaceRow, form: Form) -> bool:
        return form in self._offered and is_on(place, form)

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

    def _webhook_of(self, config: BotConfig) -> WebhookMode | None:
        if config.mode != "webhook":
            return None
        secret = self._settings.telegram_webhook_secret
        assert secret is not None, "settings demand it"
        base = (self._settings.public_url or f"http://127.0.0.1:{self._settings.telegram_port}").rstrip("/")
        url = base + PATH.format(bot_id=config.bot_id)
        return WebhookMode(url=url, secret=secret.get_secret_value())

    async def _enrol(self, config: BotConfig, username: str) -> None:
        await self._stores.places.enrol(
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
            await self._stores.places.tell_problem(config.bot_id, advice)
        except StorageUnavailable as error:
            log.warning("problem_not_told", bot=config.bot_id, reason=str(error))
