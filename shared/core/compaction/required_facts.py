"""What a summary may not lack: a person's prohibitions, what nobody answered, what was too long."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from shared.core.compaction.summary_filters import SENTENCE, may_be_quoted
from shared.core.compaction.transcript_lines import NAMED, NOT_ANSWERED, SourceLine
from shared.core.session.ledger import Ledger
from shared.core.session.rendering import shortened
from shared.core.session.summary import ITEM_CHARS, LedgerPatch, NewItem, apply_patch
from shared.core.values.searching import normalised

_PROHIBITION = re.compile(
    r"^(?:please[, ]+)?(?:never|do not|don['’]t|you (?:must|should|may) (?:not|never)|under no circumstances"
    r"|nie(?:mals)? |bitte (?:nie|nicht|kein)|никогда не)\b",
    re.IGNORECASE,
)
_QUESTION_END = ("?", "？")
_COVERED_AT = 0.5
_TELLING_CHARS = 3


def must_stay(lines: tuple[SourceLine, ...]) -> tuple[NewItem, ...]:
    wanted = [NewItem(kind="constraint", text=text, sources=(seq,)) for seq, text in prohibitions(lines)]
    wanted += [_unread(line) for line in lines if line.text.startswith(NAMED)]
    wanted += unanswered(lines)
    found: dict[tuple[str, str], NewItem] = {}
    for item in wanted:
        found.setdefault((item.kind, normalised(item.text)), item)
    return tuple(found.values())


def with_what_must_stay(
    ledger: Ledger, lines: tuple[SourceLine, ...], *, told: str = ""
) -> tuple[Ledger, tuple[str, ...]]:
    """The ledger with what was missing in it put in by code; `told` is a text that counts as said, too."""
    missing = tuple(item for item in must_stay(lines) if not covered(item, ledger, told))
    if not missing:
        return ledger, ()
    closed = tuple(item for item in ledger.items if item.closed is not None)
    patch = LedgerPatch(narrative=ledger.narrative, add=missing)
    added = apply_patch(ledger, patch, most_new=len(missing), keep_form=True)
    faults = tuple(f"{item.kind} was missing: {item.text[:80]}" for item in missing)
    return replace(added, items=(*closed, *added.items)), faults


def prohibitions(lines: Iterable[SourceLine]) -> list[tuple[int, str]]:
    return [
        (line.seq, sentence)
        for line in lines
        if line.author == "person"
        for sentence in SENTENCE.split(line.text)
        if _PROHIBITION.match(sentence) and not sentence.endswith(_QUESTION_END) and may_be_quoted(sentence)
    ]


def unanswered(lines: tuple[SourceLine, ...]) -> list[NewItem]:
    """The last question if nothing came after it, and what else was asked in turns that nobody answered."""
    newest = len(lines)
    while newest and lines[newest - 1].author not in ("assistant", "operator"):
        newest -= 1
    open_lines = [line for line in lines[newest:] if line.author == "person"]
    asked = [line for line in open_lines if _question(line) is not None][-1:]
    marked = [line for line in lines if line.text.rstrip().endswith(NOT_ANSWERED)]
    found = (_asked(line) for line in dict.fromkeys((*marked, *asked)) if line.author == "person")
    return [item for item in found if item is not None]


def covered(wanted: NewItem, ledger: Ledger, told: str = "") -> bool:
    words = {word for word in normalised(wanted.text).split() if len(word) > _TELLING_CHARS}
    for item in ledger.items:
        if item.closed is not None:
            continue
        if set(wanted.sources) & set(item.sources) and item.kind == wanted.kind:
            return True
        if _shares_most(words, item.text):
            return True
    return any(_shares_most(words, line) for line in told.splitlines())


def _shares_most(words: set[str], text: str) -> bool:
    return bool(words) and len(words & set(normalised(text).split())) / len(words) > _COVERED_AT


def _question(line: SourceLine) -> str | None:
    words = line.text.replace(NOT_ANSWERED, "").strip()
    questions = [s.strip() for s in SENTENCE.split(words) if s.rstrip(" )").endswith(_QUESTION_END)]
    return questions[-1] if questions and may_be_quoted(questions[-1]) else None


def _asked(line: SourceLine) -> NewItem | None:
    """A question, or else whatever was said and had no answer."""
    question = _question(line)
    if question is not None:
        return NewItem(kind="question", text=question, sources=(line.seq,))
    words = line.text.replace(NOT_ANSWERED, "").strip()
    if not words or words.startswith(NAMED) or not may_be_quoted(words):
        return None
    return NewItem(
        kind="action", text=f"{NOT_ANSWERED} {shortened(words, ITEM_CHARS - 20)}", sources=(line.seq,)
    )


def _unread(line: SourceLine) -> NewItem:
    words = line.text.replace(NOT_ANSWERED, "").strip().strip("()")
    text = f"{words[:1].upper()}{words[1:]}"
    return NewItem(kind="artifact", text=text, sources=(line.seq,), author=line.author)
