"""Agents for operators: what each says, the numbers it comes to, and changes that are checked as typed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.bootstrap.from_settings import WORKSPACES_FOLDER, build_agent_defaults, load_server_names
from shared.config.agents import (
    AgentDefaults,
    AgentRow,
    BadAgentConfig,
    EffectiveConfig,
    check_config,
    resolve_effective_config,
)
from shared.config.settings import Settings
from shared.core.compaction.summary_diff import compare_lines
from shared.core.presets.catalog import PRESETS
from shared.core.session.budget import ContextBudget
from shared.core.session.turns import iso
from shared.core.values.errors import CapReached, ContextBudgetExceeded, EvertalkError, ModelError
from shared.services.admin.agent_service import AgentService, StaleAgent, check_size
from shared.services.admin.playground import Playground, Said
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import NewName, Seen, build_stale_refusal, parse_version
from web.rest.kinds import describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import PostgresAgents
    from shared.adapters.postgres.people.sites import PostgresSites

router = OperationRouter()
Name = Annotated[str, describe("name of an agent", json_schema_extra={"minLength": 1, "maxLength": 40})]
Version = Annotated[int, Field(ge=1, lt=2**63, description="version of the config")]

ListedAgent = TypedDict("ListedAgent", {
    "name": str, "version": int, "sessions": int, "sites": list[str], "bots": list[str],
    "called": str | None, "persona": bool, "model": str | None, "preset": str, "overrides": int,
    "audience": str | None,
})  # fmt: skip
Agents = TypedDict("Agents", {"agents": list[ListedAgent]})
Made = TypedDict("Made", {"name": str})

Config = Annotated[dict[str, Any], describe("config of an agent; docs/agents.md describes its fields")]
Value = Annotated[Any, describe("value of a setting: text, number, true or false, list, or null")]
AgentVersionMade = TypedDict("AgentVersionMade", {"version": int, "by": str | None, "at": str})
AgentVersions = TypedDict("AgentVersions", {"versions": list[AgentVersionMade]})
ConfigLine = TypedDict("ConfigLine", {"change": Literal["same", "added", "removed"], "text": str})
AgentVersion = TypedDict("AgentVersion", {
    "version": int, "config": Config,
    "lines": Annotated[list[ConfigLine], describe("difference to the current config, line by line")],
})  # fmt: skip
SiteName = Annotated[str, Field(min_length=1, max_length=40)]
SiteGiven = TypedDict("SiteGiven", {
    "site": str, "moved": Annotated[int, describe("number of existing conversations that changed agent")],
})  # fmt: skip
Utterance = TypedDict("Utterance", {
    "role": Literal["user", "assistant"],
    "text": Annotated[str, Field(min_length=1, max_length=100_000)],
})  # fmt: skip
Talk = Annotated[list[Utterance], Field(min_length=1, max_length=200)]
ToolCall = TypedDict("ToolCall", {"name": str, "arguments": Config})
PlaygroundReply = TypedDict("PlaygroundReply", {
    "text": str, "model": str, "tools": list[ToolCall], "context_tokens": int,
    "cost_micro": Annotated[int | None, describe("cost in micro-dollars; null if the price is unknown")],
})  # fmt: skip
EffectiveSetting = TypedDict("EffectiveSetting", {
    "name": str, "value": Value, "inherited": Value, "deployment": Value,
    "from": Literal["agent", "preset", "deployment"],
})  # fmt: skip
EffectiveAgent = TypedDict("EffectiveAgent", {
    "preset": str, "settings": list[EffectiveSetting], "budget": ContextBudget, "tools": list[str],
    "prompt": str, "prompt_tokens": int,
})  # fmt: skip
AgentJudged = TypedDict("AgentJudged", {
    "problems": list[str], "remarks": list[str], "effective": EffectiveAgent | None,
})  # fmt: skip
AgentTool = TypedDict("AgentTool", {
    "name": str, "description": str,
    "server": Annotated[str, describe("name of the MCP server; empty for a built-in tool")],
})  # fmt: skip


class ChangedAgent(AgentJudged):
    name: str
    config: Config
    version: int
    sessions: int
    sites: list[str]
    bots: list[str]
    presets: list[str]


class Agent(ChangedAgent):
    models: list[str]
    tools: list[AgentTool]
    servers: list[str]
    other_sites: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHandlers:
    """Handlers of agents: their configs and versions, and a talk to try them."""

    settings: Settings
    agents: PostgresAgents
    agent_service: AgentService
    playground: Playground | None
    sites: PostgresSites
    stored_settings: PostgresStoredSettings

    @router.on("GET /agents", Agents, role="viewer")
    async def list_agents(self, authed: AuthedRequest) -> Reply:
        """List agents and the sites they answer."""
        return {"agents": [_listed(row, self.settings) for row in await self.agents.list_all()]}

    @router.on(
        "POST /agents", Made, status=201, role="admin", body="NewName", strict=True, refusals=(409,)
    )  # fmt: skip
    async def make_agent(self, authed: AuthedRequest, *, name: NewName) -> Reply:
        """Create an agent with the deployment's settings."""
        await self.agent_service.create_agent(name, by=authed.operator.name)
        return {"name": name}

    @router.on("GET /agents/{name}", Agent, role="viewer")
    async def agent(self, authed: AuthedRequest, name: Name) -> Reply:
        """Get an agent with its effective settings and budget.

        If the stored config is invalid, `effective` is null and `problems` lists the reasons.
        """
        row = await find_agent(self.agents, name)
        ground = await self._ground(row.config)
        judged = await asyncio.to_thread(_judged, row.config, ground)
        known = {tool.name: (tool, "") for tool in ground.tools}
        if self.playground is not None:
            known = {**self.playground.list_tools(), **known}
        tools = [
            {"name": name, "description": tool.description, "server": server}
            for name, (tool, server) in known.items()
        ]
        others = [site.name for site in await self.sites.list_all() if site.name not in row.sites]
        more = {
            "models": sorted(ground.models), "tools": tools, "servers": sorted(ground.servers or ()),
            "other_sites": others,
        }  # fmt: skip
        return {**_whole(row), **judged, **more}

    @router.on(
        "POST /agents/{name}/check", AgentJudged, role="admin", body="AgentSettings", strict=True,
        refusals=(404, 413, 503),
    )  # fmt: skip
    async def check_agent(self, authed: AuthedRequest, name: Name, *, config: Config) -> Reply:
        """Validate a config and calculate its limits."""
        row = await find_agent(self.agents, name)
        check_size(config)
        return await asyncio.to_thread(_judged, config, await self._ground(config, stored=row.config))

    @router.on(
        "PUT /agents/{name}", ChangedAgent, role="admin", body="AgentSettings", strict=True,
        refusals=(404, 409, 413, 422, 428, 503),
    )  # fmt: skip
    async def change_agent(
        self, authed: AuthedRequest, name: Name, *, config: Config, if_match: Seen = ""
    ) -> Reply:
        """Change an agent.

        The change takes effect with the next message.
        """
        row, seen = await find_agent(self.agents, name), parse_version(if_match)
        ground, by = await self._ground(config, stored=row.config), authed.operator.name
        try:
            await self.agent_service.change_agent(name, config, seen=seen, defaults=ground, by=by)
        except BadAgentConfig as error:
            raise _build_config_refusal(error.problems) from None
        except StaleAgent:
            theirs = _whole(await find_agent(self.agents, name))
            raise build_stale_refusal(yours=config, theirs=theirs) from None
        judged = await asyncio.to_thread(_judged, config, ground)
        return {**_whole(await find_agent(self.agents, name)), **judged}

    @router.on(
        "POST /agents/{name}/sites",
        SiteGiven,
        role="admin",
        body="SiteForAgent",
        strict=True,
        refusals=(404,),
    )
    async def give_site(
        self, authed: AuthedRequest, name: Name, *, site: SiteName, existing: bool = False
    ) -> Reply:
        """Assign an agent to a site.

        New conversations use the agent; with `existing`, current ones do as well.
        """
        by = authed.operator.name
        moved = await self.agent_service.assign_site(name, site, existing=existing, by=by)
        return {"site": site, "moved": moved}

    @router.on(
        "POST /agents/{name}/try", PlaygroundReply, role="admin", body="PlaygroundTalk", strict=True,
        refusals=(404, 409, 413, 422, 503),
    )  # fmt: skip
    async def try_agent(self, authed: AuthedRequest, name: Name, *, config: Config, messages: Talk) -> Reply:
        """Try a draft config in a test conversation.

        Only the cost is stored. Tools that change anything are not run.
        """
        row = await find_agent(self.agents, name)
        check_size(config)
        if (playground := self.playground) is None:
            raise HttpRefusal(503, "unavailable", "Nothing can be changed from here just now.")
        ground = await self._ground(config, stored=row.config)
        judged = await asyncio.to_thread(_judged, config, ground)
        if judged["problems"]:
            raise _build_config_refusal(judged["problems"])
        if messages[-1]["role"] != "user":
            raise HttpRefusal(422, "bad_input", "The last message is the person's.")
        await authed.record("agent.tried", name)
        try:
            answer = await playground.answer(row.id, config, [Said(**message) for message in messages])
        except CapReached as error:
            words = "The spending limit of the deployment is reached for today: nobody is asked."
            raise HttpRefusal(409, error.code, words) from None
        except (ModelError, ContextBudgetExceeded) as error:
            reason = error.form_reason if isinstance(error, ModelError) else str(error)
            raise HttpRefusal(409, error.code, "The model did not answer.", reason=reason) from None
        tools = [{"name": call.name, "arguments": dict(call.input)} for call in answer.tools]
        return {
            "text": answer.text,
            "model": answer.model,
            "tools": tools,
            "context_tokens": answer.context_tokens,
            "cost_micro": answer.cost_micro,
        }

    @router.on("GET /agents/{name}/versions", AgentVersions, role="viewer", refusals=(404,))
    async def agent_versions(self, authed: AuthedRequest, name: Name) -> Reply:
        """List former versions of an agent, newest first.

        The list is empty before the first change.
        """
        found = await self.agents.list_versions((await find_agent(self.agents, name)).id)
        return {"versions": [{"version": version, "by": by, "at": iso(at)} for version, by, at in found]}

    @router.on(
        "GET /agents/{name}/versions/{version}", AgentVersion, role="viewer",
        missing="There is nothing at this address.",
    )  # fmt: skip
    async def agent_version(self, authed: AuthedRequest, name: Name, version: Version) -> Reply:
        """Get a former version with its difference to now.

        To return to it, store its config as the current one.
        """
        row = await find_agent(self.agents, name)
        config = await self.agents.load_version(row.id, version)
        if config is None:
            return None
        lines = await asyncio.to_thread(_changes, config, row.config)
        return {"version": version, "config": config, "lines": lines}

    async def _ground(
        self, config: Mapping[str, Any], *, stored: Mapping[str, Any] | None = None
    ) -> AgentDefaults:
        """Return what an agent stands on; only its `stored` folder may be outside of the data folder."""
        try:
            ground = await asyncio.to_thread(build_agent_defaults, self.settings)
        except EvertalkError as error:
            raise HttpRefusal(503, error.code, error.advice) from None
        return dataclasses.replace(
            ground,
            workspaces=self.settings.data_dir / WORKSPACES_FOLDER,
            stored_workspace=(config if stored is None else stored).get("workspace"),
            servers=await load_server_names(self.stored_settings, self.settings),
            offered=None if self.playground is None else self.playground.list_offered(config),
        )


