"""What screens are told of a stored message; the same words from a commit and from a later read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from shared.core.values.messages import Block, said_of

_ROLES = {
    "person": "person", "assistant": "assistant", "operator": "operator", "tool": "tool", "program": "notice",
}  # fmt: skip


WHOLE_CHARS = 8_000
"""Longer messages of people are shown by their first `HEAD_CHARS`; who wants the rest asks for it."""
HEAD_CHARS = 4_096
"""More than the 4,000 from which on the chat folds a message."""


def headed(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as lists and events carry it: of a long one the beginning, and its length as `chars`."""
    text = told.get("text")
    if told.get("role") != "person" or not text or len(text) <= WHOLE_CHARS:
        return told
    return {**told, "text": text[:HEAD_CHARS], "chars": len(text)}


def message_payload(
    *, seq: int, turn: int, author: str, blocks: Sequence[Block], at: datetime, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """A `msg` event. `extra` holds what is not in the entry: cid, partial, error, or another text."""
    return {
        "mid": f"m{seq}",
        "role": _ROLES[author],
        "text": said_of(blocks),
        "at": iso(at),
        "turn": turn,
        **extra,
    }


def notice_payload(*, event_seq: int, at: datetime, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The program's own voice: it has no entry, so its id comes from the event."""
    return {"mid": f"n{event_seq}", "role": "notice", "at": iso(at), **extra}


TITLE_CHARS = 60


def title_of(question: str) -> str:
    """What a conversation is called by the program: the first words of its first question."""
    words = " ".join(question.split())
    if len(words) <= TITLE_CHARS:
        return words
    head, space, _ = words[:TITLE_CHARS].rpartition(" ")
    return f"{(head if space else words[: TITLE_CHARS - 1]).rstrip(' ,.;:–-')}…"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
