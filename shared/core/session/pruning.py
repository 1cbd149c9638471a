"""Decisions which old tool results requests show shortened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from operator import attrgetter

from shared.core.session.budget import ContextBudget
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_forms import STRENGTH, FormOf, Shown, decision_for, render_blocks, result_texts
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.session import Entry, PruneForm, View
from shared.core.values.messages import Block, ToolResult, ToolUse, is_thought, tool_results, tool_uses

DOWN_TO = 0.85
"""Share of the limit down to which `clear_first` clears results, so that the next turn need not clear
again.
"""
PROTECTED_TURNS = 2
"""Newest ended turns that are spared.

Rule `protect` keeps their results whole, however large; rule `calls` does not trim them, but clears them when
they are old enough.
"""
READ_PRICE, WRITE_PRICE, LONG_WRITE_PRICE = 0.1, 1.25, 2.0
"""Prices of a cached token relative to plain input: read, written for five minutes, written for an hour."""
_NEWLY = attrgetter("pruned_now")


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneDecision:
    """Decision that all later requests show an entry's tool results in a shorter form; it is never
    reverted.
    """

    seq: int
    form: PruneForm
    shown: Shown | None = None
    """Texts by call id that a tool's rule or a plug-in made; None uses the policy's form."""


def plan_pruning(
    entries: Sequence[Entry],
    policy: ContextPolicy,
    *,
    cache_cold: bool,
    open_turn: int | None = None,
    cache_long: bool = False,
) -> tuple[PruneDecision, ...]:
    """Return new decisions by the age of results; none if they save too little to pay for rewriting the
    cache.

    `cache_cold` says that the provider's cache has expired, which makes any batch worth it, `cache_long` that
    the cache is written for an hour. `open_turn` is the turn being answered, None if there is none. Decisions
    that are stored in the entries are not returned again, and nothing is stored here.
    """
    pruning = policy.pruning
    if not pruning.works_by_age or not _has_results(entries):
        return ()
    log = _LogFacts.of(entries, pruning, open_turn)
    batch = tuple(_protect(log, pruning) if pruning.prune_rule == "protect" else _by_age(log, pruning))
    free = cache_cold and pruning.prune_when_cold
    if pruning.works_between_calls and not free:
        again = (LONG_WRITE_PRICE if cache_long else WRITE_PRICE) - READ_PRICE
        return batch if _has_paid_enough(log, batch, pruning, again) else ()
    saved = sum(_count_saved(log.by_seq[one.seq], one, pruning) for one in batch)
    return batch if free or pruning.is_batch_worth(saved) else ()


def prune_to_target(
    entries: Sequence[Entry],
    policy: ContextPolicy,
    *,
    save: int,
    open_turn: int | None = None,
    forms: Sequence[PruneForm] = ("duplicate", "trim", "clear"),
) -> tuple[PruneDecision, ...]:
    """Return the fewest decisions that save `save` estimated tokens, oldest entries first, in order of `seq`.

    `forms` are tried in their order. The decisions save less if there are not enough old, long results; they
    are empty if `save` is not positive.
    """
    if save <= 0 or not _has_results(entries):
        return ()
    pruning = policy.pruning
    log = _LogFacts.of(entries, pruning, open_turn)
    decided: dict[int, PruneDecision] = {}
    gained: dict[int, int] = {}
    saved = 0
    for form in forms:
        for entry, _ in log.old(pruning.prune_keep_last_assistants):
            if saved >= save:
                return tuple(decided[seq] for seq in sorted(decided))
            repeat = "duplicate" in forms and entry.seq in log.repeated
            if repeat is not (form == "duplicate"):
                continue
            wish = _decision(log, entry, pruning, _always_form(form))
            worth = 0 if wish is None else _count_saved(entry, wish, pruning)
            if wish is not None and worth > gained.get(entry.seq, 0):
                saved += worth - gained.get(entry.seq, 0)
                decided[entry.seq], gained[entry.seq] = wish, worth
    return tuple(decided[seq] for seq in sorted(decided))


def clear_first(
    view: View, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, *, ratio: float = 1.0
) -> tuple[PruneDecision, ...]:
    """Return decisions that clear old results until the context is at 85 percent of the threshold
    `compact_at`.

    Returns none for a context of at most `compact_at` tokens, or without the setting `prune_first`. `ratio`
    is the model's tokens per estimated token.
    """
    if not policy.pruning.clears_above_limit or context_tokens <= budget.compact_at:
        return ()
    save = ceil((context_tokens - floor(DOWN_TO * budget.compact_at)) / ratio)
    forms: tuple[PruneForm, ...] = ("duplicate", "clear")
    return prune_to_target(view.entries, policy, save=save, open_turn=view.open_turn, forms=forms)


def is_clearing_enough(
    view: View, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, *, ratio: float = 1.0
) -> bool:
    """Return whether the decisions of `clear_first` bring the context to `compact_at` or below, without a
    summary.

    False if there are no decisions. `ratio` is the model's tokens per estimated token.
    """
    decisions = clear_first(view, budget, policy, context_tokens, ratio=ratio)
    if not decisions:
        return False
    saved = count_saved_tokens(view.entries, decisions, policy)
    return context_tokens - floor(ratio * saved) <= budget.compact_at


def apply_decisions(entries: Sequence[Entry], decisions: Sequence[PruneDecision]) -> tuple[Entry, ...]:
    """Return the entries with the decisions applied; only entries with a decision are marked `pruned_now`."""
    if not decisions and not any(map(_NEWLY, entries)):
        return tuple(entries)
    made = {decision.seq: decision for decision in decisions}
    return tuple(_apply_decision(entry, made.get(entry.seq)) for entry in entries)


def _apply_decision(entry: Entry, decision: PruneDecision | None) -> Entry:
    if decision is not None:
        return replace(entry, pruned=decision.form, pruned_as=decision.shown, pruned_now=True)
    return replace(entry, pruned_now=False) if entry.pruned_now else entry


def places_to_change(entries: Sequence[Entry], policy: ContextPolicy) -> tuple[int, ...]:
    """Return the indexes of two entries: where the newest batch begins, and where the next one may begin.

    Up to these places the provider's cache stays valid. Without a newest batch, the first is the oldest
    result that can be shortened. Indexes that do not exist are left out.
    """
    newest = next((i for i, is_new in enumerate(map(_NEWLY, entries)) if is_new), None)
    pruning = policy.pruning
    if not pruning.works_between_calls or not _has_results(entries):
        return () if newest is None else (newest,)
    uses = _uses(entries)
    spared = _find_in_use(entries, uses, _calls_since(entries), pruning)
    left = [i for i, entry in enumerate(entries) if _may_be_shortened(entry, pruning, uses)]
    first = left[0] if left else None
    free = next((i for i in left if entries[i].seq not in spared), None)
    return tuple({i for i in (first if newest is None else newest, free) if i is not None})


def apply_pruning(entry: Entry, policy: ContextPolicy) -> tuple[Block, ...]:
    """Return an entry's blocks as its stored pruning decision (`pruned`, `pruned_as`) shows them."""
    return render_blocks(entry, entry.pruned, entry.pruned_as, policy.pruning)


