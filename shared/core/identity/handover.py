"""Handover of a conversation to an operator: its states, changes, texts and limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from shared.core.values.errors import BadInput, EvertalkError

State = Literal["bot", "waiting", "human"]
"""States of a conversation: the assistant answers, the person waits for an operator, or an operator
answers.
"""
Asker = Literal["person", "assistant", "operator"]
"""Authors of a request for a human."""
End = Literal["operator", "person", "unanswered", "silent", "off", "resolved"]
"""Reason why a handover ended.

`operator` and `person`: returned by them; `unanswered`: no operator came; `silent`: the operator stopped
writing; `off`: handover was switched off; `resolved`.
"""
Told = Literal["nothing", "queued", "sending", "told", "uncertain", "dead"]
"""States of the notice to the person's chat that the assistant answers again.

`nothing`: none is needed; `queued`: still to be sent; `told`: sent; `uncertain`: the process ended while it
was sending; `dead`: given up.
"""

EVENT = "handover"
"""Kind of the event that announces a change of state."""
REASON_CHARS = 500
"""Most characters of the reason for a request."""
LABELS_AT_MOST = 10
"""Most labels of a conversation."""
LABEL_CHARS = 40
"""Most characters of a label."""
NOTE_CHARS = 4_000
"""Most characters of a private note and of a canned reply."""
CANNED_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
"""Pattern of the name of a canned reply."""
PER_HOUR = 5
"""Most requests for a human per hour in one conversation."""
ANSWERED_TOGETHER = "answered_together"
"""Error code of a turn that an operator's later reply answers together with others."""
NAMELESS = "Support"
"""Name shown for an operator without a display name."""

