"""The only place where the parts are put together; read it to know what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import asyncpg
import structlog

from shared.adapters.alerts.mail import AlertMail
from shared.adapters.alerts.webhook import AlertWebhook
from shared.adapters.files.erasure_file import FILE as ERASURES
from shared.adapters.files.erasure_file import ErasureFile
from shared.adapters.files.knowledge_files import KnowledgeFiles, UnreadableKnowledge
from shared.adapters.files.pruners import load_pruners
from shared.adapters.files.sandbox_client import opened_elsewhere
from shared.adapters.files.web_pages import FETCH_URL, FetchUrl
from shared.adapters.files.workspace_files import WorkspaceFiles, read_workspace, workspace_path
from shared.adapters.mcp.tools import KNOWN_FILE, KnownMcpTools, McpTools, configured_servers
from shared.adapters.models.breaker import BreakerState
from shared.adapters.models.catalog import TABLE, read_entries
from shared.adapters.models.offline import OFFLINE_MODEL
from shared.adapters.models.routing import Models
from shared.adapters.models.selection import models_of
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.compaction.flushes import PostgresFlushes
from shared.adapters.postgres.compaction.job_backoff import PostgresJobBackoff
from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.dashboard.alerts import PostgresAlerts
from shared.adapters.postgres.dashboard.alerts import Rules as AlertRules
from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.adapters.postgres.dashboard.session_stats import PostgresSessionStats
from shared.adapters.postgres.db.listing import PostgresSessionList
from shared.adapters.postgres.db.pool import longest_wait_of, open_pool
from shared.adapters.postgres.db.readiness import PostgresReadiness
from shared.adapters.postgres.db.wellness import storage_limiter
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.memory.consolidation import PostgresConsolidation
from shared.adapters.postgres.memory.knowledge import PostgresKnowledge
from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.adapters.postgres.memory.reminders import PostgresReminders
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.agents import PostgresAgents
from shared.adapters.postgres.people.handover import PostgresHandovers
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.adapters.postgres.privacy.erasure_log import PostgresErasureLog
from shared.adapters.postgres.privacy.export import PostgresExport
from shared.adapters.postgres.privacy.leftovers import PostgresLeftovers
from shared.adapters.postgres.privacy.retention import RULES, PostgresRetention
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.feedback import PostgresFeedback
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.adapters.postgres.turns.session_settings import PostgresSessionSettings
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.adapters.redis.announcer import RedisAnnouncer
from shared.adapters.redis.arq_queue import ArqDoorbell
from shared.adapters.telemetry.health import Health
from shared.adapters.telemetry.heart import Heart
from shared.adapters.telemetry.otlp_traces import traces_to
from shared.bootstrap.host_fingerprint import HostFingerprint
from shared.bootstrap.warm_up import WarmUp
from shared.config.agents import AgentDefaults
from shared.config.settings import (
    BadSettings,
    Settings,
    SettingsProblem,
    find_mcp_file,
    load_policy_overrides,
)
from shared.core.context.memory_tools import FORGET_MEMORY, SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY
from shared.core.context.recall_query import RECALL
from shared.core.identity.handover import HandoverLimits as HandoverLimits
from shared.core.session.artifacts import OPEN_ARTIFACT
from shared.core.session.overrides import deployment_policy
from shared.core.session.policy import ContextPolicy
from shared.core.session.turns import Caps
from shared.core.tools.reminders import parse_quiet_hours
from shared.core.values.errors import StorageUnavailable
from shared.ports import StorageLimiter, Tool
from shared.runtime.crash_points import CrashPoint, build_crash_point
from shared.runtime.tasks import BackgroundTasks
from shared.runtime.tracing import Tracer
from shared.services.admin.alert_sender import AlertChannel, AlertMonitor
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.commands.account_links import AccountLinkCommands
from shared.services.commands.agents import SettingsCommands
from shared.services.commands.budget import BudgetCommands
from shared.services.commands.command_service import CommandService
from shared.services.commands.export_erase import EraseEverythingCommand, ExportCommand
from shared.services.commands.feedback import FeedbackCommands
from shared.services.commands.handover import HandoverCommands
from shared.services.commands.memory import MemoryCommands
from shared.services.commands.reminders import ReminderCommands
from shared.services.commands.retry import RetryCommand
from shared.services.compaction.checkpoints import CheckpointService
from shared.services.compaction.compactor import Compactor
from shared.services.compaction.flusher import Flusher
from shared.services.compaction.job_runner import JobRunner
from shared.services.compaction.summarizer import Summariser
from shared.services.compaction.writer_selection import WriterSelector
from shared.services.memory.knowledge_indexer import KnowledgeIndexer, KnowledgeStore
from shared.services.memory.memory_consolidation import MemoryConsolidator
from shared.services.memory.memory_tools import build_memory_tools
from shared.services.memory.recall_indexer import RecallIndexer
from shared.services.memory.recall_tool import RecallTool
from shared.services.privacy.erasure import ErasureService
from shared.services.privacy.export import DataExporter
from shared.services.privacy.retention import RetentionService
from shared.services.tools.calculator import CALCULATE, CalculatorTool
from shared.services.tools.current_time import CURRENT_TIME, CurrentTimeTool
from shared.services.tools.handover import ASK_HUMAN, AskHumanTool, HandoverExpiry, HandoverService
from shared.services.tools.reminders import REMIND_ME, ReminderScheduler, ReminderTool
from shared.services.turns.agent_loop import AgentLoop
from shared.services.turns.artifacts import ArtifactReader, OpenArtifactTool
from shared.services.turns.database_promotion import PromotionWatcher
from shared.services.turns.delegate_tool import DELEGATE, DelegateTool
from shared.services.turns.pictures import PictureService
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.retrieval import Retriever
from shared.services.turns.session_service import MESSAGE_CHARS, SessionService
from shared.services.turns.tool_images import ToolImageService
from shared.services.turns.toolbox import Toolbox
from shared.supervision.liveness import touch_process_file
from shared.supervision.process_handoff import clear_process_file, take_over_process

log = structlog.get_logger(__name__)

WORKSPACES_FOLDER = "workspaces"
"""In the data folder: where agents' folders lie unless their rows say otherwise."""
FAILED_BACKUP_FILE = "failed.txt"
"""Beside the backups: why the last daily one failed; gone when one succeeds."""
Role = Literal["web", "bot", "worker"]
BOT_MESSAGE_CHARS = 60_000
"""A paste arrives in pieces of 4,096 and is one message again."""
BUILT_IN_TOOLS = (
    SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY, FORGET_MEMORY, RECALL, CURRENT_TIME, CALCULATE, FETCH_URL,
    REMIND_ME, ASK_HUMAN, DELEGATE, OPEN_ARTIFACT,
)  # fmt: skip
"""What every agent may use unless its configuration says otherwise."""
_CHANNELS = {"web": "web", "bot": "telegram", "worker": ""}


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What a process works with; `close` ends it, and its leases lapse at once."""

    settings: Settings
    health: Health
    """Told with each heartbeat."""
    pool: asyncpg.Pool[asyncpg.Record]
    limit_storage: StorageLimiter
    worker_id: int
    heart: Heart
    background_tasks: BackgroundTasks
    """How busy this loop is, for the heart to know; and whether another server is the primary."""
    promotion: PromotionWatcher
    workers: PostgresWorkers
    turns: PostgresTurns
    upkeep: PostgresJobs
    flushes: PostgresFlushes
    notes: PostgresNotes
    consolidation: PostgresConsolidation
    announcer: RedisAnnouncer
    doorbell: ArqDoorbell
    models: Models
    counter: VocabularyCounter
    warm_up: WarmUp
    sessions: SessionService
    commands: CommandService
    job_runner: JobRunner
    recall_indexer: RecallIndexer
    session_list: PostgresSessionList
    pictures: PictureService
    erasure: ErasureService
    exporter: DataExporter
    retention: RetentionService
    erasure_log: PostgresErasureLog
    leftovers: PostgresLeftovers
    erasure_file: ErasureFile
    handovers: PostgresHandovers
    handover_service: HandoverService
    context_inspector: ContextInspector
    job_admin: JobAdmin
    dashboard_announcer: RedisAnnouncer
    """For what operators' pages follow; connected while one does."""
    workspaces: WorkspaceFiles
    crash_point: CrashPoint
    tracer: Tracer
    alerts: PostgresAlerts
    alert_monitor: AlertMonitor
    knowledge_indexer: KnowledgeIndexer | None = None
    """In the worker only: one process reads what agents' folders say."""
    mcp_tools: McpTools | KnownMcpTools | None

    def list_breakers(self) -> Mapping[str, BreakerState]:
        """Which providers this process asks just now."""
        return self.models.states()

    async def close(self) -> None:
        if isinstance(self.mcp_tools, McpTools):
            await self.mcp_tools.close()
        await self.pictures.close()
        with suppress(StorageUnavailable):
            await self.turns.return_allowance()
        await self.heart.stop()
        await self.background_tasks.cancel()
        if self.heart.is_lost:
            clear_process_file(self.settings.process_file)
        else:
            await self.workers.stop(self.worker_id)
        await self.workspaces.close()
        await self.announcer.close()
        await self.dashboard_announcer.close()
        await self.doorbell.close()
        await self.models.close()
        await asyncio.to_thread(self.tracer.close)
        async with asyncio.timeout(10):
            await self.pool.close()


