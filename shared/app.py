"""The only place where the parts are put together; read it to know what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import asyncpg
import structlog

from shared.adapters.arq_queue import ArqDoorbell
from shared.adapters.mcp_tools import KNOWN_FILE, KnownMcpTools, McpTools, configured_servers
from shared.adapters.models.chosen import models_of
from shared.adapters.models.routing import Models
from shared.adapters.opened import opened_elsewhere
from shared.adapters.postgres.attachments import PostgresAttachments
from shared.adapters.postgres.figures import PostgresFigures
from shared.adapters.postgres.pins import PostgresPins
from shared.adapters.postgres.pool import open_pool
from shared.adapters.postgres.turns import PostgresTurns
from shared.adapters.postgres.upkeep import PostgresUpkeep
from shared.adapters.postgres.upkeep_flush import PostgresFlushes
from shared.adapters.postgres.upkeep_pace import PostgresPace
from shared.adapters.postgres.workers import PostgresWorkers
from shared.adapters.pruners import load_pruners
from shared.adapters.redis_announcer import RedisAnnouncer
from shared.adapters.token_counter import VocabularyCounter
from shared.adapters.web_pages import FetchUrl
from shared.core.overrides import deployment_policy
from shared.core.policy import ContextPolicy
from shared.core.turns import Caps
from shared.ports import Tool
from shared.services.artifacts import OpenArtifact
from shared.services.assistant import Assistant
from shared.services.commands import Commands
from shared.services.compactor import Compactor
from shared.services.conversation import MESSAGE_CHARS, Conversation
from shared.services.crash import CrashPoint, crash_at
from shared.services.flusher import Flusher
from shared.services.handiwork.calculator import Calculate
from shared.services.handiwork.clock import CurrentTime
from shared.services.maintenance import Maintenance
from shared.services.pictures import Pictures
from shared.services.prompting import Prompting
from shared.services.spare_summaries import SpareSummaries
from shared.services.summariser import Summariser
from shared.services.tool_images import ToolImages
from shared.services.tools import SaveMemory, Toolbox
from shared.services.writers import Writers
from shared.settings import Settings, mcp_file

log = structlog.get_logger(__name__)

Role = Literal["web", "bot", "worker"]
BOT_MESSAGE_CHARS = 60_000
"""A paste arrives in pieces of 4,096 and is one message again."""
_POLICY_SETTINGS = (
    "max_output", "soft_budget", "reserve", "flush_threshold", "keep_turns", "max_rounds", "history_turns",
    "window_messages", "trim_tokens",
)  # fmt: skip
"""Settings that are fields of the policy by the same name; the window is fitted first."""
_CHANNELS = {"web": "web", "bot": "telegram", "worker": ""}


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What a process works with; `close` ends it, and its leases lapse at once."""

    settings: Settings
    pool: asyncpg.Pool[asyncpg.Record]
    worker_id: int
    workers: PostgresWorkers
    turns: PostgresTurns
    upkeep: PostgresUpkeep
    flushes: PostgresFlushes
    announcer: RedisAnnouncer
    doorbell: ArqDoorbell
    models: Models
    counter: VocabularyCounter
    conversation: Conversation
    commands: Commands
    maintenance: Maintenance
    pictures: Pictures
    crash_point: CrashPoint
    mcp_tools: McpTools | KnownMcpTools | None

    async def close(self) -> None:
        if isinstance(self.mcp_tools, McpTools):
            await self.mcp_tools.close()
        await self.pictures.close()
        await self.workers.stop(self.worker_id)
        await self.announcer.close()
        await self.doorbell.close()
        await self.models.close()
        async with asyncio.timeout(10):
            await self.pool.close()


