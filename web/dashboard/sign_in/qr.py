"""A short text as a picture for cameras (a QR code), as the path of an SVG in which a module is a unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

LARGEST_VERSION = 15
"""Beyond 77 modules a side a telephone no longer tells them apart on a screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QrPicture:
    size: int
    """Modules a side, without the quiet border of four."""
    path: str
    """The `d` of an SVG path: dark stretches, row by row."""


def qr_picture(text: str) -> QrPicture | None:
    """None for a text that is too long to be read from a screen."""
    import segno

    try:
        code = segno.make_qr(text, error="l")
    except segno.DataOverflowError:
        return None
    if int(code.version) > LARGEST_VERSION:
        return None
    return QrPicture(size=len(code.matrix), path=_path(code.matrix))


def _path(rows: Sequence[Sequence[int]]) -> str:
    return "".join(
        f"M{x} {y}h{length}v1h-{length}z" for y, row in enumerate(rows) for x, length in _dark(row)
    )


def _dark(row: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each dark stretch begins, and how long it is."""
    at = 0
    for dark, stretch in groupby(row):
        length = sum(1 for _ in stretch)
        if dark:
            yield at, length
        at += length
