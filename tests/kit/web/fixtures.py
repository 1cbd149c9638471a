"""Runs the web channel on real Postgres and Valkey, with services that a test scripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from aiohttp import ClientResponse, ClientSession, ClientWebSocketResponse, WSMsgType, web
from redis.asyncio import Redis

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.handover.push import PostgresPush
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.adapters.redis.announcer import RedisAnnouncer, build_channel_prefix
from shared.bootstrap.build_admin import build_push_sender
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.stores import Stores, build_stores
from shared.config.settings import Settings, load_settings
from shared.core.session.turns import (
    Accepted,
    ContextMeasured,
    Delta,
    DueJob,
    Emit,
    Inbound,
    RunEnded,
    RunStarted,
    Stored,
    utf16_units,
)
from shared.core.values.errors import CannotEdit
from shared.core.values.messages import with_typed_text
from shared.runtime import CrashPoint, ignore_crash_point
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.admin.push_sender import PushSender
from shared.services.tools.handover import HandoverService
from shared.services.turns.session_service import REWORDED_IN_PLACE, validate_text
from shared.services.voice.hearing import HearingService
from shared.services.voice.speaking import SpeakingService
from tests.kit.web.http_client import kept_in
from tests.kit.web.inspector import inspecting_over, playing_over
from web.app import WebProcess, build_web_process
from web.ports import ModelInfo
from web.server.http_server import Listener
from web.server.rate_limits import ClientLimits
from web.server.shared_rate_limits import Counts

WAIT_SECONDS = 60.0
Frame = dict[str, Any]


class ScriptedConversation:
    """A conversation service that stores in the database, but answers with `script`, one delta per piece."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self.turns = PostgresTurns(pool)
        self.edits = PostgresEdits(pool)
        self.pool = pool
        self.script: list[str] = ["Hello ", "there."]
        self.hold = asyncio.Event()
        self.hold.set()
        self.failure: Exception | None = None
        self.answered: list[int] = []
        self.stopped: list[int] = []
        self.beats = 0
        self.measured: ContextMeasured | None = ContextMeasured(
            used=10, limit=100, percent=10.0, status="ok", parts={"history": 10}, estimated=True
        )

    async def accept_and_claim(self, inbound: Inbound) -> Accepted:
        validate_text(inbound.text, alone=not inbound.more)
        if self.failure is not None:
            raise self.failure
        return await self.turns.accept(inbound, channel="web", tokens=1)

    async def edit(
        self, inbound: Inbound, *, seq: int, is_shown: bool = False
    ) -> tuple[Accepted, Stored | None]:
        validate_text(inbound.text)
        try:
            return await self.edits.edit_question(inbound, seq=seq, channel="web", count=lambda _: 1)
        except CannotEdit as refusal:
            if refusal.code not in REWORDED_IN_PLACE:
                raise
        edited = await self.edits.edit(
            inbound.session_id, seq, reword=lambda blocks: with_typed_text(blocks, inbound.text),
            count=lambda _: 1, dedupe_key=inbound.dedupe_key, is_shown=is_shown,
        )  # fmt: skip
        accepted = Accepted(
            session_id=inbound.session_id, seq=edited.seq, turn=edited.turn, event_seq=edited.event_seq,
            repeated=edited.is_repeated, at_ms=edited.at_ms,
        )  # fmt: skip
        return accepted, edited.shown

    async def break_off(self, session_id: int, *, turn: int) -> None:
        """Do nothing, since no model runs."""

    async def release_unanswered(self) -> None:
        """Do nothing, since this service claims no turn together with its message."""

    async def answer(self, session_id: int, emit: Emit) -> None:
        while (turn := await self._due(session_id)) is not None:
            await emit(RunStarted(turn=turn, attempt=1))
            offset = 0
            for piece in self.script:
                await emit(Delta(turn=turn, attempt=1, offset=offset, text=piece))
                offset += utf16_units(piece)
            await self.hold.wait()
            text = "".join(self.script)
            await emit(await self.store_answer(session_id, turn, text))
            await emit(RunEnded(turn=turn, state="answered"))
            if self.measured is not None:
                await emit(self.measured)
            self.answered.append(turn)

    async def _due(self, session_id: int) -> int | None:
        turn: int | None = await self.pool.fetchval(
            """WITH s AS (UPDATE sessions SET open_turn = NULL
                           WHERE id = $1 AND answered_turn < next_turn - 1
                          RETURNING answered_turn + 1 AS turn)
               UPDATE turns SET state = 'claimed' FROM s
                WHERE session_id = $1 AND turn_no = s.turn AND state = 'open'
               RETURNING turn_no""",
            session_id,
        )
        return turn

    async def store_answer(self, session_id: int, turn: int, text: str) -> Stored:
        row = await self.pool.fetchrow(
            """WITH s AS (UPDATE sessions SET next_seq = next_seq + 1, next_event_seq = next_event_seq + 1,
                                 answered_turn = $2 WHERE id = $1
                          RETURNING next_seq - 1 AS seq, next_event_seq - 1 AS event_seq),
                    t AS (UPDATE turns SET state = 'answered', ended_at = now()
                           WHERE session_id = $1 AND turn_no = $2),
                    e AS (INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
                          SELECT $1, seq, 'assistant', 'assistant', $3::jsonb, 1 FROM s),
                    te AS (INSERT INTO turn_entries (session_id, seq, turn_no, step)
                           SELECT $1, seq, $2, seq FROM s),
                    v AS (INSERT INTO events (session_id, event_seq, kind, seq, turn_no)
                          SELECT $1, event_seq, 'msg', seq, $2 FROM s)
               SELECT seq, event_seq FROM s""",
            session_id,
            turn,
            [{"type": "text", "text": text}],
        )
        assert row is not None
        payload = {
            "mid": f"m{row['seq']}",
            "role": "assistant",
            "text": text,
            "at": "2026-01-01T00:00:00.000Z",
            "turn": turn,
        }
        return Stored(event_seq=row["event_seq"], kind="msg", payload=payload)

    async def store_event(self, session_id: int, kind: str, payload: Frame) -> int:
        """Store a durable event without announcing it, and return its number."""
        number: int = await self.pool.fetchval(
            """WITH s AS (UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = $1
                          RETURNING next_event_seq - 1 AS event_seq)
               INSERT INTO events (session_id, event_seq, kind, payload)
               SELECT $1, event_seq, $2, $3::jsonb FROM s RETURNING event_seq""",
            session_id,
            kind,
            payload,
        )
        return number

    async def stop(self, session_id: int) -> bool:
        self.stopped.append(session_id)
        running = not self.hold.is_set()
        self.hold.set()
        return running

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        rows = await self.pool.fetch(
            """SELECT s.id FROM sessions s JOIN turns t ON t.session_id = s.id
                WHERE t.turn_no = s.answered_turn + 1 AND t.state = 'open'"""
        )
        return [row["id"] for row in rows]

    async def check_leases(self) -> None:
        self.beats += 1

    async def measure_context(self, session_id: int) -> ContextMeasured | None:
        return self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    command: str
    success: bool
    result: str
    error: str | None = None
    event_seq: int | None = None
    choices: tuple[Any, ...] = ()


