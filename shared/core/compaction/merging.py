"""Joins records of neighbouring stretches of one conversation by code, so that a model only has to tidy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from shared.core.compaction.text_audit import joined_sections
from shared.core.session.ledger import Ledger, Section
from shared.core.session.policy import SummaryForm
from shared.core.session.rendering import first_words, fit_ledger, in_ledger_form, render_summary
from shared.core.session.summary import LedgerPatch, NewItem, apply_patch
from shared.core.session.summary_rules import NARRATIVE_WORDS, form_of
from shared.core.values.tokens import Count


def joined(parts: Sequence[Ledger], form: SummaryForm) -> Ledger:
    """One record with everything that stands in the parts; ids of the first one stay what they were."""
    if form_of(form).is_text:
        return _joined_texts(parts, form)
    return reduce(_with_part, (in_ledger_form(part) for part in parts))


def shortly(ledger: Ledger, limit: int, count: Count) -> Ledger:
    """What was joined, without a model: the first words of each narrative, and what there is room for."""
    narratives = ledger.narrative.splitlines()
    each = NARRATIVE_WORDS // max(1, len(narratives))
    narrative = " ".join(first_words(text, each) for text in narratives)
    return fit_ledger(replace(ledger, narrative=narrative), limit, count)


def in_groups(parts: Sequence[Ledger], room: int, count: Count) -> list[list[Ledger]]:
    """Neighbours that one request can hold together; at least two, or merging would never end."""
    groups: list[list[Ledger]] = []
    left = 0
    for part in parts:
        size = count(render_summary(part))
        if groups and (size <= left or len(groups[-1]) < 2):
            groups[-1].append(part)
        else:
            groups.append([part])
            left = room
        left -= size
    return groups


def _with_part(ledger: Ledger, part: Ledger) -> Ledger:
    standing = [item for item in part.items if item.closed is None]
    closed = tuple(item for item in ledger.items if item.closed is not None)
    new = tuple(
        NewItem(kind=item.kind, text=item.text, sources=item.sources, author=item.author) for item in standing
    )
    added = apply_patch(ledger, LedgerPatch(add=new), identifiers=part.identifiers, most_new=len(new))
    narrative = "\n".join(text for text in (ledger.narrative, part.narrative) if text)
    return replace(added, items=(*closed, *added.items), narrative=narrative)


def _joined_texts(parts: Sequence[Ledger], form: SummaryForm) -> Ledger:
    """Texts under their headings; items that code keeps stand beside them."""
    bare = reduce(_with_part, (replace(part, form="ledger", sections=(), narrative="") for part in parts))
    told = tuple(part if part.sections else _as_text(part) for part in parts)
    return replace(bare, form=form, sections=joined_sections(told))


def _as_text(part: Ledger) -> Ledger:
    """What a record of items says in running words; its items are carried beside the text anyway."""
    return replace(part, sections=(Section(heading="", text=part.narrative),)) if part.narrative else part
