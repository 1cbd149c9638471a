"""The program's words: a folder of JSON files for each language."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["list_languages", "match_language"]

ENGLISH = "en"
FOLDER = Path(__file__).parent
_ALIASES = {
    "iw": "he", "in": "id", "pt": "pt-br", "zh": "zh-hans", "zh-hk": "zh-hant", "zh-mo": "zh-hant",
    "zh-tw": "zh-hant",
}  # fmt: skip
"""Tags whose language has a folder of another name."""


def match_language(tag: str) -> str:
    """By the longest beginning of a tag that has a folder; English for every other."""
    parts = tag[:40].lower().replace("_", "-").split("-")
    for length in range(len(parts), 0, -1):
        begun = "-".join(parts[:length])
        for name in (begun, _ALIASES.get(begun)):
            if name in list_languages():
                return name
    return ENGLISH


@cache
def list_languages() -> tuple[str, ...]:
    """English first, the others by name."""
    found = {path.parent.name for path in FOLDER.glob("*/about.json")}
    return (ENGLISH, *sorted(found - {ENGLISH}))