class ScriptedCommands:
    def __init__(self, conversation: ScriptedConversation) -> None:
        self._conversation = conversation
        self.asked: list[tuple[str, str]] = []

    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str,
        cid: str | None,
        progress: Callable[[str, int | None], Any] | None,
        audience: str = "personal",
        language: str = "",
    ) -> Result:
        self.asked.append((name, args))
        if progress is not None:
            await progress("Working", 50)
        payload = {"command": name, "success": True, "result": "done"} | ({"cid": cid} if cid else {})
        number = await self._conversation.store_event(session_id, "command.result", payload)
        return Result(command=name, success=True, result="done", event_seq=number)


class SilentDoorbell:
    """A doorbell that reaches no worker."""

    async def ring(self, job: DueJob) -> bool:
        return False


class DeafAnnouncer:
    """An announcer without Redis: it delivers nothing."""

    connected = False

    async def announce(self, session_id: int, message: Any) -> None:
        return None

    async def announce_all(self, session_id: int, messages: Any) -> None:
        return None

    async def subscribe(self, session_ids: Any) -> None:
        return None

    async def listen(self) -> AsyncIterator[tuple[int, Any]]:
        await asyncio.Event().wait()
        yield 0, {}


@dataclass(kw_only=True)
class Services:
    settings: Settings
    pool: asyncpg.Pool[asyncpg.Record]
    stores: Stores
    announcer: Any
    sessions: ScriptedConversation
    commands: ScriptedCommands
    push: PushSender
    handover_service: HandoverService | None = None
    context_inspector: ContextInspector | None = None
    job_admin: JobAdmin | None = None
    playground: Playground | None = None
    dashboard_announcer: Any = None
    crash_point: CrashPoint = ignore_crash_point
    hearing: HearingService | None = None
    speaking: SpeakingService | None = None

    def list_breakers(self) -> dict[str, Any]:
        return {}


