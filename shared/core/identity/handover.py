"""Hand-over as values: who asked for a person, who has the conversation, and what is said when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from shared.core.values.errors import BadInput, EvertalkError

State = Literal["bot", "waiting", "human"]
Asker = Literal["person", "assistant", "operator"]
End = Literal["operator", "person", "unanswered", "silent", "off"]
"""Given back by the operator, or by the person; nobody came; the operator fell silent; switched off."""
Told = Literal["nothing", "queued", "sending", "told", "uncertain", "dead"]

EVENT = "handover"
REASON_CHARS = 500
PER_HOUR = 5
"""Of one conversation: who asks more often is asking for something else."""
ANSWERED_TOGETHER = "answered_together"
"""The error code of a turn whose answer stands in a later one: an operator's words answer all that waits."""
NAMELESS = "Support"
"""Who writes, where an operator has no name of their own."""

RETURNED = "handover_returned"
UNANSWERED = "handover_unanswered"
SILENT = "handover_silent"
CODES: Mapping[End, str] = {
    "operator": RETURNED,
    "unanswered": UNANSWERED,
    "silent": SILENT,
    "off": UNANSWERED,
}
"""What the person is told by; whoever ended it by their own word needs no telling."""
ADVICE: Mapping[str, str] = {
    RETURNED: "The assistant answers here again.",
    UNANSWERED: "Sorry, nobody was free to come. Your messages are kept, and the assistant answers again.",
    SILENT: "Sorry, nobody has answered. Your messages are kept, and the assistant answers again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverLimits:
    """In minutes: how long one waits for an operator, and then for an operator's next word."""

    waiting: float
    silence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHandover:
    """What is asked for; the same `key` again is the same hand-over."""

    session_id: int
    address_id: int | None
    asked_by: Asker
    reason: str = ""
    key: str | None = None
    turn: int = 0
    epoch: int = 0
    """Of the turn's claim: a turn that was taken away asks for nobody; 0 is no turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A conversation that changed hands, or that already was where it was to go."""

    session_id: int
    state: State
    name: str = ""
    event_seq: int = 0
    """The newest event of it; 0 when nothing changed."""
    bot_has_turn: bool = False
    """A turn waits for the assistant now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An operator's words, as they were stored."""

    session_id: int
    seq: int
    turn: int
    event_seq: int
    repeated: bool = False

    @property
    def mid(self) -> str:
        return f"m{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """One whose time is over, and why."""

    session_id: int
    handover_id: int
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """A chat that has not read yet that its conversation is the assistant's again."""

    handover_id: int
    address_id: int
    code: str


class NotTaken(EvertalkError):
    """The operator who writes does not have this conversation."""

    code = "not_taken"
    advice = "Take this conversation first."


class TakenByOther(EvertalkError):
    """Another operator has this conversation."""

    code = "taken_by_other"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has it")
        self.name = name
        self.advice = f"{name} has this conversation."


class AnswerRuns(EvertalkError):
    """The assistant is still at the turn before: its answer comes first."""

    code = "answer_runs"
    advice = (
        "The assistant is finishing an answer, which goes out first. Please send yours again in a moment."
    )


class CannotHandOver(EvertalkError):
    """This conversation cannot change hands: it goes on elsewhere, or nobody ever wrote in it."""

    code = "cannot_hand_over"
    advice = "This conversation cannot be taken: it goes on elsewhere by now."


class NobodyComes(EvertalkError):
    """The site on which the person writes has no people who could come."""

    code = "nobody_comes"
    advice = "Nobody can be asked for here."


class AskedTooOften(BadInput):
    """A person was asked for again and again."""

    code = "asked_too_often"
    advice = "A person was asked for several times within the hour. Please try again later."


def event_payload(
    state: State, *, name: str = "", picture: str = "", reason: str = "", asked_by: Asker | None = None
) -> dict[str, Any]:
    """The `handover` event; `picture` is a key.

    A reason of the assistant is for operators: only the person's own is shown.
    """
    payload: dict[str, Any] = {"state": state}
    if state == "human":
        payload |= shown_operator(name, picture)
    if state == "waiting" and reason and asked_by == "person":
        payload["reason"] = reason
    return payload


def shown_operator(name: str, picture: str) -> dict[str, str]:
    """What people see of an operator, in events."""
    return {"name": name or NAMELESS} | ({"picture": picture} if picture else {})


def shortened_reason(words: str) -> str:
    """One line of at most `REASON_CHARS`."""
    line = " ".join(words.split())
    return line if len(line) <= REASON_CHARS else f"{line[: REASON_CHARS - 1].rstrip()}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An open hand-over as operators see it."""

    session: str
    """Public id."""
    state: State
    asked_by: Asker
    reason: str
    operator: str
    who: str
    """The person's display name; may be empty."""
    person_id: str
    kind: str
    anonymous: bool
    channel: str
    agent: str
    asked_at: datetime
    taken_at: datetime | None
    waits_since: datetime | None
    """Since when words of the person have no answer."""
