"""Tables of HTML pages: values keep their columns, and layouts become paragraphs."""

from __future__ import annotations

import pytest

from shared.adapters.files.page_tables import MOST_COLUMNS
from shared.adapters.files.papers import page_markdown


def read(page: str) -> str:
    return page_markdown(page)[1]


def test_table_of_values_keeps_its_columns() -> None:
    page = "<p>Prices</p><table><tr><th>Part<th>Price<tr><td>nut<td>7|8<tr><td><td>9</table><p>End"
    lines = read(page).split("\n\n")[1].strip().splitlines()
    assert lines == (["| Part | Price |", "| --- | --- |", "| nut | 7\\|8 |", "|  | 9 |"])


def test_spans_leave_their_places_free() -> None:
    page = "<table><tr><th>a<th>b<th>c<tr><td rowspan=2>1<td colspan=2>2<tr><td>3<td>4</table>"
    assert read(page).splitlines() == ["| a | b | c |", "| --- | --- | --- |", "| 1 | 2 |  |", "|  | 3 | 4 |"]


def test_layout_of_newsletter_becomes_paragraphs_around_its_table() -> None:
    page = (
        "<table role=presentation><tr><td><h1>News</h1></td></tr><tr><td><table><tr><td>Left<td>Right</table>"
        "<table><tr><td>Day<td>Tide<tr><td>Monday<td>4:10</table></td></tr></table>"
    )
    text = read(page)
    assert "<" not in text
    assert text.startswith("# News")
    assert "| Monday | 4:10 |" in text
    assert "Left" in text
    assert "| Left | Right |" not in text


def test_links_in_cells_are_kept() -> None:
    page = "<table><tr><td>Where<td>What<tr><td><a href='https://a.invalid/'>Here</a><td>x</table>"
    assert "| [Here](https://a.invalid/) | x |" in read(page)


@pytest.mark.parametrize("rows", [1, 3_000])
def test_hostile_spans_make_no_long_rows(rows: int) -> None:
    row = "<tr>" + "<td colspan=99999 rowspan=99999>x" * 3
    text = read(f"<table>{row * rows}<tr><td>1<td>2</table>")
    assert len(text) < 40 * MOST_COLUMNS * 40


def test_text_that_looks_like_a_mark_stays() -> None:
    assert read("<p>0x 1x</p><table><tr><td>a<td>b<tr><td>c<td>d</table>").startswith("0x 1x")
