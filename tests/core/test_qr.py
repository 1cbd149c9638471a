"""Codes for cameras: each digest is of a drawing that a reader of others (ZXing) has read as its text."""

from __future__ import annotations

import hashlib
import re

import pytest

from shared.core.qr import TooLongForCode, qr_modules, qr_path

TEXT = "https://example.org/?n=" + "0123456789abcdefghijklmnopqrstuvwxyz" * 15
READ = (
    (1, 1, "ebe5efaede4f"),
    (18, 2, "42b1e7fa768e"),
    (53, 3, "f00bbcc7f3cf"),
    (78, 4, "4c12be668ce5"),
    (106, 5, "f89071ac2da0"),
    (134, 6, "504d6b2eb298"),
    (154, 7, "f6ba568615ec"),
    (192, 8, "79386a8c198e"),
    (230, 9, "050e77e1edfb"),
    (271, 10, "948ecd3ef0a3"),
    (321, 11, "bd8dc25b2f90"),
    (367, 12, "6cf636a49f22"),
    (425, 13, "9cc7c8ce19b4"),
    (458, 14, "93cccda1ad72"),
    (520, 15, "c5093930d87d"),
)


@pytest.mark.parametrize(("length", "version", "digest"), READ)
def test_every_version_is_drawn_as_it_was_read(length: int, version: int, digest: str) -> None:
    rows = qr_modules(TEXT[:length])
    assert {len(row) for row in rows} == {len(rows)} == {17 + 4 * version}
    assert hashlib.sha256(b"\n".join(bytes(row) for row in rows)).hexdigest()[:12] == digest


def test_a_version_holds_what_the_standard_says_and_no_byte_more() -> None:
    for most, version in ((17, 1), (32, 2), (134, 6), (154, 7), (271, 10), (520, 15)):
        assert len(qr_modules("x" * most)) == 17 + 4 * version
        assert most == 520 or len(qr_modules("x" * (most + 1))) == 17 + 4 * (version + 1)
    with pytest.raises(TooLongForCode):
        qr_modules("x" * 521)
    with pytest.raises(TooLongForCode):
        qr_modules("ü" * 261)


def test_the_path_has_just_the_dark_modules() -> None:
    rows = qr_modules("otpauth://totp/x")
    drawn = set()
    for x, y, length, back in re.findall(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", qr_path(rows)):
        assert length == back
        drawn |= {(int(x) + at, int(y)) for at in range(int(length))}
    assert drawn == {(x, y) for y, row in enumerate(rows) for x, dark in enumerate(row) if dark}
