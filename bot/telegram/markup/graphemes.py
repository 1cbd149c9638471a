"""Where a text may be cut, and how wide it stands in a column."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_FLAGS = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_HANGUL_TAILS = range(0x1160, 0x1200)


def is_grapheme_boundary(text: str, at: int) -> bool:
    """Whether a person would see the characters around `at` as two."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return (before, after) != ("\r", "\n")
    if before == _JOINER or after == _JOINER or _extends(after):
        return False
    return not (_is_flag(before) and _is_flag(after) and _flags_before(text, at) % 2)


def _extends(char: str) -> bool:
    code = ord(char)
    in_tail = code in _SKIN_TONES or code in _TAGS or code in _HANGUL_TAILS
    return in_tail or unicodedata.category(char) in ("Mn", "Me", "Mc")


def _is_flag(char: str) -> bool:
    return ord(char) in _FLAGS


def _flags_before(text: str, at: int) -> int:
    start = at
    while start and _is_flag(text[start - 1]):
        start -= 1
    return at - start


def is_visible(text: str) -> bool:
    """Whether Telegram would take it as a text: not only blanks, joiners and accents on nothing."""
    return any(unicodedata.category(char)[0] in "LNPS" for char in text)


def measure_width(text: str) -> int:
    """Columns in a fixed-width font, where East Asian characters and pictures take two."""
    if text.isascii():
        return len(text)
    columns, start = 0, 0
    for at in range(1, len(text) + 1):
        if is_grapheme_boundary(text, at):
            columns += _cluster_width(text[start:at])
            start = at
    return columns


def _cluster_width(cluster: str) -> int:
    if _EMOJI_STYLE in cluster or _is_flag(cluster[0]):
        return min(2, 2 * len(cluster))
    return max(_char_width(char) for char in cluster)


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
