"""Plays one conversation under one preset: real decisions, stand-ins for models, a clock of its own.

What is sent, pruned, flushed and summarised is decided by the functions that the product runs. Models are
played by what was recorded: answers and calls come from the conversation, a summary is the digest of its
range in the length that the preset allows. Tokens are the counter's own, so that no model's factor blurs the
comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from shared.adapters.models.catalog import find_known_card
from shared.core.compaction.digest import digest
from shared.core.compaction.jobs import NEAR_LIMIT, newest_ended, next_job
from shared.core.compaction.next_ledger import join_ledgers
from shared.core.compaction.plan import CompactionPlan, plan_compaction, render_source
from shared.core.compaction.summary_prompts import summary_request
from shared.core.context.build_context import window_through
from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.context.prompts import flush_instruction
from shared.core.overflow.filler_trimming import plan_hiding
from shared.core.session.ledger import Ledger
from shared.core.session.policy import ContextPolicy
from shared.core.session.pruning import apply_decisions, clear_first, plan_pruning
from shared.core.session.session import Compaction, Entry, View
from shared.core.session.summary import render_summary
from shared.core.session.turns import JobOrder
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import text_of, tool_results
from shared.core.values.money import cache_life, cost_micro
from shared.core.values.tokens import Count
from shared.ports import ModelCard, Prices, ToolSpec, Usage
from shared.services.turns.agent_loop import is_cache_cold, is_due_summary
from shared.services.turns.model_caller import render_runtime_facts
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from tests.bench.policies.caching import Billed, ProviderCache
from tests.bench.policies.log import turn_entries
from tests.bench.policies.reach import Recall, holds
from tests.bench.policies.workload import Conversation, Said
from tests.kit.histories.validity import fault_of

CHAT, CHEAP = "claude-sonnet-5-5", "claude-haiku-5-5"
CALL_SECONDS = 4.0
"""What one call of a model takes: it moves the clock, and so what the provider still remembers."""
JOB_SECONDS = 8.0
"""When a background job's result is there, after the turn that asked for it."""
NOTE_TOKENS = 120
"""A flush saves a note or two in one answer."""
LOOKED_AT = 8
"""Of long requests one in so many is held against the rules of the Messages API."""

_QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS: tuple[ToolSpec, ...] = (
    SAVE_MEMORY,
    ToolSpec(name="fetch_url", description="Read a page of the web.", input_schema=_QUERY),
    ToolSpec(name="run_query", description="Ask the shop's database.", input_schema=_QUERY),
    ToolSpec(name="search_files", description="Search the files of the project.", input_schema=_QUERY),
)


@dataclass(slots=True)
class Tally:
    """What one conversation has cost and kept; tokens by how they are billed, money in micro-dollars."""

    turns: int = 0
    uncached: int = 0
    cached: int = 0
    written: int = 0
    out: int = 0
    micro: int = 0
    compactions: int = 0
    compaction_micro: int = 0
    saved_shares: list[float] = field(default_factory=list)
    """Of the context, what each compaction took away."""
    flushes: int = 0
    flush_micro: int = 0
    waited: int = 0
    """Turns in which somebody waited for a summary."""
    refused: int = 0
    invalid: int = 0
    largest: int = 0
    facts: int = 0
    reached: int = 0
    in_prompt: int = 0