async def open_app(settings: Settings, *, role: Role, tools: Sequence[Tool] = ()) -> App:
    """Connect and build, with `tools` beside the built-in ones.

    Raises StorageUnavailable, ContradictoryPolicy, ModelsFileBroken, ValueError.
    """
    database_url, redis_url = server_urls(settings)
    counter = VocabularyCounter()
    policy = policy_of(settings)
    crash_point = crash_at(settings.crash_point)
    models = models_of(settings, counter)
    pool = await open_pool(database_url)
    turns, upkeep, workers = PostgresTurns(pool), PostgresUpkeep(pool), PostgresWorkers(pool)
    worker_id = await workers.register(role)
    announcer, doorbell = RedisAnnouncer(redis_url), ArqDoorbell(redis_url)
    caps = caps_of(settings)
    clock = SystemClock()
    mcp_tools = mcp_tools_of(settings, role=role)
    attachments = PostgresAttachments(pool)
    toolbox = Toolbox(
        [
            SaveMemory(upkeep),
            CurrentTime(clock, home=settings.timezone),
            Calculate(),
            FetchUrl(),
            *tools,
            OpenArtifact(turns, counter),
        ],
        source=mcp_tools,
        images=ToolImages(attachments, partial(opened_elsewhere, "picture")),
    )
    prompting = Prompting(
        policy=policy,
        chat_model=models.chat,
        summary_model=models.summary,
        max_output=policy.max_output,
        counter=counter,
        context_window=settings.context_window,
        given=given_numbers(settings),
        pruners=load_pruners(),
    )
    pictures = Pictures(
        store=attachments,
        model=models,
        counter=counter,
        spend=turns,
        caps=caps,
        summary_model=models.summary,
    )
    assistant = Assistant(
        store=turns,
        states=upkeep,
        model=models,
        prompting=prompting,
        toolbox=toolbox,
        spend=turns,
        caps=caps,
        doorbell=doorbell,
        pictures=pictures,
        clock=clock,
        crash_point=crash_point,
    )
    conversation = Conversation(
        channel=_CHANNELS[role],
        worker_id=worker_id,
        turns=turns,
        workers=workers,
        assistant=assistant,
        counter=counter,
        doorbell=doorbell,
        caps=caps,
        crash_point=crash_point,
        message_chars=BOT_MESSAGE_CHARS if role == "bot" else MESSAGE_CHARS,
        delivers=role != "bot",
    )
    commands = Commands(
        store=upkeep,
        pins=PostgresPins(pool),
        figures=PostgresFigures(pool, timezone=settings.timezone),
        conversation=conversation,
        prompting=prompting,
        announcer=announcer,
        doorbell=doorbell,
        caps=caps,
        model_name=models.chat,
    )
    summariser = Summariser(
        model=models,
        counter=counter,
        summary_model=models.summary,
        chat_model=models.chat,
        fall_back=policy.summary_falls_back,
        crash_point=crash_point,
    )
    flushes = PostgresFlushes(pool)
    flusher = Flusher(
        store=upkeep,
        owed=flushes,
        spend=turns,
        model=models,
        prompting=prompting,
        toolbox=toolbox,
        pictures=pictures,
        caps=caps,
        crash_point=crash_point,
    )
    writers = Writers(
        flusher=flusher, spend=turns, model=models, prompting=prompting, toolbox=toolbox, caps=caps
    )
    pace = PostgresPace(pool)
    compactor = Compactor(
        store=upkeep,
        pace=pace,
        flusher=flusher,
        writers=writers,
        summariser=summariser,
        announcer=announcer,
        crash_point=crash_point,
    )
    spare = SpareSummaries(
        store=pace,
        spending=upkeep,
        writers=writers,
        summariser=summariser,
        announcer=announcer,
        crash_point=crash_point,
    )
    maintenance = Maintenance(
        worker_id=worker_id,
        store=upkeep,
        flusher=flusher,
        compactor=compactor,
        spare=spare,
        writers=writers,
        doorbell=doorbell,
        crash_point=crash_point,
    )
    return App(
        settings=settings,
        pool=pool,
        worker_id=worker_id,
        workers=workers,
        turns=turns,
        upkeep=upkeep,
        flushes=flushes,
        announcer=announcer,
        doorbell=doorbell,
        models=models,
        counter=counter,
        conversation=conversation,
        commands=commands,
        maintenance=maintenance,
        pictures=pictures,
        crash_point=crash_point,
        mcp_tools=mcp_tools,
    )


def mcp_tools_of(settings: Settings, *, role: Role) -> McpTools | KnownMcpTools | None:
    """Whoever answers people holds connections; the worker shows models what they were shown before."""
    servers, problems = configured_servers(mcp_file(settings))
    for problem in problems:
        log.warning("mcp_file_unusable", problem=problem)
    if not servers:
        return None
    known = settings.data_dir / KNOWN_FILE
    if role == "worker":
        return KnownMcpTools(servers, known=known)
    tools = McpTools(servers, known=known)
    tools.start()
    return tools


def server_urls(settings: Settings) -> tuple[str, str]:
    """The addresses that the supervisor, or the operator, has put into the environment."""
    if settings.database_url is None or settings.redis_url is None:
        raise ValueError("DATABASE_URL and REDIS_URL are not set: start everything with `./evertalk up`")
    return settings.database_url.get_secret_value(), settings.redis_url.get_secret_value()


def policy_of(settings: Settings) -> ContextPolicy:
    """The preset with the operator's numbers; raises ContradictoryPolicy."""
    return deployment_policy(
        settings.preset, context_window=settings.context_window, given=given_numbers(settings)
    )


def given_numbers(settings: Settings) -> dict[str, Any]:
    """What the operator has set of the policy's fields, by field name."""
    numbers = {name: getattr(settings, name) for name in _POLICY_SETTINGS}
    return {name: value for name, value in numbers.items() if value not in (None, ())}


def caps_of(settings: Settings) -> Caps:
    """A personal installation's visitor is its owner: only the public profile caps visitors apart."""
    public = settings.profile == "public"
    return Caps(
        total=_micro(settings.cap_total_per_day_usd),
        person=_micro(settings.cap_person_per_day_usd),
        visitor=_micro(settings.cap_visitor_per_day_usd if public else settings.cap_person_per_day_usd),
        session=_micro(settings.cap_session_usd),
        timezone=settings.timezone,
    )


def _micro(dollars: Decimal | None) -> int | None:
    return None if dollars is None else int(dollars * 1_000_000)
