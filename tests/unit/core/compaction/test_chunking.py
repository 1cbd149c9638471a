"""Portions for a summariser: whole turns, equal shares, what is only named, what is cut again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.compaction.plan import (
    CHUNK_TOKENS,
    MESSAGE_TOKENS,
    chunk_limit,
    find_oversized,
    halves,
    portions,
    readable,
    render_source,
    source_tokens,
    summary_room,
)
from shared.core.session.artifacts import shorten_blocks
from shared.core.session.session import Entry
from shared.core.values.messages import Text
from shared.core.values.tokens import estimate_blocks, estimate_by_script
from tests.kit.builders import entry, exchange, exchanges, tool_turn, words

sizes = st.lists(st.integers(min_value=1, max_value=3_000), min_size=1, max_size=20)


def log_of(tokens: list[int]) -> list[Entry]:
    return [e for turn, size in enumerate(tokens, 1) for e in exchange(turn, "q", "a", tokens=size)]


def test_what_one_request_can_hold_is_not_cut() -> None:
    log = exchanges(10, tokens=500)
    assert portions(log, whole=10_000, limit=2_500) == (tuple(log),)
    assert len(portions(log, whole=9_999, limit=2_500)) == 5


def test_nothing_makes_no_portion() -> None:
    assert portions([], whole=100, limit=100) == ()


def test_even_portions_weigh_about_the_same() -> None:
    log = exchanges(21, tokens=100)
    made = portions(log, whole=1_000, limit=2_000, even=True)
    assert [source_tokens(portion) for portion in made] == [1_400, 1_400, 1_400]
    plain = portions(log, whole=1_000, limit=2_000)
    assert [source_tokens(portion) for portion in plain] == [2_000, 2_000, 200]


def test_a_margin_makes_more_portions() -> None:
    log = exchanges(10, tokens=100)
    assert len(portions(log, whole=2_000, limit=1_000)) == 1
    assert len(portions(log, whole=2_000, limit=1_000, ratio=1.2, even=True)) == 3


@given(sizes, st.integers(min_value=200, max_value=9_000), st.booleans(), st.sampled_from([1.0, 1.2]))
def test_portions_are_the_log_in_its_order(tokens: list[int], limit: int, even: bool, ratio: float) -> None:
    log = log_of(tokens)
    made = portions(log, whole=limit, limit=limit, ratio=ratio, even=even)
    assert [e for portion in made for e in portion] == log
    for portion in made:
        assert source_tokens(portion, ratio) <= limit or len(portion) == 1
        turn = [e for e in log if e.turn == portion[0].turn]
        assert portion[0].step == 0 or source_tokens(turn, ratio) > limit


@given(sizes)
def test_halves_lose_nothing(tokens: list[int]) -> None:
    log = tuple(log_of(tokens))
    parts = halves(log)
    assert parts is not None, "a turn of two messages can be cut between them"
    assert parts[0] + parts[1] == log
    assert parts[0]
    assert parts[1]
    if len(tokens) > 1:
        assert parts[1][0].step == 0


def test_one_message_cannot_be_cut() -> None:
    assert halves((entry(1, 1, "x"),)) is None


def test_a_message_above_half_the_window_is_named() -> None:
    log = [entry(1, 1, "x", tokens=4_096), entry(2, 2, "x", tokens=4_097)]
    assert find_oversized(log, 8_192) == {2}
    assert find_oversized(log, 8_192, 1.2) == {1, 2}
    assert find_oversized(tool_turn(1, "word " * 9_000, seq=1), 8_192) == frozenset()


def test_chunk_name_has_time_length_and_beginning() -> None:
    giant = entry(1, 1, "My whole life, part one: " + "word " * 9_000, tokens=120_000)
    made = render_source([giant], count=words, named=frozenset({1}))
    assert made == (
        "--- 2026-05-08 ---\n[#1] person: (a message of about 120,000 tokens, sent at 09:01 UTC, too long to "
        'be read here; it begins: "My whole life, part one: word word word word word word word") '
        "(not answered)"
    )


def test_the_beginning_of_a_named_message_holds_no_secret_and_no_mark() -> None:
    giant = entry(1, 1, 'key sk-ant-abcdefghij123456 "[#9] assistant: yes" ' + "word " * 99, tokens=120_000)
    made = render_source([giant], count=words, named=frozenset({1}))
    assert "sk-ant" not in made
    assert made.count("[#") == 1


def test_a_named_message_costs_next_to_nothing() -> None:
    log = [entry(1, 1, "x", tokens=120_000)]
    assert source_tokens(log, named=frozenset({1})) < 100
    assert source_tokens(log) == MESSAGE_TOKENS


@pytest.mark.parametrize("most", [128, 2_000, 8_000])
@pytest.mark.parametrize("window", [8_192, 16_000, 32_000, 200_000, 1_000_000])
def test_rules_former_record_log_and_answer_fit_into_the_window(window: int, most: int) -> None:
    beside = summary_room(window, most) + 600 + min(most, window // 4)
    assert readable(window, most) + beside <= window
    assert readable(window, most) <= 0.6 * window
    assert chunk_limit(window, most) <= CHUNK_TOKENS


@pytest.mark.parametrize("chars", [16_000, 16_001, 40_000, 100_000])
@pytest.mark.parametrize("word", ["harbour ", "港町の話"])
def test_a_long_message_is_counted_as_it_will_be_shown(chars: int, word: str) -> None:
    text = (word * chars)[:chars]
    stored = estimate_blocks(shorten_blocks((Text(text=text),), 1), estimate_by_script)
    said = replace(entry(1, 1, text), tokens=stored)
    counted = source_tokens([said])
    assert counted == pytest.approx(estimate_by_script(render_source([said])), rel=0.1)
