"""Token estimates: everything serialised counts, nothing fails, the ratio learns within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.values.messages import Image, Text, Thinking, ToolResult, ToolUse
from shared.core.values.tokens import (
    IMAGE_TOKENS,
    chars_over_four,
    estimate_blocks,
    estimate_by_script,
    estimate_tools,
    measure,
    truncate_text,
    update_ratio,
)
from tests.kit.builders import words


@pytest.mark.parametrize(("chars", "tokens"), [(0, 0), (1, 1), (4, 2), (16, 5), (17, 6), (400, 125)])
def test_last_fallback_is_a_quarter_of_characters_plus_a_quarter(chars: int, tokens: int) -> None:
    assert chars_over_four("x" * chars) == tokens


def test_tool_arguments_results_thinking_and_images_all_count() -> None:
    plain = estimate_blocks((Text(text="one two"),), words)
    assert estimate_blocks((Text(text="one two"), Thinking(text="a b c", signature="s")), words) == plain + 3
    assert estimate_blocks((ToolUse(id="a", name="f", input={"q": "x y"}),), words) > plain
    assert estimate_blocks((ToolResult(tool_use_id="a", text="one two"),), words) > plain
    assert estimate_blocks((Image(attachment_id=1, mime="image/png"),), words) >= IMAGE_TOKENS


def test_tools_cost_nothing_when_there_are_none_and_their_schemas_otherwise() -> None:
    assert estimate_tools((), words) == 0
    assert estimate_tools((SAVE_MEMORY, SAVE_MEMORY), words) > estimate_tools((SAVE_MEMORY,), words) > 549


def test_reported_number_is_anchor_and_later_text_is_estimated() -> None:
    assert measure(1_000, 100, 99_999, 1.2) == 1_120
    assert measure(1_000, -100, 99_999, 1.0) == 900
    assert measure(None, 5, 1_000, 1.1) == 1_100


def test_the_ratio_moves_three_tenths_of_the_way() -> None:
    assert update_ratio(1.0, 200, 100) == pytest.approx(1.3)


@pytest.mark.parametrize(("actual", "estimated", "expected"), [(10_000, 1, 2.5), (1, 10_000, 0.8)])
def test_the_ratio_stays_within_its_bounds(actual: int, estimated: int, expected: float) -> None:
    ratio = 1.0
    for _ in range(20):
        ratio = update_ratio(ratio, actual, estimated)
    assert ratio == expected


@pytest.mark.parametrize(("actual", "estimated"), [(0, 100), (100, 0), (0, 0)])
def test_a_missing_observation_teaches_nothing(actual: int, estimated: int) -> None:
    assert update_ratio(1.1, actual, estimated) == pytest.approx(1.1)


@given(st.text())
def test_the_estimate_by_script_never_fails_and_is_zero_for_nothing_only(text: str) -> None:
    assert estimate_by_script(text) >= (1 if text else 0)


def test_other_scripts_take_more_tokens_than_their_characters_suggest() -> None:
    assert estimate_by_script("昨天我们去了剧院") > 3 * chars_over_four("昨天我们去了剧院") / 1.25
    assert estimate_by_script("hello there") < len("hello there") / 2


def test_a_truncated_text_fits_and_begins_like_the_whole() -> None:
    text = "word " * 500
    short = truncate_text(text, 100, words)
    assert 90 < words(short) <= 100
    assert text.startswith(short)
