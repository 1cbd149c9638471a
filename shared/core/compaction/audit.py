"""Audit of a summary against its source before turns are hidden; missing required items are added."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.core.compaction.next_ledger import LedgerPatch, NewItem, apply_patch
from shared.core.compaction.plan import NAMED, NOT_ANSWERED, SourceLine, source_lines, source_words
from shared.core.compaction.summary_filters import (
    SENTENCE,
    Ground,
    is_refusal,
    language_fault,
    may_be_quoted,
    text_fault,
)
from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.session.summary import (
    ITEM_CHARS,
    LEFT_OUT,
    convert_to_ledger,
    fit_ledger,
    is_blank,
    render_summary,
    says_nothing_new,
    shorten_line,
)
from shared.core.values.identifiers import identifiers_of, merge_identifiers
from shared.core.values.searching import normalise
from shared.core.values.secrets_filter import holds_secret, redact
from shared.core.values.tokens import Count

SUMMARY_TOKENS = 2_000
"""Default of the most tokens of a summary."""
PROGRESS_SHARE = 0.75
"""Largest size of a summary as a share of what it replaces."""
_SHORT_SOURCE = 400
"""Tokens up to which a summary is never rejected as too long."""
MOSTLY_UNSAID = 0.5
"""Share of statements that the source must support; below it a summary is rejected instead of repaired."""
_FEW_STATEMENTS = 2
_TOLD_CHARS, _TOLD_MOST = 80, 3
_NEXT_TO_NOTHING = 60
"""Tokens of a source up to which an unchanged ledger is accepted."""
_PROBES = 8
_STEM_CHARS = 5
_PROHIBITION = re.compile(
    r"^(?:please[, ]+)?(?:never|do not|don['’]t|you (?:must|should|may) (?:not|never)|under no circumstances"
    r"|nie(?:mals)? |bitte (?:nie|nicht|kein)|никогда не)\b",
    re.IGNORECASE,
)
_QUESTION_END = ("?", "？")
_COVERED_AT = 0.5
_TELLING_CHARS = 3
_CITES = "cites lines that it was not shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """Result of auditing a summary: if `ok`, `ledger` can be stored; otherwise `hard_faults` says why not.

    Faults are English sentences for the model and the dashboard. Soft faults are repaired in `ledger`.
    """

    ok: bool
    hard_faults: tuple[str, ...]
    soft_faults: tuple[str, ...]
    dropped_items: tuple[str, ...]
    """Ids of rejected new items; for a summary in text form, the rejected sentences."""
    scores: Mapping[str, float]
    """Scores by name, 0 to 1, with 1 as the best; `size` is a share of the source's tokens."""
    ledger: Ledger
    too_long: str = ""
    """Reason to ask the model for a shorter answer; empty if the length is fine.

    If no shorter answer comes, the cut text in `ledger` is used.
    """


def audit_patch(
    former: Ledger,
    patch: LedgerPatch,
    source_text: str,
    *,
    count: Count,
    limit: int = SUMMARY_TOKENS,
    may_be_empty: bool = False,
) -> AuditVerdict:
    """Return the audit of the ledger that results from applying a model's changes to the former one.

    `source_text` is the text of the hidden messages. `limit` is the most tokens of the summary.
    `may_be_empty` accepts a ledger that says nothing; else that is a hard fault. Changes of unknown items are
    soft faults.
    """
    former = convert_to_ledger(former)
    patched = apply_patch(former, patch, identifiers=identifiers_of(source_words(source_text)))
    verdict = audit_ledger(patched, former, source_text, count=count, limit=limit, may_be_empty=may_be_empty)
    known = {item.id for item in former.items if item.closed is None}
    named = [id_ for id_, _ in (*patch.replace, *patch.close)]
    unknown = [id_ for id_ in named if id_ not in known]
    faults = tuple(f"{id_[:20]}: no such item in the former record" for id_ in unknown)
    valid = 1 - len(unknown) / len(named) if named else 1.0
    scores = {**verdict.scores, "valid_ids": round(min(valid, verdict.scores["valid_ids"]), 3)}
    return replace(verdict, soft_faults=(*verdict.soft_faults, *faults), scores=scores)


def changes_nothing(patch: LedgerPatch) -> bool:
    """Return whether a model's answer has no changes of items, and no text but a phrase such as "nothing
    new".
    """
    told = patch.narrative.strip()
    return not (patch.add or patch.replace or patch.close) and (not told or says_nothing_new(told))