def _changes(former: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, str]]:
    return [dataclasses.asdict(line) for line in compare_lines(_lines(former), _lines(now))]


def _lines(config: Mapping[str, Any]) -> list[str]:
    return json.dumps(config, ensure_ascii=False, indent=1, sort_keys=True).splitlines()


def _build_config_refusal(problems: Sequence[str]) -> HttpRefusal:
    words = "This cannot be used; nothing was changed."
    return HttpRefusal(422, BadAgentConfig.code, words, problems=list(problems))


async def find_agent(agents: PostgresAgents, name: str) -> AgentRow:
    """Return the row of an agent. Raises HttpRefusal 404 if there is none."""
    row = await agents.find(name)
    if row is None:
        raise HttpRefusal(404, "not_found", "There is no such agent.")
    return row


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
    inherited, deployment = found.inherited.to_settings(), ground.policy.to_settings()
    for name, value in found.policy.to_settings().items():
        usual = deployment[name]
        source = "agent" if name in own else "preset" if value != usual else "deployment"
        settings.append(
            {
                "name": name,
                "value": value,
                "inherited": inherited[name],
                "deployment": usual,
                "from": source,
            }
        )
    return {
        "preset": config.get("preset") or ground.policy.name,
        "settings": settings,
        "budget": dataclasses.asdict(found.budget),
        "tools": list(found.tools),
        "prompt": found.prompt,
        "prompt_tokens": found.prompt_tokens,
    }


def _whole(row: AgentRow) -> dict[str, Any]:
    return {
        "name": row.name, "config": dict(row.config), "version": row.version, "sessions": row.sessions,
        "sites": list(row.sites), "bots": list(row.bots), "presets": sorted(PRESETS),
    }  # fmt: skip


def _listed(row: AgentRow, settings: Settings) -> dict[str, Any]:
    config = row.config
    return {
        "name": row.name, "version": row.version, "sessions": row.sessions, "sites": list(row.sites),
        "bots": list(row.bots), "called": config.get("name"), "persona": bool(config.get("persona")),
        "model": config.get("model") or settings.model or None,
        "preset": config.get("preset") or settings.preset, "overrides": len(config.get("context") or {}),
        "audience": config.get("audience"),
    }  # fmt: skip
