"""The pure stages of a turn over hostile texts: four times the text is at most five times the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bot.telegram.markup import block_tree, entity_text, rich_blocks
from shared.adapters.files.rtf import read_rtf
from shared.core.compaction import next_ledger, note_requests, plan, summary_filters
from shared.core.context import untrusted_text
from shared.core.context.question import read_question
from shared.core.memory import knowledge, search
from shared.core.session.summary import shorten_line, statements
from shared.core.tools.fetched_pages import page_text
from shared.core.values import identifiers, searching, secrets_filter, speech, tokens
from shared.core.values.messages import Text, storable
from shared.core.values.tagged_text import replace_tagged
from tests.kit.hostile_texts import REPEATED, hostile_text
from tests.kit.night import by_night
from tests.unit.security.pattern_hunt import grows_too_fast, seconds

CHARS = 100_000
"""Most characters of a message."""
MEASURABLE = 0.004
"""CPU seconds below which the whole text is read too fast for its growth to matter."""
Stage = Callable[[str], object]
TURN: dict[str, Stage] = {
    "storable": storable,
    "defuse": untrusted_text.defuse,
    "defuse own words": partial(untrusted_text.defuse, foreign=False),
    "strip marks": partial(untrusted_text.strip_marks, foreign=True),
    "strip invisible": untrusted_text.strip_invisible,
    "label": untrusted_text.label,
    "page": partial(page_text, "https://page.example"),
    "question": read_question,
    "searchable": searching.searchable,
    "dictionary": searching.dictionary_of,
    "pieces": searching.pieces,
    "search words": search.search_words,
    "secrets": secrets_filter.redact,
    "tokens": tokens.estimate_by_script,
    "cut by tokens": lambda text: tokens.truncate_text(text, 2_000, tokens.chars_over_four),
    "shorten": lambda text: shorten_line(text, 300),
}
"""Stages that a person's message passes before and after the model is asked."""
BEHIND: dict[str, Stage] = {
    "identifiers": identifiers.identifiers_of,
    "tagged": lambda text: replace_tagged(text, by=" "),
    "compaction source": plan._without_injections,
    "own words": lambda text: note_requests.own_words([Text(text=text)]),
    "pieces for notes": lambda text: note_requests.pieces_of(text, 2_000, tokens.chars_over_four),
    "notes of an answer": note_requests.parse_notes,
    "ledger of an answer": next_ledger.parse_ledger_patch,
    "filters of summaries": summary_filters.holds_injection,
    "title": summary_filters.split_title,
    "statements": statements,
    "knowledge": knowledge.split_markdown,
    "table": knowledge.split_csv,
    "speech": lambda text: speech.spoken_text(text, str),
    "rich text": lambda text: read_rtf(b"{\\rtf1 " + text.encode() + b"}"),
}
"""Stages of the worker, of files and of answers that are read aloud."""
MARKUP: dict[str, Stage] = {
    "blocks": block_tree.parse_blocks,
    "live blocks": partial(block_tree.parse_blocks, live=True),
    "messages": entity_text.build_messages,
    "rich blocks": rich_blocks.build_rich_blocks,
}
"""What an answer passes on its way to Telegram."""


def _worst_growth(name: str, stage: Stage, chars: int) -> dict[str, float]:
    """Return the kinds of texts whose work grows too fast, with their growth.

    By day each stage gets a quarter of the kinds, its neighbours get the others.
    """
    found = {}
    step = by_night(1, else_=4)
    for kind in list(REPEATED)[[*TURN, *BEHIND, *MARKUP].index(name) % step :: step]:
        if seconds(partial(stage, hostile_text(kind, chars))) < MEASURABLE:
            continue

        def work(size: int, kind: str = kind) -> Callable[[], Any]:
            return partial(stage, hostile_text(kind, size))

        if growth := grows_too_fast(work, start=chars // 4, most=chars):
            found[kind] = growth
    return found


@pytest.mark.control("S51")
@pytest.mark.parametrize("name", [*TURN, *BEHIND])
def test_stage_work_grows_no_faster_than_its_text(name: str) -> None:
    assert not _worst_growth(name, {**TURN, **BEHIND}[name], by_night(CHARS, else_=CHARS // 5))


@pytest.mark.control("S51")
@pytest.mark.parametrize("name", MARKUP)
def test_markup_work_grows_no_faster_than_its_text(name: str) -> None:
    """Both lengths are above that of one message: the second message of an answer would count as growth."""
    assert not _worst_growth(name, MARKUP[name], by_night(48_000, else_=18_000))
