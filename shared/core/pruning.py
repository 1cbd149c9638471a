"""Which old tool results are shortened in the copy that is sent, and how they look then."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shared.core.messages import Block, ToolResult, tool_results
from shared.core.policy import ContextPolicy
from shared.core.session import Entry, PruneForm

_TROUBLE = re.compile(r"\b(?:error|exception|failed|failure|traceback|panic)\b", re.IGNORECASE)
_STRENGTH: dict[PruneForm | None, int] = {None: 0, "trim": 1, "duplicate": 2, "clear": 3, "hide": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneDecision:
    """Sticky: an entry once shortened is never shown longer again."""

    seq: int
    form: PruneForm


def plan_pruning(
    entries: Sequence[Entry], policy: ContextPolicy, *, cache_cold: bool, open_turn: int | None = None
) -> tuple[PruneDecision, ...]:
    """New decisions, all of them or none: a batch must save enough to pay for the lost provider cache.

    To be asked at the start of a turn only; asking again after its decisions were stored gives nothing.
    """
    if policy.prune_rule == "none":
        return ()
    if not any(isinstance(block, ToolResult) for entry in entries for block in entry.blocks):
        return ()
    candidates = _candidates(entries, policy, open_turn)
    batch = tuple((entry, form) for entry, form in candidates if _STRENGTH[form] > _STRENGTH[entry.pruned])
    saved = sum(saved_tokens(entry, form, policy) for entry, form in batch)
    if not cache_cold and saved < policy.prune_batch:
        return ()
    return tuple(PruneDecision(seq=entry.seq, form=form) for entry, form in batch)


def apply_pruning(entry: Entry, policy: ContextPolicy) -> tuple[Block, ...]:
    """The entry's blocks as its sticky decision shows them."""
    return _shown(entry, entry.pruned, policy)


def saved_tokens(entry: Entry, form: PruneForm, policy: ContextPolicy) -> int:
    """By the share of characters that would go, measured on the entry's own estimate."""
    chars = sum(len(result.text) for result in tool_results(entry.blocks))
    now = sum(len(result.text) for result in tool_results(_shown(entry, entry.pruned, policy)))
    then = sum(len(result.text) for result in tool_results(_shown(entry, form, policy)))
    return entry.tokens * max(0, now - then) // chars if chars else 0


def _candidates(
    entries: Sequence[Entry], policy: ContextPolicy, open_turn: int | None
) -> list[tuple[Entry, PruneForm]]:
    ages = _ages(entries, open_turn)
    first_person = next((i for i, entry in enumerate(entries) if entry.author == "person"), len(entries))
    repeated = _repeated(entries) if policy.prune_duplicates else frozenset()
    found: list[tuple[Entry, PruneForm]] = []
    for entry in entries[first_person:]:
        age = ages.get(entry.turn, 0)
        if entry.pinned or entry.turn == open_turn or age < max(1, policy.prune_keep_last_assistants):
            continue
        form = _form_for(entry, age, policy, repeated=entry.seq in repeated)
        if form is not None:
            found.append((entry, form))
    return found


def _form_for(entry: Entry, age: int, policy: ContextPolicy, *, repeated: bool) -> PruneForm | None:
    longest = max((len(result.text) for result in tool_results(entry.blocks)), default=-1)
    if age >= policy.prune_clear_after_assistants and longest > policy.prune_clear_over_chars:
        return "clear"
    if repeated and longest > policy.prune_clear_over_chars:
        return "duplicate"
    return "trim" if longest > policy.prune_over_chars else None


def _ages(entries: Sequence[Entry], open_turn: int | None) -> dict[int, int]:
    """For each turn, how many later turns the assistant has answered; the open one does not count yet."""
    answered = {e.turn for e in entries if e.role == "assistant" and e.turn != open_turn}
    turns = sorted({entry.turn for entry in entries}, reverse=True)
    ages: dict[int, int] = {}
    later = 0
    for turn in turns:
        ages[turn] = later
        later += turn in answered
    return ages


def _repeated(entries: Sequence[Entry]) -> frozenset[int]:
    """Entries all of whose results appear word for word in a newer entry."""
    seen: set[str] = set()
    found: set[int] = set()
    for entry in reversed(entries):
        texts = [result.text for result in tool_results(entry.blocks) if not result.is_error]
        if texts and len(texts) == len(tool_results(entry.blocks)) and all(t in seen for t in texts):
            found.add(entry.seq)
        seen.update(texts)
    return frozenset(found)


def _shown(entry: Entry, form: PruneForm | None, policy: ContextPolicy) -> tuple[Block, ...]:
    if form is None:
        return entry.blocks
    return tuple(_shorten_results(entry.blocks, form, policy))


def _shorten_results(blocks: Iterable[Block], form: PruneForm, policy: ContextPolicy) -> Iterable[Block]:
    for block in blocks:
        if isinstance(block, ToolResult):
            yield replace(block, text=_shortened(block.text, form, policy))
        else:
            yield block


def _shortened(text: str, form: PruneForm, policy: ContextPolicy) -> str:
    match form:
        case "trim":
            return _trimmed(text, policy)
        case "clear":
            return policy.prune_cleared if len(text) > policy.prune_clear_over_chars else text
        case "duplicate":
            return policy.prune_duplicate if len(text) > policy.prune_clear_over_chars else text
        case "hide":
            return text  # whole messages are left out before this; under other policies they are shown


def _trimmed(text: str, policy: ContextPolicy) -> str:
    if len(text) <= policy.prune_over_chars:
        return text
    end = text[-policy.prune_error_tail_chars :]
    tail = policy.prune_error_tail_chars if _TROUBLE.search(end) else policy.prune_tail_chars
    left_out = len(text) - policy.prune_head_chars - tail
    mark = policy.prune_mark.format(chars=left_out)
    return f"{text[: policy.prune_head_chars]}{mark}{text[len(text) - tail :]}"