def count_saved_tokens(
    entries: Sequence[Entry], decisions: Sequence[PruneDecision], policy: ContextPolicy
) -> int:
    """Return the tokens that the decisions save together, estimated from the characters that they remove.

    Raises KeyError for a decision whose entry is missing.
    """
    by_seq = {entry.seq: entry for entry in entries}
    return sum(_count_saved(by_seq[one.seq], one, policy.pruning) for one in decisions)


def saved_tokens(entry: Entry, decision: PruneDecision, policy: ContextPolicy) -> int:
    """Return the tokens that one decision saves in its entry, estimated from the characters that it
    removes.
    """
    return _count_saved(entry, decision, policy.pruning)


def _count_saved(entry: Entry, decision: PruneDecision, pruning: PruneStrategy) -> int:
    chars = sum(len(result.text) for result in tool_results(entry.blocks))
    shown_now = render_blocks(entry, entry.pruned, entry.pruned_as, pruning)
    now = sum(len(result.text) for result in tool_results(shown_now))
    then_shown = render_blocks(entry, decision.form, decision.shown, pruning)
    then = sum(len(result.text) for result in tool_results(then_shown))
    return entry.tokens * max(0, now - then) // chars if chars else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFacts:
    """Properties of log entries that the pruning rules use, computed once."""

    entries: tuple[Entry, ...]
    """Entries whose tool results may be shortened, in the order of requests."""
    by_seq: Mapping[int, Entry]
    ages: Mapping[int, int]
    names: Mapping[str, str]
    repeated: frozenset[int]
    open_turn: int | None

    @classmethod
    def of(cls, entries: Sequence[Entry], pruning: PruneStrategy, open_turn: int | None) -> _LogFacts:
        first_person = next((i for i, entry in enumerate(entries) if entry.author == "person"), len(entries))
        uses = _uses(entries)
        names = {id_: call.name for id_, call in uses.items()}
        by_calls = pruning.works_between_calls
        ages = _calls_since(entries) if by_calls else _ages(entries, open_turn)
        touchable = (e for e in entries[first_person:] if not e.pinned and (by_calls or e.turn != open_turn))
        if by_calls:
            spared = _find_in_use(entries, uses, ages, pruning)
            bound = _last_thought(entries, open_turn)
            touchable = (e for e in touchable if e.seq not in spared and e.seq not in bound)
        return cls(
            entries=tuple(entry for entry in touchable if tool_results(entry.blocks)),
            by_seq={entry.seq: entry for entry in entries},
            ages=ages,
            names=names,
            repeated=_find_repeated(entries, names) if pruning.prune_duplicates else frozenset(),
            open_turn=open_turn,
        )

    def old(self, least: int) -> Iterator[tuple[Entry, int]]:
        """Yield entries whose age is at least `least`, and at least 1, with the age, oldest first."""
        for entry in self.entries:
            age = self.ages[entry.seq]
            if age >= max(1, least):
                yield entry, age


