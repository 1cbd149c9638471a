"""The judge itself: it must be here where it can be, and it must say no."""

from __future__ import annotations

import importlib
import platform
import sys

import pytest

from bot.telegram.markup.entity_text import RenderedText, TextEntity
from tests.unit.bot.markup.telegram_parser import judge


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="tdjson has no wheel for every machine"
)
def test_the_judge_is_here() -> None:
    importlib.import_module("tdjson")


@pytest.mark.parametrize(
    "entities",
    [
        (TextEntity(type="bold", offset=0, length=0),),
        (TextEntity(type="text_link", offset=0, length=1, url="https://localhost"),),
        (TextEntity(type="text_link", offset=0, length=1, url="mailto:a@b.de"),),
        (
            TextEntity(type="pre", offset=0, length=3, language="a<b"),
            TextEntity(type="pre", offset=1, length=1),
        ),
        (TextEntity(type="bold", offset=0, length=2), TextEntity(type="italic", offset=1, length=2)),
    ],
    ids=["empty", "nowhere", "mail", "code in code", "crossing"],
)
def test_the_judge_says_no(entities: tuple[TextEntity, ...]) -> None:
    judge(RenderedText(text="abc"))
    with pytest.raises(AssertionError):
        judge(RenderedText(text="abc", entities=entities))


def test_no_entity_may_begin_within_a_character() -> None:
    with pytest.raises(UnicodeDecodeError):
        judge(RenderedText(text="👍🏽", entities=(TextEntity(type="bold", offset=1, length=2),)))
