"""Notes as values: new and stored notes, their source, versions, and results of changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Authority = Literal["person", "assistant", "tool", "operator"]
"""Author of a note's content; `tool` stands for text of others, such as a web page."""
Durability = Literal["permanent", "durable", "ephemeral"]
"""Lifetime of a note; an `ephemeral` one expires."""
NoteState = Literal["kept", "replaced", "put_away", "erased"]
"""States of a note: in use, replaced by a newer text, archived (`put_away`), or erased."""
NoteOutcome = Literal[
    "saved", "changed", "forgotten", "restored", "known", "replaced", "blocked", "too_many", "unknown", "gone"
]
"""Result of a change of a note.

The first four changed something. `known`: stored already; `replaced`: a newer text replaces it; `blocked`:
the person had deleted it; `gone`: too late to restore.
"""
NoteCause = Literal["person", "operator", "tool", "flush", "edit", "tidy", "unknown"]
"""Cause of a change: `tool` is the assistant, `edit` an edited message, `tidy` a duplicate note."""
SHORT_ID = r"n[0-9a-f]{8}"
"""Pattern of a note's short id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNote:
    """Note that was checked and may be stored: at most 600 characters, and without secrets.

    `importance` is 1 to 9; `event_date` is an ISO date, perhaps only its year or month, None without one.
    """

    kind: str
    text: str
    subject: str = ""
    importance: int = 5
    durability: Durability = "durable"
    event_date: str | None = None
    redacted: bool = False
    """True if a secret was removed from the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSource:
    """Owner of a note, and the turns from which it was taken.

    `from_turn` and `through_turn` are None for a command, which has no turns; `flush_id` is the memory flush
    that made the note, and `job_id` its job; both are None for another cause.
    """

    session_id: int
    contact_id: int
    """Contact of the session; notes of all contacts linked to the same person are searched."""
    scope: str
    """Name of the agent whose memory holds the note."""
    from_turn: int | None = None
    through_turn: int | None = None
    flush_id: int | None = None
    job_id: int | None = None
    call_id: str = ""
    call_key: str | None = None
    """Key of the tool call, by which a call repeated after a crash is recognised; None without a call."""
    epoch: int = 0
    """Epoch of the claim of the turn, or of the flush's job; 0 outside of both."""
    shown: tuple[str, ...] = ()
    """Text that tools showed in a background call, whose steps are not stored."""
    by_person: bool = False
    """True if the person asked for the note explicitly; it is then stored even if they had deleted it."""
    by_operator: bool = False
    """True if an operator makes the change and vouches for it; notes that the person deleted stay deleted."""

    @property
    def cause(self) -> NoteCause:
        """Cause of a change by this source: `operator`, `flush`, `person`, or `tool` for the assistant in a
        turn.
        """
        if self.by_operator:
            return "operator"
        if self.flush_id is not None:
            return "flush"
        return "person" if self.by_person or self.from_turn is None else "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNote:
    """Stored note with its state, source and dates, whether still in use or not."""

    id: int
    short_id: str
    """Short id for models and clients: the beginning of the note's public id."""
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
    """Time until which an archived note can be restored; None for another note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersion:
    """Text that a note had from the time `at` on, and the cause of that change."""

    note: KeptNote
    at: datetime
    cause: NoteCause
    old_id: str | None = None
    """Short id of the note that was replaced; None for a first version."""
    old_text: str | None = None
    """Text that was replaced; None for a first version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteResult:
    """Result of a change to a note; `outcome` says what was done or why not.

    `note` is the stored note: the new, archived, known or newer one; None if there is none to name.
    `payload` is the event for clients, already stored; None if this call changed nothing.
    """

    outcome: NoteOutcome
    note: KeptNote | None = None
    event_seq: int | None = None
    """Number of the stored event; None if nothing changed."""
    payload: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesFound:
    """Notes that a search found, and the number of all notes of the person."""

    notes: tuple[KeptNote, ...]
    total: int
