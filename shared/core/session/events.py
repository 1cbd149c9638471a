"""What goes in and out of a conversation: an inbound shape, reply events, what screens are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from shared.core.values.files import Attached
from shared.core.values.messages import Block, Text, said_of


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxReceipt:
    """Raw updates that end with this message's commit, and the messages of the chat that it is made of."""

    bot_id: int
    update_ids: tuple[int, ...]
    chat_id: int
    message_ids: tuple[int, ...] = ()
    late_for: int | None = None
    """An earlier message of the chat that this one is the rest of: it joins its turn where it still can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A person's message as every channel hands it in."""

    session_id: int
    address_id: int
    text: str
    dedupe_key: str
    """Unique within the session: `web:<cid>`, `tg:<bot>:<update>`. A repeat is the same message."""
    cid: str | None = None
    """The client's own id, echoed so that an optimistic bubble finds its message."""
    more: tuple[Block, ...] = ()
    """Pictures and the text of documents, behind the words."""
    attached: tuple[Attached, ...] = ()
    """The files that `more` was made of, for screens."""
    receipt: InboxReceipt | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (*((Text(text=self.text),) if self.text else ()), *self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The promise: this message is stored."""

    session_id: int
    seq: int
    turn: int
    event_seq: int
    repeated: bool
    """True when the same dedupe key was stored before; nothing was added."""
    at_ms: int
    """When it was stored, milliseconds since the epoch by Postgres' clock."""

    @property
    def mid(self) -> str:
        return f"m{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    turn: int
    attempt: int
    epoch: int = 0
    """Of the claim; what a channel stores of an answer that is still being written carries it."""
    address_id: int = 0
    """Where the turn came from, and its answer goes; a session may have several places."""


def utf16_units(text: str) -> int:
    """How browsers count: characters beyond the basic plane are two units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an answer that is not stored yet; `offset` counts UTF-16 units from the answer's start."""

    turn: int
    attempt: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRunning:
    turn: int
    name: str
    subject: str = ""
    """What it is about, in a few words, such as the host of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Organizing:
    """The answer waits for a summary of what was said before ("Summarising earlier messages…")."""

    turn: int
    job_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A durable event was committed; `payload` is what screens get, see `web/protocol/wire.py`."""

    event_seq: int
    kind: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    turn: int
    state: Literal["answered", "stopped", "refused", "failed", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextMeasured:
    """The one number of the gauge, after it changed."""

    used: int
    limit: int
    percent: float
    status: Literal["ok", "warning", "critical"]
    parts: Mapping[str, int]
    estimated: bool
    recall: int = 0
    """Of the memory: the most that a question brings back of what is hidden."""


ReplyEvent = RunStarted | Delta | ToolRunning | Organizing | Stored | RunEnded | ContextMeasured
Emit = Callable[[ReplyEvent], Awaitable[None]]
"""A channel's listener. It must not raise: a closed tab is the channel's affair, never the turn's."""


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
