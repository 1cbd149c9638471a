"""Tells operators' pages which topics changed, and how far a job is; what is new, they ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import structlog
from aiohttp import web

from shared.adapters.postgres.dashboard.job_queries import LIVE_TOPICS
from shared.core.values.errors import StorageUnavailable
from shared.ports import DASHBOARD, TYPING
from shared.runtime.tasks import BackgroundTasks
from web.dashboard.access import HEADERS, AuthedRequest
from web.rest.operation import Reply, Room
from web.security import REQUEST_ID, HttpRefusal
from web.server.event_stream import EventStream
from web.server.http_server import Connection

log = structlog.get_logger(__name__)

room = Room()
TOPICS = tuple(LIVE_TOPICS)
COMMENT_SECONDS = 15.0
"""Proxies cut off what is silent."""
CHECK_SECONDS = 60.0
"""How often a login is looked at again; sooner when somebody logs out."""
LOOK_SECONDS = 1.0
"""How often Postgres is looked at while somebody follows; an announcement makes it sooner."""
STREAMS_AT_MOST = 10
"""Of one operator, in one process."""
SIGNED_OUT: Mapping[str, Any] = {"t": "signed_out"}
PROGRESS = "progress"
MOST_STAGE_CHARS = 60
_BYE = "bye"


class DashboardNews(Protocol):
    """Announcements over a connection of its own: the chat's follows what the chat needs."""

    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...
    def listen(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]: ...
    async def subscribe(self, session_ids: Sequence[int]) -> None: ...


class StreamConnection(Protocol):
    """The connection below a stream."""

    def is_closing(self) -> bool: ...


class Follower:
    """One open stream: what changed since it was last written to."""

    __slots__ = ("_line", "_stirred", "changed", "check", "closed", "operator_id", "progress", "typing")

    def __init__(self, line: StreamConnection | None, operator_id: int) -> None:
        self._line = line
        self.operator_id = operator_id
        self.changed: set[str] = set()
        self.progress: dict[int, Mapping[str, Any]] = {}
        """The newest of each job; each is a full value."""
        self.typing: set[str] = set()
        """Conversations in which a person is writing just now."""
        self.check = False
        self.closed = ""
        self._stirred = asyncio.Event()

    @property
    def gone(self) -> bool:
        return self._line is None or self._line.is_closing()

    def tell(self, topics: set[str]) -> None:
        self.changed |= topics
        self._stirred.set()

    def tell_progress(self, told: Mapping[str, Any]) -> None:
        self.progress[told["job"]] = told
        self._stirred.set()

    def tell_typing(self, session: str) -> None:
        self.typing.add(session)
        self._stirred.set()

    def taken(self) -> list[tuple[str, Mapping[str, Any]]]:
        """What is to be written now, each with its name."""
        told = [(PROGRESS, one) for one in self.progress.values()]
        told += [("typing", {"session": one}) for one in sorted(self.typing)]
        told += [("changed", {"topics": sorted(self.changed)})] if self.changed else []
        self.progress, self.changed, self.typing = {}, set(), set()
        return told

    def look_at_login(self) -> None:
        self.check = True
        self._stirred.set()

    def close(self, why: str) -> None:
        self.closed = why
        self._stirred.set()

    async def stirred(self, seconds: float) -> bool:
        """False when nothing happened for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        except TimeoutError:
            return False
        self._stirred.clear()
        return True


class Live:
    """Looks at Postgres while anybody follows, and at once when told; nothing runs while nobody does."""

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
        self._look_now = asyncio.Event()
        self._seen: Mapping[str, str] = {}

    @property
    def streams(self) -> int:
        return len(self._followers)

    @property
    def operators(self) -> set[int]:
        """Who has a page open in this process."""
        return {one.operator_id for one in self._followers if not one.gone}

    def join(self, follower: Follower) -> bool:
        """False when this operator has too many open already."""
        for one in [one for one in self._followers if one.gone]:
            self._followers.discard(one)
            one.close("gone")
        if Counter(one.operator_id for one in self._followers)[follower.operator_id] >= STREAMS_AT_MOST:
            return False
        self._followers.add(follower)
        if self._tasks is None:
            self._tasks = BackgroundTasks()
            self._tasks.run_forever(self._look)
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

    async def signed_out(self) -> None:
        """Somebody's login ended: every process looks at those of its streams."""
        self._look_at_logins()
        if self._news is not None:
            await self._news.announce(DASHBOARD, SIGNED_OUT)

    async def _look(self) -> None:
        while True:
            try:
                seen = await self._pulse()
            except (StorageUnavailable, TimeoutError) as error:
                log.info("live_waits_for_storage", reason=str(error))
            else:
                if self._seen:
                    self._tell({topic for topic, mark in seen.items() if mark != self._seen.get(topic)})
                self._seen = seen
            await self._until_the_next_look()

    async def _until_the_next_look(self) -> None:
        try:
            async with asyncio.timeout(self._look_seconds):
                await self._look_now.wait()
        except TimeoutError:
            return
        self._look_now.clear()

    async def _listen(self) -> None:
        assert self._news is not None
        await self._news.subscribe((DASHBOARD,))
        async for where, message in self._news.listen():
            if where == DASHBOARD and message.get("t") == PROGRESS:
                self._tell_progress(message)
                continue
            if where == DASHBOARD and message.get("t") == TYPING["t"]:
                for follower in self._followers:
                    follower.tell_typing(str(message.get("session"))[:MOST_STAGE_CHARS])
                continue
            if where == DASHBOARD and message.get("t") == SIGNED_OUT["t"]:
                self._look_at_logins()
            elif where == DASHBOARD and isinstance(named := message.get("topics"), list):
                self._tell({topic for topic in TOPICS if topic in named})
            self._look_now.set()

    def _tell_progress(self, message: Mapping[str, Any]) -> None:
        job, percent, stage = (message.get(name) for name in ("job", "percent", "stage"))
        if type(job) is int and type(percent) is int and isinstance(stage, str):
            told = {"job": job, "percent": max(0, min(percent, 100)), "stage": stage[:MOST_STAGE_CHARS]}
            for follower in self._followers:
                follower.tell_progress(told)

    def _look_at_logins(self) -> None:
        for follower in self._followers:
            follower.look_at_login()

    def _tell(self, topics: set[str]) -> None:
        if topics:
            for follower in self._followers:
                follower.tell(topics)


