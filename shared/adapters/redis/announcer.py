"""Announcements of changes to other processes by Redis pub/sub; a lost one only causes a delay."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from shared.adapters.redis.client import open_redis
from shared.ports import ALL_PROCESSES
from shared.runtime import keep_cancellation

log = structlog.get_logger(__name__)

PUBLISH_SECONDS = 1.0
"""Maximum seconds to wait until Redis accepts one announcement."""
CONNECT_SECONDS = 3.0
"""Maximum seconds for opening a connection."""
FOLLOW_SECONDS = 1.0
"""Seconds to wait for Redis to confirm subscriptions.

Events missed before that are found by polling Postgres.
"""
LISTEN_SECONDS = 15.0
"""Seconds of silence after which the connection is pinged, since a vanished peer sends nothing."""
LONGEST_PAUSE_SECONDS = 5.0
"""Maximum seconds between two attempts to reconnect the listener."""
UNHEARD_SECONDS = 2.0
"""Seconds for which transient messages of a session are skipped after Redis reported no other subscriber."""
MAX_MESSAGE_CHARS = 256 * 1024
"""Maximum characters of a received message; a longer one is ignored."""
_AWAY = (RedisError, OSError, TimeoutError, asyncio.IncompleteReadError)
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def build_channel_prefix(client: Redis) -> str:
    """Return the prefix of channel names, which contains the client's database number unless it is 0.

    Redis itself does not separate pub/sub by database.
    """
    database = client.connection_pool.connection_kwargs.get("db")
    return f"evertalk:{database}:s:" if database else "evertalk:s:"


class RedisAnnouncer:
    """Publisher and listener of announcements, with one listening connection per process.

    Only one caller may use `listen` at a time.
    """

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
        }
        if url.startswith("unix"):
            options.pop("socket_keepalive")
        # Each publish has its own timeout; the client need not time every read and write.
        self._publisher = open_redis(Redis, url, max_connections=4, **options)
        self._subscriber = open_redis(Redis, url, socket_timeout=LISTEN_SECONDS, **options)
        self._channel = build_channel_prefix(self._publisher)
        self._for_all = f"{self._channel}{ALL_PROCESSES}"
        """Channel for all processes.

        It is always subscribed, so that the loss of Redis is noticed without sessions.
        """
        self._wanted: set[str] = {self._for_all}
        self._confirmed: set[str] = set()
        self._changed = asyncio.Event()
        self._pubsub: PubSub | None = None
        self._writing = asyncio.Lock()
        self._not_before = 0.0
        self._unheard: dict[int, float] = {}
        self.lost = 0
        """Number of announcements that Redis did not accept since the start."""

    @property
    def connected(self) -> bool:
        """Whether announcements of other processes are received at this moment."""
        return self._pubsub is not None

    async def connect(self) -> None:
        """Open the publishing connection; if that fails, the first announcement tries again."""
        with suppress(*_AWAY):
            async with asyncio.timeout(PUBLISH_SECONDS):
                await self._publisher.ping()

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Publish one message of a session; raises nothing."""
        await self.announce_all(session_id, (message,))

    async def announce_all(self, session_id: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Publish messages of a session in their order.

        Transient ones are skipped if no other process subscribes. Raises nothing: lost messages are
        counted in `lost`.
        """
        now = time.monotonic()
        if now < self._not_before:
            self.lost += 1
            return
        if self._unheard.get(session_id, 0.0) > now:
            messages = [message for message in messages if not _is_passing(message)]
        for text in _pack(messages):
            await self._publish(session_id, text, now)

    async def _publish(self, session_id: int, text: str, now: float) -> None:
        try:
            with keep_cancellation():
                async with asyncio.timeout(PUBLISH_SECONDS):
                    heard = await self._publisher.publish(f"{self._channel}{session_id}", text)
        except _AWAY as error:
            # While Redis is away, only one announcement per second waits for the timeout.
            self._not_before = time.monotonic() + 1.0
            self.lost += 1
            log.warning("announcement_lost", reason=f"{type(error).__name__}: {error}")
            return
        self._note_audience(session_id, int(heard), now)

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Receive announcements of these sessions instead of former ones.

        Waits at most FOLLOW_SECONDS for confirmation. A failure is logged, not raised; `listen` subscribes
        again when it has a connection.
        """
        self._wanted = {self._for_all, *(f"{self._channel}{session_id}" for session_id in session_ids)}
        pubsub = self._pubsub
        if pubsub is None:
            return
        try:
            with keep_cancellation():
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await self._subscribe_to_wanted(pubsub)
                    await self._until_confirmed()
        except _AWAY as error:
            log.warning("event_subscription_unconfirmed", reason=f"{type(error).__name__}: {error}")

    async def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield (session id, message) of received announcements forever, reconnecting after each failure."""
        failures = 0
        while True:
            _end_if_cancelled()
            pubsub = self._subscriber.pubsub()
            try:
                async with asyncio.timeout(CONNECT_SECONDS + 1):
                    await pubsub.subscribe(self._for_all)
                self._pubsub = pubsub
                await self._subscribe_to_wanted(pubsub)
                failures = 0
                while True:
                    _end_if_cancelled()
                    for heard in self._read(await self._read_next(pubsub)):
                        yield heard
            except _AWAY as error:
                if failures == 0:
                    log.warning("announcements_not_received", reason=f"{type(error).__name__}: {error}")
            finally:
                self._forget_connection()
                await _close_quietly(pubsub)
            failures += 1
            longest = min(LONGEST_PAUSE_SECONDS, 0.1 * 2.0 ** min(failures, 10))
            await asyncio.sleep(random.uniform(0.05, longest))

    async def close(self) -> None:
        """Close both connections, each within 2 seconds; errors are only logged."""
        for client in (self._publisher, self._subscriber):
            try:
                async with asyncio.timeout(2):
                    await client.aclose()
            except _AWAY as error:
                log.debug("redis_close_failed", reason=str(error))

    async def _read_next(self, pubsub: PubSub) -> Mapping[str, Any]:
        """Return the next message, perhaps a pong. Raises TimeoutError if the peer does not answer a ping."""
        message = await pubsub.get_message(timeout=LISTEN_SECONDS)
        if message is None:
            async with self._writing:
                await pubsub.ping()
            message = await pubsub.get_message(timeout=LISTEN_SECONDS)
        if message is None:
            raise TimeoutError("no answer to a ping")
        return dict(message)

    def _read(self, message: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
        channel = _text(message.get("channel"))
        match message.get("type"):
            case "subscribe":
                self._confirmed.add(channel)
                self._changed.set()
            case "unsubscribe":
                self._confirmed.discard(channel)
            case "message" if channel.startswith(self._channel):
                return _announcements(channel.removeprefix(self._channel), message.get("data"))
        return []

    async def _subscribe_to_wanted(self, pubsub: PubSub) -> None:
        async with self._writing:
            subscribed = {_text(name) for name in pubsub.channels}
            if missing := self._wanted - subscribed:
                await pubsub.subscribe(*missing)
            if extra := subscribed - self._wanted:
                self._confirmed -= extra
                await pubsub.unsubscribe(*extra)

    async def _until_confirmed(self) -> None:
        while self._pubsub is not None and not self._wanted <= self._confirmed:
            self._changed.clear()
            await self._changed.wait()

    def _forget_connection(self) -> None:
        self._pubsub = None
        self._confirmed.clear()
        self._changed.set()

    def _note_audience(self, session_id: int, heard: int, now: float) -> None:
        """Note whether other processes subscribe to a session.

        `heard` is the number of subscribers including this process.
        """
        others = heard - (f"{self._channel}{session_id}" in self._confirmed)
        if others > 0:
            self._unheard.pop(session_id, None)
            return
        if len(self._unheard) > 10_000:
            self._unheard = {key: until for key, until in self._unheard.items() if until > now}
        self._unheard[session_id] = now + UNHEARD_SECONDS


def _is_passing(message: Mapping[str, Any]) -> bool:
    """Return whether a message only draws a running answer, whose state a new screen gets anyway."""
    kind = message.get("t")
    return kind == "delta" or (kind == "run" and message.get("state") in ("started", "tool"))


def _pack(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the messages as one JSON list, or singly if the list would be longer than receivers accept."""
    texts = [_ENCODE(message) for message in messages]
    if len(texts) < 2:
        return texts
    together = f"[{','.join(texts)}]"
    return [together] if len(together) <= MAX_MESSAGE_CHARS else texts


def _announcements(session: str, data: object) -> list[tuple[int, Mapping[str, Any]]]:
    """Return (session id, message) of one message or a list.

    Invalid ones, of other users of a shared Redis, are ignored.
    """
    text = _text(data)
    if len(text) > MAX_MESSAGE_CHARS:
        return []
    try:
        session_id, found = int(session), json.loads(text)
    except (ValueError, RecursionError):
        return []
    messages = found if isinstance(found, list) else [found]
    return [(session_id, message) for message in messages if isinstance(message, dict)]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _end_if_cancelled() -> None:
    """Raise CancelledError if the task was cancelled, also if the client swallowed the cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _close_quietly(pubsub: PubSub) -> None:
    try:
        async with asyncio.timeout(2):
            await pubsub.aclose()  # type: ignore[no-untyped-call]
    except _AWAY as error:
        log.debug("redis_close_failed", reason=str(error))
