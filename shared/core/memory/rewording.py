"""Rewording of notes that were taken from the former wording of an edited message."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import NamedTuple

MAX_WORDS = 2_000
"""Words of each wording that are compared, since the time grows with their product."""
_WORD = re.compile(r"\w+|[^\w\s]")
_TOKEN = re.compile(r"\w+")


class ChangedSpan(NamedTuple):
    """Words that an edit removed, and the words that replace them; `after` is empty for a deletion."""

    before: str
    after: str


def find_changed_spans(before: str, after: str) -> tuple[ChangedSpan, ...]:
    """Return the changed and the deleted spans of words between two wordings, in order.

    Additions are left out. Only the first 2,000 words of each wording are compared.
    """
    old, new = (list(_WORD.finditer(text))[:MAX_WORDS] for text in (before, after))
    matcher = SequenceMatcher(None, [one[0] for one in old], [one[0] for one in new])
    return tuple(
        ChangedSpan(
            before=before[old[i].start() : old[j - 1].end()],
            after=after[new[k].start() : new[m - 1].end()] if m > k else "",
        )
        for kind, i, j, k, m in matcher.get_opcodes()
        if kind in ("replace", "delete")
    )


def reword(text: str, spans: tuple[ChangedSpan, ...]) -> str:
    """Return the text with each span's `before` replaced by its `after` wherever it occurs, in any case of
    letters.

    The gap of a deleted span is closed. Spans of punctuation only are ignored.
    """
    for span in spans:
        if not _TOKEN.search(span.before):
            continue
        pattern = rf"(?<!\w){re.escape(span.before)}(?!\w)"
        text = re.sub(pattern, span.after.replace("\\", r"\\"), text, flags=re.IGNORECASE)
    return " ".join(filter(None, text.split(" ")))


def holds_former_words(text: str, before: str, after: str) -> bool:
    """Return whether a text has a word that the former wording `before` has and the new one, `after`, has
    not.
    """
    gone = set(_TOKEN.findall(before.casefold())) - set(_TOKEN.findall(after.casefold()))
    return bool(gone & set(_TOKEN.findall(text.casefold())))