async def open_app(settings: Settings, *, role: Role, tools: Sequence[Tool] = ()) -> App:
    """Connect and build, with `tools` beside the built-in ones.

    Raises StorageUnavailable, SchemaUnknown, BadSettings, ContradictoryPolicy, ModelsFileBroken, ValueError.
    """
    database_url, redis_url = resolve_server_urls(settings)
    counter = VocabularyCounter()
    policy = build_policy(settings)
    crash_point = build_crash_point(settings.crash_point)
    tracer = traces_to(settings.otlp_endpoint, service=f"evertalk-{role}")
    models = models_of(settings, counter)
    models.trace(tracer)
    pool = await open_pool(database_url)
    await PostgresReadiness(pool).refuse_unknown()
    asking = partial(storage_limiter, pool)
    turns = PostgresTurns(pool, slice_taken=partial(crash_point, "after_slice"))
    upkeep = PostgresJobs(pool)
    health = build_health(settings, models)
    workers = PostgresWorkers(pool)
    worker_id = await take_over_process(workers, role, settings.process_file)
    heart = Heart(
        partial(open_pool, database_url, size=1),
        worker_id,
        health=health,
        waited=partial(longest_wait_of, pool),
        beaten=partial(touch_process_file, settings.process_file),
    )
    heart.start()
    promotion, watching = PromotionWatcher(heart, workers), BackgroundTasks()
    for loop in (heart.watch, promotion.watch):
        watching.run_forever(loop)
    if await _has_waiting_work(turns, upkeep, role):
        models.start_loading()
    announcer, doorbell = RedisAnnouncer(redis_url), ArqDoorbell(redis_url)
    desk_announcer = RedisAnnouncer(redis_url)
    health.count_redis_errors(
        lambda: {"publish": announcer.lost + desk_announcer.lost, "enqueue": doorbell.silent}
    )
    caps, notes = build_caps(settings), PostgresNotes(pool)
    workspaces = WorkspaceFiles(
        settings.data_dir / WORKSPACES_FOLDER, poll_seconds=settings.workspace_poll_seconds
    )
    await workspaces.preload(filter(None, (await PostgresAgents(pool).folders()).values()))
    recall = PostgresRecall(pool)
    reminders, handovers = PostgresReminders(pool), PostgresHandovers(pool)
    clock = SystemClock()
    mcp_tools = build_mcp_tools(settings, role=role)
    attachments = PostgresAttachments(pool)
    images = ToolImageService(attachments, partial(opened_elsewhere, "picture"))
    artifacts = ArtifactReader(turns, counter)
    plain: list[Tool] = [
        *build_memory_tools(notes, crash_point),
        RecallTool(recall, artifacts, counter),
        CurrentTimeTool(clock, home=settings.timezone),
        CalculatorTool(),
        FetchUrl(),
        ReminderTool(reminders, clock, timezone=settings.timezone),
        *([AskHumanTool(handovers, announcer, crash_point=crash_point)] if settings.has_handover else ()),
        *tools,
        OpenArtifactTool(artifacts),
    ]
    requests = RequestBuilder(
        policy=policy,
        chat_model=models.chat,
        summary_model=models.summary,
        max_output=policy.max_output,
        counter=counter,
        context_window=settings.context_window,
        operator_policy=load_policy_overrides(settings),
        pruners=load_pruners(),
        workspaces=workspaces,
        trusts_visitors=settings.profile == "personal",
    )
    delegate = DelegateTool(
        model=models,
        requests=requests,
        toolbox_of=Toolbox(plain, source=mcp_tools, images=images).for_agent,
        spend=turns,
        ledger=turns,
        caps=caps,
        counter=counter,
    )
    toolbox = Toolbox([delegate, *plain], source=mcp_tools, images=images)
    pictures = PictureService(
        store=attachments,
        model=models,
        counter=counter,
        spend=turns,
        caps=caps,
        summary_model=models.summary,
    )
    assistant = AgentLoop(
        store=turns,
        states=upkeep,
        model=models,
        requests=requests,
        toolbox=toolbox,
        spend=turns,
        caps=caps,
        doorbell=doorbell,
        pictures=pictures,
        clock=clock,
        crash_point=crash_point,
        retriever=Retriever(store=recall, requests=requests),
        tracer=tracer,
    )
    conversation = SessionService(
        channel=_CHANNELS[role],
        worker_id=worker_id,
        turns=turns,
        pulse=heart,
        assistant=assistant,
        counter=counter,
        doorbell=doorbell,
        caps=caps,
        crash_point=crash_point,
        announcer=announcer,
        message_chars=BOT_MESSAGE_CHARS if role == "bot" else MESSAGE_CHARS,
        reminders=ReminderScheduler(
            reminders,
            counter,
            quiet=parse_quiet_hours(settings.quiet_hours),
            timezone=settings.timezone,
            crash_point=crash_point,
        ),
        handovers=HandoverExpiry(handovers, announcer, build_handover_limits(settings)),
        answered=models.take_answered,
        storage_limiter=asking,
    )
    health.tell_turns(conversation.list_active_sessions)
    forgetting = ErasureService(store=PostgresErasure(pool), announcer=announcer, crash_point=crash_point)
    exporting = DataExporter(store=PostgresExport(pool), clock=clock)
    retaining = RetentionService(
        store=PostgresRetention(pool),
        tables=tuple(RULES),
        forgetting=forgetting,
        days=settings.retention_days,
    )
    figures = PostgresSessionStats(pool, timezone=settings.timezone)
    commands = CommandService(
        store=upkeep,
        pins=PostgresPins(pool),
        figures=figures,
        conversation=conversation,
        requests=requests,
        announcer=announcer,
        doorbell=doorbell,
        caps=caps,
        model_name=models.chat,
        humans=settings.has_handover,
        more=[
            BudgetCommands(
                spending=figures,
                states=upkeep,
                requests=requests,
                model=models,
                caps=caps,
                clock=clock,
            ),
            MemoryCommands(notes, everything=EraseEverythingCommand(forgetting).forget),
            ExportCommand(exporting),
            RetryCommand(PostgresEdits(pool), announcer),
            SettingsCommands(store=PostgresSessionSettings(pool), requests=requests),
            ReminderCommands(reminders, timezone=settings.timezone),
            FeedbackCommands(PostgresFeedback(pool)),
            HandoverCommands(handovers, announcer, enabled=settings.has_handover),
            AccountLinkCommands(
                PostgresAccountLinks(pool, timezone=settings.timezone), announcer, crash_point=crash_point
            ),
        ],
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
        requests=requests,
        toolbox=toolbox,
        pictures=pictures,
        caps=caps,
        announcer=announcer,
        crash_point=crash_point,
    )
    writers = WriterSelector(
        flusher=flusher, spend=turns, model=models, requests=requests, toolbox=toolbox, caps=caps
    )
    pace = PostgresJobBackoff(pool)
    compactor = Compactor(
        store=upkeep,
        pace=pace,
        flusher=flusher,
        writers=writers,
        summariser=summariser,
        announcer=announcer,
        crash_point=crash_point,
    )
    spare = CheckpointService(
        store=pace,
        spending=upkeep,
        writers=writers,
        summariser=summariser,
        announcer=announcer,
        crash_point=crash_point,
    )
    tidying = PostgresConsolidation(pool)
    indexing = RecallIndexer(PostgresRecallIndex(pool), crash_point=crash_point)
    maintenance = JobRunner(
        indexing=indexing,
        worker_id=worker_id,
        store=upkeep,
        flusher=flusher,
        compactor=compactor,
        spare=spare,
        tidier=MemoryConsolidator(tidying, timezone=settings.timezone, crash_point=crash_point),
        writers=writers,
        doorbell=doorbell,
        crash_point=crash_point,
        tracer=tracer,
        storage_limiter=asking,
    )
    alerts = PostgresAlerts(pool)
    return App(
        alerts=alerts,
        alert_monitor=AlertMonitor(
            alerts,
            rules=build_alert_rules(settings),
            targets=settings.alert_targets,
            carriers=build_alert_channels(settings) if role == "web" else {},
            worker_id=worker_id,
            crash_point=crash_point,
        ),
        settings=settings,
        health=health,
        pool=pool,
        limit_storage=asking,
        worker_id=worker_id,
        heart=heart,
        background_tasks=watching,
        promotion=promotion,
        workers=workers,
        turns=turns,
        upkeep=upkeep,
        flushes=flushes,
        notes=notes,
        consolidation=tidying,
        announcer=announcer,
        doorbell=doorbell,
        models=models,
        counter=counter,
        warm_up=WarmUp(models, counter),
        sessions=conversation,
        commands=commands,
        job_runner=maintenance,
        recall_indexer=indexing,
        session_list=PostgresSessionList(pool, crash_point=crash_point),
        pictures=pictures,
        erasure=forgetting,
        exporter=exporting,
        retention=retaining,
        erasure_log=PostgresErasureLog(pool),
        leftovers=PostgresLeftovers(pool),
        erasure_file=ErasureFile(settings.backups / ERASURES),
        handovers=handovers,
        handover_service=HandoverService(handovers, announcer, counter, crash_point=crash_point),
        context_inspector=ContextInspector(
            states=upkeep,
            replays=PostgresReplays(pool),
            model=models,
            requests=requests,
            toolbox=toolbox,
            body=models.body,
        ),
        job_admin=JobAdmin(PostgresJobChanges(pool), doorbell, announcer, crash_point=crash_point),
        dashboard_announcer=desk_announcer,
        workspaces=workspaces,
        crash_point=crash_point,
        tracer=tracer,
        knowledge_indexer=(
            build_knowledge_indexer(settings, pool, workspaces, PostgresKnowledge(pool))
            if role == "worker"
            else None
        ),
        mcp_tools=mcp_tools,
    )


