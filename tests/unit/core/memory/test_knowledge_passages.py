"""Files in passages: short enough to quote, with the way to each of them, and nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.memory.knowledge import PASSAGE_WORDS, split_csv, split_markdown, split_pages, split_text

GUIDE = """\
Read me first.

# Returns
Within reason.
## Deadlines ##
Thirty days.

```sh
# not a heading
```
### Holidays
Ten more.
## Costs
We pay.
# Shipping
By post.
"""


def test_each_section_has_the_way_to_its_heading() -> None:
    found = {one.heading: one.text for one in split_markdown(GUIDE)}
    assert list(found) == [
        "", "Returns", "Returns › Deadlines", "Returns › Deadlines › Holidays", "Returns › Costs", "Shipping",
    ]  # fmt: skip
    assert "# not a heading" in found["Returns › Deadlines"]


def test_a_heading_without_words_of_its_own_makes_no_passage() -> None:
    assert [one.heading for one in split_markdown("# A\n## B\ntext")] == ["A › B"]


def test_a_text_is_cited_by_its_lines() -> None:
    passages = split_text("one\ntwo\n\nfive\n" + "\n" + "word " * 299 + "\n")
    assert [one.heading for one in passages] == ["lines 1–4", "line 6"]


def test_table_rows_are_named_by_their_column_names() -> None:
    passages = split_csv('name;price\n"Tea; green";3\n;\nCoffee;4;extra\n')
    assert [(one.heading, one.text) for one in passages] == [
        ("rows 2–4", "name: Tea; green; price: 3\nname: Coffee; price: 4; extra")
    ]


def test_a_table_with_an_open_quote_is_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="is not a table"):
        split_csv('a,b\n"never closed,1\n')


def test_pages_are_cited_by_number_and_empty_ones_are_left_out() -> None:
    assert [one.heading for one in split_pages(["one", " ", "three"])] == ["page 1", "page 3"]


@pytest.mark.parametrize("text", ["", " \n\n ", "#\n", "```"])
def test_nothing_makes_no_passages_or_only_itself(text: str) -> None:
    assert len(split_markdown(text)) <= 1
    assert len(split_text(text)) <= 1


@settings(max_examples=60)
@given(st.text(alphabet="ab \n#.語。`~", max_size=9_000))
def test_no_passage_is_long_and_no_word_is_lost(text: str) -> None:
    for split in (split_text, split_markdown):
        passages = split(text)
        assert all(len(one.text.split()) <= PASSAGE_WORDS for one in passages)
        assert all(len(one.text) <= PASSAGE_WORDS * 8 for one in passages)
    told = "".join("".join(one.text.split()) for one in split_text(text))
    assert told == "".join(text.split())


def test_long_table_repeats_its_header_in_each_passage() -> None:
    head = "| Part | Shelf |\n| --- | --- |\n"
    rows = [f"| bolt number {number} | A{number} |" for number in range(400)]
    passages = split_pages(["Stock\n\n" + head + "\n".join(rows)])
    tables = [one.text for one in passages if "bolt" in one.text]
    assert len(tables) > 3
    assert all(text.startswith(head) or f"\n{head}" in text for text in tables)
    assert [row for text in tables for row in text.splitlines() if "bolt" in row] == rows
