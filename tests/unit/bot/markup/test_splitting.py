"""Long answers as parts: nothing lost, nothing over a limit, nothing cut that belongs together."""

from __future__ import annotations

from random import Random

import pytest

from bot.telegram.markup.entity_text import (
    LIVE_UNITS,
    MAX_PARTS,
    MESSAGE_UNITS,
    MessagePart,
    build_messages,
    render,
    split,
)
from shared.core.session.turns import utf16_units
from tests.kit.night import by_night
from tests.unit.bot.markup.rendering import covered
from tests.unit.bot.markup.samples import SAMPLES, WHOLE
from tests.unit.bot.markup.telegram_parser import judge

FAMILY = "👨‍👩‍👧‍👦"


def joined(parts: tuple[MessagePart, ...]) -> str:
    return "".join(part.text + part.gap for part in parts)


def check(markdown: str, *, limit: int = MESSAGE_UNITS) -> tuple[MessagePart, ...]:
    rendered = render(markdown)
    parts = split(rendered, limit=limit)
    assert joined(parts) == rendered.text
    for part in parts:
        assert utf16_units(part.text) <= limit
        assert len(part.entities) <= 100
        assert part.text.rstrip() == part.text != ""
        assert not part.gap.strip(" \t\n\xa0\u0301")
        judge(part)
    return parts


def test_an_answer_of_forty_thousand_characters() -> None:
    markdown = "\n\n".join(f"{number}. round\n\n{WHOLE}" for number in range(60))[:40_000]
    parts = check(markdown)
    assert len(parts) > MAX_PARTS
    assert check(markdown, limit=LIVE_UNITS)


@pytest.mark.parametrize("limit", [20, 64])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_in_small_parts(name: str, limit: int) -> None:
    check(SAMPLES[name].markdown, limit=limit)


def test_growing_answer_makes_no_message_shorter_when_the_next_opens() -> None:
    """A paragraph that would move to the next message is shown there, and not before."""
    chance = Random(5)
    for _ in range(by_night(30, else_=1)):
        code = "```py\n" + "    x = 1\n" * chance.randint(3, 60) + "```"
        items = "".join(f"- {'item ' * chance.randint(1, 9)}\n" for _ in range(6))
        blocks = chance.choices(["word " * chance.randint(5, 150), items, code, WHOLE], k=30)
        text, before = "\n\n".join(blocks)[:9_000], tuple[MessagePart, ...]()
        for end in range(0, len(text), 37):
            now = split(render(text[:end], live=True), limit=LIVE_UNITS, grows=True)
            shrunk = [
                (a.text, b.text) for a, b in zip(before, now, strict=False) if len(b.text) < len(a.text) - 5
            ]
            assert shrunk == []
            before = now


def test_a_short_answer_is_one_part() -> None:
    assert split(render("**a** b")) == (MessagePart(text="a b", entities=render("**a** b").entities),)


def test_nothing_is_no_part() -> None:
    assert split(render(" \n")) == ()


def test_a_cut_is_made_at_a_blank_line_before_any_other() -> None:
    parts = check("a" * 60 + "\n\n" + "b " * 15 + "\nc " + "d" * 30, limit=100)
    assert parts[0].text == "a" * 60
    assert parts[0].gap == "\n\n"


def test_then_at_a_line_and_then_at_a_space() -> None:
    assert check("a " * 30 + "\n" + "b " * 30, limit=100)[0].gap == "\n"
    assert check("a" * 60 + " " + "b" * 60, limit=100)[0].text == "a" * 60


def test_a_split_block_of_code_keeps_its_language_and_its_indentation() -> None:
    code = "\n".join(f"    line_{number} = {number}" for number in range(40))
    parts = check(f"Look:\n\n```python\n{code}\n```\nEnd", limit=200)
    assert all(each.language == "python" for part in parts for each in part.entities if each.type == "pre")
    assert "\n".join(text for part in parts for text in covered(part, "pre")) == code
    assert all(text.startswith("    line_") for part in parts for text in covered(part, "pre"))


def test_a_style_goes_on_in_the_next_part() -> None:
    parts = check("**" + "bold word " * 30 + "end**", limit=100)
    assert all(covered(part, "bold") == (part.text,) for part in parts)


@pytest.mark.parametrize("cluster", [FAMILY, "👍🏽", "🇩🇪", "e\u0301", "❤️"])
@pytest.mark.parametrize("limit", [23, 24, 25, 26])
def test_what_a_person_sees_as_one_is_never_cut(cluster: str, limit: int) -> None:
    for part in check(cluster * 40, limit=limit):
        assert part.text == cluster * (len(part.text) // len(cluster))


def test_a_cluster_longer_than_a_message_is_cut_after_all() -> None:
    assert [utf16_units(part.text) for part in check("e" + "\u0301" * 9_000 + " end")] == [4_096, 813]


def test_more_than_a_hundred_entities_make_another_part() -> None:
    parts = check("**a** b " * 250)
    assert [len(part.entities) for part in parts] == [100, 100, 50]


def test_long_addresses_make_another_part() -> None:
    parts = check(" ".join(f"[{number}](https://e.org/{'x' * 1_000}{number})" for number in range(20)))
    assert all(sum(len(each.url or "") for each in part.entities) <= 8_000 for part in parts)


def test_thousands_of_spaces_are_no_part() -> None:
    check("```\nx" + " " * 9_000 + "y\n```")


def test_up_to_five_parts_are_messages() -> None:
    messages = build_messages("word " * 3_900)
    assert (len(messages.parts), messages.document) == (5, None)


def test_more_are_the_first_five_and_the_whole_as_a_file() -> None:
    markdown = "**word** " * 1_000
    messages = build_messages(markdown)
    assert messages.parts == split(render(markdown))[:MAX_PARTS]
    assert messages.document == markdown


def test_an_answer_without_anything_to_see_is_no_message() -> None:
    assert build_messages("\u200b\n").parts == ()