async def _has_waiting_work(turns: PostgresTurns, upkeep: PostgresJobs, role: Role) -> bool:
    """Whoever was here before has left something whose first step is a call of the model."""
    if role == "worker":
        return bool(await upkeep.due_jobs(limit=1))
    return bool(await turns.list_unanswered(_CHANNELS[role]))


def build_health(settings: Settings, models: Models) -> Health:
    """A file tells of a backup that failed, whoever makes them: `up`, or a process for that alone."""
    failed = settings.backups / FAILED_BACKUP_FILE if settings.backup_keep else None
    marks = _build_fingerprint(settings)
    return Health(
        models.states, settings.data_dir, narrowed=models.narrowed, failed_backup=failed, marks=marks
    )


def _build_fingerprint(settings: Settings) -> Callable[[], Mapping[str, Any]]:
    """None where nobody gave us the key that they are made with."""
    if settings.secret_key is None:
        return dict
    return HostFingerprint(
        settings, settings.secret_key.get_secret_value().encode(), settings.data_dir / WORKSPACES_FOLDER
    )


def build_alert_rules(settings: Settings) -> AlertRules:
    """Half of the time that a person waits before the assistant goes on is too long for nobody to know."""
    waiting = settings.handover_minutes * 60 / 2 if settings.has_handover else 0.0
    return AlertRules(
        timezone=settings.timezone, cap_micro=build_caps(settings).total, handover_seconds=waiting
    )


