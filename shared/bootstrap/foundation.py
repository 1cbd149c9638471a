"""Foundation of every process: connections, stores, models and heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg
import structlog

from shared.adapters.files.workspace_files import WorkspaceFiles
from shared.adapters.mcp.tools import KnownMcpTools, McpTools
from shared.adapters.models.catalog import list_entries
from shared.adapters.models.routing import Models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.db.pool import measure_longest_wait, open_pool, storage_limiter
from shared.adapters.redis.announcer import RedisAnnouncer
from shared.adapters.redis.arq_queue import ArqDoorbell
from shared.adapters.telemetry.health import Health
from shared.adapters.telemetry.heartbeat import HeartbeatThread
from shared.adapters.telemetry.otlp_traces import open_traces
from shared.bootstrap.configured_parts import ConfiguredParts, Role, build_parts
from shared.bootstrap.from_settings import WORKSPACES_FOLDER, build_policy, resolve_server_urls
from shared.bootstrap.host_fingerprint import HostFingerprint
from shared.bootstrap.stores import Stores, build_stores
from shared.config.settings import Settings
from shared.core.session.policy import ContextPolicy
from shared.core.session.turns import Caps
from shared.core.values.errors import StorageUnavailable
from shared.core.verdicts.breaker import BreakerState
from shared.ports import Encoder, Reranker, StorageLimiter, TokenCounter
from shared.runtime import BackgroundTasks, CrashPoint, Tracer, build_crash_point
from shared.services.turns.database_promotion import PromotionWatcher
from shared.supervision.fault_files import store_faults
from shared.supervision.liveness import touch_process_file
from shared.supervision.process_handoff import clear_process_file, take_over_process

if TYPE_CHECKING:
    from shared.adapters.media.drawing import HttpPictureMaker
    from shared.adapters.media.local import LocalTranscriber
    from shared.adapters.media.speech import HttpSpeaker
    from shared.adapters.media.transcriptions import HttpTranscriber


class Closable(Protocol):
    """Part of a process that must be closed at the end of the process."""

    async def close(self) -> None: ...


class LoadableModels(Protocol):
    """Models whose library can be loaded in the background.

    `start_loading` begins that once; `wait_until_loaded` returns after success and failure.
    """

    def start_loading(self) -> None: ...
    async def wait_until_loaded(self) -> None: ...


class WarmUp:
    """Loader of models and token counters in threads, while the process already receives and stores
    messages.
    """

    def __init__(self, models: LoadableModels, counter: TokenCounter) -> None:
        self._models = models
        self._counter = counter
        self._has_begun = False
        self.is_done = False
        """Whether everything that an answer needs has been loaded or has failed to load."""

    async def run(self) -> bool:
        """Load models and counters and return True; return False at once if an earlier call began that.

        If a part cannot be loaded, its first user reports that.
        """
        if self._has_begun:
            return False
        self._has_begun = True
        try:
            # Parts are loaded one after the other: at the same time they take as long, and fragment memory.
            await asyncio.to_thread(self._counter.count_tokens, "warm")
            self._models.start_loading()
            await self._models.wait_until_loaded()
        finally:
            self.is_done = True
        return True


log = structlog.get_logger(__name__)

FAILED_BACKUP_FILE = "failed.txt"
"""File next to the backups with the reason why the last daily backup failed.

Deleted after the next success.
"""
CHANNELS: Mapping[Role, str] = {"web": "web", "bot": "telegram", "worker": ""}
"""Channel whose turns a process answers, by role; empty for none."""


class SystemClock:
    """Clock with the system time in UTC."""

    def now(self) -> datetime:
        """Return the present time in UTC by the clock of this machine."""
        return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class Foundation:
    """Parts that every process needs: connections, stores, models and heartbeat.

    A change of settings replaces the parts that depend on settings.
    """

    settings: Settings
    role: Role
    pool: asyncpg.Pool[asyncpg.Record]
    stores: Stores
    limit_storage: StorageLimiter
    announcer: RedisAnnouncer
    dashboard_announcer: RedisAnnouncer
    """Announcer for operators' pages, connected only while one is open."""
    doorbell: ArqDoorbell
    models: Models
    speaker: HttpSpeaker | None
    picture_maker: HttpPictureMaker | None
    transcriber: HttpTranscriber | LocalTranscriber | None
    reranker: Reranker | None
    encoder: Encoder | None
    """Encoder of texts as vectors; None if no encoder is configured."""
    counter: VocabularyCounter
    warm_up: WarmUp
    mcp_tools: McpTools | KnownMcpTools | None
    workspaces: WorkspaceFiles
    policy: ContextPolicy
    caps: Caps
    clock: SystemClock
    crash_point: CrashPoint
    tracer: Tracer
    worker_id: int
    heartbeat: HeartbeatThread
    health: Health
    """Health report that is stored with each heartbeat."""
    promotion: PromotionWatcher
    given_up: frozenset[str]
    """Keys of work that crashed too many processes and is not tried any more, as read at the start."""
    background_tasks: BackgroundTasks
    """Background tasks, such as the watch of the event loop and of database promotions."""
    retired: list[Closable] = field(default_factory=list)
    """Parts that a change of settings has replaced and that running answers still use."""
    followers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Functions that are called in this order after each change of settings."""

    def list_breakers(self) -> Mapping[str, BreakerState]:
        """Return the state of each provider's circuit breaker by the URL of its server."""
        others = (self.transcriber, self.speaker, self.picture_maker)
        return _list_states((self.models, *(one for one in others if one is not None)))

    async def close(self) -> None:
        """End the process's registration, so that its leases expire at once, and close all connections.

        After the process was declared dead, its process file is emptied instead. The order matters: work ends
        before connections do.
        """
        if isinstance(self.mcp_tools, McpTools):
            await self.mcp_tools.close()
        for part in self.retired:
            await part.close()
        with suppress(StorageUnavailable):
            await self.stores.turns.return_allowance()
        await self.heartbeat.stop()
        await self.background_tasks.cancel()
        if self.heartbeat.is_lost:
            clear_process_file(self.settings.process_file)
        else:
            await self.stores.workers.stop(self.worker_id)
        await self.workspaces.close()
        await self.announcer.close()
        await self.dashboard_announcer.close()
        await self.doorbell.close()
        await self.models.close()
        if self.reranker is not None:
            await self.reranker.close()
        if self.encoder is not None:
            await self.encoder.close()
        await asyncio.to_thread(self.tracer.close)
        async with asyncio.timeout(10):
            await self.pool.close()