class Played:
    """One conversation under one policy; `run` goes through it once."""

    def __init__(self, policy: ContextPolicy, count: Count, *, window: int = 1_000_000) -> None:
        self._policy = policy
        self._count = count
        self._chat, self._cheap = _card(CHAT, window), _card(CHEAP, window)
        self._requests = RequestBuilder(
            policy=policy, chat_model=CHAT, summary_model=CHEAP, max_output=policy.max_output,
            counter=_Counter(count),
        )  # fmt: skip
        self._cache = ProviderCache(count)
        self._view = View(
            session_id=1, base_turn=0, flushed_turn=0, view_epoch=0, cycle=0, head=None, entries=()
        )
        self._log: list[Entry] = []
        self._times: list[datetime] = []
        self._pending: tuple[datetime, JobOrder] | None = None
        self.tally = Tally()

    def run(self, conversation: Conversation) -> Tally:
        for number, said in enumerate(conversation.turns, 1):
            self._turn(number, said)
        self._ask_for_facts(conversation)
        return self.tally

    # ---- a turn

    def _turn(self, number: int, said: Said) -> None:
        self._background(said.at)
        now = said.at
        steps = list(turn_entries(number, said, self._count))
        self._times.append(now)
        self._log += steps
        self._see(steps[0], open_turn=number)
        self._prune(now)
        now = self._organise(now)
        self.tally.turns += 1
        prepared: PreparedRequest | None = None
        for answer in (entry for entry in steps if entry.author == "assistant"):
            try:
                prepared = self._call(now, out=answer.tokens)
            except ContextBudgetExceeded:
                self.tally.refused += 1
                break
            now += timedelta(seconds=CALL_SECONDS)
            for entry in steps[answer.step : answer.step + 2]:
                if entry is answer or entry.author == "tool":
                    self._see(entry, open_turn=number)
            self._prune_between_calls()
        self._view = replace(self._view, open_turn=None)
        if prepared is not None:
            self._look_ahead(now)

    def _see(self, entry: Entry, *, open_turn: int) -> None:
        self._view = replace(self._view, entries=(*self._view.entries, entry), open_turn=open_turn)

    def _call(self, now: datetime, *, out: int) -> PreparedRequest:
        prepared = self._prepared()
        if prepared.estimate > prepared.budget.hard:
            prepared = self._requests.shrink(prepared, self._view, {}, hard=prepared.budget.hard)
        self._check(prepared)
        billed = self._cache.bill(
            prepared.built, TOOLS, now=now.timestamp(), lives_seconds=self._life.total_seconds()
        )
        self._pay(billed, out)
        self.tally.largest = max(self.tally.largest, billed.total)
        return prepared

    def _check(self, prepared: PreparedRequest) -> None:
        if len(prepared.request.messages) > 100 and self.tally.turns % LOOKED_AT:
            return
        if fault_of(prepared.request.messages) is not None:
            self.tally.invalid += 1

    def _prune(self, now: datetime) -> None:
        entries = self._view.entries
        if self._policy.pruning.prune_first:
            plain = self._prepared()
            decisions = clear_first(self._view, plain.budget, self._policy, plain.estimate)
        else:
            cold = is_cache_cold(self._view, self._life)
            decisions = plan_pruning(entries, self._policy, cache_cold=cold, open_turn=self._view.open_turn)
        self._view = replace(self._view, entries=apply_decisions(entries, decisions))
        if self._policy.keeping.hide_chatter_at is not None:
            plain = self._prepared()
            hides = plan_hiding(self._view, self._policy, budget=plain.budget, context_tokens=plain.estimate)
            self._view = replace(self._view, entries=apply_decisions(self._view.entries, hides))

    def _prune_between_calls(self) -> None:
        entries = self._view.entries
        if self._policy.pruning.prune_rule == "calls" and entries[-1].author == "tool":
            made = plan_pruning(entries, self._policy, cache_cold=False, open_turn=self._view.open_turn)
            self._view = replace(self._view, entries=apply_decisions(entries, made))

    def _organise(self, now: datetime) -> datetime:
        """Presets that look before the call have their summary made while the person waits."""
        if not self._policy.timing.compact_before_call:
            return now
        wish = self._wish(self._prepared())
        if wish is None or not is_due_summary(wish):
            return now
        self.tally.waited += 1
        self._do(wish, now)
        return now + timedelta(seconds=JOB_SECONDS)

    # ---- silent jobs

    def _look_ahead(self, now: datetime) -> None:
        wish = self._wish(self._prepared())
        if wish is None:
            self._pending = None
            return
        self._pending = (now + timedelta(seconds=wish.delay_seconds or JOB_SECONDS), wish)

    def _background(self, until: datetime) -> None:
        """What came due before the next message, and what that asked for in its turn."""
        while self._pending is not None and self._pending[0] <= until:
            at, wish = self._pending
            self._pending = None
            if self._do(wish, at):
                self._look_ahead(at)

    def _wish(self, prepared: PreparedRequest) -> JobOrder | None:
        view = replace(self._view, open_turn=None, context_tokens=prepared.estimate)
        return next_job(
            view,
            budget=prepared.budget,
            policy=self._policy,
            context_tokens=prepared.estimate,
            model=CHAT,
            cache_seconds=self._life.total_seconds(),
        )

    def _do(self, wish: JobOrder, at: datetime) -> bool:
        """Whether anything changed."""
        if wish.kind == "flush":
            threshold = str(wish.payload["threshold"])
            self._flush(at, through=newest_ended(self._view), threshold=threshold)
            if self._policy.timing.checkpoints and threshold in self._policy.timing.flush_marks:
                self._checkpoint()
            return True
        if wish.trigger == "window":
            through = window_through(self._view, self._policy)
            if through is None:
                return False
            self._flush(at, through=through, threshold="window")
            self._hide(through)
            return True
        return self._compact(wish, at)

    def _flush(self, at: datetime, *, through: int, threshold: str) -> None:
        """A silent turn on the chat's own prefix; its notes are saved, and nothing more is asked."""
        if self._view.flushed_turn >= through:
            return
        prepared = self._prepared(instruction=flush_instruction())
        seconds = self._life.total_seconds()
        before = self.tally.micro
        billed = self._cache.bill(prepared.built, TOOLS, now=at.timestamp(), lives_seconds=seconds)
        self._pay(billed, NOTE_TOKENS)
        self.tally.flushes += 1
        self.tally.flush_micro += self.tally.micro - before
        self._view = replace(
            self._view,
            flushed_turn=through,
            flush_thresholds=self._view.flush_thresholds | {threshold},
        )

    def _compact(self, wish: JobOrder, at: datetime) -> bool:
        before = self._prepared()
        plan = self._plan(before, force=bool(wish.payload.get("force")))
        if not isinstance(plan, CompactionPlan):
            return False
        self._flush(at, through=plan.through_turn, threshold=NEAR_LIMIT)
        spent = self.tally.micro
        head = self._summary(plan)
        self._hide(plan.through_turn, head=head)
        after = self._prepared()
        self.tally.compactions += 1
        self.tally.compaction_micro += self.tally.micro - spent
        self.tally.saved_shares.append(1 - after.estimate / max(1, before.estimate))
        return True

    def _plan(self, prepared: PreparedRequest, *, force: bool) -> object:
        return plan_compaction(
            replace(self._view, context_tokens=prepared.estimate),
            budget=prepared.budget,
            policy=self._policy,
            now_tokens=prepared.estimate + prepared.unsent,
            force=force,
            summariser_window=self._writer.window,
        )

    def _summary(self, plan: CompactionPlan) -> Compaction:
        """Each portion is read and answered, and paid for; what stands in for it is a digest."""
        parts = []
        ledger = plan.former
        for portion in plan.chunks:
            made = digest(portion, ledger, self._count, budget_tokens=plan.summary_limit)
            self._pay_writer(portion, plan, made)
            parts.append(made)
            ledger = made if not plan.merged else plan.former
        if len(parts) > 1 and plan.merged:
            text = "\n".join(map(render_summary, parts))
            ledger = digest(plan.entries, plan.former, self._count, budget_tokens=plan.summary_limit)
            self._bill_writer(
                self._count(text) + 700, self._count(render_summary(join_ledgers(parts, plan.form)))
            )
        else:
            ledger = parts[-1]
        summary = render_summary(ledger)
        return Compaction(
            id=self._view.cycle + 1,
            kind="summary",
            from_turn=plan.from_turn,
            through_turn=plan.through_turn,
            through_seq=plan.through_seq,
            summary_text=summary,
            ledger=ledger,
            tokens=self._count(summary),
        )

    def _checkpoint(self) -> None:
        plan = self._plan(self._prepared(), force=True)
        if isinstance(plan, CompactionPlan):
            before = self.tally.micro
            self._summary(plan)
            self.tally.flush_micro += self.tally.micro - before

    def _hide(self, through: int, *, head: Compaction | None = None) -> None:
        kept = tuple(entry for entry in self._view.entries if entry.turn > through)
        self._view = replace(
            self._view,
            base_turn=through,
            entries=kept,
            head=head or self._view.head,
            cycle=self._view.cycle + 1,
            flush_thresholds=frozenset(),
        )

    # ---- money

    @property
    def _life(self) -> timedelta:
        return cache_life(self._times[-21:])

    @property
    def _writer(self) -> ModelCard:
        first = self._policy.writing.list_models(summary_model=CHEAP, own_model=CHAT)[0]
        return self._cheap if first == CHEAP else self._chat

    def _pay_writer(self, portion: tuple[Entry, ...], plan: CompactionPlan, made: Ledger) -> None:
        rules, task = summary_request(render_source(portion, count=self._count), plan.former, form=plan.form)
        answer = self._count(render_summary(made))
        self._bill_writer(self._count(rules) + self._count(task), answer)

    def _bill_writer(self, tokens: int, out: int) -> None:
        card = self._writer
        self._add(Billed(uncached=tokens), out, card.prices)

    def _pay(self, billed: Billed, out: int) -> None:
        prices = self._chat.prices
        assert prices is not None
        hour = self._life > timedelta(minutes=5)
        self._add(billed, out, replace(prices, cache_write=2 * prices.input) if hour else prices)

    def _add(self, billed: Billed, out: int, prices: Prices | None) -> None:
        usage = Usage(
            input_tokens=billed.uncached,
            output_tokens=out,
            cache_read_tokens=billed.read,
            cache_write_tokens=billed.written,
        )
        self.tally.uncached += billed.uncached
        self.tally.cached += billed.read
        self.tally.written += billed.written
        self.tally.out += out
        self.tally.micro += cost_micro(usage, prices) or 0

    # ---- what is sent, what can be reached

    def _prepared(self, *, instruction: str = "") -> PreparedRequest:
        return self._requests.build(
            self._view,
            card=self._chat,
            agent_config={},
            tools=TOOLS,
            token_ratio=1.0,
            runtime_facts=render_runtime_facts(self._view, ZoneInfo("UTC"), channel="telegram"),
            instruction=instruction,
            channel="telegram",
            cache_long=self._life > timedelta(minutes=5),
        )

    def _ask_for_facts(self, conversation: Conversation) -> None:
        said = [text_of(entry.blocks) for entry in self._log if entry.author in ("person", "assistant")]
        recall = Recall([text for text in said if text], self._count)
        prompt = _words_of(self._prepared())
        for fact in conversation.facts:
            shown = holds(prompt, fact.literal)
            self.tally.facts += 1
            self.tally.in_prompt += shown
            self.tally.reached += shown or holds(recall.found(fact.question), fact.literal)


@dataclass(frozen=True, slots=True)
class _Counter:
    count_tokens: Count


def _words_of(prepared: PreparedRequest) -> str:
    texts = [part.text for part in prepared.request.system]
    for message in prepared.request.messages:
        texts.append(text_of(message.blocks))
        texts += [result.text for result in tool_results(message.blocks)]
    return "\n".join(texts)


def _card(name: str, window: int) -> ModelCard:
    card = find_known_card(name)
    assert card is not None
    return replace(card, window=min(card.window, window), token_factor=1.0)
