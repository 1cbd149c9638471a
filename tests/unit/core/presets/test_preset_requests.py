"""Requests of each preset on both wires, through pruning, flushes and compactions, compared with a record.

The texts of prompts and tools are left out, so that the record changes only with what a preset decides.
`RECORD_PRESETS=1` writes the record again: read the difference before you commit it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from shared.adapters.models.chat_completions import build_completion_body
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_request_body
from shared.core.compaction.plan import CompactionPlan, render_source
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.ledger import Ledger
from shared.core.session.policy import ContextPolicy, apply_values
from shared.core.session.session import Entry
from shared.core.session.turns import JobOrder
from shared.ports import ModelRequest
from shared.services.turns.request_builder import PreparedRequest
from tests.bench.policies.play import Played
from tests.bench.policies.workload import telegram

GOLDEN = Path(__file__).parent / "golden" / "preset_requests.json"
WINDOW = 24_000
TALK = telegram(45, seed=3, tool_turns=0.5)
OWN_CONTEXT: dict[str, dict[str, Any]] = {
    # It summarises before its results are long and old enough.
    "steady": {
        "prune_over_chars": 900,
        "prune_head_chars": 200,
        "prune_tail_chars": 200,
        "prune_error_tail_chars": 300,
    },
    # It protects more results than this window holds.
    "opencode": {"prune_protect_tokens": 2_000, "prune_batch": 1_000},
    # It hides only what no summary can take.
    "pantheon": {"hide_chatter_at": 0.2},
}
BY_HAND = JobOrder(kind="compact", key="by hand", trigger="manual", payload={"force": True})


class RecordedPlay(Played):
    """Plays a conversation and keeps an outline of each request.

    A line holds the turn, kind, model, messages, pruned entries, and a digest for each wire.
    """

    def __init__(self, policy: ContextPolicy) -> None:
        super().__init__(policy, VocabularyCounter().count_tokens, window=WINDOW)
        self.outlines: list[str] = []

    def play(self) -> list[str]:
        """Play the conversation, then a compaction that a person asks for, and one more turn."""
        *turns, last = TALK.turns
        for number, said in enumerate(turns, 1):
            self._turn(number, said)
        self._compact(BY_HAND, last.at)
        self._turn(len(TALK.turns), replace(last, at=last.at + timedelta(minutes=1)))
        return self.outlines

    def _call(self, now: datetime, *, out: int) -> PreparedRequest:
        prepared = super()._call(now, out=out)
        self._keep("chat", prepared.request)
        return prepared

    def _prepared(self, *, instruction: str = "") -> PreparedRequest:
        prepared = super()._prepared(instruction=instruction)
        if instruction:
            request = prepared.request
            self._keep("flush", replace(request, messages=request.messages[:-1]))
        return prepared

    def _pay_writer(self, portion: tuple[Entry, ...], plan: CompactionPlan, made: Ledger) -> None:
        super()._pay_writer(portion, plan, made)
        source = render_source(portion, count=self._count)
        asked = f"{plan.form} {plan.summary_limit} {plan.former}\n{source}"
        self._add_outline("summary", self._writer.name, len(portion), [asked.encode()])

    def _keep(self, kind: str, request: ModelRequest) -> None:
        bare = replace(request, system=(), tools=())
        bodies = [
            to_json(build_request_body(bare, self._chat, bare.model)),
            to_json(build_completion_body(bare, self._chat, bare.model)),
        ]
        self._add_outline(kind, request.model, len(request.messages), bodies)

    def _add_outline(self, kind: str, model: str, size: int, bodies: list[bytes]) -> None:
        digests = " ".join(hashlib.sha256(body).hexdigest()[:12] for body in bodies)
        pruned = sum(entry.pruned is not None for entry in self._view.entries)
        self.outlines.append(f"{self.tally.turns} {kind} {model} {size} {pruned} {digests}")


@cache
def outlines_of(name: str) -> list[str]:
    return RecordedPlay(apply_values(preset(name), OWN_CONTEXT.get(name, {}))).play()


def read_record() -> dict[str, list[str]]:
    return dict(json.loads(GOLDEN.read_text(encoding="utf-8"))) if GOLDEN.exists() else {}


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_preset_requests_equal_their_record(name: str) -> None:
    if os.environ.get("RECORD_PRESETS") == "1":
        held = {**read_record(), name: outlines_of(name)}
        GOLDEN.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert outlines_of(name) == read_record()[name]


def test_record_covers_flush_compaction_and_turn_of_each_preset() -> None:
    assert set(read_record()) == set(PRESETS)
    for name, outlines in read_record().items():
        assert {line.split()[1] for line in outlines} == {"chat", "flush", "summary"}, name


def test_record_covers_pruning_of_each_preset_that_prunes() -> None:
    pruned = {name: max(int(line.split()[4]) for line in lines) for name, lines in read_record().items()}
    assert {name for name, most in pruned.items() if most} == {
        "steady", "spec008", "pantheon", "opencode", "claude-code",
    }  # fmt: skip
