"""Audit of summaries in text form, sentence by sentence."""

from __future__ import annotations

import re
from dataclasses import replace

from shared.core.compaction.audit import (
    MOSTLY_UNSAID,
    SUMMARY_TOKENS,
    AuditVerdict,
    add_required_items,
    common_scores,
    find_lost_items,
    is_covered,
    most_tokens,
    presence,
)
from shared.core.compaction.next_ledger import NewItem, Unreadable
from shared.core.compaction.plan import source_lines, source_words
from shared.core.compaction.summary_filters import SENTENCE, Ground, is_refusal, language_fault, text_fault
from shared.core.session.ledger import Ledger, LedgerItem, Section
from shared.core.session.summary import (
    ITEMS_SHARE,
    Form,
    convert_to_ledger,
    fit_ledger,
    has_known_heading,
    is_blank,
    render_summary,
    sections_in,
)
from shared.core.values.identifiers import identifiers_of, merge_identifiers
from shared.core.values.secrets_filter import holds_secret
from shared.core.values.tokens import Count

CARRIED = "carried on in the text"
"""Reason with which items are closed once a summary in text form states them."""
_KEPT_BESIDE = frozenset({"constraint", "question"})
"""Kinds of items that are kept next to a text until the text states them."""
_FAR_TOO_LONG = 2
"""Factor above the limit at which a text is rejected, since more than half of it would be cut."""
_LIST_MARK = re.compile(r"^(\s*(?:[-*•]|\d{1,3}[.)])\s+)(.*)$")


def read_text(text: str, form: Form) -> tuple[Section, ...] | Unreadable:
    """Return the sections of a model's answer in text form.

    Returns Unreadable, with the reason, if it is empty, JSON or a refusal, or has none of the form's
    headings.
    """
    text = _strip_fence(text.strip())
    if not text or is_blank(text):
        return Unreadable(reason="the answer is empty")
    if text.startswith(("{", "[{")):
        return Unreadable(reason="the answer is JSON, not a text")
    if is_refusal(text):
        return Unreadable(reason="the answer is a refusal")
    sections = sections_in(text, form)
    if not sections:
        return Unreadable(reason="the answer is empty")
    if not has_known_heading(sections, form):
        return Unreadable(reason="none of the headings that were asked for is in it")
    return sections


