"""The context inspector and the playground as the web process builds them, over the model without a
provider.
"""

from __future__ import annotations

import asyncpg

from shared.adapters.models.routing import Models, open_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.stores import build_stores
from shared.core.presets.catalog import PRESETS
from shared.core.session.turns import Caps
from shared.services.admin.context_inspector import ContextInspector
from shared.services.admin.playground import PLAYGROUND_TIMEOUTS, Playground
from shared.services.compaction.silent_requests import OneShotCompletion
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.toolbox import Toolbox


def inspecting_over(pool: asyncpg.Pool[asyncpg.Record]) -> ContextInspector:
    counter = VocabularyCounter()
    models = _models(counter)
    return ContextInspector(
        states=PostgresJobs(pool),
        replays=PostgresReplays(pool),
        model=models,
        requests=_requests(models, counter),
        toolbox=Toolbox([]),
        body=models.body,
    )


def playing_over(pool: asyncpg.Pool[asyncpg.Record]) -> Playground:
    counter, stores = VocabularyCounter(), build_stores(pool)
    models = _models(counter)
    return Playground(
        asking=OneShotCompletion(models, counter, bounds=PLAYGROUND_TIMEOUTS),
        requests=_requests(models, counter),
        toolbox=Toolbox([]),
        ledger=stores.playground,
        knowledge=stores.knowledge,
        caps=Caps(total=None, person=None, visitor=None, session=None),
        clock=SystemClock(),
    )


def _models(counter: VocabularyCounter) -> Models:
    return open_models(
        api_key=None, base_url=None, entries=(), counter=counter, offline_piece_seconds=0.0
    )  # fmt: skip


def _requests(models: Models, counter: VocabularyCounter) -> RequestBuilder:
    policy = PRESETS["steady"]
    return RequestBuilder(
        policy=policy,
        chat_model=models.chat,
        summary_model=models.summary,
        max_output=policy.max_output,
        counter=counter,
    )
