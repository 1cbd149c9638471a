"""How many files, functions and calls a message and a job pass: `python -m tests.bench.trips [--json]`.

A message goes over a WebSocket to the real web process, or as an update to the real bot, both in this
process; the offline model answers. The second message is counted, when everything is warm. Then a long talk
makes a flush and a compaction due, and each is counted as the worker runs it. Most of what a process does
beside its turns is left out: the figures differ by a few files from run to run. `--list 1` also prints the
files of each trip.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, web

from bot.telegram.runtime.service import TelegramService
from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.leases import PostgresLeases
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.memory.reminders import PostgresReminders
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.adapters.postgres.telegram.deliveries import PostgresDeliveries
from shared.adapters.postgres.telegram.uncertain_notices import PostgresUncertainNotices
from shared.adapters.postgres.turns.samples import PostgresSamples
from shared.bootstrap.app import open_app
from shared.config.bots import load_bots
from shared.config.settings import Settings
from shared.core.compaction.jobs import MANUAL
from shared.core.session.turns import JobOrder
from tests.bench.ground import ground, run, settings_of
from tests.kit.fakes.bot_api import TOKEN, local_bot_api
from web.app import build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("shared", "web", "bot", "worker")
SOCKET_SECONDS = 30.0
CHAT_SECONDS = 120.0
LONG_TALK_TURNS = 40
RUNS_A_JOB = "JobRunner.run"
WALK = "Then we talked about the weather, the garden and the long way home along the river. " * 18
_IN_THE_BACKGROUND = (
    "Hub._poll",
    "._beat",
    "._watch",
    "HeartbeatThread.",
    "Health.",
    "_run_and_restart",
    "read_json",
)
_EVERY_SECOND = tuple(
    method.__qualname__
    for method in (
        PostgresHandovers.list_overdue,
        PostgresHandovers.list_unnotified,
        PostgresReminders.list_due,
        PostgresSamples.list_due,
        PostgresLeases.take,
        PostgresTelegramAccess.list_unsent_decisions,
        PostgresUncertainNotices.list_due,
        PostgresDeliveries.list_unfinished,
    )
)
"""Asked whether somebody writes or not; the pool runs a statement in a task of its own."""
_PROVIDER = "shared/adapters/models/offline.py"
"""What the offline model does to answer is what a provider does elsewhere."""
_BEGINS = 8
"""Bytes of code before a coroutine's first instruction of its own."""


class Trip:
    """What was called, as `file:function`."""

    def __init__(self, within: str) -> None:
        self._within = within
        self.called: dict[str, int] = {}
        self.calls = 0
        self._seen: set[int] = set()
        self._kept: list[FrameType] = []

    def heard(self, frame: FrameType, event: str, _: Any) -> None:
        """A coroutine that goes on is called again, and so are all that wait for it: only beginnings count,
        and what was begun before the trip counts when it calls something.
        """
        if event != "call" or _name(frame) is None or frame.f_lasti > _BEGINS:
            return
        product = [one for one in _callers(frame) if _name(one)]
        callers = [str(_name(one)) for one in product]
        if self._within not in callers[-1] or any(word in callers[-1] for word in _IN_THE_BACKGROUND):
            return
        if any(caller.endswith(_EVERY_SECOND) for caller in callers):
            return
        if any(caller.startswith(_PROVIDER) for caller in callers[1:]):
            return
        for one in reversed(product[:2]):
            self._count(one)

    def _count(self, frame: FrameType) -> None:
        name = _name(frame)
        if name is None or id(frame) in self._seen:
            return
        self._seen.add(id(frame))
        self._kept.append(frame)
        self.calls += 1
        self.called[name] = self.called.get(name, 0) + 1

    def files(self) -> list[str]:
        return sorted({name.partition(":")[0] for name in self.called})

    def as_json(self, prefix: str) -> dict[str, Any]:
        return {
            f"{prefix}_files": len(self.files()),
            f"{prefix}_functions": len(self.called),
            f"{prefix}_calls": self.calls,
        }


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    place = path.relative_to(ROOT)
    return f"{place}:{frame.f_code.co_qualname}" if place.parts[0] in PRODUCT else None


@contextmanager
def traced(within: str = "") -> Iterator[Trip]:
    """What is called meanwhile, by tasks whose first function has `within` in its name."""
    trip = Trip(within)
    sys.setprofile(trip.heard)
    try:
        yield trip
    finally:
        sys.setprofile(None)


