"""Spill: a long result enters the log by head, tail and id, and every portion of the whole can be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.artifacts import (
    PORTION_TOKENS,
    ArtifactNotReadable,
    artifact_id,
    digest_prefix,
    portion,
    portion_text,
    reference_in,
    spill_results,
    spill_text,
)
from shared.core.session.pruning import apply_pruning
from shared.core.values.messages import ToolResult
from shared.core.values.tokens import chars_over_four, estimate_by_script
from tests.kit.builders import entry

STEADY = preset("steady")
LONG = "".join(f"line {number}: the quick brown fox\n" for number in range(3_200))


def _tokens(text: str) -> int:
    """A token is four characters."""
    return (len(text) + 3) // 4


@pytest.mark.parametrize(("tokens", "shortened"), [(7_999, False), (8_000, False), (8_001, True)])
def test_only_what_is_above_the_policys_number_is_spilled(tokens: int, shortened: bool) -> None:
    text = "abcd" * tokens
    assert (spill_text(text, artifact_id(text), STEADY, _tokens) != text) is shortened


def test_head_and_tail_stand_behind_a_line_with_the_id() -> None:
    text = f"BEGIN {LONG} END"
    shown = spill_text(text, artifact_id(text), STEADY, _tokens)
    first, second = shown.splitlines()[:2]
    assert artifact_id(text) in first
    assert f"{len(text):,} characters" in first
    assert second.startswith("BEGIN")
    assert shown.endswith("END")
    assert _tokens(shown) < STEADY.pruning.spill_over // 5
    assert reference_in(shown) == first


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_id_survives_trimming_and_clearing(name: str) -> None:
    policy = preset(name)
    shown = spill_text(LONG, artifact_id(LONG), policy, _tokens)
    one = entry(1, 1, ToolResult(tool_use_id="a", text=shown), author="tool")
    for form in ("trim", "clear", "duplicate"):
        block = apply_pruning(replace(one, pruned=form), policy)[0]
        assert isinstance(block, ToolResult)
        assert artifact_id(LONG) in block.text
        assert len(block.text) <= len(shown)


def test_the_same_text_has_the_same_id_and_another_has_another() -> None:
    assert artifact_id("a") == artifact_id("a") != artifact_id("b")
    assert digest_prefix(artifact_id("a")) == artifact_id("a").removeprefix("art_")


@pytest.mark.parametrize("made_up", ["", "art_", "art_123", "art_0123456789AB", "42", "art_0123456789ab;--"])
def test_what_is_no_id_is_refused_with_advice(made_up: str) -> None:
    with pytest.raises(ArtifactNotReadable) as refused:
        digest_prefix(made_up)
    assert "art_" in refused.value.advice


def test_results_are_spilled_one_by_one_and_portions_never() -> None:
    results = [
        ToolResult(tool_use_id="short", text="fine"),
        ToolResult(tool_use_id="long", text=LONG, is_error=True),
        ToolResult(tool_use_id="portion", text=LONG),
    ]
    shown, kept = spill_results(results, STEADY, _tokens, spare={"portion"})
    assert [result.text == before.text for result, before in zip(shown, results, strict=True)] == [
        True, False, True,
    ]  # fmt: skip
    assert shown[1].is_error
    assert [(one.id, one.body, one.tokens) for one in kept] == [(artifact_id(LONG), LONG, _tokens(LONG))]


def test_portions_joined_are_the_whole() -> None:
    offset, read = 0, ""
    while offset < len(LONG):
        shown = portion(LONG, offset=offset, count=_tokens)
        read += shown.text
        offset = shown.end
    assert read == LONG


def test_words_are_found_from_the_offset_on_whatever_their_case() -> None:
    shown = portion(LONG, find="LINE 2500:", count=_tokens)
    assert "line 2500: the quick" in shown.text
    assert LONG[shown.found[0] :].startswith("line 2500:")
    told = portion_text("art_x", LONG, portion(LONG, find="quick", count=_tokens))
    assert "next at" in told
    assert "[goes on at offset=" in told


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"offset": -1}, "`offset` is -1"),
        ({"offset": len(LONG)}, "characters, so 0"),
        ({"find": "no such words"}, "nowhere in it"),
        ({"find": "line 1:", "offset": 90_000}, "smaller offset"),
    ],
)
def test_a_portion_that_is_not_there_is_refused_with_advice(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(ArtifactNotReadable) as refused:
        portion(LONG, count=_tokens, **wish)
    assert words in refused.value.advice


@settings(max_examples=60)
@given(
    body=st.text(alphabet="ab é漢\n𠀀", min_size=1, max_size=400),
    times=st.integers(min_value=1, max_value=200),
    offset=st.integers(min_value=0, max_value=2_000),
    counter=st.sampled_from([estimate_by_script, chars_over_four]),
)
def test_a_portion_is_never_above_its_tokens_nor_empty(
    body: str, times: int, offset: int, counter: object
) -> None:
    assert callable(counter)
    whole = body * times
    start = min(offset, len(whole) - 1)
    shown = portion(whole, offset=start, count=counter)
    assert shown.text
    assert counter(portion_text(artifact_id(whole), whole, shown)) <= PORTION_TOKENS
    assert whole[shown.start : shown.end] == shown.text


@settings(max_examples=40)
@given(body=st.text(alphabet="ab é漢\n", min_size=1, max_size=200), times=st.integers(1, 3_000))
def test_what_enters_the_log_is_never_larger_than_what_came(body: str, times: int) -> None:
    policy = STEADY.with_settings(spill_over=1_000)
    shown = spill_text(body * times, artifact_id(body), policy, estimate_by_script)
    assert estimate_by_script(shown) <= max(policy.pruning.spill_over, estimate_by_script(body * times))
    assert len(shown) <= len(body * times)
