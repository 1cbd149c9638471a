"""Builds the compaction services: flusher, compactor, checkpoints, and the runner of their jobs."""

from __future__ import annotations

import time

from shared.bootstrap.build_turns import TurnServices
from shared.bootstrap.foundation import Foundation
from shared.bootstrap.from_settings import build_hook_poster, build_import_budget
from shared.core.verdicts.unable_models import UnableModels
from shared.services.compaction.checkpoints import CheckpointService
from shared.services.compaction.compactor import Compactor
from shared.services.compaction.flusher import Flusher
from shared.services.compaction.hooks import CompactionHooks
from shared.services.compaction.import_summaries import ImportSummariser
from shared.services.compaction.job_runner import JobRunner
from shared.services.compaction.silent_requests import SilentRequests
from shared.services.compaction.summarizer import Summariser
from shared.services.memory.upkeep import MemoryConsolidator, RecallIndexer


def build_compaction_hooks(base: Foundation) -> CompactionHooks:
    """Return the sender of compaction hooks; without a hook address in the settings it does nothing."""
    return CompactionHooks(
        base.stores.compaction_hooks, build_hook_poster(base.settings),
        with_summary=base.settings.compaction_hook_summary, crash_point=base.crash_point,
    )  # fmt: skip


def build_job_runner(
    base: Foundation, turns: TurnServices, *, indexer: RecallIndexer, hooks: CompactionHooks
) -> JobRunner:
    """Return the job runner with all services of background jobs.

    After each job, `indexer` indexes the session for search; `hooks` announces summaries.
    """
    stores, announcer, crash_point = base.stores, base.announcer, base.crash_point
    unable = UnableModels(clock=time.monotonic)
    summariser = Summariser(
        model=base.models,
        counter=base.counter,
        crash_point=crash_point,
        unable=unable,
    )
    silent_requests = SilentRequests(
        last_requests=stores.flushes, spend=stores.turns, model=base.models, requests=turns.requests,
        toolbox=turns.toolbox, pictures=turns.pictures, unable=unable, caps=base.caps,
    )  # fmt: skip
    flusher = Flusher(
        store=stores.jobs, owed=stores.flushes, model=base.models, silent_requests=silent_requests,
        toolbox=turns.toolbox, announcer=announcer, crash_point=crash_point, unable=unable,
    )  # fmt: skip
    compactor = Compactor(
        store=stores.jobs, pace=stores.job_backoff, flusher=flusher, silent_requests=silent_requests,
        summariser=summariser, announcer=announcer, crash_point=crash_point, hooks=hooks,
    )  # fmt: skip
    checkpoints = CheckpointService(
        store=stores.job_backoff, spending=stores.jobs, silent_requests=silent_requests,
        summariser=summariser, announcer=announcer, crash_point=crash_point, hooks=hooks,
    )  # fmt: skip
    import_summariser = ImportSummariser(
        store=stores.import_summaries, spending=stores.jobs, pace=stores.job_backoff,
        silent_requests=silent_requests, summariser=summariser, budget=build_import_budget(base.settings),
        timezone=base.settings.timezone, crash_point=crash_point,
    )  # fmt: skip
    return JobRunner(
        indexer=indexer,
        worker_id=base.worker_id,
        store=stores.jobs,
        flusher=flusher,
        compactor=compactor,
        checkpoints=checkpoints,
        consolidator=MemoryConsolidator(
            stores.consolidation, timezone=base.settings.timezone, crash_point=crash_point
        ),
        import_summariser=import_summariser,
        silent_requests=silent_requests,
        doorbell=base.doorbell,
        crash_point=crash_point,
        tracer=base.tracer,
        storage_limiter=base.limit_storage,
        given_up=base.given_up,
    )
