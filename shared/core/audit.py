"""Checks a summary against what it stands in for, by rules alone, before it may hide anything."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from shared.core.grounding import Ground, script_of
from shared.core.identifiers import identifiers_of, merged_identifiers
from shared.core.ledger import Ledger, LedgerItem
from shared.core.memory import normalised
from shared.core.prompts import OUR_TAGS
from shared.core.secrets_filter import holds_secret, redact
from shared.core.source import SourceLine, source_lines, source_words
from shared.core.summary import LedgerPatch, NewItem, apply_patch, fit_ledger, render_summary

SUMMARY_TOKENS = 2_000
PROGRESS_SHARE = 0.75
_SHORT_SOURCE = 400
"""A summary of this many tokens is never too long."""

_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_REFUSAL = re.compile(
    r"\b(?:I(?:'m| am) (?:sorry|unable)|I (?:cannot|can['’]t|won['’]t) (?:help|assist|do|comply|summari[sz]e)"
    r"|as an AI|ich kann (?:dabei|das) nicht|es tut mir leid)\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(r"[\W_]*(?:none|n/?a|nothing|empty|null|nichts|keine?|нет|无)?[\W_]*", re.IGNORECASE)
_TEMPLATE = re.compile(r"what this conversation is about and where it stands|^one sentence$", re.IGNORECASE)
_INJECTION = re.compile(
    rf"</?\s*(?:{'|'.join(OUR_TAGS)}|system|human|assistant)\b|<\|[a-z_]+\|>|\[/?INST\]"
    r"|^\s*(?:system|human|assistant)\s*:"
    r"|\b(?:ignore|disregard|forget)\b.{0,30}\b(?:previous|prior|above|all|earlier)\b.{0,30}\binstructions?\b",
    re.IGNORECASE | re.MULTILINE,
)
_PROHIBITION = re.compile(
    r"^(?:please[, ]+)?(?:never|do not|don['’]t|you (?:must|should|may) (?:not|never)|under no circumstances"
    r"|nie(?:mals)? |bitte (?:nie|nicht|kein)|никогда не)\b",
    re.IGNORECASE,
)
_QUESTION_END = ("?", "？")
_COVERED_AT = 0.5

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """`ledger` is the one to store when `ok`; soft faults are already mended in it."""

    ok: bool
    hard_faults: tuple[str, ...]
    soft_faults: tuple[str, ...]
    dropped_items: tuple[str, ...]
    """Ids of new items that nothing supports."""
    scores: Mapping[str, float]
    ledger: Ledger


def audit_ledger(
    patched: Ledger, former: Ledger, source_text: str, *, count: Count, limit: int = SUMMARY_TOKENS
) -> AuditVerdict:
    """Hard faults ask for another attempt; soft ones cost the item or sentence that has them.

    The ledger that comes back lists the source's identifiers and takes at most `limit` tokens when rendered.
    """
    lines = source_lines(source_text)
    ground = Ground.of(source_text, former)
    items, dropped, faults = _checked_items(patched, former, ground, {line.seq for line in lines})
    narrative, narrative_faults = _checked_narrative(patched.narrative, former.narrative, ground)
    mended = replace(patched, narrative=narrative, items=items)
    mended, added = _with_what_must_stay(mended, lines)
    identifiers = merged_identifiers(patched.identifiers, identifiers_of(source_words(source_text)))
    room = min(limit, _most_tokens(former, source_text, count))
    mended = fit_ledger(replace(mended, identifiers=identifiers), room, count)
    hard = _hard_faults(patched, mended, former, source_text, count)
    return AuditVerdict(
        ok=not hard,
        hard_faults=hard,
        soft_faults=(*faults, *narrative_faults, *added),
        dropped_items=dropped,
        scores=_scores(patched, mended, former, source_text, count),
        ledger=mended,
    )


def _checked_items(
    patched: Ledger, former: Ledger, ground: Ground, seqs: set[int]
) -> tuple[tuple[LedgerItem, ...], tuple[str, ...], tuple[str, ...]]:
    before = {item.id: item for item in former.items}
    kept: list[LedgerItem] = []
    dropped: list[str] = []
    faults: list[str] = []
    for item in patched.items:
        old = before.get(item.id)
        fault = _item_fault(item, old, ground)
        if fault is None:
            known = seqs | set(old.sources if old else ())
            sources = tuple(seq for seq in item.sources if seq in known)
            if sources != item.sources:
                faults.append(f"{item.id}: cites lines that it was not shown")
            kept.append(replace(item, sources=sources))
            continue
        faults.append(f"{item.id}: {fault}")
        if old is None:
            dropped.append(item.id)
        else:
            kept.append(old)
    return tuple(kept), tuple(dropped), tuple(faults)


def _item_fault(item: LedgerItem, old: LedgerItem | None, ground: Ground) -> str | None:
    """Of a new or changed item; what stood before was audited before."""
    if old is not None and item.text == old.text:
        return None
    if _NOTHING.fullmatch(item.text) or _TEMPLATE.search(item.text):
        return "says nothing"
    return _text_fault(item.text, ground)


def _text_fault(text: str, ground: Ground) -> str | None:
    if holds_secret(text):
        return "holds a secret"
    if _INJECTION.search(text):
        return "holds marks or orders for a model"
    missing = ground.missing(text)
    return f"{missing[0]!r} was never said" if missing else None


def _checked_narrative(narrative: str, former: str, ground: Ground) -> tuple[str, tuple[str, ...]]:
    if not narrative or narrative == former:
        return narrative, ()
    kept: list[str] = []
    faults: list[str] = []
    for sentence in _SENTENCE.split(narrative):
        fault = _text_fault(sentence, ground)
        if fault is None:
            kept.append(sentence)
        else:
            faults.append(f"narrative: {fault}")
    return (" ".join(kept) or redact(former)), tuple(faults)


def _with_what_must_stay(ledger: Ledger, lines: tuple[SourceLine, ...]) -> tuple[Ledger, tuple[str, ...]]:
    """The last unanswered question and the person's prohibitions, put in by code when they are missing."""
    wanted = [NewItem(kind="constraint", text=text, sources=(seq,)) for seq, text in _prohibitions(lines)]
    question = _open_question(lines)
    if question is not None:
        wanted.append(NewItem(kind="question", text=question[1], sources=(question[0],)))
    missing = tuple(item for item in wanted if not _covered(item, ledger))
    if not missing:
        return ledger, ()
    patch = LedgerPatch(narrative=ledger.narrative, add=missing)
    closed = tuple(item for item in ledger.items if item.closed is not None)
    added = apply_patch(ledger, patch)
    faults = tuple(f"{item.kind} was missing: {item.text[:80]}" for item in missing)
    return replace(added, items=(*closed, *added.items)), faults


