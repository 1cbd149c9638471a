"""Background summaries of imported chats: one range per job, the newest first, within a budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import structlog

from shared.core.compaction.jobs import BACKOFF_SECONDS
from shared.core.compaction.plan import CompactionPlan
from shared.core.memory.past import SummariesState
from shared.core.memory.past_summaries import (
    ImportBudget,
    ImportToSummarise,
    SummaryPassage,
    TurnSize,
    choose_range,
    estimate_calls,
    make_passages,
    measure_turns,
    plan_range,
    with_counted_tokens,
)
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.session_state import CompactionPace, JobClaim, JobDone
from shared.core.session.turns import JobOrder, Spending
from shared.core.values.errors import LeaseLost, StaleView, StorageUnavailable
from shared.core.values.local_time import resolve_zone
from shared.core.values.messages import text_of
from shared.core.values.money import Prices
from shared.core.verdicts.summaries import unusable_seconds
from shared.ports import ModelCard
from shared.runtime import CrashPoint
from shared.services.compaction.checkpoints import NO_MODEL_CODES, ignore_progress
from shared.services.compaction.compactor import MODEL_SECONDS, JobSpendingStore, list_failures
from shared.services.compaction.silent_requests import SilentRequests
from shared.services.compaction.summarizer import Summariser, SummaryResult
from shared.services.turns.spend_tracker import SpendTracker

log = structlog.get_logger(__name__)

INDEXING_SECONDS = 5.0
"""Seconds until the next look whether an import is searchable, which must come before its summaries."""
RETRY_SECONDS = 30.0
"""Seconds before a range with an unusable answer is tried again."""
MOST_FAULTS = 2
"""Unusable answers after which a range is left without a summary."""


class ImportSummaryStore(Protocol):
    """Store of imports, their turns and their summaries.

    `load` returns None for an unknown import. `record` stores the summary of a range with its passages and
    cost, or, with None as `ledger`, leaves the range without one; raises StaleView if the import changed.
    `end` stores why no more summaries are made. The turns `first` to `last` are both included. Writing raises
    LeaseLost.
    """

    async def load(self, session_id: int) -> ImportToSummarise | None: ...
    async def load_sizes(self, session_id: int, *, first: int, last: int) -> tuple[TurnSize, ...]: ...
    async def load_entries(self, session_id: int, *, first: int, last: int) -> tuple[Entry, ...]: ...
    async def record(
        self, job: JobClaim, seen: ImportToSummarise, turns: tuple[int, int], *, ledger: Ledger | None,
        passages: Sequence[SummaryPassage], audit: Mapping[str, Any], model: str, spent: Sequence[Spending],
    ) -> None: ...  # fmt: skip
    async def end(self, job: JobClaim, seen: ImportToSummarise, state: SummariesState) -> None: ...


class ModelPaceStore(Protocol):
    """Store of the ends of recent summaries, by which unusable models are recognised."""

    async def load_pace(self, session_id: int) -> CompactionPace: ...


class ImportSummariser:
    """Writer of an import's summaries; each job covers one range, so that other work can come in between."""

    def __init__(
        self,
        *,
        store: ImportSummaryStore,
        spending: JobSpendingStore,
        pace: ModelPaceStore,
        silent_requests: SilentRequests,
        summariser: Summariser,
        budget: ImportBudget,
        timezone: str,
        crash_point: CrashPoint,
    ) -> None:
        """Set up the service; `timezone` applies to people whose time zone is unknown."""
        self._store = store
        self._spending = spending
        self._pace = pace
        self._silent_requests = silent_requests
        self._summariser = summariser
        self._budget = budget
        self._timezone = timezone
        self._crash_point = crash_point

    async def summarise(self, job: JobClaim) -> JobDone:
        """Write and store the summary of an import's next range, and return the job's end.

        The job is due again while the import is being indexed or no model can be asked. It ends as `capped`
        if the import's budget does not allow another range. Raises LeaseLost and StorageUnavailable.
        """
        seen = await self._store.load(job.session_id)
        if seen is None or seen.state != "due":
            return JobDone(outcome={"nothing": "gone" if seen is None else seen.state})
        if seen.searchable_turns < seen.turns:
            return JobDone(outcome={"deferred": "indexing"}, state="due", retry_seconds=INDEXING_SECONDS)
        entries = await self._load_range(seen)
        if not entries:
            await self._store.end(job, seen, "done")
            return JobDone(outcome={"nothing": "done"})
        names = self._silent_requests.list_import_models(seen.agent_config)
        pace = await self._pace.load_pace(job.session_id)
        pauses = [unusable_seconds(pace.written, name) for name in names]
        able = [name for name, pause in zip(names, pauses, strict=True) if not pause]
        if not able:
            return JobDone(outcome={"deferred": "unusable"}, state="due", retry_seconds=min(pauses))
        return await self._write(
            job, seen, entries, [await self._silent_requests.load_card(name) for name in able]
        )

    async def plan_next(self, session_id: int) -> JobOrder | None:
        """Return the job for the next range, which the caller stores; None if no summary is due."""
        seen = await self._store.load(session_id)
        if seen is None or seen.state != "due":
            return None
        return JobOrder(kind="import", key=f"import:{session_id}:{seen.covered}", trigger="import")

    async def _load_range(self, seen: ImportToSummarise) -> tuple[Entry, ...]:
        """Return the messages of the next range, with counted tokens; empty if no turn is left.

        The range has fewer turns if the counts exceed the stored estimates.
        """
        first, last = seen.candidates
        if first > last:
            return ()
        sizes = await self._store.load_sizes(seen.session_id, first=first, last=last)
        chosen = _select(sizes, seen)
        entries = await self._store.load_entries(seen.session_id, first=chosen[0], last=chosen[1])
        counted = await asyncio.to_thread(with_counted_tokens, entries, self._count)
        first, last = _select(measure_turns(counted), seen)
        return tuple(entry for entry in counted if first <= entry.turn <= last)

    def _count(self, entry: Entry) -> int:
        return self._silent_requests.count_tokens(text_of(entry.blocks))

    async def _write(
        self, job: JobClaim, seen: ImportToSummarise, entries: tuple[Entry, ...], cards: Sequence[ModelCard]
    ) -> JobDone:
        zone = resolve_zone(seen.timezone, self._timezone)
        window = min(card.window for card in cards)
        factor = max(1.0, *(card.token_factor for card in cards))
        plan = plan_range(entries, window=window, factor=factor, zone=zone)
        names = self._list_affordable(seen, plan, cards, window=window, factor=factor)
        if not names:
            await self._store.end(job, seen, "capped")
            log.info("import_summaries_capped", session_id=job.session_id, turns=seen.covered)
            return JobDone(outcome={"nothing": "capped", "turns": seen.covered, "of": seen.turns})
        tracker = self._silent_requests.open_spend_tracker(job)
        deadline = time.monotonic() + MODEL_SECONDS
        try:
            written = await self._summariser.write(
                plan, tracker=tracker, focus=None, on_progress=ignore_progress,
                models=names, attempts=1, deadline=deadline,
            )  # fmt: skip
            return await self._store_summary(
                job, seen, (plan.from_turn, plan.through_turn), entries, written, tracker
            )
        except BaseException:
            with suppress(StorageUnavailable):
                await self._spend(job, seen, tracker)
            raise

    def _list_affordable(
        self, seen: ImportToSummarise, plan: CompactionPlan, cards: Sequence[ModelCard], *, window: int,
        factor: float,
    ) -> list[str]:  # fmt: skip
        """Return the names of the first models whose worst-case cost together fits into the budget.

        A later model is asked only after the earlier ones have failed.
        """
        names: list[str] = []
        calls: list[tuple[int, int, Prices | None]] = []
        for card in cards:
            sizes = estimate_calls(plan, window=window, most_output=card.max_output, factor=factor)
            calls += [(*size, card.prices) for size in sizes]
            if not self._budget.allows(seen.spent, calls, anonymous=seen.anonymous):
                break
            names.append(card.name)
        return names

    async def _store_summary(
        self,
        job: JobClaim,
        seen: ImportToSummarise,
        turns: tuple[int, int],
        entries: Sequence[Entry],
        written: SummaryResult,
        tracker: SpendTracker,
    ) -> JobDone:
        failures = list_failures(job, written)
        is_usable = written.kind == "summary"
        if not is_usable and (later := _retry(job, written)) is not None:
            await self._spend(job, seen, tracker)
            return replace(later, failures=failures)
        passages = make_passages(written.ledger, entries) if is_usable else ()
        self._crash_point("before_import_summary")
        spent = tracker.take_spent()
        try:
            await self._store.record(
                job, seen, turns, ledger=written.ledger if is_usable else None, passages=passages,
                audit=written.audit, model=written.model, spent=spent,
            )  # fmt: skip
        except (StaleView, LeaseLost) as error:
            tracker.spent.extend(spent)
            if isinstance(error, LeaseLost):
                raise
            await self._spend(job, seen, tracker)
            return JobDone(outcome={"nothing": "changed"}, failures=failures)
        self._crash_point("after_import_summary")
        covered = seen.covered + turns[1] - turns[0] + 1
        outcome = {"kind": written.kind, "turns": covered, "of": seen.turns, "passages": len(passages)}
        return JobDone(outcome=outcome, failures=failures)

    async def _spend(self, job: JobClaim, seen: ImportToSummarise, tracker: SpendTracker) -> None:
        """Record the cost of calls that led to no summary."""
        if tracker.spent:
            await self._spending.record_spending(
                job, purpose="compact", spent=tracker.take_spent(), contact_id=seen.contact_id
            )


def _select(sizes: Sequence[TurnSize], seen: ImportToSummarise) -> tuple[int, int]:
    """Return the first and the last turn of the next range; `sizes` are in the order of turns."""
    ordered = sizes if seen.is_newest_first else sizes[::-1]
    chosen = [size.turn for size in ordered[: choose_range(ordered)]]
    return min(chosen), max(chosen)


def _retry(job: JobClaim, written: SummaryResult) -> JobDone | None:
    """Return the end of a job that is tried again; None after too many unusable answers."""
    if written.attempts and all(attempt.code in NO_MODEL_CODES for attempt in written.attempts):
        return JobDone(outcome={"deferred": "no_model"}, state="due", retry_seconds=BACKOFF_SECONDS)
    if job.faults + 1 >= MOST_FAULTS:
        return None
    return JobDone(
        outcome={"nothing": "unusable"}, state="due", error="no model could write the summary",
        retry_seconds=RETRY_SECONDS,
    )  # fmt: skip
