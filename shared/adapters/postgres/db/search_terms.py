"""Limits of searches that find rows by an index of trigrams; the function `search_pieces` selects them."""

from __future__ import annotations

FEW_FOUND = 300
"""Maximum matches of a rare trigram that are read; with more, the search reads rows in the list's order."""


def is_short(search: str) -> bool:
    """Return whether a search has one or two characters, which no trigram can find."""
    return 0 < len(search) < 3
