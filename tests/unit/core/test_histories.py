"""Made-up histories keep twelve promises, ten thousand of them at night; Hypothesis looks for small ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.compaction import plan
from shared.core.context import build_context
from shared.core.overflow import overflow_recovery
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Entry
from tests.kit.histories import history as histories
from tests.kit.histories.history import DEEDS, POLICIES, Script, play
from tests.kit.histories.log import Log
from tests.kit.histories.promises import PROMISES, Judge, Promise
from tests.kit.histories.running import Findings, run
from tests.kit.night import by_night

HISTORIES = by_night(10_000, else_=500)
"""Histories of a run; 160 show each of the broken engines below."""

# A minute and a half of work for a core, on machines where many share one.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def findings() -> Findings:
    """`python -m tests.kit.histories --seed N --histories 1` plays a failing one again."""
    return run(range(HISTORIES))


def kept(findings: Findings, promise: Promise) -> None:
    assert promise not in findings.broken, str(findings.broken[promise])
    assert findings.judge.looked[promise] > HISTORIES // 10, "the histories hardly ask for this promise"


def test_nothing_is_lost_links_cover_what_is_hidden_exactly_once(findings: Findings) -> None:
    kept(findings, "no_loss")


def test_turns_stay_whole_and_the_open_one_is_never_compacted(findings: Findings) -> None:
    kept(findings, "whole_turns")


def test_every_request_is_valid(findings: Findings) -> None:
    kept(findings, "valid_request")


def test_the_newest_words_pins_and_unresolved_turns_are_never_dropped(findings: Findings) -> None:
    kept(findings, "never_dropped")


def test_equal_state_gives_equal_bytes_and_only_appends_change_prefix(findings: Findings) -> None:
    kept(findings, "pure_and_stable")


def test_doing_it_twice_is_doing_it_once(findings: Findings) -> None:
    kept(findings, "idempotent")


def test_a_compaction_lands_where_the_policy_wants_it(findings: Findings) -> None:
    kept(findings, "progress")


def test_portions_shrinking_and_refusals_are_bounded(findings: Findings) -> None:
    kept(findings, "bounded")


def test_flush_and_compaction_write_nothing_into_the_conversation(findings: Findings) -> None:
    """That their code holds no way to a person is shown by the imports: tests/test_architecture.py."""
    kept(findings, "silence")


def test_injected_text_never_reaches_a_summariser_and_cannot_be_forged(findings: Findings) -> None:
    kept(findings, "provenance")


def test_the_request_after_an_undo_is_the_one_before(findings: Findings) -> None:
    kept(findings, "undo_is_exact")


def test_everything_derived_from_a_message_can_be_found_by_its_number(findings: Findings) -> None:
    """What erasure will need; forgetting itself comes with the memory."""
    kept(findings, "erasure")


_deeds = st.lists(st.tuples(st.sampled_from(sorted(DEEDS)), st.integers(0, 2**32 - 1)), max_size=16)


@settings(max_examples=300)
@given(_deeds, st.sampled_from(sorted(POLICIES)))
def test_no_small_history_breaks_a_promise(script: Script, preset: str) -> None:
    play(script, Judge(), preset=preset)


# ---- the promises would notice


def _as_it_is(messages: Any) -> Any:
    return tuple(messages)


def _nothing(*_: Any, **__: Any) -> Any:
    return ()


def _unstable() -> Callable[..., tuple[str, ...]]:
    numbers = count(1)
    return lambda *_: (f"number {next(numbers)}",)


def _clears_every_result(entries: Sequence[Entry], *_: Any, **__: Any) -> tuple[PruneDecision, ...]:
    return tuple(PruneDecision(seq=entry.seq, form="clear") for entry in entries if entry.author == "tool")


@pytest.mark.parametrize(
    ("module", "name", "broken", "promises"),
    [
        (build_context, "repair", _as_it_is, {"valid_request"}),
        (build_context, "background_of", _nothing, {"never_dropped", "provenance"}),
        (build_context, "background_of", _unstable(), {"pure_and_stable", "undo_is_exact"}),
        (
            build_context,
            "render_entry",
            lambda entry, *_, through: entry,
            {"valid_request", "provenance"},
        ),
        (plan, "_tail_length", lambda *_, **__: 0, {"whole_turns"}),
        (plan, "_without_injections", str, {"provenance"}),
        (plan, "redact", str, {"provenance"}),
        (overflow_recovery, "find_unresolved_turns", _nothing, {"never_dropped"}),
        (histories, "readable", lambda *_: 10, {"bounded"}),
        (histories, "plan_pruning", _clears_every_result, {"idempotent", "never_dropped"}),
    ],
)
def test_an_engine_that_breaks_a_promise_is_found_out(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, promises: set[Promise]
) -> None:
    monkeypatch.setattr(module, name, broken)
    assert _is_found(promises, within=HISTORIES), name


def _is_found(promises: set[Promise], *, within: int) -> bool:
    """Return whether the first histories break one of the promises."""
    return any(promises & set(run(range(first, first + 20)).broken) for first in range(0, within, 20))


def test_a_log_that_restores_without_its_link_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = Log.restore

    def without_link(log: Log) -> bool:
        done = restore(log)
        if done and log.head is not None:
            log.head.active = False
        return done

    monkeypatch.setattr(Log, "restore", without_link)
    assert _is_found({"no_loss"}, within=300)


def test_there_are_twelve_promises() -> None:
    assert len(PROMISES) == 12