@room.on("GET /live", role="viewer", refusals=(429, 503), media="text/event-stream")
async def follow_changes(visit: AuthedRequest) -> Reply:
    """Which topics changed, as server-sent events.

    `hello`, then `changed` with `topics`, `progress` of summaries with `job`, `percent`, `stage`, `typing`
    with the `session` that a person writes in, and `end` when the login is over or the server restarts. What
    is new, the other operations tell.
    """
    desk, request = visit.desk, visit.request
    if desk.live is None:
        raise HttpRefusal(503, "not_available", "Live updates are not available just now. Poll instead.")
    follower = Follower(request.transport, visit.operator.operator_id)
    if not desk.live.join(follower):
        words = f"At most {STREAMS_AT_MOST} at once."
        raise HttpRefusal(429, "too_many_streams", words, headers={"Retry-After": "60"})
    connection = request.protocol
    try:
        if isinstance(connection, Connection):
            connection.on_lost = lambda: follower.close("gone")
        return await _stream(visit, follower)
    finally:
        if isinstance(connection, Connection):
            connection.on_lost = None
        await desk.live.leave(follower)


async def _stream(visit: AuthedRequest, follower: Follower) -> web.StreamResponse:
    request_id = visit.request.get(REQUEST_ID, "")
    stream = EventStream(visit.request, request_id=request_id, headers=HEADERS)
    loop = asyncio.get_running_loop()
    try:
        await stream.open()
    except (ConnectionError, TimeoutError):
        return await stream.end()
    await stream.send("hello", {"topics": list(TOPICS)})
    checked = loop.time()
    while not follower.closed and not stream.gone:
        stirred = await follower.stirred(COMMENT_SECONDS)
        if follower.check or loop.time() - checked >= CHECK_SECONDS:
            follower.check, checked = False, loop.time()
            if not await _may_go_on(visit):
                follower.close("login")
                break
        if not stirred:
            await stream.beat()
            continue
        for name, told in follower.taken():
            await stream.send(name, told)
    await stream.send("end", {"reason": follower.closed or _BYE})
    return await stream.end()


async def _may_go_on(visit: AuthedRequest) -> bool:
    """Following is not being present: it keeps no login alive."""
    try:
        who = await visit.desk.admin.operators.signed_in(visit.token, present=False)
    except StorageUnavailable:
        return True  # nothing is told while Postgres is away, and the next look decides
    return who is not None and who.operator_id == visit.operator.operator_id and who.may("viewer")
