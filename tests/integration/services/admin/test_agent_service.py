"""Rules of agents, which shell and REST share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.bootstrap.from_settings import build_agent_defaults
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import build_stores
from shared.config.agents import AgentDefaults, BadAgentConfig
from shared.config.settings import load_settings
from shared.services.admin.agent_service import (
    AgentExists,
    AgentInUse,
    AgentNotFound,
    AgentService,
    AgentTooLarge,
    BadAgentName,
    DefaultAgentStays,
    SiteNotFound,
    StaleAgent,
)
from tests.kit.audit import read_audit


@pytest.fixture
def agent_service(pool: Any) -> AgentService:
    return build_operator_services(build_stores(pool)).agents


@pytest.fixture
def agent_defaults(tmp_path: Path) -> AgentDefaults:
    return build_agent_defaults(load_settings(data_dir=tmp_path))


async def test_each_change_of_an_agent_names_its_actor(
    agent_service: AgentService, agent_defaults: AgentDefaults, pool: Any
) -> None:
    await agent_service.create_agent("ada", by="anna")
    stored = await agent_service.change_agent("ada", {}, seen=1, defaults=agent_defaults, by="anna")
    assert stored.version == 2
    assert await agent_service.assign_site("ada", "default", existing=True, by="anna") == 0
    await agent_service.assign_site("default", "default", existing=False, by="anna")
    await agent_service.delete_agent("ada", by="anna")
    entries = [(entry.actor, entry.action) for entry in await read_audit(pool)]
    assert entries == [
        ("anna", action)
        for action in (
            "agent.made", "agent.changed", "site.changed", "agent.took_over", "site.changed", "agent.deleted",
        )
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "Ada", "-a", "a b", "a" * 41, "ü", "\x00"])
async def test_bad_name_of_an_agent_is_refused(
    agent_service: AgentService, agent_defaults: AgentDefaults, name: str, pool: Any
) -> None:
    with pytest.raises(BadAgentName):
        await agent_service.create_agent(name, by="anna")
    with pytest.raises(BadAgentName):
        await agent_service.import_agent(name, {}, seen=None, defaults=agent_defaults, by="anna")
    assert await read_audit(pool) == []


async def test_refused_change_of_an_agent_leaves_no_trace(
    agent_service: AgentService, agent_defaults: AgentDefaults, pool: Any
) -> None:
    with pytest.raises(AgentExists):
        await agent_service.create_agent("default", by="anna")
    for name, config, seen, error in (
        ("default", {"personna": ""}, 1, BadAgentConfig), ("default", {}, 7, StaleAgent),
        ("nobody", {}, 1, AgentNotFound), ("default", {"persona": "x" * 200_000}, 1, AgentTooLarge),
    ):  # fmt: skip
        with pytest.raises(error):
            await agent_service.change_agent(name, config, seen=seen, defaults=agent_defaults, by="anna")
    with pytest.raises(SiteNotFound):
        await agent_service.assign_site("default", "nowhere", existing=True, by="anna")
    with pytest.raises(DefaultAgentStays):
        await agent_service.delete_agent("default", by="anna")
    assert await read_audit(pool) == []


async def test_agent_in_use_is_named_with_its_sites(agent_service: AgentService) -> None:
    await agent_service.create_agent("ada", by="anna")
    await agent_service.assign_site("ada", "default", existing=False, by="anna")
    with pytest.raises(AgentInUse) as refused:
        await agent_service.delete_agent("ada", by="anna")
    assert refused.value.agent.sites == ("default",)


async def test_workspace_outside_of_the_folder_stays_when_it_is_stored(
    agent_service: AgentService, agent_defaults: AgentDefaults, pool: Any, tmp_path: Path
) -> None:
    inside = replace(agent_defaults, workspaces=tmp_path / "workspaces")
    outside = {"workspace": str(tmp_path / "elsewhere")}
    with pytest.raises(BadAgentConfig):
        await agent_service.change_agent("default", outside, seen=1, defaults=inside, by="anna")
    await agent_service.change_agent("default", outside, seen=1, defaults=agent_defaults, by="anna")
    stored = await agent_service.change_agent("default", outside, seen=2, defaults=inside, by="anna")
    assert stored.version == 3
