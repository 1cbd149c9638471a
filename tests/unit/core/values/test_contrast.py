"""Text on an operator's colour can be read."""

from __future__ import annotations

import pytest

from shared.core.values.contrast import READABLE, contrast, full_hex, text_on


@pytest.mark.parametrize(("given", "full"), [("#4F8", "#44ff88"), ("#4f46E5", "#4f46e5")])
def test_colours_are_written_out(given: str, full: str) -> None:
    assert full_hex(given) == full


@pytest.mark.parametrize("given", ["", "red", "#12", "#12345", "#1234567", "4f46e5", "#ggg", "#fff;"])
def test_what_is_no_colour_is_none(given: str) -> None:
    assert full_hex(given) is None


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_white_or_black_can_be_read_on_every_colour() -> None:
    steps = range(0, 256, 17)
    for colour in (f"#{red:02x}{green:02x}{blue:02x}" for red in steps for green in steps for blue in steps):
        assert contrast(colour, text_on(colour)) >= READABLE
    assert text_on("#4f46e5") == "#ffffff"
    assert text_on("#facc15") == "#000000"
