"""Contrast of text on a colour that an operator chose."""

from __future__ import annotations

import re

READABLE = 4.5
"""Least contrast ratio of readable text, by WCAG 2.2 AA."""
LIGHT, DARK = "#ffffff", "#000000"
_HEX = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", re.IGNORECASE)


def full_hex(colour: str) -> str | None:
    """Return a colour such as `#4F8` in the form `#44ff88`; None if it is no hexadecimal colour."""
    if _HEX.fullmatch(colour) is None:
        return None
    digits = colour[1:].lower()
    return "#" + (digits if len(digits) == 6 else "".join(digit * 2 for digit in digits))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 (equal) to 21 (black on white), in any order.

    Both must have the form `#44ff88`; other forms raise ValueError or give a wrong ratio.
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def text_on(colour: str) -> str:
    """Return the text colour for a background such as `#44ff88`: white if its contrast is at least 4.5, else
    black.
    """
    return LIGHT if contrast(colour, LIGHT) >= READABLE else DARK


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)