def build_alert_channels(settings: Settings) -> dict[str, AlertChannel]:
    """For webhook and mail, as far as they are set up; Telegram's stand in the process that holds the bot."""
    dashboard = f"{settings.base_url}/dashboard"
    carriers: dict[str, AlertChannel] = {}
    if (url := settings.alert_webhook_url) and (secret := settings.alert_webhook_secret):
        carriers["webhook"] = AlertWebhook(
            url.get_secret_value(), secret.get_secret_value(), dashboard_url=dashboard
        )
    if settings.alert_smtp_url is not None:
        carriers["email"] = AlertMail(
            settings.alert_smtp_url.get_secret_value(),
            sender=settings.alert_email_from,
            receivers=settings.alert_email_to,
            dashboard_url=dashboard,
        )
    return carriers


def build_handover_limits(settings: Settings) -> HandoverLimits:
    """Where it was switched off, nobody waits any longer."""
    if not settings.has_handover:
        return HandoverLimits(waiting=0, silence=0)
    return HandoverLimits(waiting=settings.handover_minutes, silence=settings.handover_silence_minutes)


def build_agent_defaults(settings: Settings) -> AgentDefaults:
    """What agents' rows are checked against; raises ContradictoryPolicy, ModelsFileBroken."""
    entries = read_entries(settings.models_file) if settings.models_file else ()
    named = {settings.model, settings.summary_model} - {""}
    return AgentDefaults(
        policy=build_policy(settings),
        context_window=settings.context_window,
        operator_policy=load_policy_overrides(settings),
        models=frozenset({OFFLINE_MODEL, *TABLE, *named, *(entry.name for entry in entries)}),
        load_workspace=lambda folder: read_workspace(
            workspace_path(settings.data_dir / WORKSPACES_FOLDER, folder)
        ),
        tools=BUILT_IN_TOOLS,
    )


