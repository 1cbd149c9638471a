"""Papers, sheets, slides and books become Markdown; what is hostile or locked is refused, and bounded."""

from __future__ import annotations

import random

import pytest

from shared.adapters.files import papers
from shared.adapters.files.papers import read_paper
from shared.adapters.files.rtf import MOST_CHARS
from shared.core.values.files import Refused, document_kind
from tests.kit.sample_files import OLD_OFFICE, docx, epub, open_document, pptx, words_docx, xlsx, zipped

P = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"


def words_of(content: bytes) -> str:
    assert document_kind(content) == "paper"
    return read_paper(content)[1]


def test_a_document_keeps_headings_lists_tables_and_notes() -> None:
    def styled(style: str, words: str) -> str:
        return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{words}</w:t></w:r></w:p>'

    item = '<w:p><w:pPr><w:numPr><w:ilvl w:val="{}"/></w:numPr></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'
    cell = "<w:tc>{}</w:tc>"
    rows = "".join(
        f"<w:tr>{''.join(cell.format(P.format(one)) for one in row)}</w:tr>"
        for row in (("a", "b"), ("1", "2|3"))
    )
    content = docx(
        styled("berschrift2", "Costs")
        + P.format("Gone</w:t><w:delText>deleted</w:delText><w:tab/><w:t>on")
        + item.format(0, "one")
        + item.format(1, "two")
        + f"<w:tbl>{rows}</w:tbl>",
        styles='<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>',
        footnotes=P.format("Said at home."),
    )
    assert words_of(content) == (
        "## Costs\n\nGone\ton\n\n- one\n  - two\n\n| a | b |\n| --- | --- |\n| 1 | 2\\|3 |"
        "\n\nFootnotes:\n\nSaid at home."
    )


def test_a_sheet_shows_days_sums_words_and_its_gaps() -> None:
    styles = '<numFmts><numFmt numFmtId="170" formatCode="dd/mm/yyyy"/></numFmts><cellXfs><xf numFmtId="0"/>'
    styles += '<xf numFmtId="170"/><xf numFmtId="22"/></cellXfs>'
    shared = "<si><t>Tea</t><rPh><t>tii</t></rPh></si><si><r><t>Pr</t></r><r><t>ice</t></r></si>"
    rows = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>'
        '<row><c r="A2" s="1"><v>46085</v></c><c r="B2" s="2"><v>46085.5</v></c>'
        '<c r="C2"><f>A1+B1</f><v>0.30000000000000004</v></c></row>'
        '<row><c r="B4" t="b"><v>1</v></c><c r="C4" t="inlineStr"><is><t>here</t></is></c></row>'
    )
    assert words_of(xlsx(rows, shared=shared, styles=styles)) == (
        "## Budget\n\n| Tea |  | Price |\n| --- | --- | --- |\n"
        "| 2026-03-04 | 2026-03-04 12:00:00 | 0.3 |\n|  | TRUE | here |"
    )


def test_slides_come_in_the_order_in_which_they_are_shown() -> None:
    def shape(words: str, kind: str = "body") -> str:
        return f'<p:sp><p:ph type="{kind}"/><a:p><a:r><a:t>{words}</a:t></a:r></a:p></p:sp>'

    slides = (shape("Plans", "title") + shape("First"), shape("Second"))
    assert words_of(pptx(*slides)) == "## Slide 1\n\n### Plans\n\nFirst\n\n## Slide 2\n\nSecond"


def test_open_documents_keep_lists_notes_and_repeated_cells() -> None:
    body = (
        '<text:h text:outline-level="2">Head</text:h>'
        '<text:p>Words<text:s text:c="2"/>more<text:note><text:note-citation>1</text:note-citation>'
        "<text:note-body><text:p>aside</text:p></text:note-body></text:note>.</text:p>"
        "<text:list><text:list-item><text:p>a</text:p><text:list><text:list-item><text:p>b</text:p>"
        "</text:list-item></text:list></text:list-item></text:list>"
        "<text:tracked-changes><text:p>taken away</text:p></text:tracked-changes>"
    )
    assert words_of(open_document(body)) == "## Head\n\nWords  more (aside ).\n\n- a\n  - b"
    rows = (
        '<table:table table:name="Sums"><table:table-row table:number-rows-repeated="2">'
        '<table:table-cell table:number-columns-repeated="2"><text:p>7</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="16000"/></table:table-row>'
        '<table:table-row table:number-rows-repeated="1000000"><table:table-cell/></table:table-row>'
        "</table:table>"
    )
    assert words_of(open_document(rows, kind="spreadsheet")) == (
        "## Sums\n\n| 7 | 7 |\n| --- | --- |\n| 7 | 7 |"
    )


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    chapters = "<h1>One</h1><p>Tea&nbsp;first</p>", "<h1>Two</h1><aside>A note</aside>"
    assert words_of(epub(*chapters)) == "# One\n\nTea\xa0first\n\n# Two\n\nA note"


