"""Builds the room of compaction: flusher, compactor, checkpoints, and the runner of their jobs."""

from __future__ import annotations

from shared.bootstrap.build_turns import TurnServices
from shared.bootstrap.foundation import Foundation
from shared.services.compaction.checkpoints import CheckpointService
from shared.services.compaction.compactor import Compactor
from shared.services.compaction.flusher import Flusher
from shared.services.compaction.job_runner import JobRunner
from shared.services.compaction.summarizer import Summariser
from shared.services.compaction.unable_models import UnableModels
from shared.services.compaction.writer_selection import WriterSelector
from shared.services.memory.memory_consolidation import MemoryConsolidator
from shared.services.memory.recall_indexer import RecallIndexer


def build_job_runner(base: Foundation, turns: TurnServices, *, indexer: RecallIndexer) -> JobRunner:
    """`indexer` brings the index of recall up to date in between."""
    stores, announcer, crash_point, unable = base.stores, base.announcer, base.crash_point, UnableModels()
    summariser = Summariser(
        model=base.models,
        counter=base.counter,
        summary_model=base.models.summary,
        chat_model=base.models.chat,
        fall_back=base.policy.summary_falls_back,
        crash_point=crash_point,
        unable=unable,
    )
    flusher = _build_flusher(base, turns, unable)
    writers = WriterSelector(
        flusher=flusher, spend=stores.turns, model=base.models, requests=turns.requests,
        toolbox=turns.toolbox, caps=base.caps,
    )  # fmt: skip
    compactor = Compactor(
        store=stores.jobs, pace=stores.job_backoff, flusher=flusher, writers=writers,
        summariser=summariser, announcer=announcer, crash_point=crash_point,
    )  # fmt: skip
    checkpoints = CheckpointService(
        store=stores.job_backoff, spending=stores.jobs, writers=writers,
        summariser=summariser, announcer=announcer, crash_point=crash_point,
    )  # fmt: skip
    return JobRunner(
        indexing=indexer,
        worker_id=base.worker_id,
        store=stores.jobs,
        flusher=flusher,
        compactor=compactor,
        spare=checkpoints,
        tidier=MemoryConsolidator(
            stores.consolidation, timezone=base.settings.timezone, crash_point=crash_point
        ),
        writers=writers,
        doorbell=base.doorbell,
        crash_point=crash_point,
        tracer=base.tracer,
        storage_limiter=base.limit_storage,
    )


def _build_flusher(base: Foundation, turns: TurnServices, unable: UnableModels) -> Flusher:
    return Flusher(
        store=base.stores.jobs,
        owed=base.stores.flushes,
        spend=base.stores.turns,
        model=base.models,
        requests=turns.requests,
        toolbox=turns.toolbox,
        pictures=turns.pictures,
        caps=base.caps,
        announcer=base.announcer,
        crash_point=base.crash_point,
        unable=unable,
    )