def build_knowledge_indexer(
    settings: Settings, pool: asyncpg.Pool[asyncpg.Record], workspaces: WorkspaceFiles, store: KnowledgeStore
) -> KnowledgeIndexer:
    """Hears of every change in the folders that are watched."""
    librarian = KnowledgeIndexer(
        store=store,
        shelves=KnowledgeFiles(settings.data_dir / WORKSPACES_FOLDER),
        agents=PostgresAgents(pool),
        unreadable=UnreadableKnowledge,
        watcher=workspaces,
    )
    workspaces.tell(librarian.folder_changed)
    return librarian


def build_mcp_tools(settings: Settings, *, role: Role) -> McpTools | KnownMcpTools | None:
    """Whoever answers people holds connections; the worker shows models what they were shown before."""
    servers, problems = configured_servers(find_mcp_file(settings))
    for problem in problems:
        log.warning("mcp_file_invalid", problem=problem)
    if not servers:
        return None
    known = settings.data_dir / KNOWN_FILE
    if role == "worker":
        return KnownMcpTools(servers, known=known)
    tools = McpTools(servers, known=known)
    tools.start()
    return tools


def resolve_server_urls(settings: Settings) -> tuple[str, str]:
    """The addresses that the supervisor, or the operator, has put into the environment."""
    if settings.database_url is None or settings.redis_url is None:
        reason = "is not set: start everything with `./evertalk up`"
        missing = [name for name in ("database_url", "redis_url") if getattr(settings, name) is None]
        raise BadSettings(
            tuple(SettingsProblem(name=name.upper(), value="", reason=reason) for name in missing)
        )
    return settings.database_url.get_secret_value(), settings.redis_url.get_secret_value()


