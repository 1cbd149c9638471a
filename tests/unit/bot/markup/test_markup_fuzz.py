"""Random texts made of what Markdown is made of; the same five thousand in every run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.telegram.markup.entity_text import RenderedText, render, split
from shared.core.session.turns import utf16_units
from tests.kit.night import by_night
from tests.unit.bot.markup.rendering import seen
from tests.unit.bot.markup.telegram_parser import judge

MARKS = [
    "**",
    "*",
    "_",
    "__",
    "~~",
    "`",
    "``",
    "```",
    "```py\n",
    "~~~\n",
    "|",
    "\n|a|b|\n|-|-|\n",
    "[",
    "](",
    "]",
    "(",
    ")",
    "![",
    "\\",
]
LINES = [
    "\n",
    "\n\n",
    "\n> ",
    "\n>> ",
    "\n- ",
    "\n  - ",
    "\n1. ",
    "\n   ",
    "\n    ",
    "\n# ",
    "\n| ",
    "\n---\n",
    "\n$$\n",
    "- [ ] ",
    "\r\n",
]
WORDS = [
    "a",
    "word ",
    "b c",
    "2*3",
    "__init__.py",
    "https://e.org/x_y",
    "javascript:x",
    "mailto:a@b.c",
    "tg://x ",
    "<",
    ">",
    "<b>",
    "http://",
]
SIGNS = [
    " ",
    "\t",
    "&amp;",
    "&#x1f680;",
    "👍🏽",
    "👨‍👩‍👧‍👦",
    "🇩🇪",
    "中文",
    "：",
    "שלום",
    "\u200b",
    "\x00",
    "\u202e",
    "\u0301",
    "\xa0",
    "$",
    "\\(",
    "\\]",
    "!",
]
ODD = [
    "\ud800",
    "\x1b",
    "\u2028",
    "\ufeff",
    "ﷺ",
    "ﬁ",
    "𝒳",
    "€",
    "ß",
    "0",
    "9",
    ".",
    ",",
    ";",
    "'",
    '"',
    "^",
    "%",
    "{",
    "}",
    "=",
    "+",
]
PIECES = MARKS + LINES + WORDS + SIGNS + ODD
# One draw of bytes for a whole answer costs a third of a draw for each piece.
answers = st.binary(max_size=40).map(
    lambda numbers: "".join(PIECES[number % len(PIECES)] for number in numbers)
)

bounded = settings(
    derandomize=True,
    database=None,
    max_examples=by_night(5_000, else_=1_000),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.control("S18")
@bounded
@given(answers)
def test_telegram_reads_any_text_as_we_mean_it(markdown: str) -> None:
    done, live = render(markdown), render(markdown, live=True)
    judge(done)
    if live != done:
        judge(live)


@pytest.mark.control("S18")
@settings(bounded, max_examples=by_night(1_000, else_=300))
@given(answers, st.integers(min_value=16, max_value=60))
def test_any_text_is_the_sum_of_its_parts(markdown: str, limit: int) -> None:
    rendered = render(markdown)
    parts = split(rendered, limit=limit)
    assert "".join(part.text + part.gap for part in parts) == rendered.text
    for part in parts:
        assert utf16_units(part.text) <= limit
        judge(part)


@settings(bounded, max_examples=100)
@given(answers)
def test_no_word_is_lost_while_any_text_grows(markdown: str) -> None:
    """Random ends may be markers of any length; what was read must not go away in masses."""
    before = RenderedText()
    for end in range(len(markdown) + 1):
        now = render(markdown[:end], live=True)
        assert seen(now) >= seen(before) - 20
        before = now
