"""Messages to an operator's server before and after a summary: their bodies and the accepted answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from shared.core.compaction.plan import CompactionPlan
from shared.core.session.budget import ContextBudget
from shared.core.session.session import Entry

HookPhase = Literal["before", "after"]
"""Occasions of a message: before a summary is written, or after it was committed."""
HOOK_SECONDS = 5.0
"""Seconds that a background summary waits for the hook's answer."""
HOOK_TURNS = 5
"""Turns after which a summary that a hook delayed is made."""
SKIPPABLE = frozenset({"limit", "turns", "idle"})
"""Triggers of summaries that a hook may delay, since no message and no person waits for them."""
MOST_ANSWER_BYTES = 4_096
"""Most bytes of an answer that are read; `{"skip": true}` has 14."""
MOST_HOOK_TRIES = 12
"""Most attempts to send one message."""
HOOK_EXPIRES_HOURS = 24
"""Hours after which an undelivered message is no longer sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMessage:
    """Stored message to the hook; its body and `send_key` stay the same at every attempt."""

    id: int
    send_key: str
    phase: HookPhase
    session: str
    """Public id of the session."""
    job_id: int
    detail: Mapping[str, Any]
    created_at: datetime
    state: str
    skip: bool
    """True if the hook's answer delayed the summary."""
    attempts: int
    summary: str | None = None
    """Text of the summary; None before it exists, or if the operator wants only numbers."""

    @property
    def may_skip(self) -> bool:
        """True if the hook may delay this summary, so that its answer is read."""
        return bool(self.detail.get("may_skip"))


def describe_plan(
    plan: CompactionPlan, *, trigger: str, agent: str, tokens: int, budget: ContextBudget, may_skip: bool
) -> dict[str, Any]:
    """Return the content of the message before a summary, for JSON: numbers, ids and fixed words only.

    `tokens` is the size of the context, `may_skip` whether the hook may delay the summary. `from_message` and
    `to_message` are None if the plan hides no entries.
    """
    entries = sorted(plan.entries, key=_seq)
    return {
        "agent": agent,
        "trigger": trigger,
        "tokens": tokens,
        "limit": budget.compact_at,
        "hard_limit": budget.hard,
        "from_message": entries[0].mid if entries else None,
        "to_message": entries[-1].mid if entries else None,
        "turns": plan.through_turn - plan.from_turn + 1,
        "may_skip": may_skip,
    }


def render_hook_body(message: HookMessage) -> bytes:
    """Return the body of a message as JSON in UTF-8; equal at every attempt."""
    told: dict[str, Any] = {
        "type": f"compaction.{message.phase}",
        "id": message.send_key,
        "created_at": message.created_at.astimezone(UTC).isoformat(timespec="seconds"),
        "session": message.session,
        "job": message.job_id,
        **message.detail,
    }
    if message.summary is not None:
        told["summary_text"] = message.summary
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def wants_skip(answer: bytes) -> bool:
    """Return whether an answer of the hook is a JSON object with `"skip": true`; False for any other
    content.
    """
    try:
        read = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and read.get("skip") is True


def _seq(entry: Entry) -> int:
    return entry.seq