def _by_age(log: _LogFacts, pruning: PruneStrategy) -> Iterator[PruneDecision]:
    newest = sorted({entry.turn for entry in log.by_seq.values()})[-PROTECTED_TURNS:]
    whole = frozenset(newest) if pruning.works_between_calls else frozenset()
    for entry, age in log.old(pruning.prune_keep_last_assistants):
        repeated = entry.seq in log.repeated
        if entry.turn in whole and not repeated and age < pruning.prune_clear_after_assistants:
            continue

        may_clear = not pruning.works_between_calls or not _is_error(entry)

        def form_of(
            result: ToolResult,
            p: PruneStrategy,
            age: int = age,
            repeated: bool = repeated,
            may_clear: bool = may_clear,
        ) -> PruneForm | None:
            return _form_by_age(result.text, age, p, repeated=repeated, may_clear=may_clear)

        if (wish := _decision(log, entry, pruning, form_of)) is not None:
            yield wish


def _always_form(form: PruneForm) -> FormOf:
    return lambda _result, _policy: form


def _form_by_age(
    text: str, age: int, pruning: PruneStrategy, *, repeated: bool, may_clear: bool
) -> PruneForm | None:
    if may_clear and age >= pruning.prune_clear_after_assistants and pruning.is_clearable(text):
        return "clear"
    if repeated and pruning.is_clearable(text):
        return "duplicate"
    return "trim" if pruning.is_long(text) else None


def _is_error(entry: Entry) -> bool:
    """Return whether any tool result of an entry is an error; all its results share one decision."""
    return any(result.is_error for result in tool_results(entry.blocks))


def _protect(log: _LogFacts, pruning: PruneStrategy) -> list[PruneDecision]:
    """Return decisions that clear results older than the newest `prune_protect_tokens` of them,
    oldest first.
    """
    newer = sum(e.tokens for e in log.by_seq.values() if e.turn == log.open_turn and tool_results(e.blocks))
    found: list[PruneDecision] = []
    for entry in reversed(log.entries):
        newer += entry.tokens
        if newer <= pruning.prune_protect_tokens or log.ages[entry.seq] < PROTECTED_TURNS:
            continue
        wish = None if entry.pruned else _decision(log, entry, pruning, _always_form("clear"))
        if wish is not None:
            found.append(wish)
    return found[::-1]


def _decision(log: _LogFacts, entry: Entry, pruning: PruneStrategy, form_of: FormOf) -> PruneDecision | None:
    """Return the decision that the rules make for an entry; None unless it shortens the entry further."""
    form, shown = decision_for(entry, pruning, log.names, form_of)
    if form is None:
        return None
    decision = PruneDecision(seq=entry.seq, form=form, shown=shown)
    if STRENGTH[form] > STRENGTH[entry.pruned]:
        if shown is None or _makes_shorter(entry, decision, pruning):
            return decision
    elif shown is not None and form == entry.pruned and _makes_shorter(entry, decision, pruning):
        return decision
    return None


def _makes_shorter(entry: Entry, decision: PruneDecision, pruning: PruneStrategy) -> bool:
    now = result_texts(render_blocks(entry, entry.pruned, entry.pruned_as, pruning))
    then = result_texts(render_blocks(entry, decision.form, decision.shown, pruning))
    return sum(map(len, then)) < sum(map(len, now))


def _has_results(entries: Sequence[Entry]) -> bool:
    return any(isinstance(block, ToolResult) for entry in entries for block in entry.blocks)


def _uses(entries: Sequence[Entry]) -> dict[str, ToolUse]:
    """Return the tool calls of the entries by call id."""
    return {block.id: block for e in entries for block in e.blocks if isinstance(block, ToolUse)}


def _ages(entries: Sequence[Entry], open_turn: int | None) -> dict[int, int]:
    """Return, by `seq`, how many later turns the assistant has answered; the open turn does not count."""
    answered = {e.turn for e in entries if e.role == "assistant" and e.turn != open_turn}
    turns = sorted({entry.turn for entry in entries}, reverse=True)
    ages: dict[int, int] = {}
    later = 0
    for turn in turns:
        ages[turn] = later
        later += turn in answered
    return {entry.seq: ages[entry.turn] for entry in entries}


