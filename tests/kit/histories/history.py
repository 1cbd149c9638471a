"""Plays one history: a list of deeds, each with a seed, so that any deed can be left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shared.core.compaction.audit import audit_ledger
from shared.core.compaction.digest import digest
from shared.core.compaction.jobs import next_job
from shared.core.compaction.next_ledger import LedgerPatch, NewItem, apply_patch
from shared.core.compaction.plan import (
    CompactionPlan,
    NothingToCompact,
    plan_compaction,
    readable,
    render_source,
)
from shared.core.context.build_context import (
    BuiltContext,
    build_context,
    find_last_described_turn,
    pins_since,
)
from shared.core.context.memory import KnownNotes, build_known_notes
from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.context.prompts import SystemLayers, default_layers, flush_instruction
from shared.core.overflow.overflow_recovery import fit
from shared.core.presets.catalog import PRESETS
from shared.core.session.budget import ContextBudget, budget_for
from shared.core.session.ledger import ItemKind
from shared.core.session.policy import ContextPolicy, fit_to_window
from shared.core.session.pruning import plan_pruning
from shared.core.session.session import Compaction, PruneForm, View
from shared.core.session.summary import fit_ledger, render_summary
from shared.core.values.errors import ContextBudgetExceeded, StaleView
from shared.core.values.messages import Text, ToolResult, is_thought, tool_results, tool_uses
from shared.core.values.tokens import estimate_blocks
from tests.kit.histories.log import Ended, Log, Seen
from tests.kit.histories.promises import Broken, Judge, Promise, unanswered
from tests.kit.histories.sayings import answer, calls, injected, marker, result_of, said_by_person

Deed: TypeAlias = tuple[str, int]
Script: TypeAlias = Sequence[Deed]

WINDOW = 6_000
UNSEEN_SEQ = 10_000
"""Number of a message that no summary covers; fake models cite it nevertheless."""
HARD_SHARES = (0.35, 0.6, 0.8, 1.0)
SUMMARY_WORD, RECALL_WORD, NOTE_WORD, FACT_WORD = "⟪summary⟫", "⟪recall⟫", "⟪note⟫", "⟪clock⟫"
_KINDS: tuple[ItemKind, ...] = ("fact", "decision", "question", "constraint", "goal", "promise")
_LOST = "[outcome unknown: the program was restarted while this ran]"


def count(text: str) -> int:
    return len(text) // 4 + 1


def _policy(name: str) -> ContextPolicy:
    """Return the preset on a context window so small that a dozen turns fill it."""
    policy = fit_to_window(PRESETS[name], WINDOW)
    return policy.with_settings(
        max_output=600,
        overhead=200,
        summary_least=min(policy.writing.summary_least, 60),
        prune_over_chars=700,
        prune_head_chars=200,
        prune_tail_chars=200,
        prune_error_tail_chars=400,
        prune_clear_over_chars=min(policy.pruning.prune_clear_over_chars, 300),
        prune_batch=min(policy.pruning.prune_batch, 300),
    )


POLICIES = {name: _policy(name) for name in PRESETS}
_OFTEN = ("steady", "steady", "steady", "spec008", *PRESETS)
LAYERS: SystemLayers = default_layers()


@dataclass(slots=True)
class History:
    """One session from its first message on.

    A deed raises Broken as soon as a promise does not hold.
    """

    policy: ContextPolicy
    judge: Judge
    by_types: bool = False
    log: Log = field(default_factory=Log)
    sent: tuple[tuple[object, ...], BuiltContext] | None = None
    """The last turn's first request, and the state on which its beginning depends; None before the first."""
    queue: list[Callable[[random.Random], None]] = field(default_factory=list)

    # ---- people

    def say(self, rng: random.Random) -> None:
        number = len(self.log.entries) + 1
        blocks = said_by_person(rng, number)
        self.log.accept(blocks, estimate_blocks(blocks, count))

    def pin(self, rng: random.Random) -> None:
        seqs = [s for seqs in self.log.turns.values() for s in seqs]
        wanted = [s for s in seqs if self.log.entries[s].author in ("person", "assistant")]
        held = sum(self.log.entries[s].tokens for s in self.log.pins)
        if wanted:
            seq = rng.choice(wanted)
            if held + self.log.entries[seq].tokens <= self.policy.keeping.pins_share * self.budget().limit:
                self.log.pin(seq)

    def unpin(self, rng: random.Random) -> None:
        if self.log.pins:
            self.log.unpin(rng.choice(sorted(self.log.pins)))

    def edit(self, rng: random.Random) -> None:
        mine = [s for seqs in self.log.turns.values() for s in seqs if self.log.entries[s].author == "person"]
        if mine:
            number = len(self.log.entries) + 1
            blocks = said_by_person(rng, number)
            before = self.log.view()
            self.log.edit(rng.choice(mine), blocks, estimate_blocks(blocks, count))
            self.judge.holds("no_loss", self.log.view() == before, "an edit changed what was answered")

    # ---- turns

    def turn(self, rng: random.Random) -> None:
        if self.log.open_turn is None and self.log.answered == max(self.log.turns, default=0):
            self.say(rng)
        self._between_turns(rng)
        log, turn = self.log, self.log.claim()
        prunes = self._prunes(rng, turn, {})
        view = self._with_prunes(log.view(answering=True), prunes)
        sent = self._request(rng, view, first=True)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
            if not self._tool_round(rng):
                self._end(rng, rng.choice(("failed", "refused", "stopped")), prunes)
                return
            before = prunes
            prunes = self._prunes(rng, turn, before) if self.policy.pruning.prune_rule == "calls" else before
            view = self._with_prunes(log.view(answering=True), prunes)
            now = self._request(rng, view, first=False)
            if prunes == before:
                self.judge.grows(sent.messages, now.messages, "within a turn")
            sent = now
            if rng.random() < 0.1:
                self.say(rng)  # arrives while the turn runs, so belongs to the next one
        self._end(rng, "answered" if rng.random() < 0.9 else "failed", prunes)

    def _between_turns(self, rng: random.Random) -> None:
        """Change notes and let time pass, as other conversations of the person do.

        The random numbers of the deed itself stay as they would be without this.
        """
        rng = random.Random(str(rng.getstate()[1][:9]))
        if rng.random() < 0.2:
            self.remember(rng)
        if rng.random() < 0.03:
            self.forget(rng)
        if rng.random() < 0.1:
            self.log.frozen = None  # the provider no longer has the prefix cached

    def _end(self, rng: random.Random, state: Ended, prunes: dict[int, PruneForm]) -> None:
        number = len(self.log.entries) + 1
        if state == "answered" or (state == "stopped" and rng.random() < 0.5):
            blocks = answer(rng, number)
            self.log.step("assistant", blocks, estimate_blocks(blocks, count))
        self.log.end(state, prunes, release_hold=rng.random() < 0.3)

    def _tool_round(self, rng: random.Random) -> bool:
        """Add one message of tool calls and its results, or a mishap.

        Return False if the turn ended by the mishap.
        """
        number = len(self.log.entries) + 1
        asked = calls(rng, number)
        self.log.step("assistant", asked, estimate_blocks(asked, count))
        mishap = rng.random()
        if mishap < 0.05:
            return False
        results = [result_of(rng, call, number + 1) for call in tool_uses(asked)]
        if mishap < 0.12:  # a crash after which the effect of the tool is unknown
            results = [ToolResult(tool_use_id=r.tool_use_id, text=_LOST, is_error=True) for r in results]
        elif mishap < 0.18:
            results.pop(rng.randrange(len(results)))
        elif mishap < 0.24:
            results.insert(0, replace(rng.choice(results), text="once more"))
        elif mishap < 0.30:
            results.append(ToolResult(tool_use_id=f"call_{rng.randrange(number)}_9", text="a ghost"))
        elif mishap < 0.34:
            rng.shuffle(results)
        if not results:
            return False  # the store keeps a round without any result only of a turn that has ended
        self.log.step("tool", results, estimate_blocks(results, count))
        if 0.34 < mishap < 0.38:  # the same results come twice, each time as a message of its own
            self.log.step("tool", results, estimate_blocks(results, count))
        return True

    def _prunes(self, rng: random.Random, turn: int, held: dict[int, PruneForm]) -> dict[int, PruneForm]:
        view, cold = self._with_prunes(self.log.view(answering=True), held), rng.random() < 0.3
        made = plan_pruning(view.entries, self.policy, cache_cold=cold, open_turn=turn)
        prunes = {decision.seq: decision.form for decision in made}
        if prunes:
            after = self._with_prunes(view, prunes)
            again = plan_pruning(after.entries, self.policy, cache_cold=True, open_turn=turn)
            self.judge.holds("idempotent", not again or not cold, f"pruned twice: {again}")
            saved = {e.seq for e in view.entries if e.seq in prunes}
            self.judge.holds("whole_turns", saved == set(prunes), "what is not there was pruned")
            kept = turn if self.policy.pruning.prune_rule != "calls" else None
            mine = {e.seq for e in view.entries if e.turn == kept or e.pinned or not tool_results(e.blocks)}
            self.judge.holds("never_dropped", not mine & set(prunes), "words, a pin or the open turn pruned")
            thought = [e.seq for e in view.entries if e.turn == turn and any(map(is_thought, e.blocks))]
            bound = min(prunes) > max(thought, default=0)
            self.judge.holds("valid_request", bound, "a result before open thinking was pruned")
        return {**held, **prunes}

    @staticmethod
    def _with_prunes(view: View, prunes: dict[int, PruneForm]) -> View:
        if not prunes:
            return view
        shown = (replace(e, pruned=prunes[e.seq]) if e.seq in prunes else e for e in view.entries)
        return replace(view, entries=tuple(shown))

    def _request(self, rng: random.Random, view: View, *, first: bool) -> BuiltContext:
        volatile = f"{FACT_WORD} {view.open_turn}"
        built = self.build(view, runtime_facts=volatile)
        judge = self.judge
        judge.request(built, by_types=self.by_types)
        judge.only_open_thinking(view, built.messages)
        judge.shown(view, built.messages, (e for e in (*view.entries, *view.pins) if e.author != "tool"))
        late = bool(pins_since(view))
        judge.ours_alone(
            built,
            summary=bool(view.head and view.head.summary_text.strip()),
            pins=late + (len(view.pins) > pins_since(view).count("[#")),
        )
        judge.holds("never_dropped", LAYERS.base in built.system[0].text, "a layer of the system is missing")
        judge.holds(
            "erasure",
            built.entry_seqs == tuple(e.seq for e in view.entries)
            and built.pin_seqs == tuple(e.seq for e in view.pins),
            "the request does not name what it is made of",
        )
        if first:
            judge.volatile_is_last(built, volatile)
            self._stable(view, built)
        if rng.random() < 0.1:
            judge.holds(
                "pure_and_stable",
                self.build(view, runtime_facts=volatile) == built,
                "built twice differently",
            )
        if rng.random() < 0.12:
            self._shrink(rng, view, volatile)
        return built

    def _stable(self, view: View, built: BuiltContext) -> None:
        """Check that a request begins like the one before it, whatever was saved, changed or pinned since.

        Only the part before the newest words may be compared.
        """
        forms = tuple((e.seq, e.pruned) for e in view.entries if e.pruned)
        state = (*self.log.cycle_state, forms, find_last_described_turn(view, self.policy))
        if self.sent is not None and self.sent[0] == state and view.frozen is not None:
            before = self.sent[1]
            self.judge.grows(before.messages[:-1], built.messages, "from turn to turn")
            self.judge.holds("pure_and_stable", built.system == before.system, "the system part changed")
        self.sent = (state, built)
        self.log.freeze(built.system[1].text if len(built.system) > 1 else "", self._known(view).ids)

    def _shrink(self, rng: random.Random, view: View, volatile: str) -> None:
        hard = int(self.budget().hard * rng.choice(HARD_SHARES))
        build = lambda v: self.build(v, runtime_facts=volatile)  # noqa: E731
        try:
            made = fit(view, hard=hard, build=build, count=count, policy=self.policy)
        except ContextBudgetExceeded as error:
            self.judge.holds("bounded", 1 <= len(error.largest) <= 3, f"names {error.largest}")
            return
        self.judge.shrunk(view, made, hard=hard, tokens=made.context.estimate)

    def build(self, view: View, *, runtime_facts: str = "", instruction: str = "") -> BuiltContext:
        return build_context(
            view,
            policy=self.policy,
            system=LAYERS,
            known=self._known(view),
            recall=RECALL_WORD if view.open_turn and view.open_turn % 3 == 0 else "",
            runtime_facts=runtime_facts,
            tools=(SAVE_MEMORY,),
            instruction=instruction,
            count=count,
        )

    @staticmethod
    def _known(view: View) -> KnownNotes:
        return build_known_notes(view.notes, view.frozen, count=count)

    def budget(self) -> ContextBudget:
        return budget_for(self.policy, WINDOW, 600, 900)

    # ---- silent work

    def flush(self, rng: random.Random) -> None:
        if self.log.flushed >= self.log.answered:
            return
        entries = dict(self.log.entries)
        built = self.build(self.log.view(), instruction=flush_instruction())
        self.judge.request(built, by_types=self.by_types)
        said = built.messages[-1].blocks[-1]
        self.judge.holds(
            "silence",
            isinstance(said, Text) and said.text == flush_instruction(),
            "the silent turn does not end with its instruction",
        )
        if rng.random() < 0.3:
            self.remember(rng)
        self.log.flushed = self.log.answered
        self.judge.holds("silence", self.log.entries == entries, "a flush wrote into the conversation")

    def remember(self, rng: random.Random) -> None:
        """Save a new note, which often replaces an old one."""
        old = rng.choice(self.log.notes) if self.log.notes and rng.random() < 0.5 else None
        self.log.remember(f"{NOTE_WORD} {injected(rng)}", importance=rng.randint(1, 9), replaces=old)

    def forget(self, rng: random.Random) -> None:
        if self.log.notes:
            self.log.forget(rng.choice(self.log.notes))

    def compact(self, rng: random.Random) -> None:
        """Plan a compaction, let something else happen, and commit it by compare-and-set."""
        force, keep = rng.random() < 0.6, rng.choice((None, 1, 2, 3))
        window = rng.choice((8_192, 16_000, 200_000))
        state, seen, before = self.log.view(), self.log.seen, self.log.answered
        plan = self._planned(state, force=force, window=window, keep=keep)
        if isinstance(plan, NothingToCompact):
            self.judge.holds("bounded", plan.detail, "nothing to do, and no reason")
            return
        self._check_plan(state, plan, window)
        if not force:
            self._check_gain(plan)
        compaction = self._written(rng, plan)
        entries = len(self.log.entries)
        if rng.random() < 0.35:
            self._meanwhile(rng)
        said = len(self.log.entries) - entries
        moved = self.log.seen != seen
        request = self.build(self.log.view())
        try:
            self.log.compact(compaction, seen)
        except StaleView:
            self.judge.holds("no_loss", moved, "a compaction was turned away though nothing had moved")
            return
        self.judge.holds("no_loss", not moved, "a compaction was committed over a view that had moved")
        self.judge.holds(
            "silence", len(self.log.entries) == entries + said, "a compaction wrote into the conversation"
        )
        self._after_commit(
            rng, plan, compaction, seen, request, quiet=not said and self.log.answered == before
        )

    def _planned(
        self, state: View, *, force: bool, window: int, keep: int | None = None
    ) -> CompactionPlan | NothingToCompact:
        now = self._tokens(state)
        made = [
            plan_compaction(
                state, budget=self.budget(), policy=self.policy, now_tokens=now, force=force,
                summariser_window=window, keep_turns=keep,
            )
            for _ in range(2)
        ]  # fmt: skip
        self.judge.holds("idempotent", made[0] == made[1], "planned twice differently")
        return made[0]

    def _check_plan(self, state: View, plan: CompactionPlan, window: int) -> None:
        judge = self.judge
        judge.whole_turns(state, plan.from_turn, plan.through_turn, self.policy.keeping.keep_turns_least)
        hidden = [e for e in state.entries if e.turn <= plan.through_turn]
        judge.holds(
            "never_dropped",
            list(plan.entries) == [e for e in hidden if not e.pinned],
            "what is hidden is not what is summarised",
        )
        chunks = [e for chunk in plan.chunks for e in chunk]
        judge.holds("no_loss", chunks == list(plan.entries), "portions leave something out")
        limit = readable(window, plan.summary_most)
        for chunk in plan.chunks:
            size = sum(e.tokens for e in chunk if e.author != "tool")
            judge.holds("bounded", len(chunk) == 1 or size <= limit, f"a portion of {size}, limit {limit}")
        source = render_source(plan.entries, count=count)
        judge.source(source, (SUMMARY_WORD, RECALL_WORD, NOTE_WORD, FACT_WORD))
        for turn in unanswered(state) & {e.turn for e in plan.entries}:
            judge.holds("never_dropped", "(not answered)" in source, f"turn {turn} is hidden as if answered")

    def _check_gain(self, plan: CompactionPlan) -> None:
        fixed = self.budget().fixed
        before, after = plan.tokens_before - fixed, plan.expected_after - fixed
        self.judge.holds(
            "progress",
            after <= self.policy.keeping.gain_at_most * before,
            f"from {before} to {after} is no gain",
        )

    def _written(self, rng: random.Random, plan: CompactionPlan) -> Compaction:
        """Return the compaction that a good or bad model, or the digest, would write, after the audit and the
        limits.
        """
        digested = rng.random() < 0.15
        if digested:
            ledger = digest(plan.entries, plan.former, count, budget_tokens=min(1_000, plan.summary_limit))
        else:
            patched = apply_patch(plan.former, self._patch(rng, plan))
            self.judge.conserved(plan.former, patched)
            invented = {seq for item in patched.items for seq in item.sources} & {UNSEEN_SEQ}
            if invented or rng.random() < 0.1:
                source = render_source(plan.entries, count=count)
                patched = audit_ledger(patched, plan.former, source, count=count).ledger
            ledger = fit_ledger(patched, plan.summary_limit, count)
        self.judge.conserved(plan.former, ledger)
        text = render_summary(ledger)
        least = count(render_summary(fit_ledger(ledger, 0, count)))
        fits = count(text) <= max(plan.summary_limit, least)
        self.judge.holds("bounded", fits, f"{count(text)} tokens of summary, {plan.summary_limit} allowed")
        return Compaction(
            id=len(self.log.links) + 1,
            kind="digest" if digested else "summary",
            from_turn=plan.from_turn,
            through_turn=plan.through_turn,
            through_seq=plan.through_seq,
            summary_text=f"{SUMMARY_WORD} {text}",
            ledger=ledger,
            tokens=count(text),
        )

    @staticmethod
    def _patch(rng: random.Random, plan: CompactionPlan) -> LedgerPatch:
        seqs = [e.seq for e in plan.entries]
        add = tuple(
            NewItem(
                kind=rng.choice(_KINDS),
                text=f"item of {marker(rng.choice(seqs))[1:-1]} {rng.randrange(1000)}",
                sources=(rng.choice((*seqs, UNSEEN_SEQ)),),
            )
            for _ in range(rng.choice((0, 1, 3, 6)))
        )
        standing = [item.id for item in plan.former.items if item.closed is None] or ["x1"]
        close = ((rng.choice(standing), rng.choice(("", "done"))),) if rng.random() < 0.4 else ()
        changed = (
            ((rng.choice((*standing, "f99")), rng.choice(("", "new text"))),) if rng.random() < 0.4 else ()
        )
        narrative = rng.choice(("", "They plan a journey.", "none", "long " * 300))
        return LedgerPatch(narrative=narrative, add=add, close=close, replace=changed)

    def _meanwhile(self, rng: random.Random) -> None:
        """Do one random deed that happens while a summary is being written."""
        rng.choice((self.say, self.turn, self.pin, self.unpin, self.edit, self.undo, self.anew, self.rival))(
            rng
        )

    def rival(self, rng: random.Random) -> None:
        state, seen = self.log.view(), self.log.seen
        plan = self._planned(state, force=True, window=200_000)
        if isinstance(plan, CompactionPlan):
            self.log.compact(self._written(rng, plan), seen)

    def _after_commit(
        self,
        rng: random.Random,
        plan: CompactionPlan,
        compaction: Compaction,
        seen: Seen,
        request: BuiltContext,
        *,
        quiet: bool,
    ) -> None:
        judge, after = self.judge, self.log.view()
        judge.no_loss(self.log)
        try:
            self.log.compact(compaction, seen)
        except StaleView:
            judge.holds("idempotent", True, "")
        else:
            judge.holds("idempotent", False, "the same compaction was committed twice")
        tail = self._tokens(after) - self.budget().fixed - compaction.tokens
        room = int(self.policy.keeping.land_at * self.budget().conversation)
        if quiet and tail + max(self.policy.writing.summary_least, 300) <= room:
            judge.holds(
                "progress",
                tail + compaction.tokens <= room + 20,
                f"landed at {tail + compaction.tokens} of {room}",
            )
        again = self._planned(after, force=False, window=200_000)
        judge.holds(
            "idempotent",
            isinstance(again, NothingToCompact) or again.from_turn == plan.through_turn + 1,
            "a plan goes over the same turns again",
        )
        judge.request(self.build(after), by_types=self.by_types)
        if rng.random() < 0.4:
            judge.holds("undo_is_exact", self.log.undo(), "the newest summary cannot be undone")
            back = self.build(self.log.view())
            judge.holds("undo_is_exact", back == request, "the request after undo is another one")
            judge.holds("undo_is_exact", self.log.hold, "nothing holds compaction after an undo")
            if rng.random() < 0.5:
                judge.holds("undo_is_exact", self.log.restore(), "an undo cannot be taken back")
                judge.holds(
                    "undo_is_exact",
                    self.log.view() == replace(after, view_epoch=self.log.epoch, hold_compaction=False),
                    "restore gives another view",
                )

    def undo(self, rng: random.Random) -> None:
        head, base = self.log.head, self.log.base
        if self.log.undo():
            assert head is not None
            fine = self.log.base == head.compaction.from_turn - 1 < base
            self.judge.holds("undo_is_exact", fine, "an undo brought back another range")
            self.judge.holds(
                "undo_is_exact",
                head.compaction.kind in ("summary", "digest"),
                f"undo crossed {head.compaction.kind}",
            )

    def restore(self, rng: random.Random) -> None:
        self.log.restore()

    def anew(self, rng: random.Random) -> None:
        """Hide every ended turn without a summary, as `/new` and `/separator` do."""
        if self.log.begin_anew(rng.choice(("new", "separator"))):
            view = self.log.view()
            self.judge.holds("no_loss", not view.entries, "something is live behind a new beginning")
            text = "".join(b.text for m in self.build(view).messages for b in m.blocks if isinstance(b, Text))
            self.judge.holds("provenance", SUMMARY_WORD not in text, "a summary crossed a new beginning")

    def ask(self, rng: random.Random) -> None:
        """Ask twice for the job that is due, and check that both answers agree and that a hold is
        respected.
        """
        view, budget = self.log.view(), self.budget()
        now = self._tokens(view)
        wishes = [next_job(view, budget=budget, policy=self.policy, context_tokens=now) for _ in range(2)]
        self.judge.holds("idempotent", wishes[0] == wishes[1], "asked twice, two answers")
        if view.hold_compaction and now <= budget.hard and wishes[0] is not None:
            self.judge.holds("undo_is_exact", wishes[0].kind != "compact", "compacted against a hold")

    def _tokens(self, view: View) -> int:
        """Return the size of a view in tokens as the store counts it: fixed parts, live entries, pins and the
        summary.
        """
        live = sum(entry.tokens for entry in (*view.entries, *view.pins))
        return self.budget().fixed + live + (view.head.tokens if view.head else 0)

    def provenance_of_ledger(self) -> None:
        """Check that every row derived from a message can be found by the message's number."""
        for stored in self.log.links:
            compaction = stored.compaction
            low = min(
                (s for t in range(1, compaction.through_turn + 1) for s in self.log.turns.get(t, ())),
                default=0,
            )
            for item in compaction.ledger.items:
                inside = all(low <= seq <= compaction.through_seq for seq in item.sources)
                self.judge.holds("erasure", inside, f"item {item.id} cites {item.sources} outside its range")


