"""Applies changed settings to a running process; running answers end with the former settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import structlog

from shared.adapters.mcp.tools import McpTools
from shared.bootstrap.app import App, build_passage_encoder, build_retention
from shared.bootstrap.build_admin import (
    build_alert_monitor,
    build_context_inspector,
    build_playground,
    build_push_sender,
)
from shared.bootstrap.build_commands import build_commands
from shared.bootstrap.build_compaction import build_compaction_hooks, build_job_runner
from shared.bootstrap.build_turns import build_hearing, build_speaking, build_turns
from shared.bootstrap.configured_parts import rebuild_parts, select_parts
from shared.bootstrap.foundation import Closable, build_health
from shared.config.settings import Settings

log = structlog.get_logger(__name__)

RETIRED_SECONDS = 900.0
"""Seconds for which replaced connections stay open at least; longer than any call of a model or tool."""
LOOK_SECONDS = 5.0
"""Seconds between two checks whether replaced parts are still in use."""


async def follow_settings(app: App, settings: Settings) -> None:
    """Rebuild the parts of a running process for changed settings; they apply to later turns, commands and
    requests.

    Running answers end with the former parts, which are closed later in the background. Raises
    ContradictoryPolicy or ModelsFileBroken before anything has changed.
    """
    former = select_parts(app)
    parts = rebuild_parts(
        former, settings, pool=app.pool, role=app.role, counter=app.counter, tracer=app.tracer
    )
    answering = app.sessions.list_answering()
    former_pictures = app.pictures
    for each in fields(parts):
        setattr(app, each.name, getattr(parts, each.name))
    app.crash_point("mid_follow")
    _rebuild_services(app)
    app.health.follow(build_health(parts))
    replaced = [
        part
        for name in ("models", "reranker", "encoder", "mcp_tools")
        if (part := getattr(former, name)) is not None and part is not getattr(parts, name)
    ]
    app.background_tasks.start(_close_later(app, [former_pictures, *_find_closable(replaced)], answering))
    for follow in app.followers:
        await follow()


def _rebuild_services(app: App) -> None:
    """Rebuild the services; those with state stay, and take over the parts of the new ones."""
    turns = build_turns(app, tools=app.more_tools)
    app.sessions.follow(turns.sessions)
    turns = replace(turns, sessions=app.sessions)
    app.pictures = turns.pictures
    app.context_inspector = build_context_inspector(app, turns)
    app.playground = build_playground(app, turns)
    app.commands.follow(
        build_commands(app, turns, forecast=app.context_inspector, erasure=app.erasure, exporter=app.exporter)
    )
    app.compaction_hooks.follow(build_compaction_hooks(app))
    app.job_runner.follow(
        build_job_runner(app, turns, indexer=app.recall_indexer, hooks=app.compaction_hooks)
    )
    app.passage_encoder = build_passage_encoder(app)
    app.hearing = build_hearing(app)
    app.speaking = build_speaking(app)
    app.retention = build_retention(app.settings, app.stores, app.erasure)
    app.alert_monitor.follow(build_alert_monitor(app))
    app.push.follow(
        build_push_sender(app.stores.push, app.settings, clock=app.clock, crash_point=app.crash_point)
    )


def _find_closable(parts: Sequence[Any]) -> list[Closable]:
    return [part for part in parts if isinstance(part, McpTools) or hasattr(part, "close")]


async def _close_later(app: App, parts: Sequence[Closable], answering: frozenset[tuple[int, int]]) -> None:
    """Close replaced parts after RETIRED_SECONDS, and not before the answers that use them have ended."""
    app.retired.extend(parts)
    until = asyncio.get_running_loop().time() + RETIRED_SECONDS
    # The end of an answer sets no event, so it is polled.
    while asyncio.get_running_loop().time() < until or answering & app.sessions.list_answering():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    for part in parts:
        app.retired.remove(part)
        await part.close()