@dataclass(kw_only=True)
class Screen:
    """A browser's WebSocket; `frames` keeps everything that arrived."""

    socket: ClientWebSocketResponse
    frames: list[Frame] = field(default_factory=list)
    close_code: int | None = None

    async def send(self, frame: Frame | str) -> None:
        await self.socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def next(self) -> Frame | None:
        message = await self.socket.receive(timeout=WAIT_SECONDS)
        if message.type is not WSMsgType.TEXT:
            self.close_code = self.socket.close_code
            return None
        frame: Frame = json.loads(message.data)
        self.frames.append(frame)
        return frame

    async def until(self, kind: str, **values: Any) -> Frame:
        """Return the next frame of a kind, with these values, and skip all others."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    frame = await self.next()
                    assert frame is not None, f"closed with {self.close_code} before {kind}"
                    if _fits(frame, kind, values):
                        return frame
        except TimeoutError:
            raise AssertionError(f"no {kind} {values} after {self.frames}") from None

    async def ever(self, kind: str, **values: Any) -> Frame:
        """Return the first frame of a kind, with these values, that has arrived or arrives."""
        arrived = (frame for frame in self.frames if _fits(frame, kind, values))
        return next(arrived, None) or await self.until(kind, **values)

    async def closed(self) -> int | None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.next() is not None:
                pass
        return self.close_code

    async def say(self, text: str, cid: str = "c1") -> None:
        await self.send({"t": "msg", "cid": cid, "text": text})

    @property
    def numbers(self) -> list[int]:
        return [frame["event_seq"] for frame in self.frames if "event_seq" in frame and frame["t"] != "ack"]


def _fits(frame: Frame, kind: str, values: Mapping[str, Any]) -> bool:
    return frame["t"] == kind and all(frame.get(name) == value for name, value in values.items())


@dataclass(kw_only=True)
class Server:
    """One web process, with the client that calls it."""

    url: str
    process: WebProcess
    services: Services
    client: ClientSession
    runner: web.AppRunner
    listener: Listener
    answers: list[ClientResponse]
    """All answers that `client` ever got; they are released at the end."""

    @property
    def conversation(self) -> ScriptedConversation:
        return self.services.sessions

    async def connect(self, *, origin: str | None = None, cookie: str | None = None) -> Screen:
        headers = {"Origin": origin or self.url} | ({"Cookie": cookie} if cookie else {})
        return Screen(socket=await self.client.ws_connect(f"{self.url}/ws", headers=headers, max_msg_size=0))

    async def greet(
        self, *, token: str | None = None, last_seq: int = 0, **values: Any
    ) -> tuple[Screen, Frame]:
        origin, cookie = values.pop("origin", None), values.pop("cookie", None)
        screen = await self.connect(origin=origin, cookie=cookie)
        await screen.send(hello(token=token, last_seq=last_seq, **values))
        return screen, await screen.until("welcome")

    async def session_id(self, public_id: str) -> int:
        found: int = await self.services.pool.fetchval(
            "SELECT id FROM sessions WHERE public_id = $1", public_id
        )
        return found

    async def close(self) -> None:
        await self.process.stop(drain_seconds=5)
        await self.listener.stop_listening()
        await self.runner.cleanup()
        for answer in self.answers:
            answer.close()
        await self.client.close()


def hello(**values: Any) -> Frame:
    frame = {"t": "hello", "v": 1, "site": "default", "last_seq": 0, "locale": "en", "tz": "Europe/Berlin"}
    return frame | {name: value for name, value in values.items() if value is not None}


@dataclass(kw_only=True)
class Starter:
    """Starts web processes on one database, as many as a test needs."""

    database_url: str
    redis_url: str
    servers: list[Server] = field(default_factory=list)
    pools: list[asyncpg.Pool[asyncpg.Record]] = field(default_factory=list)
    announcers: list[RedisAnnouncer] = field(default_factory=list)

    async def until_followed(self, session_id: int, *, by: int) -> None:
        """Wait until `by` processes listen to the session.

        Before that, pieces of an answer may not reach them.
        """
        client = Redis.from_url(self.redis_url)
        try:
            async with asyncio.timeout(30):
                channel = f"{build_channel_prefix(client)}{session_id}"
                while dict(await client.pubsub_numsub(channel)).popitem()[1] < by:
                    await asyncio.sleep(0.01)
        finally:
            await client.aclose()

    def _operator_announcer(self, redis: bool) -> Any:
        if not redis:
            return DeafAnnouncer()
        self.announcers.append(RedisAnnouncer(self.redis_url))
        return self.announcers[-1]

    async def start(
        self,
        *,
        limits: ClientLimits | None = None,
        redis: bool = True,
        counts: Counts | None = None,
        **settings: Any,
    ) -> Server:
        pool = await open_pool(self.database_url, size=4)
        self.pools.append(pool)
        announcer: Any = RedisAnnouncer(self.redis_url) if redis else DeafAnnouncer()
        if isinstance(announcer, RedisAnnouncer):
            self.announcers.append(announcer)
        conversation = ScriptedConversation(pool)
        loaded = load_settings(**settings)
        services = Services(
            settings=loaded,
            pool=pool,
            stores=build_stores(pool),
            announcer=announcer,
            sessions=conversation,
            commands=ScriptedCommands(conversation),
            context_inspector=inspecting_over(pool),
            playground=playing_over(pool),
            handover_service=HandoverService(
                PostgresHandovers(pool), announcer, VocabularyCounter(), crash_point=ignore_crash_point
            ),
            job_admin=JobAdmin(
                PostgresJobChanges(pool), SilentDoorbell(), announcer, crash_point=ignore_crash_point
            ),
            dashboard_announcer=self._operator_announcer(redis),
            push=build_push_sender(PostgresPush(pool), loaded, clock=SystemClock()),
        )
        model = ModelInfo(name="scripted", offline=True)
        process = build_web_process(services, model=model, limits=limits)
        runner = web.AppRunner(process.app, shutdown_timeout=1)
        await runner.setup()
        listener = Listener(runner)
        port = await listener.start("127.0.0.1", 0)
        process.start(counts=counts)
        while redis and not announcer.connected:
            await asyncio.sleep(0.01)
        answers: list[ClientResponse] = []
        server = Server(
            url=f"http://127.0.0.1:{port}",
            process=process,
            services=services,
            client=ClientSession(response_class=kept_in(answers)),
            answers=answers,
            runner=runner,
            listener=listener,
        )
        self.servers.append(server)
        return server

    async def close(self) -> None:
        for server in self.servers:
            server.conversation.hold.set()
            await server.close()
        for announcer in self.announcers:
            await announcer.close()
        for pool in self.pools:
            await pool.close()


@pytest.fixture
async def starter(database_url: str, redis_url: str) -> AsyncIterator[Starter]:
    starter = Starter(database_url=database_url, redis_url=redis_url)
    yield starter
    await starter.close()


@pytest.fixture
async def server(starter: Starter) -> Server:
    return await starter.start()
