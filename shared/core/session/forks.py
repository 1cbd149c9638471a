"""Forks of a conversation: numbers of copied entries, references to them, and titles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.core.session.ledger import Ledger, LedgerItem, Topic
from shared.core.session.turns import TITLE_CHARS

MOST_FORKS = 100
"""Most forks that one visitor may have on a site."""
MOST_COPIED_ENTRIES = 50_000
"""Most entries that one fork copies; copying them takes some seconds."""
MOST_COPIED_BYTES = 100 * 1024 * 1024
"""Most bytes of files that one fork copies."""
_NUMBERED = re.compile(r"\d{1,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Conversation that began as a copy of another conversation up to a message, as clients receive it."""

    session_public_id: str
    title: str
    draft: str
    """Text of the person's own message at which they forked, to be edited and sent again; else empty."""


@dataclass(frozen=True, slots=True)
class CopiedEntries:
    """Numbers of the log entries that a fork copied; the copies are numbered from 1 in the same order."""

    ranges: tuple[tuple[int, int], ...]
    """First and last `seq` of each run of consecutive entries, ascending."""

    @classmethod
    def from_seqs(cls, seqs: Iterable[int]) -> CopiedEntries:
        """Return the copied entries with these numbers, which must be ascending."""
        runs: list[tuple[int, int]] = []
        for seq in seqs:
            if runs and runs[-1][1] == seq - 1:
                runs[-1] = (runs[-1][0], seq)
            else:
                runs.append((seq, seq))
        return cls(tuple(runs))

    @classmethod
    def from_json(cls, raw: Sequence[Sequence[int]]) -> CopiedEntries:
        """Return the ranges that `to_json` wrote."""
        return cls(tuple((first, last) for first, last in raw))

    def to_json(self) -> list[list[int]]:
        """Return the ranges as a JSON list of pairs `[first, last]`."""
        return [[first, last] for first, last in self.ranges]

    def to_shifts(self) -> list[dict[str, int]]:
        """Return each range as `first`, `last` and `shift`: how much an entry's number exceeds its copy's."""
        runs, before = [], 0
        for first, last in self.ranges:
            runs.append({"first": first, "last": last, "shift": first - before - 1})
            before += last - first + 1
        return runs

    def copy_of(self, seq: int) -> int | None:
        """Return the number of the copy of entry `seq`; None if it was not copied."""
        before = 0
        for first, last in self.ranges:
            if first <= seq <= last:
                return before + seq - first + 1
            before += last - first + 1
        return None

    def original_of(self, copy: int) -> int | None:
        """Return the number of the entry that the fork's entry number `copy` copies; None if it copies
        none.
        """
        before = 0
        for first, last in self.ranges:
            size = last - first + 1
            if before < copy <= before + size:
                return first + copy - before - 1
            before += size
        return None

    def last_copy_up_to(self, seq: int) -> int:
        """Return the number of the last copy among entries up to number `seq`; 0 if none was copied."""
        return sum(min(last, seq) - first + 1 for first, last in self.ranges if first <= seq)


def renumber_ledger(ledger: Ledger, copied: CopiedEntries) -> Ledger:
    """Return the ledger with entry numbers replaced by those of their copies.

    Sources without a copy are dropped; topics move to the nearest copied entries.
    """

    def item(one: LedgerItem) -> LedgerItem:
        sources = (copied.copy_of(seq) for seq in one.sources)
        return replace(one, sources=tuple(seq for seq in sources if seq is not None))

    def topic(one: Topic) -> Topic:
        through = max(copied.last_copy_up_to(one.through_seq), 1)
        first = copied.last_copy_up_to(one.from_seq - 1) + 1
        return replace(one, from_seq=min(first, through), through_seq=through)

    return replace(ledger, items=tuple(map(item, ledger.items)), topics=tuple(map(topic, ledger.topics)))


def renumber_mid(mid: str, copied: CopiedEntries) -> str | None:
    """Return the public id of a message's copy, such as `m12`; None if it was not copied or `mid` is
    malformed.
    """
    copy = copied.copy_of(int(mid[1:])) if re.fullmatch(r"m\d{1,18}", mid) else None
    return None if copy is None else f"m{copy}"


def renumber_files(blocks: Sequence[Mapping[str, Any]], ids: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return an entry's stored JSON blocks with each attachment id replaced by the id of its copy in `ids`.

    Blocks whose id is not in `ids` stay as they are.
    """
    return [
        {**block, "attachment_id": ids[block["attachment_id"]]}
        if block.get("attachment_id") in ids
        else dict(block)
        for block in blocks
    ]


def fork_title(title: str, word: str) -> str:
    """Return the title of a fork, such as `Trip to Rome (fork)`; `word` is the translated "fork".

    A fork of a fork is numbered: `Trip to Rome (fork 2)`. Long titles are shortened to 60 characters.
    """
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
