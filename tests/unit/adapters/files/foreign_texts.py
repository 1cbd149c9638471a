"""Sentences of many languages, and the encodings that people's old programs write them in."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignText:
    """A text as a file of one encoding; `shape` is long, short or table."""

    language: str
    codec: str
    shape: str
    text: str
    content: bytes


SENTENCES: dict[str, tuple[str, ...]] = {
    language: tuple(shapes.values())
    for language, shapes in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).items()
}
"""A long text, a short one and a table, by language."""
_WESTERN = ("cp1252", "iso8859_15", "mac_roman", "cp850", "utf-16-le")
_CENTRAL = ("cp1250", "iso8859_2", "cp852", "mac_latin2")
_RUSSIAN = ("cp1251", "koi8_r", "cp866", "iso8859_5", "mac_cyrillic", "cp855", "utf-16-be")
ENCODINGS = {
    "de": (*_WESTERN, "cp437"), "fr": _WESTERN, "es": (*_WESTERN, "cp437"), "pt": (*_WESTERN, "cp860"),
    "it": _WESTERN, "sv": (*_WESTERN, "cp437"), "da": (*_WESTERN, "cp865"), "fi": _WESTERN,
    "is": ("cp1252", "cp850", "cp861"), "pl": _CENTRAL, "cs": _CENTRAL, "hu": _CENTRAL, "ro": _CENTRAL[:3],
    "hr": _CENTRAL, "lt": ("cp1257", "iso8859_13", "cp775"), "lv": ("cp1257", "iso8859_13", "cp775"),
    "tr": ("cp1254", "iso8859_9", "cp857", "mac_turkish"), "ru": _RUSSIAN,
    "uk": ("cp1251", "koi8_u", "cp1125", "mac_cyrillic", "utf-16-le"),
    "bg": ("cp1251", "iso8859_5", "cp855", "mac_cyrillic"),
    "el": ("cp1253", "iso8859_7", "cp737", "mac_greek", "utf-16-le"),
    "he": ("cp1255", "iso8859_8", "cp862", "utf-16-be"),
    "ar": ("cp1256", "iso8859_6", "utf-16-le"), "vi": ("cp1258",), "th": ("cp874", "tis_620", "utf-16-le"),
    "zh": ("gbk", "gb18030", "gb2312", "hz", "utf-16-le", "utf-16-be", "utf-32-le"),
    "zh-hant": ("big5", "cp950", "gb18030", "utf-16-le"),
    "ja": ("shift_jis", "cp932", "euc_jp", "iso2022_jp", "utf-16-le", "utf-32-be"),
    "ko": ("euc_kr", "cp949", "iso2022_kr", "johab", "utf-16-le"),
}  # fmt: skip


def build_foreign_texts() -> Iterator[ForeignText]:
    """Yield each sentence in each encoding that has all its letters."""
    for language, codecs in ENCODINGS.items():
        for codec in codecs:
            for shape, text in zip(("long", "short", "table"), SENTENCES[language], strict=True):
                written = _decompose(text) if codec == "cp1258" else text
                try:
                    content = written.encode(codec)
                except UnicodeEncodeError:
                    continue
                yield ForeignText(language=language, codec=codec, shape=shape, text=text, content=content)


def _decompose(text: str) -> str:
    """Write Vietnamese as its code page does: vowels with their hats, tones as marks of their own."""
    tones = "\u0300\u0301\u0303\u0309\u0323"
    written = []
    for sign in text:
        parts = unicodedata.normalize("NFD", sign)
        tone = "".join(part for part in parts if part in tones)
        rest = unicodedata.normalize("NFC", "".join(part for part in parts if part not in tones))
        written.append(rest + tone if tone else sign)
    return "".join(written)
