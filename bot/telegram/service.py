"""All bots of this process: put together here, started as soon as Telegram knows them, ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from aiohttp import web

from bot.telegram.access import AccessRules, Doorkeeper
from bot.telegram.admins import Admins
from bot.telegram.answering import Answering
from bot.telegram.api import BotApi, CallRefused, TelegramUnavailable, TokenRefused
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
from bot.telegram.notices import Notices
from bot.telegram.polling import identify
from bot.telegram.post import Post
from bot.telegram.pressing import Pressing
from bot.telegram.remembered import Remembered
from bot.telegram.runner import Runner, utc_now
from bot.telegram.sender import Sender, open_bot
from bot.telegram.voice import Voice
from bot.telegram.webhook import PATH, WebhookMode, make_webhook_handler
from bot.telegram.wishes import Wishes
from bot.telegram.words import PlaceWords
from shared.adapters.postgres.telegram_places import PlaceRow
from shared.app import App
from shared.bots import BotConfig
from shared.core.errors import StorageUnavailable
from shared.ports import DUE_ELSEWHERE
from shared.settings import Settings
from shared.tasks import Tasks

log = structlog.get_logger(__name__)


class TelegramService:
    """One per process. `start`, then `close`; a bot that Telegram refuses does not hinder the others."""

    def __init__(self, app: App, bots: Sequence[BotConfig], *, settings: Settings) -> None:
        self._app = app
        self._bots = bots
        self._settings = settings
        self._stores = Stores.of(app)
        self._desks: dict[int, Desk] = {}
        self._voices: dict[int, Voice] = {}
        self._senders: dict[int, Sender] = {}
        self._runners: dict[int, Runner] = {}
        self._apis: list[BotApi] = []
        self._tasks = Tasks()
        notices = Notices(self._desks.get, self._voices.get)
        self._delivery = Delivery(self._post(), tasks=self._tasks)
        self._answering = Answering(
            app.conversation,
            self._delivery,
            self._stores.places,
            held=lambda: [bot_id for bot_id, runner in self._runners.items() if runner.holds],
            afterwards=notices.after_answer,
        )

    @property
    def webhooks(self) -> bool:
        return any(bot.mode == "webhook" for bot in self._bots)

    def start(self) -> None:
        self._answering.start()
        self._tasks.forever(self._listen)
        for config in self._bots:
            self._tasks.start(self._open(config))

    async def close(self) -> None:
        """No new updates, then the answers that are nearly there, then the lines."""
        await asyncio.gather(*(runner.close() for runner in self._runners.values()))
        await self._answering.close()
        await self._tasks.drain(2.0)
        for sender in self._senders.values():
            await sender.close()
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
        desk = Desk(
            config=config,
            identity=identity,
            api=api,
            sender=Sender(open_bot(config.token.get_secret_value(), api_url=self._settings.telegram_api_url)),
            stores=self._stores,
            hears_all=await _hears_all(api),
        )
        self._open_desk(desk)
        log.info("bot_ready", bot=desk.bot_id, username=identity.username, mode=config.mode)

    def _open_desk(self, desk: Desk) -> None:
        app, bot_id = self._app, desk.bot_id
        self._desks[bot_id], self._senders[bot_id] = desk, desk.sender
        voice = self._voices[bot_id] = Voice(desk.sender, self._stores.places)
        rules = AccessRules(mode=desk.config.access, listed=desk.config.allowed)
        door = Doorkeeper(self._stores.access, bot_id=bot_id, rules=rules, now=utc_now)
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
            offered=self._offered,
        )  # fmt: skip
        hearing = Hearing(
            desk, door=door, voice=voice, files=FileReader(desk.api), commanding=commanding,
            pressing=pressing, conversation=app.conversation, answer=self._answering.answer,
            counter=app.counter, now=utc_now, start=self._tasks.start,
        )  # fmt: skip
        hold = Hold()
        lanes = Lanes(
            hearing.gathered, now=utc_now, on_failed=hearing.failed, patience=Patience(),
            is_command=commanding.knows, sure=hold.sure,
        )  # fmt: skip
        runner = self._runners[bot_id] = Runner(
            desk, hearing, lanes, hold=hold, worker_id=app.worker_id, webhook=self._webhook_of(desk.config),
            crash_point=app.crash_point,
        )  # fmt: skip
        runner.start()

    def _post(self) -> Post:
        return Post(
            senders=self._senders,
            deliveries=self._stores.deliveries,
            places=self._stores.places,
            texts=PlaceWords(self._desks.get),
            keyboard=under_answer,
            question=self._stores.places.question,
            wants=self._wants,
            crash_point=self._app.crash_point,
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


async def _hears_all(api: BotApi) -> bool:
    try:
        me = await api.call("getMe")
    except (CallRefused, TelegramUnavailable, TokenRefused):
        return False
    return bool(isinstance(me, dict) and me.get("can_read_all_group_messages"))
