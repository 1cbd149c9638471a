"""The text of a file as a model reads it: marked as such, and without what looks like a mark of ours."""

from __future__ import annotations

import re

from shared.core.context import untrusted_text

_OUR_FRAMES = r"in reply to\b|quoting\b|forwarded from\b|file\s+\S|end of file\s*\]"
_OWN_LINE = re.compile(rf"^(\s*)\[(?={_OUR_FRAMES})", re.IGNORECASE | re.MULTILINE)
_RECORD = re.compile(r"\[(?=#\d)")


def defused(text: str, *, foreign: bool) -> str:
    """Without what looks like a mark of ours. A person's own words are touched as little as can be."""
    text = _RECORD.sub("(", _OWN_LINE.sub(r"\1(", text))
    return untrusted_text.defused(text, foreign=foreign)


def file_words(name: str, text: str) -> str:
    """What is in a file is material, not instruction."""
    return (
        f"[File {untrusted_text.label(name, nameless='file')}]\n{defused(text, foreign=True)}\n[End of file]"
    )