def audit_text(
    sections: tuple[Section, ...],
    former: Ledger,
    source_text: str,
    *,
    form: Form,
    count: Count,
    limit: int = SUMMARY_TOKENS,
) -> AuditVerdict:
    """Return the audit of a summary in text form; its ledger has the checked text and the items kept next to
    it.

    Sentences with a fault are removed, which is a soft fault. `limit` is the most tokens of text and items; a
    text up to twice as long is cut, and `too_long` then says so.
    """
    lines = source_lines(source_text)
    ground = Ground.of(source_text, convert_to_ledger(former))
    checked = tuple(_check_section(section, ground) for section in sections)
    kept = tuple(section for section, _, _ in checked if section.text.strip())
    faults = tuple(fault for _, found, _ in checked for fault in found)
    statements = sum(total for _, _, total in checked)
    told = "\n".join(section.text for section in kept)
    size, room = count(told), min(limit, most_tokens(former, source_text, count))
    bare = replace(
        former,
        form=form.name,
        narrative="",
        sections=kept,
        items=tuple(_close_if_covered(item, told) for item in former.items if item.closed is None),
        identifiers=merge_identifiers(former.identifiers, identifiers_of(source_words(source_text))),
    )
    mended, added = add_required_items(bare, lines, told=told)
    beside = min(count(render_summary(replace(mended, sections=()))), room // ITEMS_SHARE)
    most = room - beside
    mended = fit_ledger(mended, room, count)
    grounded = 1 - len(faults) / statements if statements else 0.0
    language = language_fault(told, source_text)
    checks = (
        (not told.strip(), "the summary is empty"),
        (
            statements > 1 and grounded < MOSTLY_UNSAID,
            "most of the summary was never said in the conversation",
        ),
        (language is not None, language or ""),
        (size > _FAR_TOO_LONG * room, f"the summary takes {size} tokens; {room} is the most, by far"),
        (holds_secret(render_summary(mended)), "the summary holds a secret"),
    )
    hard = tuple(fault for wrong, fault in checks if wrong)
    too_long = f"the summary takes {size} tokens; {most} is the most" if size > most else ""
    scores = {
        "grounded": round(grounded, 3),
        **presence(replace(bare, items=()), lines, told),
        **common_scores(mended, source_text, lines, count, language=language is None),
    }
    long_or_short = _length_fault(form, scores["size"])
    return AuditVerdict(
        ok=not hard,
        hard_faults=hard,
        soft_faults=(
            *faults,
            *added,
            *long_or_short,
            *((f"{too_long}: its end was cut off",) if too_long else ()),
            *_find_missing_sentences(former, render_summary(mended)),
        ),
        dropped_items=faults,
        scores={**scores, "length": float(not long_or_short)},
        ledger=mended,
        too_long=too_long,
    )


def _find_missing_sentences(former: Ledger, told: str) -> tuple[str, ...]:
    """Return a fault that names sentences of the former text which the new one does not state; none if it
    states all.
    """
    record = convert_to_ledger(former)
    texts = [item.text for item in record.items if item.closed is None]
    texts += [sentence for text in record.narrative.splitlines() for sentence in SENTENCE.split(text)]
    said = [text for text in texts if text.strip()]
    plain = told.casefold()
    gone = [text for text in said if not _is_stated(text, plain, told)]
    return find_lost_items(gone, len(said))


def _is_stated(text: str, plain: str, told: str) -> bool:
    exact = identifiers_of(text)
    if exact:
        return 2 * sum(name.casefold() in plain for name in exact) >= len(exact)
    return is_covered(NewItem(kind="fact", text=text), Ledger(), told)


def _close_if_covered(item: LedgerItem, told: str) -> LedgerItem:
    wanted = NewItem(kind=item.kind, text=item.text)
    if item.kind in _KEPT_BESIDE and not is_covered(wanted, Ledger(), told):
        return item
    return replace(item, closed=CARRIED)


def _check_section(section: Section, ground: Ground) -> tuple[Section, tuple[str, ...], int]:
    """Return the section without faulty sentences, the faults, and the number of sentences."""
    kept: list[str] = []
    faults: list[str] = []
    total, in_code = 0, False
    for line in section.text.splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
            kept.append(line)
            continue
        found = _LIST_MARK.match(line)
        mark, words = (found[1], found[2]) if found and not in_code else ("", line)
        sentences = [words] if in_code else [s for s in SENTENCE.split(words) if s.strip()]
        good = []
        for sentence in sentences:
            fault = text_fault(sentence, ground)
            if fault is None:
                good.append(sentence)
            else:
                faults.append(f"{section.heading or 'text'}: {fault}")
        total += sum(bool(s.strip()) for s in sentences)
        if good or not line.strip():
            kept.append(f"{mark}{' '.join(good)}" if good else line)
    return replace(section, text=_tidy("\n".join(kept))), tuple(faults), total


def _tidy(text: str) -> str:
    """Return the text without emptied code blocks, with an unclosed code fence closed."""
    text = re.sub(r"^```[^\n]*\n```$", "", text, flags=re.MULTILINE)
    if sum(line.lstrip().startswith("```") for line in text.splitlines()) % 2:
        text = f"{text}\n```"
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _strip_fence(text: str) -> str:
    """Return an answer without a code fence around the whole of it."""
    found = re.fullmatch(r"```(?:markdown|md|text)?\n(.*)\n```", text, re.DOTALL)
    return found[1].strip() if found and "```" not in found[1] else text


def _length_fault(form: Form, size: float) -> tuple[str, ...]:
    if form.share_of_original is None:
        return ()
    least, most = form.share_of_original
    if least <= size <= most:
        return ()
    return (f"takes {size:.0%} of the original instead of {least:.0%} to {most:.0%}",)