def _calls_since(entries: Sequence[Entry]) -> dict[int, int]:
    """Return, by `seq`, how many later entries the assistant wrote."""
    ages: dict[int, int] = {}
    later = 0
    for entry in reversed(entries):
        ages[entry.seq] = later
        later += entry.author == "assistant"
    return ages


def _last_thought(entries: Sequence[Entry], open_turn: int | None) -> frozenset[int]:
    """Return the `seq` of each entry before the open turn's newest thinking block.

    Providers refuse a request in which these entries have changed.
    """
    last = max(
        (i for i, e in enumerate(entries) if e.turn == open_turn and any(map(is_thought, e.blocks))),
        default=0,
    )
    return frozenset(entry.seq for entry in entries[:last])


def _find_in_use(
    entries: Sequence[Entry], uses: Mapping[str, ToolUse], ages: Mapping[int, int], pruning: PruneStrategy
) -> frozenset[int]:
    """Return the `seq` of entries to spare: the newest long result about each value that recent calls name.

    Such a value is, for example, the path of a file that the model works on.
    """
    named: set[str] = set()
    found: set[str] = set()
    spared: set[int] = set()
    for entry in reversed(entries):
        if ages[entry.seq] < pruning.prune_clear_after_assistants:
            named.update(value for call in tool_uses(entry.blocks) for value in _list_values(call))
        if named and _may_be_shortened(entry, pruning, uses):
            calls = (uses.get(result.tool_use_id) for result in tool_results(entry.blocks))
            about = {value for call in calls for value in _list_values(call)}
            if (about & named) - found:
                spared.add(entry.seq)
                found |= about
    return frozenset(spared)


def _list_values(call: ToolUse | None) -> set[str]:
    values = call.input.values() if call else ()
    return {value for value in values if isinstance(value, str) and value}


def _may_be_shortened(entry: Entry, pruning: PruneStrategy, uses: Mapping[str, ToolUse]) -> bool:
    """Return whether the entry's tool results can still be shortened, now or when they are older."""
    if entry.author != "tool" or entry.pinned or entry.pruned == "clear":
        return False
    failed = _is_error(entry)
    for result in tool_results(entry.blocks):
        call = uses.get(result.tool_use_id)
        own = pruning.prune_rules.of(call.name) if call is not None else None
        rule = "usual" if own is None else own.rule
        if rule == "trim" or (failed and rule != "never"):
            if entry.pruned is None and pruning.is_long(result.text):
                return True
        elif rule != "never" and pruning.is_clearable(result.text):
            return True
    return False


def _has_paid_enough(
    log: _LogFacts, batch: Sequence[PruneDecision], pruning: PruneStrategy, price_again: float
) -> bool:
    """Return whether rereading the results has already cost as much as rewriting the provider's cache.

    Waiting longer costs more than the batch saves; pruning sooner rewrites the cache too often.
    """
    if not batch:
        return False
    wishes = {one.seq: one for one in batch}
    paid = again = 0.0
    entries = list(log.by_seq.values())
    cached = max((i for i, entry in enumerate(entries) if entry.author == "assistant"), default=0)
    first = next(i for i, entry in enumerate(entries) if entry.seq in wishes)
    for at, entry in enumerate(entries[first:], first):
        wish = wishes.get(entry.seq)
        saved = 0 if wish is None else _count_saved(entry, wish, pruning)
        if wish is not None:
            due = (
                pruning.prune_clear_after_assistants
                if wish.form == "clear"
                else pruning.prune_keep_last_assistants
            )
            paid += READ_PRICE * saved * (log.ages[entry.seq] - due + 1)
        if at < cached:
            again += price_again * (_count_shown(entry, pruning) - saved)
    return paid >= again


def _count_shown(entry: Entry, pruning: PruneStrategy) -> int:
    if entry.pruned is None:
        return entry.tokens
    return entry.tokens - _count_saved(
        replace(entry, pruned=None, pruned_as=None),
        PruneDecision(seq=entry.seq, form=entry.pruned, shown=entry.pruned_as),
        pruning,
    )


def _find_repeated(entries: Sequence[Entry], names: Mapping[str, str]) -> frozenset[int]:
    """Return the `seq` of entries whose results all occur literally in newer results of the same tools."""
    seen: set[tuple[str, str]] = set()
    found: set[int] = set()
    for entry in reversed(entries):
        results = tool_results(entry.blocks)
        texts = [(names.get(r.tool_use_id, ""), r.text) for r in results if not r.is_error]
        if texts and len(texts) == len(results) and all(text in seen for text in texts):
            found.add(entry.seq)
        seen.update(texts)
    return frozenset(found)
