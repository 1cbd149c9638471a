"""Live updates of open dashboard pages: which topics changed, the progress of jobs, and who is typing."""

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
"""Names of the topics whose changes pages follow."""
LOOK_SECONDS = 1.0
"""Seconds between two queries of the database while a stream is open.

An announcement triggers one at once.
"""
STREAMS_AT_MOST = 10
"""Maximum open streams of one operator in one process."""
SIGNED_OUT: Mapping[str, Any] = {"t": "signed_out"}
"""Announcement that a login ended."""
PROGRESS = "progress"
"""Kind of an announcement with the progress of a job."""
MOST_STAGE_CHARS = 60
"""Maximum characters of a text from an announcement."""


class DashboardNews(Protocol):
    """Announcements for the dashboard, on another Redis connection than those of the chat."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None:
        """Publish one message of a session; raises nothing."""
        ...

    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        """Yield session id and message of each received announcement, for ever."""
        ...

    async def subscribe(self, session_ids: Sequence[int]) -> None:
        """Receive the announcements of these sessions instead of former ones."""
        ...


class StreamConnection(Protocol):
    """Network connection of a stream."""

    def is_closing(self) -> bool: ...


class Follower:
    """Open stream of one page with the changes that it has not been sent yet."""

    __slots__ = ("_connection", "_wake", "changed", "check", "closed", "operator_id", "progress", "typing")

    def __init__(self, connection: StreamConnection | None, operator_id: int) -> None:
        self._connection = connection
        self.operator_id = operator_id
        self.changed: set[str] = set()
        self.progress: dict[int, Mapping[str, Any]] = {}
        """Newest progress of each job, by job id."""
        self.typing: set[str] = set()
        """Public ids of conversations in which a person is typing."""
        self.check = False
        """Whether the login of the operator must be checked."""
        self.closed = ""
        """Reason to close the stream; empty while it stays open."""
        self._wake = asyncio.Event()

    @property
    def gone(self) -> bool:
        """Whether the page has disconnected."""
        return self._connection is None or self._connection.is_closing()

    def add_topics(self, topics: set[str]) -> None:
        """Add topics that have changed since the last events were sent, and wake the stream."""
        self.changed |= topics
        self._wake.set()

    def add_progress(self, told: Mapping[str, Any]) -> None:
        """Keep the newest progress of a job until it is sent, and wake the stream."""
        self.progress[told["job"]] = told
        self._wake.set()

    def add_typing(self, session: str) -> None:
        """Add a conversation in which a person is typing."""
        self.typing.add(session)
        self._wake.set()

    def take_events(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the collected events as pairs of name and data, and forget them."""
        told = [(PROGRESS, one) for one in self.progress.values()]
        told += [("typing", {"session": one}) for one in sorted(self.typing)]
        told += [("changed", {"topics": sorted(self.changed)})] if self.changed else []
        self.progress, self.changed, self.typing = {}, set(), set()
        return told

    def request_login_check(self) -> None:
        """Ask the stream to check whether its login is still valid."""
        self.check = True
        self._wake.set()

    def close(self, why: str) -> None:
        """Ask the stream to close; `why` is the reason for the page."""
        self.closed = why
        self._wake.set()

    async def wait_for_change(self, seconds: float) -> bool:
        """Wait for a change; return False if there is none within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True


class Live:
    """Watcher of changes for open dashboard streams; does nothing while no stream is open.

    `pulse` returns a mark for each topic, which changes with the topic.
    """

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
        """Number of open streams of dashboard pages in this process."""
        return len(self._followers)

    @property
    def operators(self) -> set[int]:
        """Ids of operators with an open page in this process."""
        return {one.operator_id for one in self._followers if not one.gone}

    def join(self, follower: Follower) -> bool:
        """Add a stream; return False if its operator has too many open."""
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
        """Remove a stream; after the last one, stop watching."""
        self._followers.discard(follower)
        if not self._followers and self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            self._seen = {}
            await tasks.cancel()

    async def close(self) -> None:
        """Ask all streams to close, and stop watching."""
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
        """Compare the marks of all topics every `look_seconds` or at a wake-up, until cancelled."""
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
        """Pass a valid progress announcement to all streams."""
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