def has_content(former: Ledger) -> bool:
    """Return whether a ledger has a narrative, items or sections that can be carried over."""
    return bool(former.narrative.strip() or former.items or former.sections)


def carry_over(
    former: Ledger, source_text: str, *, count: Count, limit: int = SUMMARY_TOKENS
) -> AuditVerdict:
    """Return an accepted verdict whose ledger is the former one, for a model that found nothing new.

    Exact names of the source and required items are added; closed items are dropped. Its text may be as long
    as before, even above `limit` tokens.
    """
    lines = source_lines(source_text)
    kept = replace(former, items=tuple(item for item in former.items if item.closed is None))
    mended, added = add_required_items(kept, lines, told=render_summary(former))
    identifiers = merge_identifiers(former.identifiers, identifiers_of(source_words(source_text)))
    room = max(limit, count(render_summary(former)))
    mended = fit_ledger(replace(mended, identifiers=identifiers), room, count)
    scores = {**presence(kept, lines), **common_scores(mended, source_text, lines, count, language=True)}
    return AuditVerdict(
        ok=True,
        hard_faults=(),
        soft_faults=added,
        dropped_items=(),
        scores={"grounded": 1.0, **scores},
        ledger=mended,
    )


def audit_ledger(
    patched: Ledger,
    former: Ledger,
    source_text: str,
    *,
    count: Count,
    limit: int = SUMMARY_TOKENS,
    may_be_empty: bool = False,
) -> AuditVerdict:
    """Return the audit of a new ledger against its source and the former ledger, with the repaired ledger.

    A hard fault needs another attempt by the model; a soft one removes or restores only its item or sentence.
    `may_be_empty` accepts a ledger that says nothing. The repaired ledger has at most `limit` tokens, where
    possible.
    """
    former = convert_to_ledger(former)
    lines = source_lines(source_text)
    ground = Ground.of(source_text, former)
    items, dropped, faults = _check_items(patched, former, ground, {line.seq: line.author for line in lines})
    narrative, narrative_faults, sentences = _check_narrative(patched.narrative, former.narrative, ground)
    checked = replace(patched, narrative=narrative, items=items)
    mended, added = add_required_items(checked, lines)
    identifiers = merge_identifiers(patched.identifiers, identifiers_of(source_words(source_text)))
    room = min(limit, most_tokens(former, source_text, count))
    mended = fit_ledger(replace(mended, identifiers=identifiers), room, count)
    proposed = len(_new_items(patched, former)) + sentences
    bad = len(faults) - sum(fault.endswith(_CITES) for fault in faults) + len(narrative_faults)
    grounded = 1 - bad / proposed if proposed else 1.0
    hard = _hard_faults(patched, checked, mended, former, source_text, count, may_be_empty=may_be_empty)
    hard = (*hard, *_find_ungrounded(grounded, proposed))
    scores = {
        **scores_of(patched, checked, former, lines),
        **common_scores(
            mended, source_text, lines, count, language=not any("is written in" in f for f in hard)
        ),
    }
    return AuditVerdict(
        ok=not hard,
        hard_faults=hard,
        soft_faults=(*faults, *narrative_faults, *added, *_find_missing_items(former, mended)),
        dropped_items=dropped,
        scores=scores,
        ledger=mended,
    )


def _find_missing_items(former: Ledger, mended: Ledger) -> tuple[str, ...]:
    known = {item.id for item in former.items if item.closed is None}
    gone = [item.text for item in mended.items if item.id in known and item.closed == LEFT_OUT]
    return find_lost_items(gone, len(known))


def find_lost_items(gone: Sequence[str], total: int) -> tuple[str, ...]:
    """Return one fault that names up to three items missing from the new summary; empty if none is missing.

    `gone` are their texts, `total` is the number of items before.
    """
    if not gone:
        return ()
    told = ", ".join(shorten_line(text, _TOLD_CHARS) for text in gone[:_TOLD_MOST])
    return (f"{len(gone)} of {total} things that the earlier summary said are missing: {told}",)


def most_tokens(former: Ledger, source_text: str, count: Count) -> int:
    """Return the most tokens that a summary may have: 75 percent of source and former summary together.

    It is at least 400.
    """
    replaced = count(source_text) + count(render_summary(former))
    return max(_SHORT_SOURCE, math.floor(PROGRESS_SHARE * replaced))


