"""Texts of many languages in the encodings of old programs, and bytes that are no text."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from shared.adapters.files.text_decoding import NotText, decode_text
from tests.kit.night import by_night
from tests.unit.adapters.files.foreign_texts import SENTENCES, ForeignText, build_foreign_texts

FOREIGN = tuple(build_foreign_texts())
TRIED = random.Random(1).sample(FOREIGN, len(FOREIGN) // by_night(1, else_=3))
"""By day a third of all, drawn once."""


@cache
def judge(one: ForeignText) -> str:
    try:
        found = decode_text(one.content)
    except NotText:
        return "refused"
    if found.text == one.text.replace("\r\n", "\n"):
        return "right"
    return "doubted" if found.guessed else "garbled"


def test_corpus_has_many_languages_and_encodings() -> None:
    assert len(FOREIGN) >= 380
    assert len({one.codec for one in FOREIGN}) >= 37
    assert len({one.language for one in FOREIGN}) >= 25


def test_foreign_texts_are_read_right_and_never_garbled_in_silence() -> None:
    verdicts = Counter(judge(one) for one in TRIED)
    assert verdicts["right"] >= 0.97 * len(TRIED), verdicts
    assert verdicts["garbled"] == 0, verdicts


@pytest.mark.parametrize("shape", ["short", "table"])
def test_short_texts_and_tables_are_read_right(shape: str) -> None:
    mine = [one for one in TRIED if one.shape == shape]
    assert sum(judge(one) == "right" for one in mine) >= 0.94 * len(mine)


def test_language_of_the_sender_decides_between_near_equals() -> None:
    content = "Perché non è più qui?".encode("cp1252")
    assert decode_text(content, languages=("it-IT",)).text == "Perché non è più qui?"


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_marked_unicode_is_beyond_doubt(codec: str) -> None:
    found = decode_text("Grüße, мир, 世界\r\n".encode(codec))
    assert (found.text, found.guessed) == ("Grüße, мир, 世界\n", "")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("language", ["de", "ru", "zh", "ja", "he"])
def test_unmarked_wide_unicode_is_read(codec: str, language: str) -> None:
    for text in SENTENCES[language]:
        assert decode_text(text.encode(codec)).text == text.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        ('<?xml version="1.0" encoding="windows-1251"?><a>{}</a>', "cp1251"),
        ('<!doctype html><html><meta charset="koi8-r"><body>{}', "koi8_r"),
        (
            '<html><head><meta http-equiv="Content-Type" content="text/html; charset=iso-8859-5">{}',
            "iso8859_5",
        ),
        ('@charset "ibm866"; /* {} */', "cp866"),
    ],
)
def test_charset_that_a_file_names_is_beyond_doubt(head: str, codec: str) -> None:
    text = head.format("Мир и труд")
    found = decode_text(text.encode(codec))
    assert (found.text, found.guessed) == (text, "")


def test_charset_that_is_named_wrongly_is_not_believed() -> None:
    text = '<?xml version="1.0" encoding="utf-8"?><a>Завтра утром мы поедем на озеро</a>'
    found = decode_text(text.encode("cp1251"))
    assert (found.text, found.guessed) == (text, "Windows-1251")


@pytest.mark.parametrize("junk", [b"\x00" * 512, b"a\x00b"])
def test_log_with_nuls_is_text(junk: bytes) -> None:
    lines = b"2026-01-03 12:00:01 started\n2026-01-03 12:00:09 disk is full\n" * 40
    text = decode_text(lines + junk + lines).text
    assert "\x00" not in text
    assert text.count("disk is full") == 80


def test_damaged_characters_are_named_in_utf8() -> None:
    content = ("Завтра утром мы поедем на озеро. " * 20).encode() + b"\xff\xfe" + "Конец".encode()
    found = decode_text(content)
    assert "damaged" in found.guessed
    assert found.text.startswith("Завтра утром")
    assert found.text.endswith("Конец")


def test_cut_last_character_leaves_no_doubt() -> None:
    found = decode_text("Завтра утром".encode()[:-1])
    assert (found.text, found.guessed) == ("Завтра утро", "")


@pytest.mark.parametrize(
    "text",
    [
        "The café on Rue Lepic opens at nine; ask for René.\n",
        "Résumé",
        "price: 12 € per piece\n",
        "it’s “quoted” – mostly\n",
    ],
)
def test_english_with_few_foreign_signs_is_read(text: str) -> None:
    assert decode_text(text.encode("cp1252")).text == text


def test_boxes_of_a_console_are_read() -> None:
    text = (
        "┌───────┬───────┐\n│ Größe │ 12 kB │\n├───────┼───────┤\n│ Überlauf │ nein  │\n└───────┴───────┘\n"
    )
    assert decode_text(text.encode("cp437")).text == text


@pytest.mark.parametrize(
    "content",
    [
        b"\x00",
        random.Random(2).randbytes(3_000),
        random.Random(3).randbytes(200_000),
        b"\x7fELF" + bytes(600),
        b"MZ\x00\x01" * 50,
        bytes(range(256)) * 20,
    ],
)
def test_programs_and_noise_are_no_text(content: bytes) -> None:
    with pytest.raises(NotText):
        decode_text(content)


def test_colours_of_a_terminal_are_kept() -> None:
    assert decode_text(b"\x1b[31mred\x1b[0m").text == "\x1b[31mred\x1b[0m"


def test_reported_price_lists_are_read() -> None:
    rows = "Artikel;Preis\r\n„Äpfel“;3,50 €\r\n" * 8
    assert decode_text(rows.encode("cp1252")).text == rows.replace("\r\n", "\n")
    rows = "商品,价格\r\n苹果,12\r\n" * 8
    assert decode_text(rows.encode("gbk")).text == rows.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("iso8859_15", "Prix: 12 €\nCœur de bœuf à l'été\n"),
        ("iso8859_15", "Une sœur cadette et son œuvre\n"),
        ("cp1252", "Sinä ehdit vielä ½ tuntia ennen lähtöä\n"),
        ("cp1250", "Roba;Cijena\nŽlica;3\nČaša đumbira;12\n"),
        ("cp1250", "Ime;Grad\nŽeljko;Čakovec\nŠime;Đakovo\n"),
        ("utf-7", "Café Möwe"),
        ("utf-7", "Завтра утром мы поедем на озеро"),
        ("utf-7", "商品价格"),
    ],
)
def test_rare_encoding_is_read_by_what_stands_in_words(codec: str, text: str) -> None:
    assert decode_text(text.encode(codec)).text == text


@pytest.mark.parametrize(
    "text",
    [
        "Call +47123456- or +4712345678",
        "C++ and a+b-c=d, 1+ABC-2",
        "x+y-z",
        "key=Zm9v+mFy/A==",
        "https://a/?q=a+bc-d+efg-",
    ],
)
def test_plus_signs_in_plain_text_stay(text: str) -> None:
    found = decode_text(text.encode())
    assert (found.text, found.guessed) == (text, "")
