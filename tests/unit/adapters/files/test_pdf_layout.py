"""Tables of PDFs keep their columns, and columns of prose are read in their order."""

from __future__ import annotations

import pytest

from shared.adapters.files.pdf_pages import read_pages
from shared.adapters.files.sandbox_worker import pdf as read_pdf
from shared.adapters.files.sandbox_worker import scans
from shared.core.values.files import document_kind
from tests.kit.sample_files import Placed, pdf, placed_pdf, scanned_pdf

STOCK = [["Part", "Shelf", "Have", "Want"], ["bolt", "A1", "40", ""], ["nut", "", "7", "9"],
         ["gear", "C3", "", "2"], ["", "D4", "1", ""]]  # fmt: skip
LEFT = ["The mill stands by the river", "and has ground flour for two", "hundred years. Its wheel was",
        "made of oak from the forest", "above the village."]  # fmt: skip
RIGHT = ["Today it is a museum where", "children bake their own bread", "in the old stone oven. It is",
         "open from May until October", "on every day but Monday."]  # fmt: skip


def read(content: bytes) -> str:
    assert document_kind(content) == "pdf"
    return read_pdf(content)[1].decode()


def cells(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def placed(rows: list[list[str]], *, order: str, step: int = 20) -> list[Placed]:
    numbered: list[Placed] = [
        (30 + 90 * column, 250 - step * row, words)
        for row, line in enumerate(rows)
        for column, words in enumerate(line)
        if words
    ]
    match order:
        case "columns":
            return sorted(numbered)
        case "backwards":
            return numbered[::-1]
    return numbered


@pytest.mark.parametrize("order", ["rows", "columns", "backwards"])
@pytest.mark.parametrize("step", [13, 20, 30])
def test_table_keeps_its_empty_cells_in_any_order_of_writing(order: str, step: int) -> None:
    assert cells(read(placed_pdf(placed(STOCK, order=order, step=step)))) == STOCK


def test_right_aligned_numbers_keep_their_columns() -> None:
    rows = [
        ["Item", "Qty", "Price"],
        ["Hex bolt M8", "1,200", "0.12"],
        ["Washer", "", "0.03"],
        ["Sum", "", "180.00"],
    ]
    page: list[Placed] = [
        (30 if column == 0 else (180, 270)[column - 1] - 5.5 * len(words), 250 - 15 * row, words)
        for row, line in enumerate(rows)
        for column, words in enumerate(line)
        if words
    ]
    assert cells(read(placed_pdf(page))) == rows


def test_text_around_a_table_stays_outside_of_it() -> None:
    page: list[Placed] = [(30, 290, "Stock of the workshop, counted in May."), *placed(STOCK, order="rows")]
    page.append((30, 100, "Please order what is missing before the holidays begin."))
    text = read(placed_pdf(page))
    assert text.startswith("Stock of the workshop, counted in May.\n")
    assert text.endswith("\nPlease order what is missing before the holidays begin.")
    assert cells(text) == STOCK


@pytest.mark.parametrize("order", ["left first", "line by line"])
def test_two_columns_of_prose_are_read_one_after_the_other(order: str) -> None:
    left: list[Placed] = [(30, 250 - 13 * row, words) for row, words in enumerate(LEFT)]
    right: list[Placed] = [(230, 250 - 13 * row, words) for row, words in enumerate(RIGHT)]
    page = (
        [*left, *right]
        if order == "left first"
        else [one for pair in zip(left, right, strict=True) for one in pair]
    )
    text = read(placed_pdf(page))
    assert "|" not in text
    assert " ".join(text.split()) == " ".join([*LEFT, *RIGHT])


def test_plain_prose_is_read_as_before() -> None:
    page: list[Placed] = [(30, 250 - 13 * row, words) for row, words in enumerate(LEFT)]
    assert read(placed_pdf(page)) == "\n".join(LEFT)


def test_knowledge_reads_tables_the_same_way() -> None:
    [page] = read_pages(placed_pdf(placed(STOCK, order="columns")))
    assert cells(page) == STOCK


@pytest.mark.parametrize("junk", [b"HTTP/1.1 200 OK\r\n\r\n", b"\xef\xbb\xbf", b"\r\n\r\n", bytes(500)])
def test_junk_before_a_pdf_is_passed_over(junk: bytes) -> None:
    assert read(junk + pdf("Still here.")) == "Still here."
    assert read_pages(junk + pdf("Still here.")) == ["Still here."]


def test_text_about_pdfs_is_no_pdf() -> None:
    assert document_kind(b"Files of this kind begin with %PDF-1.7 and a number.") is None


def test_scanned_pages_become_pictures() -> None:
    content = scanned_pdf(*[(600, 800)] * 12)
    head, text = read_pdf(content)
    assert (head["scanned"], text) == (list(range(1, 13)), b"")
    shown, body = scans(content)
    assert len(shown["pictures"]) == 10
    assert sum(one["size"] for one in shown["pictures"]) == len(body)
    assert body.startswith(b"\xff\xd8\xff")


def test_page_with_words_is_no_scan() -> None:
    assert read_pdf(pdf("Words."))[0]["scanned"] == []
    assert scans(pdf("Words.")) == ({"pictures": []}, b"")


@pytest.mark.parametrize("anchor", ["top", "middle", "bottom"])
def test_wrapped_cell_stays_one_cell(anchor: str) -> None:
    line = {"top": 0, "middle": 1, "bottom": 2}[anchor]
    page: list[Placed] = [(30, 250, "Item"), (120, 250, "Note"), (230, 250, "Price")]
    page += [(120, 230 - 12 * row, words) for row, words in enumerate(["strong and", "made of", "hemp"])]
    page += [(30, 230 - 12 * line, "Rope"), (230, 230 - 12 * line, "9.50")]
    page += [(30, 186, "Tar"), (120, 186, "black")]
    rows = [["Item", "Note", "Price"], ["Rope", "strong and made of hemp", "9.50"], ["Tar", "black", ""]]
    assert cells(read(placed_pdf(page))) == rows


def test_rows_close_together_stay_rows_below_a_distant_header() -> None:
    page: list[Placed] = [(30, 250, "Item"), (120, 250, "Have"), (230, 250, "Remark")]
    page += [(30, 230 - 12 * row, words) for row, words in enumerate(["Rope", "Tar", "Nail"])]
    page += [(120, 230 - 12 * row, words) for row, words in enumerate(["4", "1", "90"])]
    page.append((230, 218, "old"))
    rows = [["Item", "Have", "Remark"], ["Rope", "4", ""], ["Tar", "1", "old"], ["Nail", "90", ""]]
    assert cells(read(placed_pdf(page))) == rows