def test_rich_text_knows_its_fonts_and_hides_what_is_hidden() -> None:
    content = (
        rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Times;}{\f1\fcharset204 Arial;}}{\info{\title Hidden}}"
        rb"\f0 Gr\'fc\'dfe \u-10179?\u-8704?\par{\f1 \'cf\'f0\'e8}\par{\*\secret hidden}a\cell b\cell\row"
        rb"{\pict\pngblip\bin4 }}{\end}"
    )
    assert words_of(content) == "Grüße 😀\nПри\na | b |"


def encrypted_zip() -> bytes:
    content = bytearray(words_docx("secret"))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1
    return bytes(content)


BOMB = '<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'


@pytest.mark.control("S35", "S48")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (encrypted_zip(), "file_locked"),
        (OLD_OFFICE + "EncryptedPackage".encode("utf-16-le"), "file_locked"),
        (open_document("", manifest="<encryption-data/>"), "file_locked"),
        (epub("<p>secret</p>", locked=True), "file_locked"),
        (OLD_OFFICE, "file_unknown_kind"),
        (zipped({"a.txt": "words"}), "file_unknown_kind"),
        (zipped({}), "file_unknown_kind"),
        (b"PK\x03\x04 and nothing", "file_unreadable"),
        (open_document("<text:p>" * 600), "file_unreadable"),
        (
            zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": BOMB}),
            "file_unreadable",
        ),
        (
            zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": OUTSIDE}),
            "file_unreadable",
        ),
    ],
)
def test_what_is_locked_hostile_or_of_another_kind_is_refused_by_name(content: bytes, reason: str) -> None:
    assert document_kind(content) == "paper"
    with pytest.raises(Refused) as refused:
        read_paper(content)
    assert refused.value.reason == reason


@pytest.mark.control("S35", "S48")
def test_what_unpacks_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "MOST_UNPACKED", 1_000_000)
    head, text = read_paper(docx(P.format("first") + "<w:p/>" * 1_000_000))
    assert (head["truncated"], text) == (True, "first")
    head, text = read_paper(words_docx("x" * 900_000))
    assert (head["truncated"], len(text)) == (True, MOST_CHARS)
    empty = '<row><c r="ZZZ1"/></row>'
    wide = f'<row><c r="A1" t="s"><v>0</v></c></row>{empty * 9_000}'
    head, text = read_paper(xlsx(wide, shared="<si><t>first</t></si>"))
    assert head["truncated"]
    assert "first" in text


@pytest.mark.control("S48")
def test_broken_papers_fail_in_known_ways_only() -> None:
    """The opening process answers any exception with one refusal; it must not hang or eat memory."""
    for content in (words_docx("a", "b"), xlsx('<row><c r="A1"><v>1</v></c></row>'), epub("<p>x</p>")):
        for seed in range(60):
            chance = random.Random(seed)
            broken = bytearray(content)
            for _ in range(chance.randint(1, 8)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            try:
                read_paper(bytes(broken))
            except MemoryError:
                raise
            except Exception as error:
                assert not isinstance(error, RecursionError)  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\xef\xbb\xbf<!DOCTYPE html><p>x", "page"),
        (b"<!-- a --><html lang=en>", "page"),
        (b"words about <html >", None),
        (b"<svg/>", None),
        (b"%PDF-1.7", "pdf"),
        (b"{\\rtf1 x}", "paper"),
    ],
)
def test_the_bytes_name_the_kind(content: bytes, kind: str | None) -> None:
    assert document_kind(content) == kind


def test_chart_of_a_document_is_read_as_a_table() -> None:
    def points(tag: str, *values: str) -> str:
        return f"<{tag}>{''.join(f'<pt><v>{one}</v></pt>' for one in values)}</{tag}>"

    series = "".join(
        f"<ser><tx><v>{name}</v></tx>{points('cat', 'North', 'South')}{points('val', *values)}</ser>"
        for name, values in (("Rain", ("3.5", "8.25")), ("Sun", ("7", "")))
    )
    assert words_of(docx(P.format("Weather"), chart=series)) == (
        "Weather\n\nChart:\n\n|  | Rain | Sun |\n| --- | --- | --- |\n"
        "| North | 3.5 | 7 |\n| South | 8.25 |  |"
    )


def test_pictures_of_a_page_are_read_as_their_descriptions() -> None:
    logo = '<a href="/a"><img src="data:image/svg+xml,%3C" alt="Our logo"></a>'
    page = f'<main><p>{logo} Open. <img src="x"></p></main>'
    text = papers.page_markdown(page)[1]
    assert "Our logo" in text
    assert "<img" not in text
