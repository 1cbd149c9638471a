"""What commands answer: true figures, unknown shown as unknown, in English and German alike."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from shared.core.commands.commands import COMMANDS, Command, compact_arguments
from shared.core.commands.texts import (
    LANGUAGES,
    CommandTexts,
    ContextShown,
    PinShown,
    UsageShown,
    command_texts,
    described,
)
from shared.core.compaction.plan import NoReason
from shared.core.session.session_state import ChangeRefused

CONTEXT = ContextShown(
    percent=45.2,
    used=90_400,
    limit=200_000,
    parts={"history": 87_300, "tools": 0, "system": 3_100},
    pins=2,
    summarised_turns=1_204,
    cached_percent=82,
    spent_usd=1.5,
)
USAGE = UsageShown(
    turns=1_304,
    summaries=7,
    input_tokens=1_204_000,
    output_tokens=33_000,
    cached_percent=81,
    spent_usd=1.234,
    upkeep_usd=0.002,
    today_usd=0.0,
    today_cap_usd=5.0,
)


@pytest.mark.parametrize("tag", ["de", "DE", "de-AT", "de_CH"])
def test_german_is_spoken_in_all_its_countries(tag: str) -> None:
    assert command_texts(tag).language == "de"


@pytest.mark.parametrize("tag", ["", "en-GB", "fr", "den", "xx-de", "💬"])
def test_every_other_language_gets_english(tag: str) -> None:
    assert command_texts(tag).language == "en"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_on_one_command_explains_each_argument_with_an_example(command: Command, language: str) -> None:
    told = command_texts(language).command_help(command)
    assert f"/{command.name}" in told.splitlines()[0]
    assert described(command, language) in told
    assert all(f"- `{one.shown}` " in told for one in command.arguments)
    assert (f"`/{command.name} {command.example}`" in told) is bool(command.args)
    if language != "en" and command.named:
        assert not any(one.description in told for one in command.named)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.named], ids=lambda command: command.name)
def test_an_example_can_be_sent_as_it_stands(command: Command) -> None:
    assert command.words({"args": command.example}) == command.example
    if command.name == "compact":
        wish = compact_arguments(command.example)
        assert (wish.focus, wish.force) == ("our trip to Lisbon", True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_is_described_in_german(command: object) -> None:
    assert described(command, "de") != described(command, "en")  # type: ignore[arg-type]


def test_every_sentence_exists_in_german() -> None:
    english, german = command_texts("en"), command_texts("de")
    for sentence in fields(CommandTexts):
        assert getattr(german, sentence.name) != getattr(english, sentence.name), sentence.name


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_for_doing_nothing_has_words(language: str) -> None:
    known = command_texts(language).nothing_to_compact
    assert set(get_args(NoReason)) <= set(known)


def test_every_refusal_has_words_in_german() -> None:
    reasons = get_args(get_type_hints(ChangeRefused)["reason"])
    assert set(reasons) == set(command_texts("de").refusals)


def test_the_context_is_shown_with_a_bar_its_parts_and_what_is_free() -> None:
    text = command_texts("en").context(CONTEXT)
    assert "█████████░░░░░░░░░░░ 45 %" in text
    assert "Conversation   87,300" in text
    assert "Free          109,600" in text
    assert "Tools" not in text
    assert "$1.50" in text
    assert "1,204 older turns" in text
    german = command_texts("de").context(CONTEXT)
    assert "Gespräch      87.300" in german
    assert "1,50 $" in german


def test_a_context_of_nothing_can_be_shown() -> None:
    empty = ContextShown(percent=0.0, used=0, limit=200_000, parts={})
    for language in LANGUAGES:
        assert "░" * 20 in command_texts(language).context(empty)


def test_a_context_above_its_limit_has_nothing_free() -> None:
    over = ContextShown(percent=104.0, used=104, limit=100, parts={"history": 104})
    assert "█" * 20 + " 104 %" in command_texts("en").context(over)
    assert "Free            0" in command_texts("en").context(over)


def test_usage_tells_small_sums_from_nothing() -> None:
    text = command_texts("en").usage(USAGE)
    assert "1,204,000 tokens (81 % of it read before)" in text
    assert "$1.23, of which < $0.01 for summaries and memory" in text
    assert "Today: $0.00 of $5.00" in text
    assert "1,23 $, davon < 0,01 $" in command_texts("de").usage(USAGE)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unknown_price_is_no_price_of_nothing(language: str) -> None:
    unknown = UsageShown(
        turns=1, summaries=0, input_tokens=0, output_tokens=0, cached_percent=None,
        spent_usd=None, upkeep_usd=None, today_usd=None,
    )  # fmt: skip
    text = command_texts(language).usage(unknown)
    assert "$" not in text
    assert text.count("–") == 3


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("turns", [1, 12])
def test_a_summary_tells_its_sizes_and_the_way_back(language: str, turns: int) -> None:
    told = command_texts(language).compacted(turns=turns, before=85_000, after=12_000)
    assert "85" in told
    assert "12" in told
    assert "`/undo`" in told
    grew = command_texts(language).compacted(turns=turns, before=900, after=1_100)
    assert "900 → " in grew
    assert grew != told


def test_pins_are_listed_with_their_beginnings_on_one_line() -> None:
    pins = [PinShown(mid="m1", text="The door\ncode is 4711."), PinShown(mid="m9", text="x" * 200)]
    lines = command_texts("en").pins(pins).splitlines()
    assert lines[2] == "1. “The door code is 4711.”"
    assert lines[3].endswith("…”")


def test_marks_in_a_pinned_message_stay_words() -> None:
    pinned = command_texts("en").pinned(words="*bold* [link](https://example.org) `code` _it_ $x$")
    assert r"\*bold\* \[link](https://example.org) \`code\` \_it\_ \$x\$" in pinned
