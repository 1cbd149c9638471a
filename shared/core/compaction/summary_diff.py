"""Comparison of a summary with the former one, and ledger items that its text does not state."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.values.identifiers import identifiers_of

Change = Literal["same", "added", "removed"]
"""Changes of a line between two texts: it is in both, only in the new one, or only in the former one."""
SAID_SHARE = 0.6
"""Share of a fact's words that a summary must have to count as stating it."""
_WORD = re.compile(r"\w{3,}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)")
_LISTED = ("-", "*", "#")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """Line of a comparison: added, removed or unchanged."""

    change: Change
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """Change of one item between two ledgers; `text` is its newest text.

    `former` is the text before a change, `reason` that of closing; both are empty otherwise.
    """

    id: str
    kind: str
    change: Literal["added", "changed", "closed", "lost"]
    """`closed`: removed with a reason; `lost`: missing without one."""
    text: str
    former: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryDiff:
    """Differences between two summaries: all sentences with their change, and the items that changed."""

    lines: tuple[DiffLine, ...]
    items: tuple[ItemChange, ...]
    kept: int
    """Number of open items that are unchanged since the former ledger."""
    unsaid: tuple[LedgerItem, ...]
    """Open items of the ledger that the summary text does not state."""


def compare(former: Ledger, former_text: str, ledger: Ledger, text: str) -> SummaryDiff:
    """Return the differences between the former summary and the new one, each given as ledger and text."""
    changes = tuple(_item_changes(former, ledger))
    open_items = [item for item in ledger.items if item.closed is None]
    touched = {change.id for change in changes}
    return SummaryDiff(
        lines=tuple(changed_lines(former_text, text)),
        items=changes,
        kept=sum(1 for item in open_items if item.id not in touched),
        unsaid=tuple(item for item in open_items if not says(text, item.text)),
    )


def changed_lines(before: str, after: str) -> Iterable[DiffLine]:
    """Return the sentences of two texts, in the order of `after`, each marked as unchanged, removed or added.

    Removed sentences come before the added ones that replace them.
    """
    return compare_lines(_sentences(before), _sentences(after))


def compare_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    """Yield the unchanged, removed and added lines of two texts, in the order of `new`.

    Removed lines come before the added lines that replace them.
    """
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            yield from (DiffLine(change="same", text=text) for text in new[c:d])
            continue
        yield from (DiffLine(change="removed", text=text) for text in old[a:b])
        yield from (DiffLine(change="added", text=text) for text in new[c:d])


def says(text: str, fact: str) -> bool:
    """Return whether a text states a fact: literally, or by all its identifiers and 60 percent of its words.

    Case does not count.
    """
    low = text.casefold()
    if fact.strip().casefold() in low:
        return True
    if any(name.casefold() not in low for name in identifiers_of(fact)):
        return False
    words = set(_WORD.findall(fact.casefold()))
    known = set(_WORD.findall(low))
    return not words or len(words & known) >= SAID_SHARE * len(words)


def _item_changes(former: Ledger, ledger: Ledger) -> Iterable[ItemChange]:
    now = {item.id: item for item in ledger.items}
    for item in former.items:
        if item.closed is not None:
            continue
        later = now.get(item.id)
        if later is None:
            yield ItemChange(id=item.id, kind=item.kind, change="lost", text=item.text)
        elif later.closed is not None:
            yield ItemChange(id=item.id, kind=item.kind, change="closed", text=item.text, reason=later.closed)
        elif later.text != item.text:
            yield ItemChange(id=item.id, kind=item.kind, change="changed", text=later.text, former=item.text)
    known = {item.id for item in former.items}
    for item in ledger.items:
        if item.id not in known and item.closed is None:
            yield ItemChange(id=item.id, kind=item.kind, change="added", text=item.text)


def _sentences(text: str) -> Sequence[str]:
    """Return the sentences of a text; a list item or heading line counts as one."""
    parts: list[str] = []
    for line in text.splitlines():
        parts += [line] if line.lstrip().startswith(_LISTED) else _SENTENCE.split(line)
    return [part.strip() for part in parts if part.strip()]
