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
from shared.core.compaction.summary_diff import DiffLine, compare_lines
from shared.core.presets.catalog import PRESETS
from shared.core.session.budget import ContextBudget
from shared.core.session.turns import iso
from shared.core.values.errors import CapReached, ContextBudgetExceeded, EvertalkError, ModelError
from shared.services.admin.agent_service import AgentService, StaleAgent, check_size
from shared.services.admin.playground import Playground, Said
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import NewName, Seen, build_stale_refusal, parse_version
from web.rest.kinds import describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

if TYPE_CHECKING:
    from shared.adapters.postgres.people.agents import PostgresAgents
    from shared.adapters.postgres.people.sites import PostgresSites

router = OperationRouter()
Name = Annotated[str, describe("name of an agent", json_schema_extra={"minLength": 1, "maxLength": 40})]
Version = Annotated[int, Field(ge=1, lt=2**63, description="version of the config")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """Agent in the list of agents."""

    name: str
    version: int
    sessions: int
    sites: list[str]
    bots: list[str]
    called: str | None
    persona: bool
    model: str | None
    preset: str
    overrides: int
    audience: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    agents: list[ListedAgent]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedObject:
    """Object that was created."""

    name: str


Config = Annotated[dict[str, Any], describe("config of an agent; docs/agents.md describes its fields")]
Value = Annotated[Any, describe("value of a setting: text, number, true or false, list, or null")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVersionMade:
    """Earlier version of an agent's config, without its content."""

    version: int
    by: str | None
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVersions:
    versions: list[AgentVersionMade]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVersion:
    version: int
    config: Config
    lines: Annotated[list[DiffLine], describe("difference to the current config, line by line")]


SiteName = Annotated[str, Field(min_length=1, max_length=40)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteGiven:
    """Site that now belongs to this agent."""

    site: str
    moved: Annotated[int, describe("number of existing conversations that changed agent")]


Utterance = TypedDict("Utterance", {
    "role": Literal["user", "assistant"],
    "text": Annotated[str, Field(min_length=1, max_length=100_000)],
})  # fmt: skip
Talk = Annotated[list[Utterance], Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """Call of a tool in a test conversation; most tools are rehearsed there without effect."""

    name: str
    arguments: Annotated[dict[str, Any], describe("arguments of the call, by name, as the model gave them")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundReply:
    """Answer of a draft to a test conversation."""

    text: str
    model: str
    tools: list[ToolCall]
    context_tokens: int
    cost_micro: Annotated[int | None, describe("cost in micro-dollars; null if the price is unknown")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    """Setting of an agent: its value in force, the inherited one, and where the value is from."""

    name: str
    value: Value
    inherited: Value
    deployment: Value
    from_: Literal["agent", "preset", "deployment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveAgent:
    """Values that a config has in force, with its prompt and budget."""

    preset: str
    settings: list[EffectiveSetting]
    budget: ContextBudget
    tools: list[str]
    prompt: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJudged:
    """Problems of a config, remarks on it, and its effective values; null with problems."""

    problems: list[str]
    remarks: list[str]
    effective: EffectiveAgent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """Tool that agents can use."""

    name: str
    description: str
    server: Annotated[str, describe("name of the MCP server; empty for a built-in tool")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAgent(AgentJudged):
    name: str
    config: Config
    version: int
    sessions: int
    sites: list[str]
    bots: list[str]
    presets: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(ChangedAgent):
    models: list[str]
    tools: list[AgentTool]
    servers: list[str]
    other_sites: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHandlers:
    """Handlers of agents: their configs and versions, and a test conversation with a draft."""

    settings: Settings
    agents: PostgresAgents
    agent_service: AgentService
    playground: Playground | None
    sites: PostgresSites
    stored_settings: PostgresStoredSettings

    @router.on("GET /agents", role="viewer")
    async def list_agents(self, authed: AuthedRequest) -> Agents:
        """List agents and the sites they answer."""
        return Agents(agents=[_listed(row, self.settings) for row in await self.agents.list_all()])

    @router.on("POST /agents", status=201, role="admin", body="NewName", strict=True, refusals=(409,))
    async def make_agent(self, authed: AuthedRequest, *, name: NewName) -> CreatedObject:
        """Create an agent with the deployment's settings."""
        await self.agent_service.create_agent(name, by=authed.operator.name)
        return CreatedObject(name=name)

    @router.on("GET /agents/{name}", role="viewer")
    async def agent(self, authed: AuthedRequest, name: Name) -> Agent:
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
            AgentTool(name=name, description=tool.description, server=server)
            for name, (tool, server) in known.items()
        ]
        others = [site.name for site in await self.sites.list_all() if site.name not in row.sites]
        return Agent(
            **_stored(row),
            problems=judged.problems,
            remarks=judged.remarks,
            effective=judged.effective,
            models=sorted(ground.models),
            tools=tools,
            servers=sorted(ground.servers or ()),
            other_sites=others,
        )

    @router.on(
        "POST /agents/{name}/check", role="admin", body="AgentSettings", strict=True,
        refusals=(404, 413, 503),
    )  # fmt: skip
    async def check_agent(self, authed: AuthedRequest, name: Name, *, config: Config) -> AgentJudged:
        """Validate a config and calculate its limits."""
        row = await find_agent(self.agents, name)
        check_size(config)
        return await asyncio.to_thread(_judged, config, await self._ground(config, stored=row.config))

    @router.on(
        "PUT /agents/{name}", role="admin", body="AgentSettings", strict=True,
        refusals=(404, 409, 413, 422, 428, 503),
    )  # fmt: skip
    async def change_agent(
        self, authed: AuthedRequest, name: Name, *, config: Config, if_match: Seen = ""
    ) -> ChangedAgent:
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
            theirs = _stored(await find_agent(self.agents, name))
            raise build_stale_refusal(yours=config, theirs=theirs) from None
        judged = await asyncio.to_thread(_judged, config, ground)
        return ChangedAgent(
            **_stored(await find_agent(self.agents, name)),
            problems=judged.problems,
            remarks=judged.remarks,
            effective=judged.effective,
        )

    @router.on(
        "POST /agents/{name}/sites",
        role="admin",
        body="SiteForAgent",
        strict=True,
        refusals=(404,),
    )
    async def give_site(
        self, authed: AuthedRequest, name: Name, *, site: SiteName, existing: bool = False
    ) -> SiteGiven:
        """Assign an agent to a site.

        New conversations use the agent; with `existing`, current ones do as well.
        """
        by = authed.operator.name
        moved = await self.agent_service.assign_site(name, site, existing=existing, by=by)
        return SiteGiven(site=site, moved=moved)

    @router.on(
        "POST /agents/{name}/try", role="admin", body="PlaygroundTalk", strict=True,
        refusals=(404, 409, 413, 422, 503),
    )  # fmt: skip
    async def try_agent(
        self, authed: AuthedRequest, name: Name, *, config: Config, messages: Talk
    ) -> PlaygroundReply:
        """Try a draft config in a test conversation.

        Only the cost is stored. Tools that change anything are not run.
        """
        row = await find_agent(self.agents, name)
        check_size(config)
        if (playground := self.playground) is None:
            raise HttpRefusal(503, "unavailable", "Nothing can be changed from here just now.")
        ground = await self._ground(config, stored=row.config)
        judged = await asyncio.to_thread(_judged, config, ground)
        if judged.problems:
            raise _build_config_refusal(judged.problems)
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
        return PlaygroundReply(
            text=answer.text,
            model=answer.model,
            tools=[ToolCall(name=call.name, arguments=dict(call.input)) for call in answer.tools],
            context_tokens=answer.context_tokens,
            cost_micro=answer.cost_micro,
        )

    @router.on("GET /agents/{name}/versions", role="viewer", refusals=(404,))
    async def agent_versions(self, authed: AuthedRequest, name: Name) -> AgentVersions:
        """List former versions of an agent, newest first.

        The list is empty before the first change.
        """
        found = await self.agents.list_versions((await find_agent(self.agents, name)).id)
        return AgentVersions(
            versions=[AgentVersionMade(version=version, by=by, at=iso(at)) for version, by, at in found]
        )

    @router.on(
        "GET /agents/{name}/versions/{version}", role="viewer",
        missing="There is nothing at this address.",
    )  # fmt: skip
    async def agent_version(self, authed: AuthedRequest, name: Name, version: Version) -> AgentVersion | None:
        """Get a former version with its difference to now.

        To return to it, store its config as the current one.
        """
        row = await find_agent(self.agents, name)
        config = await self.agents.load_version(row.id, version)
        if config is None:
            return None
        lines = await asyncio.to_thread(_changes, config, row.config)
        return AgentVersion(version=version, config=dict(config), lines=lines)

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


def _changes(former: Mapping[str, Any], now: Mapping[str, Any]) -> list[DiffLine]:
    return list(compare_lines(_lines(former), _lines(now)))


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


def _judged(config: Mapping[str, Any], ground: AgentDefaults) -> AgentJudged:
    try:
        remarks = check_config(config, ground)
    except BadAgentConfig as error:
        return AgentJudged(problems=list(error.problems), remarks=[], effective=None)
    return AgentJudged(problems=[], remarks=list(remarks), effective=_effective(config, ground))


def _effective(config: Mapping[str, Any], ground: AgentDefaults) -> EffectiveAgent:
    found = resolve_effective_config(config, ground)
    return EffectiveAgent(
        preset=config.get("preset") or ground.policy.name,
        settings=_settings(found, ground, own=config.get("context") or {}),
        budget=found.budget,
        tools=list(found.tools),
        prompt=found.prompt,
        prompt_tokens=found.prompt_tokens,
    )


def _settings(
    found: EffectiveConfig, ground: AgentDefaults, *, own: Mapping[str, Any]
) -> list[EffectiveSetting]:
    """Return the numbers of the policy, each with its source; `own` are those that the agent sets."""
    inherited, deployment = found.inherited.to_settings(), ground.policy.to_settings()
    return [
        EffectiveSetting(
            name=name,
            value=value,
            inherited=inherited[name],
            deployment=deployment[name],
            from_="agent" if name in own else "preset" if value != deployment[name] else "deployment",
        )
        for name, value in found.policy.to_settings().items()
    ]


def _stored(row: AgentRow) -> dict[str, Any]:
    """Return the fields of `ChangedAgent` that are stored."""
    return {
        "name": row.name, "config": dict(row.config), "version": row.version, "sessions": row.sessions,
        "sites": list(row.sites), "bots": list(row.bots), "presets": sorted(PRESETS),
    }  # fmt: skip


def _listed(row: AgentRow, settings: Settings) -> ListedAgent:
    config = row.config
    return ListedAgent(
        name=row.name,
        version=row.version,
        sessions=row.sessions,
        sites=list(row.sites),
        bots=list(row.bots),
        called=config.get("name"),
        persona=bool(config.get("persona")),
        model=config.get("model") or settings.model or None,
        preset=config.get("preset") or settings.preset,
        overrides=len(config.get("context") or {}),
        audience=config.get("audience"),
    )
