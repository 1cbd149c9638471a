"""Bytes of a text file as text: UTF-8, UTF-16 with its mark, else Latin-1; never a program or an archive."""

from __future__ import annotations

import codecs

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAMPLE = 65_536
_MOST_CONTROLS = 0.01
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\x0c\x1b") | {127}
_UNUSED_LATIN = frozenset(range(0x80, 0xA0))


class NotText(ValueError):
    """No known encoding fits these bytes."""


def read_text(content: bytes) -> str:
    """With `\\n` at the end of lines. Raises NotText."""
    if content.startswith(_UTF16):
        return _lines(_decode(content, "utf-16"))
    if b"\x00" in content:
        raise NotText("NUL")
    _refuse_controls(content, _CONTROLS)
    try:
        return _lines(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        _refuse_controls(content, _UNUSED_LATIN)
        return _lines(content.decode("latin-1"))


def _decode(content: bytes, encoding: str) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise NotText(encoding) from error
    if "\x00" in text:
        raise NotText("NUL")
    return text


def _refuse_controls(content: bytes, controls: frozenset[int]) -> None:
    """Texts hold next to none of these; programs and archives are full of them."""
    sample = content[:_SAMPLE]
    if sum(byte in controls for byte in sample) > _MOST_CONTROLS * len(sample):
        raise NotText("control characters")


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