async def open_foundation(settings: Settings, *, role: Role) -> Foundation:
    """Connect to the servers, store faults of earlier processes, register this one and start its heartbeat.

    Returns the foundation, which the caller must close. Raises StorageUnavailable, SchemaRefused,
    BadSettings, ContradictoryPolicy and ModelsFileBroken.
    """
    database_url, redis_url = resolve_server_urls(settings)
    # These raise for invalid settings before any connection is opened.
    build_policy(settings)
    list_entries(settings)
    counter = VocabularyCounter()
    crash_point = build_crash_point(settings.crash_point)
    tracer = open_traces(settings.otlp_endpoint, service=f"evertalk-{role}")
    pool = await open_pool(database_url)
    stores = build_stores(pool, timezone=settings.timezone, crash_point=crash_point)
    await stores.readiness.refuse_unknown()
    parts = build_parts(settings, stores, role=role, counter=counter, tracer=tracer)
    models = parts.models
    health = build_health(parts)
    # Faults are stored before any work is claimed, since the work that crashed the last process may be due
    # again.
    await store_faults(stores.process_faults, settings.data_dir, crash_point=crash_point)
    given_up = await stores.process_faults.list_given_up()
    worker_id = await take_over_process(stores.workers, role, settings.process_file)
    heartbeat = HeartbeatThread(
        partial(open_pool, database_url, size=1),
        worker_id,
        health=health,
        waited=partial(measure_longest_wait, pool),
        beaten=partial(touch_process_file, settings.process_file),
    )
    heartbeat.start()
    promotion, background_tasks = PromotionWatcher(heartbeat, stores.workers), BackgroundTasks()
    for loop in (heartbeat.watch, promotion.watch):
        background_tasks.run_forever(loop)
    if await _has_waiting_work(stores, role):
        models.start_loading()
    announcer, dashboard_announcer = RedisAnnouncer(redis_url), RedisAnnouncer(redis_url)
    doorbell = ArqDoorbell(redis_url)
    health.count_redis_errors(
        lambda: {"publish": announcer.lost + dashboard_announcer.lost, "enqueue": doorbell.silent}
    )
    workspaces = WorkspaceFiles(
        settings.data_dir / WORKSPACES_FOLDER, poll_seconds=settings.workspace_poll_seconds
    )
    await workspaces.preload(filter(None, (await stores.agent_folders.load_folders()).values()))
    return Foundation(
        **{each.name: getattr(parts, each.name) for each in fields(parts)},
        role=role,
        pool=pool,
        limit_storage=partial(storage_limiter, pool),
        announcer=announcer,
        dashboard_announcer=dashboard_announcer,
        doorbell=doorbell,
        counter=counter,
        warm_up=WarmUp(models, counter),
        workspaces=workspaces,
        clock=SystemClock(),
        crash_point=crash_point,
        tracer=tracer,
        worker_id=worker_id,
        heartbeat=heartbeat,
        health=health,
        promotion=promotion,
        given_up=given_up,
        background_tasks=background_tasks,
    )


async def _has_waiting_work(stores: Stores, role: Role) -> bool:
    """Return whether work that needs a model call is waiting already."""
    if role == "worker":
        return bool(await stores.jobs.due_jobs(limit=1))
    return bool(await stores.turns.list_unanswered(CHANNELS[role]))


class HasBreakers(Protocol):
    """Part of a process that has circuit breakers; `list_states` returns their states by server URL."""

    def list_states(self) -> Mapping[str, BreakerState]: ...


def _list_states(services: Sequence[HasBreakers]) -> Mapping[str, BreakerState]:
    return {url: state for service in services for url, state in service.list_states().items()}


def build_health(parts: ConfiguredParts) -> Health:
    """Return the health report of a process, which each heartbeat stores.

    It has breakers, learned abilities, the data folder's disk, a failed backup and the host's fingerprint.
    """
    settings, models = parts.settings, parts.models
    others = (parts.transcriber, parts.speaker, parts.picture_maker)
    services = tuple(one for one in others if one is not None)
    failed = settings.backups / FAILED_BACKUP_FILE if settings.backup_keep else None
    marks = _build_fingerprint(settings)
    return Health(
        partial(_list_states, (models, *services)),
        settings.data_dir,
        narrowed=models.list_narrowed_windows,
        learned=models.list_learned,
        rejected=models.list_rejections,
        failed_backup=failed,
        marks=marks,
    )


def _build_fingerprint(settings: Settings) -> Callable[[], Mapping[str, Any]]:
    """Return a function that computes the fingerprint of this host.

    It returns an empty dict without secret key.
    """
    if settings.secret_key is None:
        return dict
    return HostFingerprint(
        settings, settings.secret_key.get_secret_value().encode(), settings.data_dir / WORKSPACES_FOLDER
    )