FLUSH = JobOrder(kind="flush", key="flush:bench", trigger=MANUAL, payload={"threshold": MANUAL, "cycle": 1})


async def measure(*, list: int) -> dict[str, Any]:  # noqa: A002  the option's name
    async with ground(durable=False) as (servers, folder):
        trips = {
            "web_message": await _web_message(settings_of(servers, folder)),
            "telegram_message": await _telegram_message(servers, folder),
            **await _jobs(settings_of(servers, folder, context_window=9_000)),
        }
    if list:
        for name, trip in trips.items():
            sys.stderr.write(f"{name}:\n" + "".join(f"  {file}\n" for file in trip.files()))
    return {key: value for name, trip in trips.items() for key, value in trip.as_json(name).items()}


async def _web_message(settings: Settings) -> Trip:
    async with _web(settings) as socket:
        await _said(socket, "c1", "Hello there.")
        with traced() as trip:
            await _said(socket, "c2", "How are you today?")
    return trip


@asynccontextmanager
async def _web(settings: Settings) -> AsyncIterator[ClientWebSocketResponse]:
    """The socket of a visitor who has been welcomed by the web process."""
    services = await open_app(settings, role="web")
    process = build_web_process(services, model=ModelInfo(name="offline", offline=True))
    runner = web.AppRunner(process.app, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    door = Listener(runner)
    base = f"http://127.0.0.1:{await door.start('127.0.0.1', 0)}"
    process.start()
    try:
        async with (
            ClientSession() as client,
            client.ws_connect(f"{base}/ws", headers={"Origin": base}) as socket,
        ):
            hello = {"t": "hello", "v": 1, "site": "default", "token": "", "session": "", "last_seq": 0}
            await socket.send_str(json.dumps({**hello, "locale": "en"}))
            await _until(socket, "welcome")
            yield socket
    finally:
        await process.stop(drain_seconds=1)
        await door.stop_listening()
        await runner.cleanup()
        await services.close()


async def _telegram_message(servers: EmbeddedServers, folder: Path) -> Trip:
    async with local_bot_api() as api:
        settings = settings_of(
            servers, folder,
            telegram_bot_token=TOKEN, telegram_api_url=api.base_url, telegram_access="open",
        )  # fmt: skip
        app = await open_app(settings, role="bot")
        service = TelegramService(app, load_bots(settings), settings=settings)
        service.start()
        try:
            person = await api.person(4_711)
            await person.say("My boat is called Njord.")
            await person.sees("Njord", within=CHAT_SECONDS)
            with traced() as trip:
                await person.say("How are you today, and what is it called?")
                await person.sees(lambda screen: len(screen.answers) == 2, within=CHAT_SECONDS)
        finally:
            await service.close()
            await app.close()
    return trip


async def _jobs(settings: Settings) -> dict[str, Trip]:
    """A flush that was asked for, and the first compaction of a talk that outgrows a small window."""
    worker = await open_app(settings, role="worker")
    found: dict[str, Trip] = {}
    try:
        async with _web(settings) as socket:
            for number in range(LONG_TALK_TURNS):
                await _said(socket, f"j{number}", f"The invoice number {number} is PX-44{number}. {WALK}")
                if "flush" not in found:
                    session_id = await worker.pool.fetchval("SELECT max(id) FROM sessions")
                    await worker.stores.jobs.request_job(session_id, FLUSH)
                for job in await worker.stores.jobs.due_jobs():
                    with traced(RUNS_A_JOB) as trip:
                        await worker.job_runner.run(job.id)
                    found.setdefault(job.kind, trip)
                if {"flush", "compact"} <= found.keys():
                    break
    finally:
        await worker.close()
    return {"flush": found["flush"], "compaction": found["compact"]}


async def _said(socket: ClientWebSocketResponse, cid: str, text: str) -> None:
    await socket.send_str(json.dumps({"t": "msg", "cid": cid, "text": text}))
    while (await _until(socket, "run")).get("state") != "done":
        pass


async def _until(socket: ClientWebSocketResponse, kind: str) -> dict[str, Any]:
    while True:
        frame: dict[str, Any] = json.loads((await socket.receive(timeout=SOCKET_SECONDS)).data)
        if frame["t"] == kind:
            return frame


if __name__ == "__main__":
    raise SystemExit(run("trips", __doc__, measure, list=0))
