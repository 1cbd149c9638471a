"""Single rules of the form, each in one short text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.telegram.markup.entity_text import TextEntity, render
from bot.telegram.markup.rich_blocks import build_rich_blocks
from shared.core.session.turns import utf16_units
from tests.unit.bot.markup.rendering import covered
from tests.unit.bot.markup.telegram_parser import judge, normal_url


def test_offsets_count_utf_16_units() -> None:
    assert render("👍🏽 **b**").entities == (TextEntity(type="bold", offset=5, length=1),)
    assert utf16_units("👍🏽") == 4


def test_an_entity_is_written_as_the_bot_api_has_it() -> None:
    assert [each.to_api() for each in render("[a](https://e.org)\n```py\nx\n```\n*i*").entities] == [
        {"type": "text_link", "offset": 0, "length": 1, "url": "https://e.org"},
        {"type": "pre", "offset": 2, "length": 1, "language": "py"},
        {"type": "italic", "offset": 4, "length": 1},
    ]


def test_styles_are_nested_and_never_around_code() -> None:
    rendered = render("**a *b `c` d* e**")
    assert covered(rendered, "bold") == ("a b ", " d e")
    assert covered(rendered, "italic") == ("b ", " d")
    assert covered(rendered, "code") == ("c",)


@pytest.mark.control("S18")
@pytest.mark.parametrize(
    "address", ["http://e.org", "HTTPS://e.org/x?a=b#c", "https://1.2.3.4:80/", "https://é.fr/ü"]
)
def test_an_address_of_the_web_becomes_a_link(address: str) -> None:
    assert [each.url for each in render(f"[x](<{address}>)").entities] == [address]


@pytest.mark.control("S18")
@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "tg://resolve?domain=x",
        "ftp://e.org",
        "/docs",
        "https://localhost",
        "https://e.org:99999",
    ],
)
def test_any_other_address_is_shown_but_cannot_be_touched(address: str) -> None:
    rendered = render(f"[x](<{address}>)")
    assert rendered.text == f"x ({address})"
    assert covered(rendered, "code") == (address,)
    assert covered(rendered, "text_link") == ()


@pytest.mark.parametrize("address", ["mailto:a@b.de", "tel:+49301"])
def test_mail_and_telephone_stand_where_telegram_finds_them(address: str) -> None:
    """Telegram reads a text link to mailto:a@b.de as http://mailto:a@b.de/, and drops one to tel."""
    assert normal_url(address) != address
    assert render(f"[x]({address})").text == f"x ({address.partition(':')[2]})"


@pytest.mark.parametrize(
    "address", ["https://" + "a" * 70 + ".org/" + "x" * 2_100, "data:text/html;base64,AAAA"]
)
def test_what_is_too_long_to_read_is_left_out(address: str) -> None:
    assert render(f"[x]({address})").text == "x"


def test_formula_stays_as_written_and_a_price_is_no_formula() -> None:
    assert (
        render("$a_1*b_1*c$ costs $5 or *$6*, \\(x\\) \\(no\\)").text
        == "$a_1*b_1*c$ costs $5 or $6, \\(x\\) (no)"
    )


def test_columns_are_aligned_for_wide_letters_and_long_cells_stand_out() -> None:
    rendered = render(f"|a|b|\n|--:|---|\n|名前|x|\n|{'l' * 40}|y|")
    assert rendered.text.split("\n") == [
        " " * 31 + "a | b",
        "-" * 32 + "-+--",
        " " * 28 + "名前 | x",
        "l" * 40 + " | y",
    ]


def test_a_very_wide_table_stays_as_it_was_written() -> None:
    wide = "|".join("x" * 30) + "\n" + "|".join("-" * 30)
    assert render(wide).text == wide


def test_numbers_go_on_from_the_first() -> None:
    assert render("3. a\n3. b\n\n0) c").text == "3. a\n4. b\n\n0. c"


def test_two_blocks_of_code_that_touch_stay_two() -> None:
    assert covered(render("```\na\n```\n```\nb\n```"), "pre") == ("a", "b")


def test_a_quote_in_a_quote_is_one_quote() -> None:
    rendered = render("> a\n>> b\n>>> c")
    assert covered(rendered, "blockquote") == ("a\nb\nc",)
    judge(rendered)


def test_rows_that_are_longer_than_their_head_lose_nothing() -> None:
    table = "| a | b |\n|---|---:|\n| 1 | 2 | 3 \\| x | **4** |\n| 5 |\n"
    assert render(table).text.splitlines() == ["a | b", "--+---+-------+--", "1 | 2 | 3 | x | 4", "5"]
    wide = "|a|\n|-|\n|" + "|".join(f"c{number}" for number in range(40)) + "|\n"
    assert [word for word in render(wide).text.split() if word.startswith("c")] == [
        f"c{number}" for number in range(40)
    ]
    blocks = build_rich_blocks("| a | b |\n|---|---|\n| 1 | 2 | third |\n")
    assert blocks is None or "third" in str(blocks)


@given(st.lists(st.lists(st.sampled_from(["x", "yy", "**z**", ""]), max_size=30), max_size=6))
def test_no_cell_of_any_table_is_lost(rows: list[list[str]]) -> None:
    table = "| h | i |\n|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows if any(row))
    shown = render(table).text
    told = "".join(cell.strip("*") for row in rows for cell in row)
    for letter in "xyz":
        assert shown.count(letter) == told.count(letter)
