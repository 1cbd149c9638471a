"""What commands answer: true figures, unknown shown as unknown, in every language alike."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, time
from itertools import product
from typing import get_args, get_type_hints

import pytest

from shared.core.commands.commands import COMMANDS, BadArguments, compact_arguments
from shared.core.commands.texts import command_help, excerpt, group_by_subject, note_list, number_lines
from shared.core.compaction.plan import NoReason
from shared.core.context.notes import KeptNote
from shared.core.identity.people import LinkRefusal
from shared.core.ops.session_stats import ScopeSpending, SessionFigures
from shared.core.session.ledger import ItemKind, Ledger, LedgerItem, Section
from shared.core.session.session_state import ChangeRefused
from shared.core.session.summary import FORMS, render_summary, translate_headings
from shared.core.session.turns import ContextMeasured
from shared.core.tools.repeating import WEEKDAYS, Repeat, Unit
from shared.locales import catalogue, list_languages
from shared.services.commands.context import describe_compaction
from shared.services.commands.reminders import describe_repeat
from shared.services.commands.usage import render_context, render_usage

LANGUAGES = list_languages()
ENGLISH, GERMAN = catalogue("commands", "en"), catalogue("commands", "de")
CONTEXT = ContextMeasured(
    percent=45.2, used=90_400, limit=200_000, status="ok", estimated=False,
    parts={"history": 87_300, "tools": 0, "system": 3_100},
)  # fmt: skip
FIGURES = SessionFigures(
    answered_turns=1_304, hidden_turns=1_204, summaries=7, pins=2, input_tokens=1_204_000,
    output_tokens=33_000, cache_read_tokens=975_240, last_cached_percent=82, cost_micro=1_234_000,
    upkeep_micro=2_000, today_micro=0,
)  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_help_on_one_command_explains_each_argument_with_an_example(language: str) -> None:
    for command in COMMANDS:
        told = command_help(command, catalogue("commands", language))
        assert f"/{command.name}" in told.splitlines()[0]
        assert command.describe(language) in told
        assert all(f"- `{one.shown}` " in told for one in command.arguments)
        assert (f"`/{command.name} {command.show_example(language)}`" in told) is bool(command.args)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_example_can_be_sent_as_it_stands(language: str) -> None:
    examples = {command: command.show_example(language) for command in COMMANDS if command.args}
    for command, example in examples.items():
        assert example.strip()
        assert command.words({"args": example}) == example
    (compact,) = (example for command, example in examples.items() if command.name == "compact")
    wish = compact_arguments(compact)
    assert wish.force
    assert wish.focus


def test_a_person_reads_in_their_language_what_was_wrong_with_a_command() -> None:
    with pytest.raises(BadArguments) as refused:
        compact_arguments("x" * 1_500)
    assert refused.value.advice == "The focus has 1,500 characters; 300 is the most."
    assert GERMAN.say(refused.value.key, **refused.value.values).startswith("Die Vorgabe hat 1.500 Zeichen")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_that_the_program_knows_has_words(language: str) -> None:
    texts = catalogue("commands", language)
    reasons = get_args(get_type_hints(ChangeRefused)["reason"])
    assert all(f"refused_{reason}" in texts.texts for reason in reasons)
    assert all(f"nothing_compacted_{reason}" in texts.texts for reason in get_args(NoReason))
    assert all(f"link_refused_{reason}" in texts.texts for reason in get_args(LinkRefusal))
    scopes = get_args(get_type_hints(ScopeSpending)["scope"])
    assert all(f"budget_{scope}" in texts.texts for scope in scopes)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_command_and_argument_is_described_in_the_language_itself(language: str) -> None:
    own = catalogue("commands", language).texts
    keys = {f"command_{command.name}" for command in COMMANDS}
    keys |= {f"argument_{command.name}_{one.name}" for command in COMMANDS for one in command.arguments}
    assert keys - own.keys() == set()


def test_context_text_has_a_bar_its_parts_and_free_room() -> None:
    text = render_context(CONTEXT, FIGURES, ENGLISH)
    assert "█████████░░░░░░░░░░░ 45 %" in text
    assert "Conversation   87,300" in text
    assert "Free          109,600" in text
    assert "Tools" not in text
    assert "$1.23" in text
    assert "1,204 older turns" in text
    assert "**Context**: 90,400 of 200,000 tokens" in text
    assert "about 90,400" in render_context(replace(CONTEXT, estimated=True), FIGURES, ENGLISH)
    german = render_context(CONTEXT, FIGURES, GERMAN)
    assert "Gespräch      87.300" in german
    assert "1,23 $" in german


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parts_of_a_context_stand_below_each_other_in_every_script(language: str) -> None:
    text = render_context(CONTEXT, FIGURES, catalogue("commands", language))
    assert text.count("```") == 2
    assert len(text.split("```")[1].strip().splitlines()) == 4


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_context_of_nothing_can_be_shown(language: str) -> None:
    empty = replace(CONTEXT, percent=0.0, used=0, parts={})
    assert "░" * 20 in render_context(empty, FIGURES, catalogue("commands", language))


def test_a_context_above_its_limit_has_nothing_free() -> None:
    over = replace(CONTEXT, percent=104.0, used=104, limit=100, parts={"history": 104})
    text = render_context(over, FIGURES, ENGLISH)
    assert "█" * 20 + " 104 %" in text
    assert "Free            0" in text


def test_usage_tells_small_sums_from_nothing() -> None:
    text = render_usage(FIGURES, 5_000_000, ENGLISH)
    assert "1,204,000 tokens (81 % of it read before)" in text
    assert "$1.23, of which < $0.01 for summaries and memory" in text
    assert "Today: $0.00 of $5.00" in text
    assert "1,23 $, davon < 0,01 $" in render_usage(FIGURES, None, GERMAN)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unknown_price_is_no_price_of_nothing(language: str) -> None:
    unknown = replace(FIGURES, input_tokens=0, cost_micro=None, upkeep_micro=None, today_micro=None)
    text = render_usage(unknown, None, catalogue("commands", language))
    assert "$" not in text
    assert text.count("–") == 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_summary_tells_its_sizes_and_the_way_back(language: str) -> None:
    texts = catalogue("commands", language)
    for turns, kind in product((1, 2, 12), ("summary", "digest")):
        done = {"kind": kind, "turns": turns, "before": 85_000, "after": 12_000}
        _, told = describe_compaction(texts, "done", done)
        assert "85" in told
        assert "12" in told
        assert "`/undo`" in told
        _, grew = describe_compaction(texts, "done", {**done, "before": 900, "after": 1_100})
        assert "900 → " in grew
        assert grew != told


def test_marks_in_the_words_of_a_person_stay_words() -> None:
    pinned = ENGLISH.say("pinned", words=excerpt("*bold* [link](https://example.org) `code` _it_ $x$"))
    assert r"\*bold\* \[link](https://example.org) \`code\` \_it\_ \$x\$" in pinned
    rows = number_lines([excerpt("The door\ncode is 4711."), excerpt("x" * 200)]).splitlines()
    assert rows[0] == "1. The door code is 4711."
    assert rows[1].endswith("…")


@pytest.mark.parametrize(
    ("rule", "english", "german"),
    [
        ("day/1//09:00", "every day", "jeden Tag"),
        ("day/3//09:00", "every 3 days", "alle 3 Tage"),
        ("week/1/mon,thu/09:00", "every Monday, Thursday", "jeden Montag, Donnerstag"),
        ("week/2/sun/09:00", "every 2 weeks on Sunday", "alle 2 Wochen am Sonntag"),
        ("month/1/31/09:00", "every month", "jeden Monat"),
        ("month/5/31/09:00", "every 5 months", "alle 5 Monate"),
        ("month/12/31/09:00", "every year", "jedes Jahr"),
        ("month/24/31/09:00", "every 2 years", "alle 2 Jahre"),
    ],
)
def test_a_reminder_says_when_it_comes_again(rule: str, english: str, german: str) -> None:
    repeat = Repeat.parse(rule)
    assert repeat is not None
    assert (describe_repeat(repeat, ENGLISH), describe_repeat(repeat, GERMAN)) == (english, german)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_repetition_has_words(language: str) -> None:
    units: tuple[Unit, ...] = get_args(Unit)
    for unit, every in product(units, (1, 2, 5, 12, 24)):
        rule = Repeat(unit=unit, every=every, at=time(9), weekdays=WEEKDAYS if unit == "week" else ())
        assert describe_repeat(rule, catalogue("commands", language)).strip()


@pytest.mark.parametrize("language", LANGUAGES)
def test_summary_headings_are_in_the_readers_language(language: str) -> None:
    kinds: tuple[ItemKind, ...] = get_args(ItemKind)
    ledger = Ledger(
        items=tuple(LedgerItem(id=f"x{at}", kind=kind, text="W.") for at, kind in enumerate(kinds)),
        identifiers=("A-1",),
    )
    stored = [render_summary(ledger)]
    for form in FORMS.values():
        parts = tuple(Section(heading=one.title, text="W.") for one in form.headings)
        stored.append(render_summary(replace(ledger, form=form.name, sections=parts, items=())))
    texts = catalogue("commands", language)
    headings = set(re.findall(r"^## (.+)$", "\n".join(stored), re.MULTILINE))
    assert len(headings) >= 18
    for heading in headings:
        shown = translate_headings(f"## {heading}\nW.", texts).splitlines()[0].removeprefix("## ")
        assert shown == heading if language == "en" else shown in texts.texts.values(), heading
    own = "## Our trip\nGoals stay.\n### Goals"
    assert translate_headings(own, texts) == own


def kept(number: int, subject: str) -> KeptNote:
    return KeptNote(
        id=number, short_id=f"n{number}", kind="fact", text=f"Note {number}", subject=subject, importance=5,
        authority="person", durability="durable", observed_at=datetime(2026, 3, number, tzinfo=UTC),
        event_date=None, from_turn=None,
    )  # fmt: skip


NOTES = (kept(1, "Ben"), kept(2, ""), kept(3, "Bicycle"), kept(4, "ben "), kept(5, "bicycle"), kept(6, "Tea"))


def test_notes_of_a_subject_stand_together() -> None:
    assert [note.id for note in group_by_subject(NOTES)] == [2, 6, 1, 4, 3, 5]
    assert group_by_subject(()) == ()
    # What is grouped once stays in its order.
    assert group_by_subject(group_by_subject(NOTES)) == group_by_subject(NOTES)


def test_note_list_has_headings_of_subjects_and_counts_on() -> None:
    texts = catalogue("commands", "en")
    shown = note_list("*Notes*", group_by_subject(NOTES), texts, first=9, by_subject=True)
    lines = [line for line in shown.splitlines() if line]
    assert [line.partition(" (")[0] for line in lines] == [
        "*Notes*", "9. Note 2", "10. Note 6", "**Ben**", "11. Note 1", "12. Note 4", "**Bicycle**",
        "13. Note 3", "14. Note 5",
    ]  # fmt: skip
    assert "**" not in note_list("*Notes*", NOTES, texts)


def test_subject_is_no_markdown() -> None:
    notes = [kept(1, "[a](http://x) *b*"), kept(2, "[a](http://x) *b*")]
    shown = note_list("Notes", notes, catalogue("commands", "en"), by_subject=True)
    assert "**\\[a](http://x) \\*b\\***" in shown
