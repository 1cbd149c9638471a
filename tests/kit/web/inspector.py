"""Looks at sessions as the web process does, over the model that needs no provider."""

from __future__ import annotations

import asyncpg

from shared.adapters.models.routing import open_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.core.session.presets import PRESETS
from shared.services.admin.context_inspector import ContextInspector
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.toolbox import Toolbox


def inspecting_over(pool: asyncpg.Pool[asyncpg.Record]) -> ContextInspector:
    counter = VocabularyCounter()
    models = open_models(api_key=None, base_url=None, entries=(), counter=counter)
    policy = PRESETS["steady"]
    return ContextInspector(
        states=PostgresJobs(pool),
        replays=PostgresReplays(pool),
        model=models,
        requests=RequestBuilder(
            policy=policy,
            chat_model=models.chat,
            summary_model=models.summary,
            max_output=policy.max_output,
            counter=counter,
        ),
        toolbox=Toolbox([]),
        body=models.body,
    )
