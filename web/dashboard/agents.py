"""Agents for operators: what each says, the numbers it comes to, and changes that are checked as typed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from shared.bootstrap.from_settings import build_agent_defaults
from shared.config.agents import (
    MOST_CHARS,
    AgentDefaults,
    BadAgentConfig,
    EffectiveConfig,
    check_config,
    resolve_effective_config,
)
from shared.core.session.presets import PRESETS
from shared.core.values.errors import EvertalkError
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer
from web.dashboard.requests.etag import new_name, seen_version, stale, told
from web.dashboard.requests.request_json import read_json

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import AgentRow

AGENTS = "/api/v1/agents"
AGENT = f"{AGENTS}/{{name}}"
_HIDDEN = frozenset({"name", "prune_rules"})
"""Fields of a policy that are no numbers of their own."""


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path=AGENTS, need="viewer", handler=agents),
        Route(method="POST", path=AGENTS, need="admin", handler=make),
        Route(method="GET", path=AGENT, need="viewer", handler=agent),
        Route(method="PUT", path=AGENT, need="admin", handler=change),
        Route(method="POST", path=f"{AGENT}/check", need="admin", handler=check),
    )


async def agents(visit: AuthedRequest) -> web.StreamResponse:
    rows = await visit.desk.stores.agents.all()
    return answer({"agents": [_listed(row, visit) for row in rows]})


async def make(visit: AuthedRequest) -> web.StreamResponse:
    """`{"name"}`: with the deployment's settings, to be changed on its page."""
    name, store = await new_name(visit), visit.desk.stores.agents
    if not await store.create(name, {}, by=visit.operator.name):
        raise DashboardRefusal(409, "name_taken", "There is an agent of that name already.")
    return answer({"name": name}, status=201)


async def agent(visit: AuthedRequest) -> web.StreamResponse:
    row = await _row(visit)
    ground = await _ground(visit)
    return answer({**_whole(row), **await asyncio.to_thread(_judged, row.config, ground)})


async def check(visit: AuthedRequest) -> web.StreamResponse:
    """`{"config"}` as typed so far: its problems, its remarks, and the numbers it would come to."""
    await _row(visit)
    config = _config(await read_json(visit))
    return answer(await asyncio.to_thread(_judged, config, await _ground(visit)))


async def change(visit: AuthedRequest) -> web.StreamResponse:
    """`{"config"}` with `If-Match`; holds from each conversation's next message on."""
    row, config, seen = await _row(visit), _config(await read_json(visit)), seen_version(visit)
    judged = await asyncio.to_thread(_judged, config, await _ground(visit))
    if judged["problems"]:
        words = "This cannot be used; nothing was changed."
        return told(visit, 422, "bad_agent_config", words, {"problems": judged["problems"]})
    store = visit.desk.stores.agents
    if await store.change(row.name, config, seen=seen, by=visit.operator.name) is None:
        return stale(visit, yours=config, theirs=_whole(await _row(visit)))
    return answer({**_whole(await _row(visit)), **judged})


async def _row(visit: AuthedRequest) -> AgentRow:
    row = await visit.desk.stores.agents.find(visit.request.match_info["name"].replace("\x00", ""))
    if row is None:
        raise DashboardRefusal(404, "not_found", "There is no such agent.")
    return row


def _config(body: Mapping[str, Any]) -> Mapping[str, Any]:
    config = body.get("config")
    if not isinstance(config, Mapping) or set(body) != {"config"}:
        raise DashboardRefusal(400, "bad_input", "Send `config`, an object such as {}.")
    if len(str(config)) > MOST_CHARS:
        raise DashboardRefusal(413, "too_large", f"A config has {MOST_CHARS:,} characters at most.")
    return config


async def _ground(visit: AuthedRequest) -> AgentDefaults:
    try:
        return await asyncio.to_thread(build_agent_defaults, visit.desk.settings)
    except EvertalkError as error:
        raise DashboardRefusal(503, error.code, error.advice) from None


def _judged(config: Mapping[str, Any], ground: AgentDefaults) -> dict[str, Any]:
    try:
        remarks = check_config(config, ground)
    except BadAgentConfig as error:
        return {"problems": list(error.problems), "remarks": [], "effective": None}
    return {"problems": [], "remarks": list(remarks), "effective": _numbers(config, ground)}


def _numbers(config: Mapping[str, Any], ground: AgentDefaults) -> dict[str, Any]:
    found: EffectiveConfig = resolve_effective_config(config, ground)
    own = config.get("context") or {}
    settings = []
    for field in dataclasses.fields(found.policy):
        if field.name in _HIDDEN:
            continue
        value, usual = getattr(found.policy, field.name), getattr(ground.policy, field.name)
        source = "agent" if field.name in own else "preset" if value != usual else "deployment"
        settings.append({"name": field.name, "value": value, "deployment": usual, "from": source})
    return {
        "preset": config.get("preset") or ground.policy.name,
        "settings": settings,
        "budget": dataclasses.asdict(found.budget),
        "tools": list(found.tools),
    }


def _whole(row: AgentRow) -> dict[str, Any]:
    return {
        "name": row.name, "config": dict(row.config), "version": row.version, "sessions": row.sessions,
        "sites": list(row.sites), "bots": list(row.bots), "presets": sorted(PRESETS),
    }  # fmt: skip


def _listed(row: AgentRow, visit: AuthedRequest) -> dict[str, Any]:
    config, settings = row.config, visit.desk.settings
    return {
        "name": row.name, "version": row.version, "sessions": row.sessions, "sites": list(row.sites),
        "bots": list(row.bots), "called": config.get("name"), "persona": bool(config.get("persona")),
        "model": config.get("model") or settings.model or None,
        "preset": config.get("preset") or settings.preset, "overrides": len(config.get("context") or {}),
        "audience": config.get("audience"),
    }  # fmt: skip
