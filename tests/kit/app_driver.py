"""A running app on real servers with one visitor who sends messages; the journeys are written with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.adapters.telemetry.heartbeat import BEAT_SECONDS, LOOK_SECONDS
from shared.bootstrap.app import App, open_app
from shared.config.settings import Settings, load_settings
from shared.core.session.turns import Accepted, Inbound, ReplyEvent, Stored
from shared.core.values.messages import Block, ToolSpec, with_typed_text
from shared.ports import Tool, ToolContext
from tests.kit.midday import MIDDAY

_cids = count(1)


def settings_for(database_url: str, redis_url: str, **overrides: Any) -> Settings:
    given = {"timezone": MIDDAY, **overrides}
    return load_settings(database_url=database_url, redis_url=redis_url, **given)


@dataclass(slots=True)
class Visit:
    """Visitor with one session; `heard` are all events that its answers emitted, in order."""

    app: App
    session_id: int
    address_id: int
    heard: list[ReplyEvent] = field(default_factory=list)

    def inbound(self, text: str, *, cid: str | None = None, more: tuple[Block, ...] = ()) -> Inbound:
        cid = cid or f"c{next(_cids)}"
        return Inbound(
            session_id=self.session_id,
            address_id=self.address_id,
            text=text,
            dedupe_key=f"web:{cid}",
            cid=cid,
            more=more,
        )

    async def say(self, text: str, *, cid: str | None = None) -> Accepted:
        return await self.app.sessions.accept(self.inbound(text, cid=cid))

    async def hear(self, event: ReplyEvent) -> None:
        self.heard.append(event)

    async def answered(self) -> str:
        """Answer all due turns; return the text of the last answer."""
        await self.app.sessions.answer(self.session_id, self.hear)
        return self.last_words

    async def ask(self, text: str) -> str:
        await self.say(text)
        return await self.answered()

    @property
    def last_words(self) -> str:
        stored = [event for event in self.heard if isinstance(event, Stored)]
        return str(stored[-1].payload["text"]) if stored else ""

    async def reword(self, seq: int, text: str, *, key: str | None = None) -> str:
        """Edit a message like a channel does; return the result of the edit."""
        edited = await self.app.stores.edits.edit(
            self.session_id,
            seq,
            reword=lambda blocks: with_typed_text(blocks, text),
            count=lambda blocks: len(str(blocks)) // 4,
            dedupe_key=key or f"web:edit{next(_cids)}",
        )
        return edited.result

    async def run_due_jobs(self, over: asyncio.Event | None = None) -> None:
        """Run the due jobs one after the other, until `over` is set."""
        for job in await self.app.stores.jobs.due_jobs():
            if over is None or not over.is_set():
                await self.app.job_runner.run(job.id)

    async def one(self, sql: str, *arguments: Any) -> Any:
        return await self.app.pool.fetchval(sql, *arguments)

    async def until_waiting(self, statements: int = 1) -> None:
        """Wait until `statements` statements of this database wait for a lock."""
        async with asyncio.timeout(20):
            while await self.one(_WAITING) < statements:
                await asyncio.sleep(0.01)


_WAITING = """SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'"""


async def visit(app: App) -> Visit:
    row = await PostgresVisitors(app.pool).create(generate_token(), site="default")
    assert row is not None
    return Visit(app=app, session_id=row.session_id, address_id=row.address_id)


class running_app:  # noqa: N801  reads as a function in `async with`
    """Context manager that runs an app of the web role with its heartbeat."""

    def __init__(self, settings: Settings, *, tools: Sequence[Tool] = ()) -> None:
        self._settings = settings
        self._tools = tools

    async def __aenter__(self) -> App:
        self._app = await open_app(self._settings, role="web", tools=self._tools)
        self._beating = asyncio.ensure_future(self._beat())
        return self._app

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        await asyncio.wait([self._beating])
        await self._app.close()

    async def _beat(self) -> None:
        while True:
            await self._app.sessions.check_leases()
            await asyncio.sleep(0.5)


class LookUp:
    """Tool with results that are long enough to be shortened later."""

    spec = ToolSpec(
        name="look_up",
        description="Looks something up.",
        input_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    )
    idempotent = True
    timeout_seconds = 5.0

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        return "\n".join(f"{arguments['query']} {line}: nothing but <runtime_facts>" for line in range(330))


async def health_told(app: App) -> None:
    """Wait until a heartbeat that began after this call has stored the health report."""
    until = time.monotonic() + BEAT_SECONDS + 2 * LOOK_SECONDS
    async with asyncio.timeout(30):
        while app.heartbeat.last_beat < until:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def working(guest: Visit) -> AsyncIterator[None]:
    """Run jobs when they become due, as the worker does, while the context is open; the last job is finished.

    A claim that is cancelled would stay stored until the heartbeats of a worker are missed, and no worker has
    heartbeats here.
    """
    over = asyncio.Event()

    async def work() -> None:
        while not over.is_set():
            await guest.run_due_jobs(over)
            await asyncio.sleep(0.02)

    running = asyncio.ensure_future(work())
    try:
        yield
    finally:
        over.set()
        await running
