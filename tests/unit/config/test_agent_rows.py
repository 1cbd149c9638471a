"""An agent's row is checked as a whole: each problem with its place, what was given, and what is meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.bootstrap.from_settings import BUILT_IN_TOOLS, list_tool_specs
from shared.config.agents import (
    PERSONA_CHARS,
    AgentDefaults,
    BadAgentConfig,
    check_config,
    read_config,
    resolve_effective_config,
)
from shared.config.settings import load_settings
from shared.core.context.agents import Workspace
from shared.core.presets.catalog import preset

GROUND = AgentDefaults(policy=preset("steady"), models=frozenset({"claude-sonnet-5-5", "local"}))
FULL: dict[str, Any] = {
    "name": "Ada's helper", "persona": "You are Ada.", "workspace": "ada", "model": "claude-sonnet-5-5",
    "models": ["claude-sonnet-5-5", "local"], "modes": {"brief": "One word."}, "summary_model": "local",
    "preset": "arawn", "context": {"max_rounds": 20, "history_turns": {"telegram": 50}},
    "pruning": {"deny": ["*_contract"]}, "audience": "public",
    "tools": {
        "allow": ["*"], "deny": ["fetch_url"],
        "provider": [{"type": "web_search_20260101", "name": "web_search", "max_uses": 3}],
    },
    "helper_model": "local",
    "caps": {"person_per_day_usd": 1, "session_usd": 5.5}, "memory": {"recall_tokens": 1200},
}  # fmt: skip


def problems_of(config: object, ground: AgentDefaults = GROUND) -> tuple[str, ...]:
    with pytest.raises(BadAgentConfig) as caught:
        check_config(config, ground)
    return caught.value.problems


def test_servers_are_checked_where_their_names_are_known() -> None:
    config = {"tools": {"servers": ["time", "fiels"]}}
    assert check_config(config, GROUND) == ()
    known = replace(GROUND, servers=frozenset({"time", "files"}))
    assert check_config({"tools": {"servers": ["time"]}}, known) == ()
    (told,) = problems_of(config, known)
    assert told == 'tools.servers[1]: there is no server "fiels"; did you mean files?'
    (told,) = problems_of({"tools": {"servers": ["x"]}}, replace(GROUND, servers=()))
    assert told.endswith('no server "x", so add it under MCP servers or take it out of this list')


@pytest.mark.parametrize("config", [{}, FULL, {"persona": None, "tools": None, "context": None}])
def test_what_can_be_used_is_used_without_a_word(config: dict[str, Any]) -> None:
    assert check_config(config, GROUND) == ()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"personna": "x"}, "personna: there is no such key; did you mean persona?"),
        ({"zzz": 1}, "zzz: there is no such key; choose one of audience, caps, context"),
        ({"tools": {"alow": ["*"]}}, "tools.alow: there is no such key; did you mean allow?"),
        ({"tools": {"allow": "*"}}, 'tools.allow: must be a list, not "*"'),
        ({"tools": {"deny": ["a", 3]}}, "tools.deny[1]: must be a text, not 3"),
        ({"tools": {"deny": [""]}}, 'tools.deny[0]: must not be empty, not ""'),
        ({"tools": {"provider": [{"name": "x"}]}}, "tools.provider[0].type: is missing"),
        ({"tools": ["*"]}, 'tools: must be an object, not ["*"]'),
        ({"caps": {"session_usd": "five"}}, 'caps.session_usd: must be a number, not "five"'),
        ({"caps": {"session_usd": -1}}, "caps.session_usd: must be at least 0, not -1"),
        ({"caps": {"session_usd": True}}, "caps.session_usd: must be a number, not true"),
        ({"caps": {"sesion_usd": 1}}, "caps.sesion_usd: there is no such key; did you mean session_usd?"),
        ({"memory": {"recall_tokens": 1.5}}, "memory.recall_tokens: must be a whole number, not 1.5"),
        ({"memory": {"recall_tokens": 10**9}}, "memory.recall_tokens: must be at most 4000, not 1000000000"),
        (
            {"audience": "pubic"},
            "audience: must be 'personal' or 'public', not \"pubic\"; did you mean public?",
        ),
        ({"persona": 7}, "persona: must be a text, not 7"),
        (
            {"persona": "x" * (PERSONA_CHARS + 1)},
            "persona: may have 50000 characters at most; this has 50,001",
        ),
        ({"name": ""}, 'name: must not be empty, not ""'),
        ({"modes": {"Very Rude": "x"}}, "modes.Very Rude: a mode's name has 1 to 20 of a-z, 0-9, _ and -"),
        ({"modes": {"rude": ""}}, 'modes.rude: must not be empty, not ""'),
        ({"models": "local"}, 'models: must be a list, not "local"'),
        ({"preset": "stedy"}, "preset: there is no 'stedy'; did you mean steady?"),
        ({"preset": 3}, "preset: there is no 3"),
        (
            {"context": {"max_round": 3}},
            "context.max_round: there is no such setting; did you mean max_rounds?",
        ),
        ({"context": {"max_rounds": "x"}}, "context.max_rounds: must be a whole number or null, not 'x'"),
        ({"context": []}, None),
        ({"context": [1]}, "context: must be an object of settings by name, not [1]"),
        ({"pruning": {"toools": []}}, "pruning.toools is not known (known are deny, tools)"),
        ({"workspace": "../../etc"}, "workspace: must be a name below workspaces, or an absolute path"),
        ({"workspace": "/"}, 'workspace: must be a folder of its own, not "/"'),
        ({"persona": "a\x00b"}, "persona: holds characters that cannot be stored"),
        ({"persona": "\ud800"}, "persona: holds characters that cannot be stored"),
        ([], "must be an object such as {}, not []"),
        ("x", 'must be an object such as {}, not "x"'),
        (None, "must be an object such as {}, not null"),
    ],
)  # fmt: skip
def test_each_problem_is_named_with_its_place_and_what_is_meant(config: object, told: str | None) -> None:
    if told is None:
        check_config(config, GROUND)
        return
    assert any(problem.startswith(told) for problem in problems_of(config)), problems_of(config)


def test_all_problems_are_named_at_once() -> None:
    wrong = {
        "personna": "x", "caps": {"session_usd": -1}, "tools": {"allow": [1, 2]}, "preset": "x",
        "context": {"max_round": 1, "keep_turns": "y"}, "pruning": {"x": 1, "deny": 3},
    }  # fmt: skip
    places = [problem.split(":")[0].split(" ")[0] for problem in problems_of(wrong)]
    assert set(places) == {
        "personna", "caps.session_usd", "tools.allow[0]", "tools.allow[1]", "preset", "context.max_round",
        "context.keep_turns", "pruning.x", "pruning.deny",
    }  # fmt: skip


def test_numbers_that_contradict_each_other_are_refused_with_the_numbers() -> None:
    (told,) = problems_of({"context": {"context_window": 8_000, "overhead": 9_000}})
    assert "9000" in told.replace(",", "") or "8000" in told.replace(",", "")


def test_persona_over_half_the_limit_is_refused_with_its_numbers() -> None:
    wrong: dict[str, Any] = {"persona": "Be kind to everybody. " * 1_500}
    wrong["context"] = {"context_window": 16_000, "reserve": 2_000}
    (told,) = problems_of(wrong)
    assert told.startswith("context: system and tools take ")
    assert "more than" in told


def test_files_of_the_folder_count_with_the_persona() -> None:
    heavy = Workspace(files=(("AGENTS.md", "Be kind to everybody. " * 1_500),))
    ground = AgentDefaults(policy=preset("steady"), load_workspace=lambda _: heavy)
    config = {"workspace": "ada", "context": {"context_window": 12_000, "reserve": 2_000}}
    assert check_config(config, GROUND) == ()
    assert problems_of(config, ground)[0].startswith("context: system and tools take ")


@pytest.mark.parametrize("name", ["pantheon", "arawn", "claude-code", "openclaw", "goclaw", "steady"])
@pytest.mark.parametrize("window", [8_192, 16_000])
def test_a_small_window_of_its_own_is_accepted_as_the_operators_is(name: str, window: int) -> None:
    """With fewer tools, as such a window is offered them."""
    all_tools = AgentDefaults(policy=preset("steady"), tools=BUILT_IN_TOOLS)
    remarks = check_config({"preset": name, "context": {"context_window": window}}, all_tools)
    assert [remark for remark in remarks if "do not fit a fifth of the window" not in remark] == []
    made = resolve_effective_config({"preset": name, "context": {"context_window": window}}, all_tools)
    assert made.budget.conversation > made.budget.fixed
    assert len(made.tools) < len(BUILT_IN_TOOLS) if window == 8_192 else len(made.tools) > 3


@pytest.mark.parametrize(("handover", "url"), [("on", None), ("off", "http://127.0.0.1:1/v1")])
def test_agents_are_checked_with_the_tools_of_the_installation(handover: str, url: str | None) -> None:
    settings = load_settings().model_copy(update={"handover": handover, "picture_url": url})
    names = {tool.name for tool in list_tool_specs(settings)}
    assert {"ask_human", "make_picture"} & names == ({"ask_human"} if handover == "on" else {"make_picture"})
    assert names | {"ask_human", "make_picture"} == {tool.name for tool in BUILT_IN_TOOLS} | {"make_picture"}


def test_an_unknown_model_is_allowed_with_a_remark() -> None:
    told = check_config({"model": "claude-sonet-5-5", "models": ["local", "zzz"]}, GROUND)
    assert told == (
        'model: nothing is known of a model "claude-sonet-5-5"; did you mean claude-sonnet-5-5?',
        'models[1]: nothing is known of a model "zzz"',
    )


def test_tools_without_room_are_named_in_a_remark() -> None:
    ground = replace(
        GROUND,
        tools=BUILT_IN_TOOLS,
        context_window=8_192,
        policy=replace(GROUND.policy, context_window=8_192),
    )
    (remark,) = check_config({}, ground)
    assert f"of {len(BUILT_IN_TOOLS)} do not fit a fifth of the window of 8,192 tokens" in remark
    assert "delegate" in remark
    made = resolve_effective_config({"tools": {"allow": ["*", "delegate"]}}, ground)
    assert "delegate" in made.tools
    assert check_config({}, replace(GROUND, tools=BUILT_IN_TOOLS)) == ()


def test_a_folder_that_is_not_there_is_allowed_with_a_remark() -> None:
    ground = AgentDefaults(
        policy=preset("steady"), load_workspace=lambda _: Workspace(problems=("x is not there",))
    )
    assert check_config({"workspace": "x"}, ground) == ("workspace: x is not there",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, column 1: is not JSON"),
        ('{"a": 1,}', "line 1, column "),
        ('{\n"a" 1}', "line 2, column 5: is not JSON"),
        ('{"persona": "a", "persona": "b"}', "persona: stands twice in the same object"),
        ('{"caps": {"session_usd": NaN}}', "NaN is no number that JSON knows"),
        ('{"caps": {"session_usd": -Infinity}}', "-Infinity is no number"),
        ("[" * 100_000, "is nested too deeply"),
        ('"' + "x" * 300_000 + '"', "has 300,002 characters; 200,000 is the most"),
    ],
)
def test_json_that_cannot_be_kept_as_it_was_meant_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadAgentConfig) as caught:
        read_config(text)
    assert str(caught.value).startswith(told)


def test_raised_limit_is_taken_up_to_the_hard_limit_and_refused_beyond() -> None:
    hard = resolve_effective_config({}, GROUND).budget.hard
    assert resolve_effective_config({"context": {"compact_at": hard}}, GROUND).budget.limit == hard
    (told,) = problems_of({"context": {"compact_at": hard + 1}})
    assert told == (
        f"context: compact_at={hard + 1} is above the hard limit; the largest allowed number is {hard}"
    )
    (told,) = problems_of({"context": {"compact_at": 1}})
    assert "the smallest allowed number is" in told
