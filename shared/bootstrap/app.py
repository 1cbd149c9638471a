"""Builds all services of a process from its foundation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from shared.adapters.files.erasure_file import FILE as ERASURES
from shared.adapters.files.erasure_file import ErasureFile
from shared.adapters.postgres.privacy.retention import RULES
from shared.bootstrap.build_admin import (
    build_alert_monitor,
    build_context_inspector,
    build_knowledge_indexer,
    build_playground,
    build_push_sender,
)
from shared.bootstrap.build_commands import build_commands
from shared.bootstrap.build_compaction import build_compaction_hooks, build_job_runner
from shared.bootstrap.build_memory import build_import_runner
from shared.bootstrap.build_turns import build_hearing, build_speaking, build_turns
from shared.bootstrap.configured_parts import Role
from shared.bootstrap.foundation import Foundation, open_foundation
from shared.bootstrap.stores import Stores
from shared.config.settings import Settings
from shared.ports import Tool
from shared.services.admin.alert_sender import AlertMonitor
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.job_admin import JobAdmin
from shared.services.admin.playground import Playground
from shared.services.admin.push_sender import PushSender
from shared.services.commands.command_service import CommandService
from shared.services.compaction.hooks import CompactionHooks
from shared.services.compaction.job_runner import JobRunner
from shared.services.memory.import_runner import ImportRunner
from shared.services.memory.knowledge_indexer import KnowledgeIndexer
from shared.services.memory.passage_encoder import PassageEncoder
from shared.services.memory.upkeep import RecallIndexer
from shared.services.privacy.erasure import ErasureService
from shared.services.privacy.export import DataExporter
from shared.services.privacy.retention import RetentionService
from shared.services.tools.handover import HandoverService
from shared.services.turns.pictures import PictureService
from shared.services.turns.session_service import SessionService
from shared.services.voice.hearing import HearingService
from shared.services.voice.speaking import SpeakingService


def build_passage_encoder(base: Foundation) -> PassageEncoder | None:
    """Return the service that computes and stores vectors of passages; None without an encoder."""
    return PassageEncoder(base.stores.passage_vectors, base.encoder) if base.encoder else None


def build_retention(settings: Settings, stores: Stores, erasure: ErasureService) -> RetentionService:
    """Return the service that deletes rows and unused conversations after the periods in the settings."""
    return RetentionService(
        store=stores.retention, tables=tuple(RULES), forgetting=erasure, days=settings.retention_days
    )


@dataclass(slots=True, kw_only=True)
class App(Foundation):
    """Services of one process, on top of its foundation; `open_app` builds it."""

    sessions: SessionService
    commands: CommandService
    job_runner: JobRunner
    compaction_hooks: CompactionHooks
    import_runner: ImportRunner
    recall_indexer: RecallIndexer
    passage_encoder: PassageEncoder | None
    """Service that stores vectors of passages; None without an encoder."""
    pictures: PictureService
    hearing: HearingService | None
    """Service that transcribes recordings; None if no transcriber is configured."""
    speaking: SpeakingService | None
    """Service that reads answers aloud; None if no speech server is configured."""
    erasure: ErasureService
    erasure_file: ErasureFile
    exporter: DataExporter
    retention: RetentionService
    handover_service: HandoverService
    context_inspector: ContextInspector
    job_admin: JobAdmin
    playground: Playground
    alert_monitor: AlertMonitor
    push: PushSender
    knowledge_indexer: KnowledgeIndexer | None
    """Index of agents' knowledge folders; None except in the worker."""
    more_tools: tuple[Tool, ...] = ()
    """Tools that were given to `open_app` in addition to the built-in ones."""

    async def close(self) -> None:
        """Wait shortly for picture descriptions, then close the foundation, which releases leases and
        connections.
        """
        await self.pictures.close()
        await Foundation.close(self)


async def open_app(settings: Settings, *, role: Role, tools: Sequence[Tool] = ()) -> App:
    """Connect to the servers, register the process, and return all of its services; nothing is started to
    run.

    `tools` are offered in addition to the built-in ones. Raises StorageUnavailable, SchemaRefused,
    BadSettings, ContradictoryPolicy, ModelsFileBroken and ValueError.
    """
    base = await open_foundation(settings, role=role)
    hooks = build_compaction_hooks(base)
    stores, announcer, crash_point = base.stores, base.announcer, base.crash_point
    turns = build_turns(base, tools=tools)
    base.health.watch_turns(turns.sessions.list_active_sessions)
    recall_indexer = RecallIndexer(stores.recall_index, crash_point=crash_point, given_up=base.given_up)
    erasure = ErasureService(store=stores.erasure, announcer=announcer, crash_point=crash_point)
    inspector = build_context_inspector(base, turns)
    exporter = DataExporter(store=stores.export, clock=base.clock)
    return App(
        **{each.name: getattr(base, each.name) for each in fields(base)},
        more_tools=tuple(tools),
        sessions=turns.sessions,
        commands=build_commands(base, turns, forecast=inspector, erasure=erasure, exporter=exporter),
        job_runner=build_job_runner(base, turns, indexer=recall_indexer, hooks=hooks),
        compaction_hooks=hooks,
        import_runner=build_import_runner(base, erasure),
        recall_indexer=recall_indexer,
        passage_encoder=build_passage_encoder(base),
        pictures=turns.pictures,
        hearing=build_hearing(base),
        speaking=build_speaking(base),
        erasure=erasure,
        erasure_file=ErasureFile(settings.backups / ERASURES),
        exporter=exporter,
        retention=build_retention(settings, stores, erasure),
        handover_service=HandoverService(stores.handovers, announcer, base.counter, crash_point=crash_point),
        context_inspector=inspector,
        job_admin=JobAdmin(stores.job_changes, base.doorbell, announcer, crash_point=crash_point),
        playground=build_playground(base, turns),
        alert_monitor=build_alert_monitor(base),
        push=build_push_sender(stores.push, settings, clock=base.clock, crash_point=crash_point),
        knowledge_indexer=build_knowledge_indexer(base, stores.knowledge) if role == "worker" else None,
    )