RETURNED = "handover_returned"
RESOLVED = "handover_resolved"
UNANSWERED = "handover_unanswered"
SILENT = "handover_silent"
CODES: Mapping[End, str] = {
    "operator": RETURNED,
    "resolved": RESOLVED,
    "unanswered": UNANSWERED,
    "silent": SILENT,
    "off": UNANSWERED,
}
"""Code of the text for the person, by the reason of the end; none if the person ended it."""
ADVICE: Mapping[str, str] = {
    RETURNED: "The assistant answers here again.",
    RESOLVED: "This conversation is closed, and the assistant answers here again. How was our help?",
    UNANSWERED: "Sorry, nobody was free to come. Your messages are kept, and the assistant answers again.",
    SILENT: "Sorry, nobody has answered. Your messages are kept, and the assistant answers again.",
}
"""Text for the person by its code, in English."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverLimits:
    """Limits of a handover in minutes: `waiting` for an operator, then `silence` until the operator's next
    message.
    """

    waiting: float
    silence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewHandover:
    """Request for a human, to be stored; a second request with the same `key` returns the same handover.

    `turn` is the turn in which it is made, 0 outside of turns; `key` is None if each request counts.
    """

    session_id: int
    address_id: int | None
    asked_by: Asker
    reason: str = ""
    key: str | None = None
    turn: int = 0
    epoch: int = 0
    """Epoch of the turn's claim, so that a turn without its lease cannot ask; 0 outside of turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverOutcome:
    """State of a conversation's handover after a request to change it, whether or not the state changed.

    `name` is the operator's display name in state `human`.
    """

    session_id: int
    state: State
    name: str = ""
    event_seq: int = 0
    """Number of the newest event; 0 if nothing changed."""
    bot_has_turn: bool = False
    """True if a turn now waits for the assistant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Operator's reply as it was stored; `repeated` is True if it had been stored before."""

    session_id: int
    seq: int
    turn: int
    event_seq: int
    repeated: bool = False

    @property
    def mid(self) -> str:
        """Public id of the reply's message, such as `m12`."""
        return f"m{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueHandover:
    """Handover whose time limit has passed; `end` says whether no operator came or the operator fell
    silent.
    """

    session_id: int
    handover_id: int
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentNotice:
    """Notice to a person's chat that the assistant answers again, still to be sent; `code` selects its
    text.
    """

    handover_id: int
    address_id: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Change that assigns a conversation to an operator by login name; an empty name assigns no operator."""

    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snooze:
    """Change that hides a conversation until a time or the person's next message; None shows it again."""

    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Change that replaces all labels of a conversation by these."""

    labels: tuple[str, ...]


HandoverChange: TypeAlias = Assignment | Snooze | Labels
"""Change that an operator makes to a handover without changing its state."""


class NotTaken(EvertalkError):
    """Action on a conversation by an operator who must take it first."""

    sentence = "The operator who writes does not have this conversation."
    code = "not_taken"
    advice = "Take this conversation first."


class TakenByOther(EvertalkError):
    """Action on a conversation that another operator, called `name`, has taken."""

    sentence = "Another operator has this conversation."
    code = "taken_by_other"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has it")
        self.name = name
        self.advice = f"{name} has this conversation."


class ChangedMeanwhile(EvertalkError):
    """Change based on an old version: another operator changed the conversation after it was read."""

    sentence = "Another operator changed this conversation after this one had read it."
    code = "changed_meanwhile"
    advice = "Another operator has just changed this conversation. Look at it, then try again."


class BadLabels(BadInput):
    """Labels of a conversation that are too many or too long."""

    sentence = "Too many, or too long."
    code = "bad_labels"
    advice = "A conversation has up to 10 labels of up to 40 characters."


class BadSnooze(BadInput):
    """Snooze until a past time, or one more than a year ahead."""

    sentence = "A moment that is over, or too far away."
    code = "bad_snooze"
    advice = "Snooze until a moment within the next year."


class UnknownAssignee(BadInput):
    """Assignee that is no operator, or one who may not write to people."""

    sentence = "There is no operator of this name who may write to people."
    code = "unknown_assignee"
    advice = "There is no operator of this name who may write to people."


class AnswerRuns(EvertalkError):
    """Reply of an operator while the assistant still finishes an answer, which is sent first."""

    sentence = "The assistant is still at the turn before: its answer comes first."
    code = "answer_runs"
    advice = "The assistant is finishing an answer, which is sent first. Please send yours again in a moment."


class CannotHandOver(EvertalkError):
    """Conversation that cannot be handed over, because it continues elsewhere or has no message."""

    sentence = "The conversation cannot be handed over: it continues elsewhere, or it has no message."
    code = "cannot_hand_over"
    advice = "This conversation cannot be taken: it goes on elsewhere by now."


class NobodyComes(EvertalkError):
    """Request for a human on a site for which no operators are available."""

    sentence = "The site on which the person writes has no people who could come."
    code = "nobody_comes"
    advice = "No operator can be asked for here."


class AskedTooOften(BadInput):
    """Request for a human above the limit of five per hour in one conversation."""

    sentence = "A person was asked for again and again."
    code = "asked_too_often"
    advice = "A person was asked for several times within the hour. Please try again later."


def event_payload(
    state: State, *, name: str = "", picture: str = "", reason: str = "", asked_by: Asker | None = None
) -> dict[str, Any]:
    """Return the payload of a `handover` event for the person's client, with the key `state`.

    In state `human` it also has the operator's `name` and `picture` (a key, left out if empty). In `waiting`
    it has `reason` if `asked_by` is `person`, since the assistant's reasons are for operators.
    """
    payload: dict[str, Any] = {"state": state}
    if state == "human":
        payload |= operator_payload(name, picture)
    if state == "waiting" and reason and asked_by == "person":
        payload["reason"] = reason
    return payload


def operator_payload(name: str, picture: str) -> dict[str, str]:
    """Return an operator's `name` and `picture` for events; `Support` for an empty name, no key for no
    picture.
    """
    return {"name": name or NAMELESS} | ({"picture": picture} if picture else {})


def shorten_reason(words: str) -> str:
    """Return the text on one line, cut to 500 characters, the last of them an ellipsis."""
    line = " ".join(words.split())
    return line if len(line) <= REASON_CHARS else f"{line[: REASON_CHARS - 1].rstrip()}…"


def clean_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the labels in their order, with single blanks, without duplicates that differ only in case.

    Raises BadLabels for a label that is empty, longer than 40 characters or unprintable, and for more than
    10.
    """
    found: dict[str, str] = {}
    for label in labels:
        plain = " ".join(label.split())
        if not plain.isprintable() or not 0 < len(plain) <= LABEL_CHARS:
            raise BadLabels
        found.setdefault(plain.casefold(), plain)
    if len(found) > LABELS_AT_MOST:
        raise BadLabels
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedHandover:
    """Handover as operators list it: open, or ended a short time ago.

    `version` counts changes, for comparison before the next one. `taken_at` is None until an operator takes
    it, `ended_at` while it is open; `rating` is None if the person gave none.
    """

    session: str
    """Public id of the session."""
    state: State | Literal["ended"]
    asked_by: Asker
    reason: str
    operator: str
    who: str
    """Display name of the person; may be empty."""
    person_id: str
    kind: str
    anonymous: bool
    channel: str
    agent: str
    asked_at: datetime
    taken_at: datetime | None
    waits_since: datetime | None
    """Time of the person's first unanswered message; None if there is none."""
    version: int = 0
    snoozed_until: datetime | None = None
    """End of the snooze; None without one, and once the person has written."""
    labels: tuple[str, ...] = ()
    excerpt: str = ""
    """Beginning of the newest message."""
    ended_at: datetime | None = None
    rating: int | None = None
