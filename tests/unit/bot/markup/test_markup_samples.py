"""The nasty samples, whole: Telegram takes them, and no code is changed."""

from __future__ import annotations

import pytest

from bot.telegram.markup.entity_text import render
from tests.unit.bot.markup.rendering import covered
from tests.unit.bot.markup.samples import SAMPLES, WHOLE, Sample
from tests.unit.bot.markup.telegram_parser import judge

samples = pytest.mark.parametrize("sample", [pytest.param(each, id=name) for name, each in SAMPLES.items()])


@pytest.mark.control("S18")
@samples
def test_telegram_reads_a_sample_as_we_mean_it(sample: Sample) -> None:
    judge(render(sample.markdown))


@samples
def test_code_comes_out_as_it_went_in(sample: Sample) -> None:
    rendered = render(sample.markdown)
    if sample.blocks:
        assert covered(rendered, "pre") == sample.blocks
    if sample.codes:
        assert covered(rendered, "code") == sample.codes


@samples
def test_what_must_be_readable_is(sample: Sample) -> None:
    shown = render(sample.markdown).text
    assert [text for text in sample.shows if text not in shown] == []


@samples
def test_a_rendered_text_has_no_blanks_around_it(sample: Sample) -> None:
    rendered = render(sample.markdown)
    assert rendered.text.rstrip() == rendered.text
    first = rendered.entities[:1]
    assert rendered.text.lstrip() == rendered.text or (first and first[0].type == "pre")


@pytest.mark.parametrize("sample", ["nothing but blanks", "nothing to see"])
def test_invisible_text_is_no_text(sample: str) -> None:
    assert render(SAMPLES[sample].markdown).text == ""


def test_a_whole_answer_looks_as_it_should() -> None:
    rendered = render(WHOLE)
    assert rendered.text == (
        "Plan\n\n"
        "Let's do three things, with code and care — see the docs 👍🏽:\n\n"
        "1. First, a bad good idea with stress\n"
        "   ◦ nested x_y\n"
        "   ◦ and more\n"
        "2. Second\n\n"
        "def f(a_b):\n    return a_b ** 2  # *x* <y> & `z` | t\n\n"
        "Name | Worth | Where\n"
        "-----+-------+------\n"
        "Ann  |    12 | home\n"
        "名前 |     9 | -\n"
        "home\n\n"
        "quote with strike\n• and a list\n\n"
        "☐ open\n☑ done\n\n"
        "———\n"
        "Final: 2*3*4 is 24, snake_case_name & <tag> $5, a b $x_1$ and the end."
    )
    assert covered(rendered, "bold") == ("Plan", "three", "with", "b", "the end")
    assert covered(rendered, "italic") == ("care", "idea with stress")
    assert covered(rendered, "text_link") == ("the docs", "home")
    assert covered(rendered, "blockquote") == ("quote with strike\n• and a list",)
    assert [each.language for each in rendered.entities if each.type == "pre"] == ["python", None]
