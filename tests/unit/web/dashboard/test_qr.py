"""The picture of a key: module for module the code of the address, and none where it could not be read."""

from __future__ import annotations

import re

import pytest
import segno

from web.dashboard.sign_in.second_factor import QrPicture, qr_picture

KEY = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
ADDRESS = f"otpauth://totp/Evertalk:{{}}?secret={KEY}&issuer=Evertalk"


def drawn(picture: QrPicture) -> tuple[tuple[int, ...], ...]:
    """The rows that the path paints."""
    dark = set()
    for x, y, length, back in re.findall(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", picture.path):
        assert length == back
        dark |= {(int(x) + at, int(y)) for at in range(int(length))}
    return tuple(tuple(int((x, y) in dark) for x in range(picture.size)) for y in range(picture.size))


@pytest.mark.parametrize("name", ["anna", "Ännchen%20vom%20Bach", "a" * 300])
def test_the_picture_is_the_code_of_the_whole_address(name: str) -> None:
    picture = qr_picture(ADDRESS.format(name))
    assert picture is not None
    rows = drawn(picture)
    assert rows == tuple(tuple(row) for row in segno.make_qr(ADDRESS.format(name), error="l").matrix)
    assert rows != tuple(tuple(row) for row in segno.make_qr(ADDRESS.format(f"{name}e"), error="l").matrix)
    assert re.sub(r"M\d+ \d+h\d+v1h-\d+z", "", picture.path) == ""


def test_the_picture_has_the_patterns_by_which_a_camera_finds_it() -> None:
    picture = qr_picture(ADDRESS.format("anna"))
    assert picture is not None
    rows = drawn(picture)
    ring = ("1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111")
    far = picture.size - 7
    for left, top in ((0, 0), (far, 0), (0, far)):
        found = ["".join(map(str, row[left : left + 7])) for row in rows[top : top + 7]]
        assert found == list(ring), (left, top)
    assert [row[6] for row in rows[8:far]] == [(y + 1) % 2 for y in range(8, far)]


@pytest.mark.parametrize("length", [521, 3_000])
def test_what_no_telephone_could_read_from_a_screen_has_none(length: int) -> None:
    assert qr_picture("x" * 520) is not None
    assert qr_picture("x" * length) is None
