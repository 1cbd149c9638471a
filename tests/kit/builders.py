"""Builds values of the core for unit tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.core.compaction.hooks import HookMessage
from shared.core.presets.catalog import preset
from shared.core.session.budget import ContextBudget, budget_for
from shared.core.session.session import Entry, View
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Claim
from shared.core.values.messages import Author, Block, Text, ToolResult, ToolUse
from shared.core.values.tokens import estimate_blocks

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)


def words(text: str) -> int:
    """Return the number of words; a token counter whose results are easy to see."""
    return len(text.split())


def entry(
    seq: int,
    turn: int,
    *blocks: Block | str,
    author: Author = "person",
    step: int = 0,
    tokens: int | None = None,
    at: datetime | None = None,
    **more: Any,
) -> Entry:
    made = tuple(Text(text=block) if isinstance(block, str) else block for block in blocks)
    return Entry(
        seq=seq,
        turn=turn,
        step=step,
        role="assistant" if author == "assistant" else "user",
        author=author,
        blocks=made,
        tokens=estimate_blocks(made, words) if tokens is None else tokens,
        at=at or START + timedelta(minutes=seq),
        **more,
    )


def exchange(
    turn: int, said: str, answer: str, *, seq: int | None = None, tokens: int | None = None
) -> list[Entry]:
    """Return the two entries of a plain turn: a message and its answer.

    `seq` None makes their numbers follow from the number of the turn.
    """
    first = 2 * turn - 1 if seq is None else seq
    return [
        entry(first, turn, said, tokens=tokens),
        entry(first + 1, turn, answer, author="assistant", step=1, tokens=tokens),
    ]


def exchanges(count: int, *, first: int = 1, tokens: int | None = None) -> list[Entry]:
    turns = range(first, first + count)
    return [e for t in turns for e in exchange(t, f"question {t}", f"answer {t}", tokens=tokens)]


def tool_turn(
    turn: int, result: str, *, seq: int, name: str = "look_up", is_error: bool = False
) -> list[Entry]:
    """Return the entries of a turn in which the assistant calls a tool, gets its result, and answers."""
    call = f"call_{seq}"
    return [
        entry(seq, turn, f"please look up {turn}"),
        entry(seq + 1, turn, ToolUse(id=call, name=name, input={"q": turn}), author="assistant", step=1),
        entry(
            seq + 2, turn, ToolResult(tool_use_id=call, text=result, is_error=is_error), author="tool", step=2
        ),
        entry(seq + 3, turn, f"found {turn}", author="assistant", step=3),
    ]


def view(entries: Sequence[Entry], **more: Any) -> View:
    values: dict[str, Any] = {
        "session_id": 7,
        "base_turn": entries[0].turn - 1 if entries else 0,
        "flushed_turn": 0,
        "view_epoch": 1,
        "cycle": 0,
        "head": None,
    }
    return View(entries=tuple(entries), **{**values, **more})


def budget(*, window: int = 16_000, fixed: int = 1_000, policy: str = "steady") -> ContextBudget:
    return budget_for(preset(policy), window, 8_192, fixed)


def state_of(**told: Any) -> SessionState:
    """Return the state of a session without messages; `told` replaces fields."""
    usual: dict[str, Any] = {
        "session_id": 1, "contact_id": 1, "anonymous": False, "agent": "default", "agent_config": {},
        "view": view([]), "answered_turn": 0, "head_id": None, "redo_id": None, "context_limit": 0,
        "token_ratio": 1.0, "fixed_tokens": 0,
    }  # fmt: skip
    return SessionState(**{**usual, **told})


def claim_of(**told: Any) -> Claim:
    usual: dict[str, Any] = {
        "session_id": 1, "turn": 1, "epoch": 1, "worker_id": 1, "attempt": 1, "faults": 0,
        "stop_requested": False, "told_waiting": False, "contact_id": 1, "address_id": 1, "channel": "web",
        "anonymous": False, "agent": "default", "agent_config": {}, "token_ratio": 1.0, "context_tokens": 0,
        "measured_by": "", "token_ratios": {}, "turn_times": (), "reservation_id": None, "reserved_micro": 0,
        "refused_scope": None, "view": view([]),
    }  # fmt: skip
    return Claim(**{**usual, **told})


def hook_message(**more: Any) -> HookMessage:
    given: dict[str, Any] = {
        "id": 7, "send_key": "11111111-2222-3333-4444-555555555555", "phase": "before",
        "session": "aaaaaaaa-0000-0000-0000-000000000000", "job_id": 9,
        "detail": {"trigger": "limit", "tokens": 30_000, "may_skip": True},
        "created_at": datetime(2026, 5, 4, 12, tzinfo=UTC), "state": "due", "skip": False, "attempts": 1,
    }  # fmt: skip
    return HookMessage(**given | more)
