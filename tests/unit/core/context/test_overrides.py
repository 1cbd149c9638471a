"""What an agent's row may say of its context, and how it is told what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.context.overrides import (
    BadContextConfig,
    agent_policy,
    deployment_policy,
    parse_history_turns,
)
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.policy import ContextPolicy, ContradictoryPolicy

STEADY = preset("steady")


def own(config: dict[str, Any], **more: Any) -> ContextPolicy:
    return agent_policy(STEADY, config, **more)


def problems(config: dict[str, Any]) -> str:
    with pytest.raises(BadContextConfig) as refused:
        own(config)
    assert refused.value.code == "bad_context_config"
    return "\n".join(refused.value.problems)


@pytest.mark.parametrize(
    "config", [{}, {"persona": "a pirate", "model": "x"}, {"preset": None, "context": {}}]
)
def test_an_agent_that_says_nothing_has_the_deployments_policy(config: dict[str, Any]) -> None:
    assert own(config) is STEADY


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_an_agent_may_choose_every_preset(name: str) -> None:
    assert own({"preset": name}) == preset(name)


def test_single_numbers_change_the_preset_or_the_deployments_policy() -> None:
    assert own({"context": {"soft_budget": 60_000}}).soft_budget == 60_000
    made = own({"preset": "arawn", "context": {"critical_at": 0.95, "keep_turns": 4}})
    assert (made.name, made.critical_at, made.keeping.keep_turns) == ("arawn", 0.95, 4)


def test_operator_numbers_apply_to_presets_and_agent_values_win() -> None:
    given = {"max_output": 1_000, "max_rounds": 7}
    made = own({"preset": "spec008", "context": {"max_rounds": 3}}, context_window=100_000, given=given)
    assert (made.context_window, made.max_output, made.keeping.max_rounds) == (100_000, 1_000, 3)
    assert made == agent_policy(
        deployment_policy("spec008", context_window=100_000, given=given), {"context": {"max_rounds": 3}}
    )


@pytest.mark.parametrize("window", [8_192, 16_000, 128_000])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_window_of_the_agents_own_is_fitted_like_the_operators(name: str, window: int) -> None:
    config = {"preset": name, "context": {"context_window": window}}
    assert own(config) == deployment_policy(name, context_window=window)
    assert agent_policy(PRESETS[name], {"context": {"context_window": window}}) == own(config)


def test_numbers_beside_an_agents_own_window_are_its_own_too() -> None:
    assert own({"context": {"context_window": 16_000, "reserve": 3_000}}).reserve == 3_000
    assert "reserve=16000" in problems({"context": {"context_window": 16_000, "reserve": 16_000}})


def test_null_takes_a_limit_away() -> None:
    assert own({"preset": "chatbox", "context": {"window_messages": None}}).keeping.window_messages is None


def test_lists_and_turns_by_channel_are_written_as_json_has_them() -> None:
    made = own({"context": {"flush_shares": [0.5, 0.9], "history_turns": {"web": 200, "telegram": 50}}})
    assert made.timing.flush_shares == (0.5, 0.9)
    assert made.keeping.history_turns == (("telegram", 50), ("web", 200))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"preset": "panteon"}, "there is no 'panteon'; did you mean pantheon?"),
        ({"preset": 7}, "there is no 7"),
        ({"preset": ["steady"]}, "there is no"),
        ({"context": []}, None),
        ({"context": "much"}, "must be an object"),
        (
            {"context": {"soft_bugdet": 1}},
            "context.soft_bugdet: there is no such setting; did you mean soft_budget?",
        ),
        ({"context": {"name": "mine"}}, "context.name: there is no such setting"),
        ({"context": {"keep_turns": "5"}}, "context.keep_turns: must be a whole number, not '5'"),
        ({"context": {"keep_turns": True}}, "must be a whole number, not True"),
        ({"context": {"keep_turns": None}}, "must be a whole number, not None"),
        ({"context": {"soft_budget": 1.5}}, "must be a whole number or null, not 1.5"),
        ({"context": {"warning_at": "high"}}, "must be a number, not 'high'"),
        ({"context": {"compact_auto": 1}}, "must be true or false, not 1"),
        ({"context": {"prune_cleared": 1}}, "must be a text, not 1"),
        ({"context": {"summariser": "me"}}, "must be one of cheap, warm, auto, own, not 'me'"),
        ({"context": {"summariser": {}}}, "must be one of"),
        ({"context": {"flush_shares": 0.5}}, "must be a list of numbers"),
        ({"context": {"history_turns": {"fax": 5}}}, "must be turns by channel"),
        ({"context": {"history_turns": {"web": "5"}}}, "must be turns by channel"),
        ({"context": {"history_turns": {"web": 0}}}, "history_turns of web=0"),
        ({"context": {"max_rounds": 0}}, "max_rounds=0"),
        ({"context": {"reserve": 200_000}}, "reserve=200000.*context_window=200000"),
        ({"context": {"warning_at": 0.95}}, "warning_at=0.95.*critical_at=0.9"),
        ({"context": {"prune_mark": "{x}"}}, "prune_mark='{x}'"),
        (
            {"preset": "pantheon", "context": {"compact_after_turns": 4}},
            "compact_after_turns=4.*keep_turns=4",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_its_numbers(config: dict[str, Any], told: str | None) -> None:
    import re

    if told is None:
        assert own(config) is STEADY
        return
    assert re.search(told.replace("?", r"\?") if ".*" not in told else told, problems(config))


def test_every_problem_is_named_at_once() -> None:
    told = problems({"preset": "stedy", "context": {"keep": 1, "reserve": "x"}})
    assert all(word in told for word in ("stedy", "context.keep:", "context.reserve:"))


def test_every_field_can_be_set_to_what_it_is() -> None:
    for one in PRESETS.values():
        values = one.to_settings()
        values["history_turns"] = dict(one.keeping.history_turns)
        values["flush_shares"] = list(one.timing.flush_shares)
        assert own({"preset": one.name, "context": values}) == one


def test_a_deployment_is_refused_for_what_contradicts_itself() -> None:
    with pytest.raises(ContradictoryPolicy, match="keep_turns=0"):
        deployment_policy("steady", given={"keep_turns": 0})


def test_a_window_is_the_presets_own_unless_the_operator_gives_one() -> None:
    assert deployment_policy("lobechat").context_window == 128_000
    assert deployment_policy("lobechat", context_window=64_000).context_window == 64_000
    assert deployment_policy("pantheon").max_output == 2_048


def test_turns_by_channel_are_read_from_one_word_each() -> None:
    assert parse_history_turns("web=200 telegram=50") == (("telegram", 50), ("web", 200))
    assert parse_history_turns(" telegram=50,web=200 ") == (("telegram", 50), ("web", 200))
    assert parse_history_turns("") == ()
    for wrong in ("fax=5", "telegram", "web=0", "web=-1", "web=many"):
        with pytest.raises(ValueError, match=r"telegram=50|web=50"):
            parse_history_turns(wrong)
