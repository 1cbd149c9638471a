"""Forks of a conversation: numbers of copied entries, references to them, and titles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.core.session.ledger import Ledger, LedgerItem, Topic
from shared.core.session.turns import TITLE_CHARS

MOST_FORKS = 100
"""Forks of one visitor on a site: each is a copy of up to 50,000 entries."""
MOST_COPIED_ENTRIES = 50_000
"""Entries that one fork copies, which takes some seconds."""
MOST_COPIED_BYTES = 100 * 1024 * 1024
"""Bytes of files that one fork copies, such as five of the largest that a message may have."""
_NUMBERED = re.compile(r"\d{1,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Conversation that began as a copy of the beginning of another conversation."""

    session_public_id: str
    title: str
    draft: str
    """Text of the message at which the person forked, if it is their own: it is written again, not copied."""


@dataclass(frozen=True, slots=True)
class CopiedEntries:
    """Entries of a log that were copied; the copies are numbered from 1 in the same order."""

    ranges: tuple[tuple[int, int], ...]
    """First and last seq of each run, ascending."""

    @classmethod
    def from_seqs(cls, seqs: Iterable[int]) -> CopiedEntries:
        """Group ascending entry numbers into runs of consecutive numbers."""
        runs: list[tuple[int, int]] = []
        for seq in seqs:
            if runs and runs[-1][1] == seq - 1:
                runs[-1] = (runs[-1][0], seq)
            else:
                runs.append((seq, seq))
        return cls(tuple(runs))

    @classmethod
    def from_json(cls, raw: Sequence[Sequence[int]]) -> CopiedEntries:
        return cls(tuple((first, last) for first, last in raw))

    def to_json(self) -> list[list[int]]:
        return [[first, last] for first, last in self.ranges]

    def to_shifts(self) -> list[dict[str, int]]:
        """Return the runs; `shift` is the number of an entry minus that of its copy."""
        runs, before = [], 0
        for first, last in self.ranges:
            runs.append({"first": first, "last": last, "shift": first - before - 1})
            before += last - first + 1
        return runs

    def copy_of(self, seq: int) -> int | None:
        """Return the number of an entry's copy; None if it was not copied."""
        before = 0
        for first, last in self.ranges:
            if first <= seq <= last:
                return before + seq - first + 1
            before += last - first + 1
        return None

    def original_of(self, copy: int) -> int | None:
        """Return the number of the entry that was copied; None if the entry is the fork's own."""
        before = 0
        for first, last in self.ranges:
            size = last - first + 1
            if before < copy <= before + size:
                return first + copy - before - 1
            before += size
        return None

    def last_copy_up_to(self, seq: int) -> int:
        """Return the number of the last copy of this entry or an earlier one; 0 without any."""
        return sum(min(last, seq) - first + 1 for first, last in self.ranges if first <= seq)


def renumber_ledger(ledger: Ledger, copied: CopiedEntries) -> Ledger:
    """Return the ledger with the copies' numbers; a source that was not copied is left out."""

    def item(one: LedgerItem) -> LedgerItem:
        sources = (copied.copy_of(seq) for seq in one.sources)
        return replace(one, sources=tuple(seq for seq in sources if seq is not None))

    def topic(one: Topic) -> Topic:
        through = max(copied.last_copy_up_to(one.through_seq), 1)
        first = copied.last_copy_up_to(one.from_seq - 1) + 1
        return replace(one, from_seq=min(first, through), through_seq=through)

    return replace(ledger, items=tuple(map(item, ledger.items)), topics=tuple(map(topic, ledger.topics)))


def renumber_mid(mid: str, copied: CopiedEntries) -> str | None:
    """Return the public id of a message's copy, such as `m12`; None if it was not copied."""
    copy = copied.copy_of(int(mid[1:])) if re.fullmatch(r"m\d{1,18}", mid) else None
    return None if copy is None else f"m{copy}"


def renumber_files(blocks: Sequence[Mapping[str, Any]], ids: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return an entry's stored blocks with the ids of copied files."""
    return [
        {**block, "attachment_id": ids[block["attachment_id"]]}
        if block.get("attachment_id") in ids
        else dict(block)
        for block in blocks
    ]


def fork_title(title: str, word: str) -> str:
    """Return the title of a fork, such as `Trip to Rome (fork)`; a fork of a fork is numbered."""
    plain = " ".join(title.split())
    number = 1
    if plain.endswith(")"):
        head, opened, tail = plain[:-1].rpartition(f" ({word}")
        if opened and not tail.strip():
            plain, number = head, 2
        elif opened and _NUMBERED.fullmatch(tail.strip()):
            plain, number = head, int(tail) + 1
    ending = f"({word})" if number == 1 else f"({word} {number})"
    room = max(TITLE_CHARS - len(ending) - 1, 0)
    if len(plain) > room:
        plain = plain[: max(room - 1, 0)].rstrip(" ,.;:–-") + "…"
    return f"{plain} {ending}".strip()[:TITLE_CHARS]