def _find_ungrounded(grounded: float, proposed: int) -> tuple[str, ...]:
    if proposed < _FEW_STATEMENTS or grounded >= MOSTLY_UNSAID:
        return ()
    return ("most of the summary was never said in the conversation",)


def _check_items(
    patched: Ledger, former: Ledger, ground: Ground, authors: Mapping[int, str]
) -> tuple[tuple[LedgerItem, ...], tuple[str, ...], tuple[str, ...]]:
    before = {item.id: item for item in former.items}
    kept: list[LedgerItem] = []
    dropped: list[str] = []
    faults: list[str] = []
    for item in patched.items:
        old = before.get(item.id)
        fault = _item_fault(item, old, ground)
        if fault is None:
            known = authors.keys() | set(old.sources if old else ())
            sources = tuple(seq for seq in item.sources if seq in known)
            if sources != item.sources:
                faults.append(f"{item.id}: {_CITES}")
            author = item.author if old is not None else _author(item.author, sources, authors)
            kept.append(replace(item, sources=sources, author=author))
            continue
        faults.append(f"{item.id}: {fault}")
        if old is None:
            dropped.append(item.id)
        else:
            kept.append(old)
    return tuple(kept), tuple(dropped), tuple(faults)


def _author(claimed: str, sources: tuple[int, ...], authors: Mapping[int, str]) -> str:
    """Return the author of an item: `claimed`, unless all cited lines are by others; then the first one's
    author.
    """
    said_by = [authors[seq] for seq in sources if seq in authors]
    return claimed if not said_by or claimed in said_by else said_by[0]


def _item_fault(item: LedgerItem, old: LedgerItem | None, ground: Ground) -> str | None:
    """Return the fault of a new or changed item; None if it has none or its text is unchanged."""
    if old is not None and item.text == old.text:
        return None
    if is_blank(item.text):
        return "says nothing"
    if old is not None and old.kind == "constraint" and not stems(old.text) & stems(item.text):
        return "takes the place of a prohibition without repeating any of it"
    return text_fault(item.text, ground)


def _check_narrative(narrative: str, former: str, ground: Ground) -> tuple[str, tuple[str, ...], int]:
    """Return the valid sentences, the faults of the others, and the number of sentences.

    An unchanged narrative is not checked. If no sentence is valid, the former narrative is returned.
    """
    if not narrative or narrative == former:
        return narrative, (), 0
    kept: list[str] = []
    faults: list[str] = []
    sentences = SENTENCE.split(narrative)
    for sentence in sentences:
        fault = text_fault(sentence, ground)
        if fault is None:
            kept.append(sentence)
        else:
            faults.append(f"narrative: {fault}")
    return (" ".join(kept) or redact(former)), tuple(faults), len(sentences)


def _hard_faults(
    patched: Ledger,
    checked: Ledger,
    mended: Ledger,
    former: Ledger,
    source_text: str,
    count: Count,
    *,
    may_be_empty: bool,
) -> tuple[str, ...]:
    size, most = count(render_summary(mended)), most_tokens(former, source_text, count)
    language = language_fault(_new_text(patched, former), source_text)
    checks = (
        (
            not may_be_empty and not _says_something(checked, former, count(source_text)),
            "the summary is empty",
        ),
        (is_refusal(patched.narrative), "the summary is a refusal"),
        (language is not None, language or ""),
        (
            size > most,
            f"the summary takes {size} tokens; {most} is the most for what it stands for",
        ),
        (holds_secret(render_summary(mended)), "the summary holds a secret"),
    )
    return tuple(fault for wrong, fault in checks if wrong)


def _says_something(ledger: Ledger, former: Ledger, source_tokens: int) -> bool:
    """Return whether the model added or changed anything.

    A source of at most 60 tokens needs no change if there is a former ledger; an empty source never needs
    one.
    """
    known_before = bool(former.narrative or former.items)
    if source_tokens <= (_NEXT_TO_NOTHING if known_before else 0):
        return True
    narrative = ledger.narrative.strip()
    new_narrative = narrative and narrative != former.narrative and not is_blank(narrative)
    return bool(new_narrative) or bool(_new_items(ledger, former)) or _has_changed_items(ledger, former)


def _has_changed_items(ledger: Ledger, former: Ledger) -> bool:
    before = {item.id: item for item in former.items}
    return any(item != before[item.id] for item in ledger.items if item.id in before)


