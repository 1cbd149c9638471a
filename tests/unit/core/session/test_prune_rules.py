"""Rules by tool name: globs, the first that matches, deny before all, and errors that name the place."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_rules import BadPruneRules, PruneRules, prune_rules
from shared.core.session.pruning import PruneDecision, apply_decisions, apply_pruning, plan_pruning
from shared.core.session.session import Entry
from shared.core.values.messages import ToolResult, ToolUse, tool_results
from tests.kit.builders import entry, exchanges, tool_turn

LONG = "abcdefghij" * 900


def _policy(section: dict[str, Any], name: str = "spec008", *pruners: Any) -> ContextPolicy:
    return preset(name).with_settings(prune_rules=prune_rules(section, pruners))


def _log(tool: str, text: str, *, after: int) -> list[Entry]:
    return [*tool_turn(1, text, seq=1, name=tool), *exchanges(after, first=100)]


def _shown(log: list[Entry], policy: ContextPolicy) -> str:
    decisions = plan_pruning(log, policy, cache_cold=True)
    return tool_results(apply_pruning(apply_decisions(log, decisions)[2], policy))[0].text


def test_names_match_by_glob_whatever_their_case_and_deny_wins() -> None:
    rules = prune_rules({"tools": [{"match": "Fetch_*", "rule": "clear"}], "deny": ["*_secret"]})
    assert rules.of("fetch_page") is not None
    assert rules.of("search") is None
    denied = rules.of("FETCH_secret")
    assert denied is not None
    assert denied.rule == "never"


def test_the_first_rule_that_matches_decides() -> None:
    rules = prune_rules(
        {"tools": [{"match": "a*", "rule": "never"}, {"match": "ab", "rule": "clear"}, {"match": "*"}]}
    )
    assert [rules.of(name).rule for name in ("ab", "b")] == ["never", "usual"]  # type: ignore[union-attr]


@pytest.mark.parametrize("rules", [{"deny": ["look_*"]}, {"tools": [{"match": "look_up", "rule": "never"}]}])
def test_a_denied_tool_keeps_every_word(rules: dict[str, Any]) -> None:
    assert _shown(_log("look_up", LONG, after=12), _policy(rules)) == LONG


def test_the_rule_trim_never_clears() -> None:
    policy = _policy({"tools": [{"match": "look_up", "rule": "trim"}]})
    assert _shown(_log("look_up", LONG, after=12), policy) == f"{LONG[:1_500]}...{LONG[-1_500:]}"
    assert _shown(_log("other", LONG, after=12), policy) == "[Tool result cleared]"


def test_the_rule_clear_does_not_wait_for_ten_turns() -> None:
    policy = _policy({"tools": [{"match": "look_*", "rule": "clear", "over_chars": 500}]})
    assert _shown(_log("look_up", LONG, after=3), policy) == "[Tool result cleared]"
    assert _shown(_log("look_up", LONG, after=2), policy) == LONG
    assert _shown(_log("look_up", "x" * 500, after=12), policy) == "x" * 500


def test_a_tool_may_have_numbers_of_its_own() -> None:
    policy = _policy({"tools": [{"match": "*", "over_chars": 100, "head_chars": 20, "tail_chars": 10}]})
    assert _shown(_log("look_up", LONG, after=3), policy) == f"{LONG[:20]}...{LONG[-10:]}"


def test_numbers_that_cannot_shorten_change_nothing() -> None:
    policy = _policy({"tools": [{"match": "*", "over_chars": 0, "head_chars": 50_000, "tail_chars": 0}]})
    assert _shown(_log("look_up", LONG, after=3), policy) == LONG


def test_results_of_one_message_follow_each_its_own_tool() -> None:
    calls = (ToolUse(id="a", name="keep_me", input={}), ToolUse(id="b", name="look_up", input={}))
    log = [
        entry(1, 1, "please"),
        entry(2, 1, *calls, author="assistant", step=1),
        entry(
            3, 1, ToolResult(tool_use_id="a", text=LONG), ToolResult(tool_use_id="b", text=LONG),
            author="tool", step=2,
        ),
        *exchanges(12, first=100),
    ]  # fmt: skip
    policy = _policy({"deny": ["keep_*"]})
    decided = plan_pruning(log, policy, cache_cold=True)
    assert decided == (PruneDecision(seq=3, form="clear", shown={"a": None, "b": "[Tool result cleared]"}),)
    assert plan_pruning(apply_decisions(log, decided), policy, cache_cold=True) == ()


def test_decision_with_own_text_outlives_its_rule() -> None:
    log = _log("look_up", LONG, after=3)
    own = _policy({"tools": [{"match": "*", "over_chars": 100, "head_chars": 20, "tail_chars": 10}]})
    decided = apply_decisions(log, plan_pruning(log, own, cache_cold=True))
    assert apply_pruning(decided[2], preset("steady")) == apply_pruning(decided[2], own)


def test_a_plug_in_stands_in_for_trimming_and_the_age_still_clears() -> None:
    def first_words(tool: str, text: str, policy: ContextPolicy) -> str | None:
        return f"{tool}: {text[:30]}" if tool == "look_up" else None

    policy = _policy({}, "spec008", first_words)
    log = _log("look_up", LONG, after=3)
    decided = apply_decisions(log, plan_pruning(log, policy, cache_cold=True))
    assert tool_results(apply_pruning(decided[2], preset("spec008")))[0].text == f"look_up: {LONG[:30]}"
    later = [*decided, *exchanges(8, first=200)]
    assert _shown(later, policy) == "[Tool result cleared]"
    assert _shown(_log("other", LONG, after=3), policy) == f"{LONG[:1_500]}...{LONG[-1_500:]}"


def test_a_plug_in_that_gives_no_shorter_text_is_not_believed() -> None:
    rules = PruneRules(
        pruners=(lambda _tool, text, _policy: text + "!", lambda _tool, _text, _policy: "short")
    )
    assert rules.prune("any", "a long text", preset("steady")) == "short"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ([], "must be an object"),
        ({"tool": []}, "`pruning.tool` is not known (known are deny, tools)"),
        ({"deny": "fetch"}, "`pruning.deny` must be a list"),
        ({"deny": [1]}, "`pruning.deny` must be a list"),
        ({"tools": {}}, "`pruning.tools` must be a list"),
        ({"tools": ["fetch"]}, "`pruning.tools[0]` must be an object"),
        ({"tools": [{"match": "a"}, {"rule": "trim"}]}, "`pruning.tools[1].match` must be"),
        ({"tools": [{"match": "a", "rule": "burn"}]}, "'burn'; choose one of usual, never, trim, clear"),
        ({"tools": [{"match": "a", "rule": ["trim"]}]}, "choose one of"),
        ({"tools": [{"match": "a", "over": 3}]}, "`pruning.tools[0].over` is not known"),
        ({"tools": [{"match": "a", "over_chars": -1}]}, "`pruning.tools[0].over_chars` is -1"),
        ({"tools": [{"match": "a", "tail_chars": True}]}, "must be a whole number"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(section: object, words: str) -> None:
    with pytest.raises(BadPruneRules) as refused:
        prune_rules(section)
    assert words in refused.value.advice


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(BadPruneRules) as refused:
        prune_rules({"x": 1, "deny": 2, "tools": [{"y": 3}]})
    assert all(place in refused.value.advice for place in ("pruning.x", "pruning.deny", "[0].y", "[0].match"))
