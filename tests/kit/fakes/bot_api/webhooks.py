"""Posts updates to a bot's webhook: one queue per chat, a secret, and retries as at Telegram."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp

from tests.kit.fakes.bot_api.clock import Clock
from tests.kit.fakes.bot_api.refusals import misuse
from tests.kit.fakes.bot_api.shapes import Json, without_nones
from tests.kit.fakes.bot_api.updates import Inbox, Pending

LOOPBACK = re.compile(r"^https?://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/|$)")
SECRET = re.compile(r"^[A-Za-z0-9_-]{1,256}$")
ANSWER_SECONDS = 60.0
MAX_RETRY_AFTER = 3_600
MAX_DELAY = 64.0
MAX_ANSWER_BYTES = 1024 * 1024
Reply = Callable[[Json], Awaitable[None]]


class Webhook:
    """One registered webhook, which posts updates until `close` is called."""

    def __init__(self, wish: Json, inbox: Inbox, clock: Clock, reply: Reply) -> None:
        self._wish = _checked(wish)
        self._inbox = inbox
        self._clock = clock
        self._reply = reply
        self._places = asyncio.Semaphore(wish.get("max_connections", 40))
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._watching = asyncio.create_task(self._watch())
        self._last_error: Json = {}
        self.posts: Counter[int] = Counter()
        """How many posts each HTTP status answered; 0 counts posts without an answer."""

    def info(self) -> Json:
        """Return the webhook's state as `getWebhookInfo` answers it."""
        return {
            "url": self._wish["url"],
            "has_custom_certificate": False,
            "pending_update_count": len(self._inbox),
            "ip_address": "127.0.0.1",
            "max_connections": self._wish.get("max_connections", 40),
            "allowed_updates": self._inbox.allowed,
            **self._last_error,
        }

    async def close(self) -> None:
        """Stop all deliveries of this webhook."""
        tasks = [self._watching, *self._lanes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5)
        if self._session is not None:
            await self._session.close()

    async def _watch(self) -> None:
        """Start a task of deliveries for every lane in which an update waits."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        while True:
            arrived = self._inbox.arrived
            for lane in {one.lane for one in self._inbox.ready()}:
                if lane not in self._lanes:
                    self._lanes[lane] = asyncio.create_task(self._serve(lane))
            await arrived.wait()

    async def _serve(self, lane: str) -> None:
        try:
            while (one := self._inbox.first_of(lane)) is not None:
                await self._deliver(one)
        finally:
            self._lanes.pop(lane, None)

    async def _deliver(self, one: Pending) -> None:
        failures = 0
        while one.expires_at > self._clock.now():
            async with self._places:
                outcomes = await asyncio.gather(*(self._post(one) for _ in range(one.copies)))
            wait = next((after for after in outcomes if after is not None), None)
            if wait is None:
                self._inbox.confirm(one)
                return
            failures += 1
            await self._clock.sleep(wait if wait >= 0 else _delay(failures))

    async def _post(self, one: Pending) -> float | None:
        """Post an update once.

        Return None if it was accepted, else the seconds to wait before the next attempt; -1 stands for the
        usual pause.
        """
        assert self._session is not None
        secret = self._wish.get("secret_token")
        headers = {"X-Telegram-Bot-Api-Secret-Token": secret} if secret else {}
        try:
            async with self._session.post(self._wish["url"], json=one.as_json(), headers=headers) as answer:
                self.posts[answer.status] += 1
                body = await answer.content.read(MAX_ANSWER_BYTES)
                if 200 <= answer.status < 300:
                    await self._answered(body)
                    return None
                self._failed(f"Wrong response from the webhook: {answer.status} {answer.reason}")
                return _asked_to_wait(answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.posts[0] += 1
            timed_out = isinstance(error, TimeoutError)
            self._failed("Read timeout expired" if timed_out else "Connection refused")
            return -1.0

    async def _answered(self, body: bytes) -> None:
        """Carry out the method call that the webhook's answer may contain.

        The bot does not learn its result.
        """
        try:
            call = json.loads(body)
        except ValueError:
            return
        if isinstance(call, dict) and isinstance(call.get("method"), str):
            await self._reply(call)

    def _failed(self, words: str) -> None:
        self._last_error = {"last_error_date": self._clock.date(), "last_error_message": words}


def _checked(wish: Json) -> Json:
    if not LOOPBACK.match(wish["url"]):
        raise misuse("bad webhook: this fake posts to loopback addresses only")
    secret = wish.get("secret_token")
    if secret is not None and not SECRET.fullmatch(secret):
        raise misuse("secret token contains unallowed characters")
    if not 1 <= wish.get("max_connections", 40) <= 100:
        raise misuse("max_connections must be between 1 and 100")
    return without_nones(**wish)


def _asked_to_wait(header: str | None) -> float:
    if header is None or not header.isdigit():
        return -1.0
    return float(min(int(header), MAX_RETRY_AFTER))


def _delay(failures: int) -> float:
    """Return the seconds to wait after a number of failures: 0, then 2, 4, 8 … up to 64, later a random 60 to
    120.
    """
    if failures == 1:
        return 0.0
    seconds = 2.0 ** (failures - 1)
    return seconds if seconds <= MAX_DELAY else random.uniform(60, 120)