def _prohibitions(lines: tuple[SourceLine, ...]) -> list[tuple[int, str]]:
    return [
        (line.seq, sentence)
        for line in lines
        if line.author == "person"
        for sentence in _SENTENCE.split(line.text)
        if _PROHIBITION.match(sentence) and not sentence.endswith(_QUESTION_END) and _may_be_quoted(sentence)
    ]


def _open_question(lines: tuple[SourceLine, ...]) -> tuple[int, str] | None:
    for line in reversed(lines):
        if line.author == "assistant":
            return None
        questions = [s for s in _SENTENCE.split(line.text) if s.rstrip(" )").endswith(_QUESTION_END)]
        if line.author == "person" and questions and _may_be_quoted(questions[-1]):
            return line.seq, questions[-1]
    return None


def _may_be_quoted(text: str) -> bool:
    return not holds_secret(text) and _INJECTION.search(text) is None


def _covered(wanted: NewItem, ledger: Ledger) -> bool:
    words = {word for word in normalised(wanted.text).split() if len(word) > 3}
    for item in ledger.items:
        if item.closed is None and set(wanted.sources) & set(item.sources) and item.kind == wanted.kind:
            return True
        said = set(normalised(item.text).split())
        if item.closed is None and words and len(words & said) / len(words) > _COVERED_AT:
            return True
    return False


def _hard_faults(
    patched: Ledger, mended: Ledger, former: Ledger, source_text: str, count: Count
) -> tuple[str, ...]:
    new_text = _new_text(patched, former)
    size, most = count(render_summary(mended)), _most_tokens(former, source_text, count)
    source_script, summary_script = script_of(source_text), script_of(new_text)
    checks = (
        (not _says_something(mended, former, source_text), "the summary is empty"),
        (_REFUSAL.match(patched.narrative.strip()) is not None, "the summary is a refusal"),
        (
            bool(source_script and summary_script) and source_script != summary_script,
            f"the summary is written in {summary_script} letters, the conversation in {source_script}",
        ),
        (
            size > most,
            f"the summary takes {size} tokens; {most} is the most for what it stands for",
        ),
        (holds_secret(render_summary(mended)), "the summary holds a secret"),
    )
    return tuple(fault for wrong, fault in checks if wrong)


def _most_tokens(former: Ledger, source_text: str, count: Count) -> int:
    """Above this a summary is no progress against what it stands for."""
    replaced = count(source_text) + count(render_summary(former))
    return max(_SHORT_SOURCE, math.floor(PROGRESS_SHARE * replaced))


def _says_something(ledger: Ledger, former: Ledger, source_text: str) -> bool:
    """Something new, or at least everything old when the source holds next to nothing."""
    if not source_text.strip():
        return True
    narrative = ledger.narrative.strip()
    new_narrative = narrative and narrative != former.narrative and not _NOTHING.fullmatch(narrative)
    known = {item.id for item in former.items}
    return (
        bool(new_narrative) or any(item.id not in known for item in ledger.items) or _changed(ledger, former)
    )


def _changed(ledger: Ledger, former: Ledger) -> bool:
    before = {item.id: item for item in former.items}
    return any(item != before[item.id] for item in ledger.items if item.id in before)


def _new_text(patched: Ledger, former: Ledger) -> str:
    known = {item.text for item in former.items}
    narrative = patched.narrative if patched.narrative != former.narrative else ""
    return "\n".join((narrative, *(item.text for item in patched.items if item.text not in known)))


def _scores(
    patched: Ledger, mended: Ledger, former: Ledger, source_text: str, count: Count
) -> dict[str, float]:
    known = {item.id for item in former.items}
    proposed = [item for item in patched.items if item.id not in known]
    stayed = {item.id for item in mended.items}
    grounded = sum(item.id in stayed for item in proposed)
    cited = sum(bool(item.sources) for item in mended.items)
    source = count(source_text)
    return {
        "grounded": round(grounded / len(proposed), 3) if proposed else 1.0,
        "cited": round(cited / len(mended.items), 3) if mended.items else 1.0,
        "size": round(count(render_summary(mended)) / source, 3) if source else 0.0,
    }
