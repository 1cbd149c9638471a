"""Agents for operators: the rules by which shell and REST create, change, assign and delete them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shared.config.agents import AGENT_NAME, MOST_CHARS, AgentDefaults, AgentRow, check_config
from shared.config.bots import DEFAULT_AGENT
from shared.core.values.errors import BadInput, EvertalkError, NotFound


class AgentStore(Protocol):
    """Store of agents; changes are in the audit log under `by`.

    `find` and `find_bot_id` return None for an unknown name, `create` False if the name is taken, `change`
    the new version, None if the agent's version is not `seen`. `delete` returns False if the agent is in use.
    `move_sessions` returns the number of sessions that changed agent.
    """

    async def find(self, name: str) -> AgentRow | None: ...
    async def create(self, name: str, config: Mapping[str, Any], *, by: str) -> bool: ...
    async def change(self, name: str, config: Mapping[str, Any], *, seen: int, by: str) -> int | None: ...
    async def delete(self, name: str, *, by: str) -> bool: ...
    async def move_sessions(self, agent: str, *, channel: str, account: str, by: str) -> int: ...
    async def find_bot_id(self, name: str) -> int | None: ...


class AssignedSites(Protocol):
    """Store of the agent that answers a site's new conversations; False if the site or the agent does not
    exist.
    """

    async def assign_agent(self, name: str, agent: str, *, by: str) -> bool: ...


class BadAgentName(BadInput):
    """Invalid name of an agent."""

    sentence = "Invalid name of an agent."
    advice = "A name of an agent has 1 to 40 of a-z, 0-9, _ and -, no mark first."


class AgentExists(EvertalkError):
    """The name of an agent is taken."""

    sentence = "The name of an agent is taken."
    code = "name_taken"
    advice = "An agent with that name already exists."


class AgentNotFound(NotFound):
    """Unknown agent."""

    sentence = "Unknown agent."
    advice = "There is no such agent."


class SiteNotFound(NotFound):
    """Unknown site."""

    sentence = "Unknown site."
    advice = "There is no such site."


class BotNotFound(NotFound):
    """Unknown bot."""

    sentence = "Unknown bot."
    advice = "There is no such bot."


class AgentTooLarge(EvertalkError):
    """The config of an agent is too long."""

    sentence = "The config of an agent is too long."
    code = "too_large"
    advice = f"A config has {MOST_CHARS:,} characters at most."


class StaleAgent(EvertalkError):
    """Another operator has changed the agent."""

    sentence = "Another operator has changed the agent."
    code = "stale"
    advice = "Another operator changed this meanwhile: your changes were not saved."

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version}")
        self.version = version
        """Version of the stored agent."""


class DefaultAgentStays(EvertalkError):
    """The default agent cannot be deleted."""

    sentence = "The default agent cannot be deleted."
    code = "default_agent"
    advice = f"{DEFAULT_AGENT} stays: whoever has no other agent has this one."


class AgentInUse(EvertalkError):
    """Conversations, sites or bots use the agent."""

    sentence = "Conversations, sites or bots use the agent."
    code = "agent_in_use"
    advice = "This agent still answers. Assign its conversations, sites and bots to another agent first."

    def __init__(self, agent: AgentRow) -> None:
        super().__init__(agent.name)
        self.agent = agent


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConfig:
    """Version of a stored config, with remarks on probable mistakes."""

    version: int
    remarks: tuple[str, ...] = ()


class AgentService:
    """Changes of agents, each in the audit log under its actor `by`. Raises StorageUnavailable."""

    def __init__(self, agents: AgentStore, sites: AssignedSites) -> None:
        self._agents = agents
        self._sites = sites

    async def find_agent(self, name: str) -> AgentRow:
        """Return the row of an agent. Raises AgentNotFound."""
        row = await self._agents.find(name)
        if row is None:
            raise AgentNotFound(name)
        return row

    async def create_agent(self, name: str, *, by: str) -> None:
        """Create an agent with an empty config, so that the deployment's settings apply. Raises BadAgentName,
        AgentExists.
        """
        if not AGENT_NAME.fullmatch(name):
            raise BadAgentName(name)
        if not await self._agents.create(name, {}, by=by):
            raise AgentExists(name)

    async def change_agent(
        self, name: str, config: Mapping[str, Any], *, seen: int, defaults: AgentDefaults, by: str
    ) -> StoredConfig:
        """Check a config and store it as a new version of an agent that has version `seen`; return the
        version.

        A workspace that the agent already has is accepted, even outside of the workspaces' folder. Raises
        AgentNotFound, AgentTooLarge, BadAgentConfig, and StaleAgent if another operator has changed it.
        """
        row = await self.find_agent(name)
        remarks = await self._check(config, replace(defaults, stored_workspace=row.config.get("workspace")))
        version = await self._agents.change(row.name, config, seen=seen, by=by)
        if version is None:
            raise StaleAgent((await self.find_agent(name)).version)
        return StoredConfig(version=version, remarks=remarks)

    async def import_agent(
        self, name: str, config: Mapping[str, Any], *, seen: int | None, defaults: AgentDefaults, by: str
    ) -> StoredConfig:
        """Create an agent with a config, or replace the config of the agent of that name; return the version.

        `seen` is the version that may be replaced, None for any. Raises BadAgentName, AgentTooLarge,
        BadAgentConfig, StaleAgent.
        """
        if not AGENT_NAME.fullmatch(name):
            raise BadAgentName(name)
        row = await self._agents.find(name)
        if row is not None:
            expected = row.version if seen is None else seen
            return await self.change_agent(name, config, seen=expected, defaults=defaults, by=by)
        remarks = await self._check(config, defaults)
        if not await self._agents.create(name, config, by=by):
            raise StaleAgent(1)
        return StoredConfig(version=1, remarks=remarks)

    async def delete_agent(self, name: str, *, by: str) -> None:
        """Delete an agent with its versions and indexed knowledge.

        Raises AgentNotFound, DefaultAgentStays, and AgentInUse if conversations, sites or bots still use it.
        """
        row = await self.find_agent(name)
        if row.name == DEFAULT_AGENT:
            raise DefaultAgentStays(name)
        if not await self._agents.delete(row.name, by=by):
            raise AgentInUse(await self.find_agent(name))

    async def assign_site(self, name: str, site: str, *, existing: bool, by: str) -> int:
        """Let an agent answer new conversations of a site, with `existing` also those that it has.

        Returns the number of existing conversations that changed agent. Raises AgentNotFound, SiteNotFound.
        """
        row = await self.find_agent(name)
        if not await self._sites.assign_agent(site, row.name, by=by):
            raise SiteNotFound(site)
        if not existing:
            return 0
        return await self._agents.move_sessions(row.name, channel="web", account=site, by=by)

    async def find_bot(self, name: str) -> int:
        """Return the id of the bot with this id or user name. Raises BotNotFound."""
        bot = await self._agents.find_bot_id(name)
        if bot is None:
            raise BotNotFound(name)
        return bot

    async def move_bot_sessions(self, name: str, bot: int, *, by: str) -> int:
        """Assign the conversations of a bot to an agent, and return their number. Raises AgentNotFound."""
        row = await self.find_agent(name)
        return await self._agents.move_sessions(row.name, channel="telegram", account=str(bot), by=by)

    async def _check(self, config: Mapping[str, Any], defaults: AgentDefaults) -> tuple[str, ...]:
        check_size(config)
        return await asyncio.to_thread(check_config, config, defaults)


def check_size(config: Mapping[str, Any]) -> None:
    """Check that a config as JSON without blanks has at most `MOST_CHARS` characters. Raises
    AgentTooLarge.
    """
    if len(json.dumps(config, ensure_ascii=False, separators=(",", ":"))) > MOST_CHARS:
        raise AgentTooLarge
