"""Notes as values: one about to be kept, one that is kept, where it came from, and what became of a wish."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Authority = Literal["person", "assistant", "tool", "operator"]
Durability = Literal["permanent", "durable", "ephemeral"]
NoteState = Literal["kept", "replaced", "put_away", "erased"]
NoteOutcome = Literal[
    "saved", "changed", "forgotten", "restored", "known", "replaced", "blocked", "too_many", "unknown", "gone"
]
"""The first four changed something. `replaced`: newer words stand for it; `blocked`: forgotten on purpose;
`gone`: too late to bring it back."""
NoteCause = Literal["person", "operator", "tool", "flush", "edit", "tidy", "unknown"]
"""`tool`: the assistant; `edit`: an edited message; `tidy`: another note said the same."""
SHORT_ID = r"n[0-9a-f]{8}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNote:
    """Checked words that may be kept: short enough, and without a secret in them."""

    kind: str
    text: str
    subject: str = ""
    importance: int = 5
    durability: Durability = "durable"
    event_date: str | None = None
    redacted: bool = False
    """Whether a secret was taken out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSource:
    """Owner of notes, and the turns that they were taken from; a command has no turns."""

    session_id: int
    contact_id: int
    """The session's own; notes of all contacts that are one person now are searched."""
    scope: str
    """The agent's name."""
    from_turn: int | None = None
    through_turn: int | None = None
    flush_id: int | None = None
    call_id: str = ""
    call_key: str | None = None
    """Unique per tool call: what ran before a crash is recognised."""
    epoch: int = 0
    """Epoch of the turn's claim; 0 outside of turns."""
    shown: tuple[str, ...] = ()
    """Text that tools have shown in a silent turn, whose steps are not stored."""
    by_person: bool = False
    """True if the person asks for the note explicitly, so that a note they deleted may return."""
    by_operator: bool = False
    """An operator corrects it and vouches for it; what the person had forgotten stays forgotten."""

    @property
    def cause(self) -> NoteCause:
        """Name the kind of actor behind a change."""
        if self.by_operator:
            return "operator"
        if self.flush_id is not None:
            return "flush"
        return "person" if self.by_person or self.from_turn is None else "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNote:
    id: int
    short_id: str
    """Short id for models and screens: the beginning of the row's public id."""
    kind: str
    text: str
    subject: str
    importance: int
    authority: Authority
    durability: Durability
    observed_at: datetime
    event_date: str | None
    from_turn: int | None
    state: NoteState = "kept"
    undo_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersion:
    """A text that a note had from a moment on."""

    note: KeptNote
    at: datetime
    cause: NoteCause
    old_id: str | None = None
    """Short id of the note that was replaced; None for a first text."""
    old_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteResult:
    """Result of a change; `note` is the note that is kept now, if there is one."""

    outcome: NoteOutcome
    note: KeptNote | None = None
    event_seq: int | None = None
    """Number of the stored event, if something changed."""
    payload: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesFound:
    """Some of the notes, and how many there are in all."""

    notes: tuple[KeptNote, ...]
    total: int