DEEDS: dict[str, int] = {
    "turn": 52, "say": 6, "compact": 16, "pin": 5, "unpin": 2, "edit": 4, "flush": 4, "undo": 5, "restore": 4,
    "anew": 2, "rival": 2, "ask": 6,
}  # fmt: skip
_NAMES, _WEIGHTS = tuple(DEEDS), tuple(DEEDS.values())


def script_of(seed: int) -> Script:
    rng = random.Random(seed)
    deeds = rng.choices(_NAMES, _WEIGHTS, k=rng.randint(5, 18))
    return [(deed, rng.getrandbits(32)) for deed in deeds]


def play(script: Script, judge: Judge, *, preset: str, by_types: bool = False) -> History:
    """Play a history and return it.

    Raises Broken if a promise does not hold.
    """
    history = History(POLICIES[preset], judge, by_types)
    for deed, seed in script:
        getattr(history, deed)(random.Random(seed))
        judge.no_loss(history.log)
    history.provenance_of_ledger()
    return history


def preset_of(seed: int) -> str:
    return _OFTEN[seed % len(_OFTEN)]


def play_seed(seed: int, judge: Judge) -> None:
    play(script_of(seed), judge, preset=preset_of(seed), by_types=seed % 400 == 0)


def smallest(script: Script, preset: str, promise: Promise) -> Script:
    """Return the script without every deed that is not needed to break the promise."""
    deeds = list(script)
    at = len(deeds) - 1
    while at >= 0:
        fewer = deeds[:at] + deeds[at + 1 :]
        try:
            play(fewer, Judge(), preset=preset)
        except Broken as broken:
            if broken.promise == promise:
                deeds = fewer
        at -= 1
    return deeds