def _new_items(ledger: Ledger, former: Ledger) -> list[LedgerItem]:
    """Return the items that were added or whose text has changed."""
    before = {item.id: item.text for item in former.items}
    return [item for item in ledger.items if before.get(item.id) != item.text]


def _new_text(patched: Ledger, former: Ledger) -> str:
    known = {item.text for item in former.items}
    narrative = patched.narrative if patched.narrative != former.narrative else ""
    return "\n".join((narrative, *(item.text for item in patched.items if item.text not in known)))


def list_required_items(lines: tuple[SourceLine, ...]) -> tuple[NewItem, ...]:
    """Return items that a summary must have, each once: prohibitions, unread files, and unanswered
    questions.
    """
    wanted = [NewItem(kind="constraint", text=text, sources=(seq,)) for seq, text in prohibitions(lines)]
    wanted += [_make_file_item(line) for line in lines if line.text.startswith(NAMED)]
    wanted += list_unanswered(lines)
    found: dict[tuple[str, str], NewItem] = {}
    for item in wanted:
        found.setdefault((item.kind, normalise(item.text)), item)
    return tuple(found.values())


def add_required_items(
    ledger: Ledger, lines: tuple[SourceLine, ...], *, told: str = ""
) -> tuple[Ledger, tuple[str, ...]]:
    """Return the ledger with the required items that it lacked, and one fault for each of them.

    An item that the text `told` contains is not missing. An unchanged ledger is returned with no faults.
    """
    missing = tuple(item for item in list_required_items(lines) if not is_covered(item, ledger, told))
    if not missing:
        return ledger, ()
    closed = tuple(item for item in ledger.items if item.closed is not None)
    patch = LedgerPatch(narrative=ledger.narrative, add=missing)
    added = apply_patch(ledger, patch, most_new=len(missing), keep_form=True)
    faults = tuple(f"{item.kind} was missing: {item.text[:80]}" for item in missing)
    return replace(added, items=(*closed, *added.items)), faults


def prohibitions(lines: Iterable[SourceLine]) -> list[tuple[int, str]]:
    """Return pairs of message number and sentence for each prohibition by a person, such as "never …", in
    order.

    Questions, and sentences with a secret or an order to a model, are left out.
    """
    return [
        (line.seq, sentence)
        for line in lines
        if line.author == "person"
        for sentence in SENTENCE.split(line.text)
        if _PROHIBITION.match(sentence) and not sentence.endswith(_QUESTION_END) and may_be_quoted(sentence)
    ]


def list_unanswered(lines: tuple[SourceLine, ...]) -> list[NewItem]:
    """Return items for the last question if no answer follows, and for lines marked as unanswered.

    Messages without a question become items of the kind `action`; those that may not be quoted have none.
    """
    newest = len(lines)
    while newest and lines[newest - 1].author not in ("assistant", "operator"):
        newest -= 1
    open_lines = [line for line in lines[newest:] if line.author == "person"]
    asked = [line for line in open_lines if _question(line) is not None][-1:]
    marked = [line for line in lines if line.text.rstrip().endswith(NOT_ANSWERED)]
    found = (
        _make_unanswered_item(line) for line in dict.fromkeys((*marked, *asked)) if line.author == "person"
    )
    return [item for item in found if item is not None]


def is_covered(wanted: NewItem, ledger: Ledger, told: str = "") -> bool:
    """Return whether the ledger, or a line of the text `told`, contains more than half of an item's words.

    True also if the ledger has an open item of the same kind from the same message.
    """
    words = {word for word in normalise(wanted.text).split() if len(word) > _TELLING_CHARS}
    for item in ledger.items:
        if item.closed is not None:
            continue
        if set(wanted.sources) & set(item.sources) and item.kind == wanted.kind:
            return True
        if _shares_most(words, item.text):
            return True
    return any(_shares_most(words, line) for line in told.splitlines())


def _shares_most(words: set[str], text: str) -> bool:
    return bool(words) and len(words & set(normalise(text).split())) / len(words) > _COVERED_AT


def _question(line: SourceLine) -> str | None:
    words = line.text.replace(NOT_ANSWERED, "").strip()
    questions = [s.strip() for s in SENTENCE.split(words) if s.rstrip(" )").endswith(_QUESTION_END)]
    return questions[-1] if questions and may_be_quoted(questions[-1]) else None


