"""An answer while it is being written: every beginning of every sample."""

from __future__ import annotations

import pytest

from bot.telegram.markup.entity_text import MessagePart, RenderedText, render, split
from tests.unit.bot.markup.rendering import covered, seen
from tests.unit.bot.markup.samples import SAMPLES, WHOLE
from tests.unit.bot.markup.telegram_parser import judge

MARKER_CHARS = 5
texts = pytest.mark.parametrize(
    "markdown", [*(pytest.param(each.markdown, id=name) for name, each in SAMPLES.items()), WHOLE]
)


def beginnings(markdown: str) -> list[str]:
    return [markdown[:end] for end in range(len(markdown) + 1)]


@texts
def test_telegram_reads_every_beginning_as_we_mean_it(markdown: str) -> None:
    for beginning in beginnings(markdown):
        judge(render(beginning, live=True))


@texts
def test_telegram_reads_an_answer_that_ended_anywhere(markdown: str) -> None:
    for beginning in beginnings(markdown):
        judge(render(beginning))


@texts
def test_the_visible_text_never_shrinks_by_more_than_a_marker(markdown: str) -> None:
    before = RenderedText()
    for beginning in beginnings(markdown):
        now = render(beginning, live=True)
        assert seen(now) >= seen(before) - MARKER_CHARS, (beginning[-60:], before.text[-60:], now.text[-60:])
        before = now


def test_an_open_fence_is_shown_as_code() -> None:
    assert covered(render("a\n```py\nx = 1", live=True), "pre") == ("x = 1",)


@pytest.mark.parametrize(
    ("markdown", "shown", "kind"),
    [
        ("a **b", "a b", "bold"),
        ("a **b*", "a b", "bold"),
        ("a *b **c", "a b c", "italic"),
        ("a ~~b", "a b", "strikethrough"),
        ("a `b *c", "a b *c", "code"),
        ("> a `b", "a b", "blockquote"),
        ("- x\n- a **b", "• x\n• a b", "bold"),
        ("|a|b|\n|-|-|\n|c|**d", "a | b\n--+--\nc | d", "pre"),
    ],
)
def test_what_is_open_is_closed(markdown: str, shown: str, kind: str) -> None:
    rendered = render(markdown, live=True)
    assert rendered.text == shown
    assert covered(rendered, kind)


@pytest.mark.parametrize(
    "end",
    [
        "*",
        "**",
        "~~",
        "`",
        "[",
        "![",
        "[x](https://e",
        "\n-",
        "\n#",
        "\n```",
        "\n| a | b",
        "\n|a|b|\n|-",
        "\n1",
        "\n>",
        "&am",
    ],
)
def test_what_may_still_become_a_marker_is_held_back(end: str) -> None:
    assert render("text " + end, live=True).text in ("text", "text x")


def test_parts_behind_the_last_two_stay_while_an_answer_grows() -> None:
    long, before = (WHOLE + "\n\n") * 4, tuple[MessagePart, ...]()
    for end in range(0, len(long), 19):
        now = split(render(long[:end], live=True), limit=400)
        assert now[: max(0, len(before) - 2)] == before[:-2]
        before = now


def test_a_note_of_ours_is_no_code_even_below_an_open_fence() -> None:
    rendered = render("```py\nx = 1", live=True).append_note("[stopped]")
    assert rendered.text == "x = 1\n\n[stopped]"
    assert covered(rendered, "pre") == ("x = 1",)
    assert RenderedText().append_note("[stopped]").text == "[stopped]"


def test_what_was_held_back_is_shown_when_the_answer_is_done() -> None:
    assert render("text [x](https://e").text == "text [x](https://e"
    assert render("The sum is\n42").text == "The sum is\n42"
