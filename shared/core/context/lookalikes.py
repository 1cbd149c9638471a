"""Text as a model may read it: without invisible characters, and with plain letters for lookalikes."""

from __future__ import annotations

import unicodedata

_SAME_SHAPE = (
    "аaеeоoрpсcхxуyіiѕsјjһhԁdԛqԝwӏlАAВBЕEКKМMНHОOРPСCТTХXУYІIЅSЈJҮYԚQԜWоo"  # Cyrillic
    "οoνvιiαaρpΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧXςcϲcϳjͿJ"  # Greek
    "օoսuոnցgհhոnօoՏSՍUԼL"  # Armenian
    "ıiɑaɡgᴏoᴜuᴠvᴡwꜱsꞮIɪiʏyꓢSꓬYꓔTꓟM"  # letters of phonetics and of other scripts
    "⟨<〈<〈<❮<❰<⧼<˂<ᐸ<≺<⁄/∕/⧸/╱/᜵/꞉:ː:∶:׃:‐-‑-‒-–-﹘-﹣-－-ˍ_"
)
"""Pairs of a character and the plain one of the same shape."""
_SHAPES = {ord(one): plain for one, plain in zip(_SAME_SHAPE[::2], _SAME_SHAPE[1::2], strict=True)}
_SHAPES.pop(ord("∶"))  # `defuse` itself writes this in place of a colon
_FILLERS = frozenset({0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0})
"""Letters that show nothing."""
_UNSEEN = frozenset({"Cf", "Mn", "Me", "Cc", "Co", "Cn"})
_KEPT = frozenset(map(ord, "\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85"))
"""Blanks and line ends among the control characters, which are kept."""


class _Shapes(dict[int, "str | None"]):
    """Table for `str.translate`, filled as characters are looked up; None removes a character."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        found: str | None = char
        if code in _SHAPES:
            found = _SHAPES[code]
        elif code in _FILLERS or (code not in _KEPT and unicodedata.category(char) in _UNSEEN):
            found = None
        elif code > 127:
            plain = unicodedata.normalize("NFKC", char)
            found = plain if len(plain) == 1 and plain.isascii() else char
        self[code] = found
        return found


_TABLE = _Shapes()


def plain_shape(text: str) -> str:
    """Return the text with lookalikes as plain ASCII, without invisible characters and combining marks.

    Other letters and line breaks stay unchanged.
    """
    return text.translate(_TABLE)


def places_of_shape(text: str) -> list[int]:
    """Return the index in `text` of each character of its `plain_shape`, and last the length of `text`."""
    places = [at for at, char in enumerate(text) if _TABLE[ord(char)] is not None]
    return [*places, len(text)]