def _make_unanswered_item(line: SourceLine) -> NewItem | None:
    """Return an item for an unanswered message: its last question, else an action; None if it cannot be
    quoted.
    """
    question = _question(line)
    if question is not None:
        return NewItem(kind="question", text=question, sources=(line.seq,))
    words = line.text.replace(NOT_ANSWERED, "").strip()
    if not words or words.startswith(NAMED) or not may_be_quoted(words):
        return None
    return NewItem(
        kind="action", text=f"{NOT_ANSWERED} {shorten_line(words, ITEM_CHARS - 20)}", sources=(line.seq,)
    )


def _make_file_item(line: SourceLine) -> NewItem:
    words = line.text.replace(NOT_ANSWERED, "").strip().strip("()")
    text = f"{words[:1].upper()}{words[1:]}"
    return NewItem(kind="artifact", text=text, sources=(line.seq,), author=line.author)


def common_scores(
    ledger: Ledger, source_text: str, lines: tuple[SourceLine, ...], count: Count, *, language: bool
) -> dict[str, float]:
    """Return the scores `size`, `language` and `exact` of a summary.

    `size` is its share of the source's tokens, `language` 1.0 if the argument is True, else 0.0, `exact` the
    share of sampled names and numbers that it has.
    """
    text = render_summary(ledger)
    source = count(source_text)
    return {
        "size": round(count(text) / source, 3) if source else 0.0,
        "language": float(language),
        "exact": _score_probes(text, lines),
    }


def presence(ledger: Ledger, lines: tuple[SourceLine, ...], told: str = "") -> dict[str, float]:
    """Return the scores `prohibitions` and `questions`: the shares, 0 to 1, that the ledger or `told`
    contains.

    A share is 1 if the source has none. Open actions count as questions.
    """
    wanted = list_required_items(lines)
    kept = {item: is_covered(item, ledger, told) for item in wanted}

    def share(*kinds: str) -> float:
        of_kind = [found for item, found in kept.items() if item.kind in kinds]
        return round(sum(of_kind) / len(of_kind), 3) if of_kind else 1.0

    return {"prohibitions": share("constraint"), "questions": share("question", "action")}


def scores_of(
    patched: Ledger, checked: Ledger, former: Ledger, lines: tuple[SourceLine, ...]
) -> dict[str, float]:
    """Return the scores of a ledger by name, 0 to 1: of new items those kept, cited, with valid sources, and
    more.

    `grounded`: kept of the proposed items; `cited`: with sources; `valid_ids`: sources that the model was
    shown; `overlap`: words found in the cited lines; and those of `presence`. A share of nothing is 1.
    """
    known = {item.id for item in former.items}
    proposed = [item for item in patched.items if item.id not in known]
    stayed = [item for item in checked.items if item.id not in known]
    wanted = {seq for item in proposed for seq in item.sources}
    shown = {line.seq for line in lines}
    return {
        "grounded": _share(len(stayed), len(proposed)),
        "cited": _share(sum(bool(item.sources) for item in stayed), len(stayed)),
        "valid_ids": _share(len(wanted & shown), len(wanted)),
        "overlap": _overlap(stayed, lines),
        **presence(checked, lines),
    }


def _overlap(items: Sequence[LedgerItem], lines: tuple[SourceLine, ...]) -> float:
    """Return the average share, 0 to 1, of an item's words that occur in its cited lines; 1 without
    citations.
    """
    by_seq = {line.seq: stems(line.text) for line in lines}
    shares: list[float] = []
    for item in items:
        cited: set[str] = set().union(*(by_seq.get(seq, set()) for seq in item.sources))
        words = stems(item.text)
        if cited and words:
            shares.append(len(words & cited) / len(words))
    return round(sum(shares) / len(shares), 3) if shares else 1.0


def _score_probes(text: str, lines: tuple[SourceLine, ...]) -> float:
    """Return the share, 0 to 1, of up to eight sampled names and numbers of the source that occur in the
    text.
    """
    exact = identifiers_of("\n".join(line.text for line in lines), most=10 * _PROBES)
    step = max(1, len(exact) // _PROBES)
    probes = exact[::step][:_PROBES]
    plain = text.casefold()
    return _share(sum(probe.casefold() in plain for probe in probes), len(probes))


def stems(text: str) -> set[str]:
    """Return the first five letters of each word with more than two letters, in lower case."""
    return {word[:_STEM_CHARS] for word in normalise(text).split() if len(word) > 2}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 3) if whole else 1.0