def build_policy(settings: Settings) -> ContextPolicy:
    """The preset with the operator's numbers; raises ContradictoryPolicy."""
    return deployment_policy(
        settings.preset, context_window=settings.context_window, given=load_policy_overrides(settings)
    )


VISITORS_OF_A_NETWORK = 3
"""So many times what one anonymous visitor may spend, all of one network may together."""


def build_caps(settings: Settings) -> Caps:
    """A personal installation's visitor is its owner: only the public profile caps visitors apart."""
    public = settings.profile == "public"
    network = settings.cap_network_per_day_usd
    if network is None:
        network = VISITORS_OF_A_NETWORK * settings.cap_visitor_per_day_usd
    hourly = settings.cap_total_per_day_usd * settings.cap_visitors_per_hour_percent / 100
    return Caps(
        total=_micro(settings.cap_total_per_day_usd),
        person=_micro(settings.cap_person_per_day_usd),
        visitor=_micro(settings.cap_visitor_per_day_usd if public else settings.cap_person_per_day_usd),
        session=_micro(settings.cap_session_usd),
        network=_micro(network) if public else None,
        visitors_hour=_micro(hourly) if public else None,
        timezone=settings.timezone,
    )


def _micro(dollars: Decimal | None) -> int | None:
    return None if dollars is None else int(dollars * 1_000_000)
