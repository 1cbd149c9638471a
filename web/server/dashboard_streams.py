"""Open streams of operators' pages: which topics changed, and how far a job is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from shared.adapters.postgres.dashboard.job_queries import LIVE_TOPICS
from shared.core.values.errors import StorageUnavailable
from shared.ports import DASHBOARD, TYPING
from shared.runtime import BackgroundTasks

log = structlog.get_logger(__name__)

TOPICS = tuple(LIVE_TOPICS)
LOOK_SECONDS = 1.0
"""Seconds between looks at Postgres while a stream is open; an announcement looks at once."""
STREAMS_AT_MOST = 10
"""Open streams of one operator in one process."""
SIGNED_OUT: Mapping[str, Any] = {"t": "signed_out"}
PROGRESS = "progress"
MOST_STAGE_CHARS = 60


class DashboardNews(Protocol):
    """Announcements on a connection separate from the chat's."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...
    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]: ...
    async def subscribe(self, session_ids: Sequence[int]) -> None: ...


class StreamConnection(Protocol):
    """The connection below a stream."""

    def is_closing(self) -> bool: ...


class Follower:
    """One open stream: what changed since it was last written to."""

    __slots__ = ("_connection", "_wake", "changed", "check", "closed", "operator_id", "progress", "typing")

    def __init__(self, connection: StreamConnection | None, operator_id: int) -> None:
        self._connection = connection
        self.operator_id = operator_id
        self.changed: set[str] = set()
        self.progress: dict[int, Mapping[str, Any]] = {}
        """The newest of each job; each is a full value."""
        self.typing: set[str] = set()
        """Conversations in which a person is writing just now."""
        self.check = False
        self.closed = ""
        self._wake = asyncio.Event()

    @property
    def gone(self) -> bool:
        return self._connection is None or self._connection.is_closing()

    def add_topics(self, topics: set[str]) -> None:
        self.changed |= topics
        self._wake.set()

    def add_progress(self, told: Mapping[str, Any]) -> None:
        self.progress[told["job"]] = told
        self._wake.set()

    def add_typing(self, session: str) -> None:
        self.typing.add(session)
        self._wake.set()

    def take_events(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the events to write now, as pairs of name and data."""
        told = [(PROGRESS, one) for one in self.progress.values()]
        told += [("typing", {"session": one}) for one in sorted(self.typing)]
        told += [("changed", {"topics": sorted(self.changed)})] if self.changed else []
        self.progress, self.changed, self.typing = {}, set(), set()
        return told

    def request_login_check(self) -> None:
        self.check = True
        self._wake.set()

    def close(self, why: str) -> None:
        self.closed = why
        self._wake.set()

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait for a change, and return False if none came within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True


class Live:
    """Watch on Postgres for open streams of the dashboard; idle while there is no stream."""

    def __init__(
        self,
        pulse: Callable[[], Awaitable[Mapping[str, str]]],
        *,
        news: DashboardNews | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._pulse = pulse
        self._news = news
        self._look_seconds = look_seconds
        self._followers: set[Follower] = set()
        self._tasks: BackgroundTasks | None = None
        self._poll_now = asyncio.Event()
        self._seen: Mapping[str, str] = {}

    @property
    def streams(self) -> int:
        return len(self._followers)

    @property
    def operators(self) -> set[int]:
        """Ids of operators with an open page in this process."""
        return {one.operator_id for one in self._followers if not one.gone}

    def join(self, follower: Follower) -> bool:
        """Add a follower; return False if its operator has too many streams open."""
        for one in [one for one in self._followers if one.gone]:
            self._followers.discard(one)
            one.close("gone")
        if Counter(one.operator_id for one in self._followers)[follower.operator_id] >= STREAMS_AT_MOST:
            return False
        self._followers.add(follower)
        if self._tasks is None:
            self._tasks = BackgroundTasks()
            self._tasks.run_forever(self._poll)
            if self._news is not None:
                self._tasks.run_forever(self._listen)
        return True

    async def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)
        if not self._followers and self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            self._seen = {}
            await tasks.cancel()

    async def close(self) -> None:
        for follower in self._followers:
            follower.close("restart")
        if self._tasks is not None:
            await self._tasks.cancel()

    async def announce_sign_out(self) -> None:
        """Announce that a login ended, so that every process checks its streams."""
        self._request_login_checks()
        if self._news is not None:
            await self._news.announce(DASHBOARD, SIGNED_OUT)

    async def _poll(self) -> None:
        while True:
            try:
                seen = await self._pulse()
            except (StorageUnavailable, TimeoutError) as error:
                log.info("live_updates_wait_for_storage", reason=str(error))
            else:
                if self._seen:
                    self._add_topics({topic for topic, mark in seen.items() if mark != self._seen.get(topic)})
                self._seen = seen
            await self._wait_for_poll()

    async def _wait_for_poll(self) -> None:
        try:
            async with asyncio.timeout(self._look_seconds):
                await self._poll_now.wait()
        except TimeoutError:
            return
        self._poll_now.clear()

    async def _listen(self) -> None:
        assert self._news is not None
        await self._news.subscribe((DASHBOARD,))
        async for where, message in self._news.listen():
            if where == DASHBOARD and message.get("t") == PROGRESS:
                self._add_progress(message)
                continue
            if where == DASHBOARD and message.get("t") == TYPING["t"]:
                for follower in self._followers:
                    follower.add_typing(str(message.get("session"))[:MOST_STAGE_CHARS])
                continue
            if where == DASHBOARD and message.get("t") == SIGNED_OUT["t"]:
                self._request_login_checks()
            elif where == DASHBOARD and isinstance(named := message.get("topics"), list):
                self._add_topics({topic for topic in TOPICS if topic in named})
            self._poll_now.set()

    def _add_progress(self, message: Mapping[str, Any]) -> None:
        job, percent, stage = (message.get(name) for name in ("job", "percent", "stage"))
        if type(job) is int and type(percent) is int and isinstance(stage, str):
            told = {"job": job, "percent": max(0, min(percent, 100)), "stage": stage[:MOST_STAGE_CHARS]}
            for follower in self._followers:
                follower.add_progress(told)

    def _request_login_checks(self) -> None:
        for follower in self._followers:
            follower.request_login_check()

    def _add_topics(self, topics: set[str]) -> None:
        if topics:
            for follower in self._followers:
                follower.add_topics(topics)
