"""Rich blocks, as aiogram's types of the Bot API know them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiogram.types import InputRichMessage
from pydantic import BaseModel

from bot.telegram.markup.rich_blocks import RichBlock, build_rich_blocks
from tests.unit.bot.markup.samples import SAMPLES, WHOLE

COLUMNS = 20


def blocks(markdown: str) -> tuple[RichBlock, ...]:
    found = build_rich_blocks(markdown)
    assert found is not None
    return found


def unknown_fields(value: Any) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{type(value).__name__}.{name}" for name in value.model_extra or ())
        for name in value.model_fields_set:
            yield from unknown_fields(getattr(value, name, None))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from unknown_fields(each)


@pytest.mark.parametrize(
    "markdown", [*(pytest.param(s.markdown, id=name) for name, s in SAMPLES.items()), WHOLE]
)
def test_aiogram_knows_every_block_and_every_field(markdown: str) -> None:
    for end in range(0, len(markdown) + 1, 23):
        found = build_rich_blocks(markdown[:end]) or ()
        message = InputRichMessage.model_validate({"blocks": found})
        assert list(unknown_fields(message)) == []
        assert not message.blocks or "InputRichBlock" in type(message.blocks[0]).__name__


@pytest.mark.parametrize(
    "markdown", ["", "Hi **you**", "- a\n- b", "```py\nx\n```", "> quote", "it costs $5 and $6"]
)
def test_what_the_classic_form_says_as_well_stays_classic(markdown: str) -> None:
    assert build_rich_blocks(markdown) is None


def test_a_table() -> None:
    assert blocks("|a|b|\n|:-:|--:|\n|**c**|[d](https://e.org)|") == (
        {
            "type": "table",
            "is_bordered": True,
            "cells": [
                [
                    {"text": "a", "align": "center", "valign": "middle", "is_header": True},
                    {"text": "b", "align": "right", "valign": "middle", "is_header": True},
                ],
                [
                    {"text": {"type": "bold", "text": "c"}, "align": "center", "valign": "middle"},
                    {
                        "text": {"type": "url", "text": "d", "url": "https://e.org"},
                        "align": "right",
                        "valign": "middle",
                    },
                ],
            ],
        },
    )


def test_tasks_in_a_numbered_list() -> None:
    assert blocks("2. [x] a\n3. [ ] b") == (
        {
            "type": "list",
            "items": [
                {
                    "blocks": [{"type": "paragraph", "text": "a"}],
                    "has_checkbox": True,
                    "is_checked": True,
                    "value": 2,
                    "type": "1",
                },
                {
                    "blocks": [{"type": "paragraph", "text": "b"}],
                    "has_checkbox": True,
                    "is_checked": False,
                    "value": 3,
                    "type": "1",
                },
            ],
        },
    )


def test_formulas_lose_their_signs() -> None:
    assert blocks("so $x_1$\n\n$$\na\n+ b\n$$") == (
        {"type": "paragraph", "text": ["so ", {"type": "mathematical_expression", "expression": "x_1"}]},
        {"type": "mathematical_expression", "expression": "a\n+ b"},
    )


def test_details_with_details_in_them() -> None:
    markdown = (
        "before\n\n<details open>\n<summary>More *here*</summary>\n\n# H\n\n"
        "<details><summary>Deep</summary>**d** e</details>\n\nlast\n</details>\n\nafter"
    )
    assert blocks(markdown) == (
        {"type": "paragraph", "text": "before"},
        {
            "type": "details",
            "summary": ["More ", {"type": "italic", "text": "here"}],
            "is_open": True,
            "blocks": [
                {"type": "heading", "text": "H", "size": 1},
                {
                    "type": "details",
                    "summary": "Deep",
                    "blocks": [{"type": "paragraph", "text": [{"type": "bold", "text": "d"}, " e"]}],
                },
                {"type": "paragraph", "text": "last"},
            ],
        },
        {"type": "paragraph", "text": "after"},
    )


def test_unclosed_details_stay_text() -> None:
    assert build_rich_blocks("<details><summary>x</summary>\n\nbody") is None


@pytest.mark.parametrize(
    "markdown",
    [
        "$x_1$ " + "word " * 6_600,
        "- [ ] a\n" * 251,
        "|a|\n|-|\n" + "|b|\n" * 500,
        "- [ ] a\n" + "".join("  " * depth + "- b\n" for depth in range(1, 10)),
    ],
    ids=["too long", "too many items", "too many rows", "too deep"],
)
def test_an_answer_over_a_limit_stays_classic(markdown: str) -> None:
    assert build_rich_blocks(markdown) is None


def test_an_answer_just_within_the_limits_is_rich() -> None:
    assert len(blocks("- [ ] a\n" * 249)[0]["items"]) == 249
    assert blocks("|" + "a|" * COLUMNS + "\n|" + "-|" * COLUMNS)
