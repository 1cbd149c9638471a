"""The draft of an unfinished answer: what its chat shows, and the next edit; the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from bot.telegram.markup.entity_text import LIVE_UNITS, MAX_PARTS, MessagePart, render, split
from shared.core.session.turns import Delta, utf16_units

FILLER = MessagePart(text="…")
"""In a bubble whose text the model took back."""
ADOPTED = -1
"""Attempt of a bubble from another process, whose text is unknown here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPacing:
    """Edits count like messages for Telegram, so they are kept few."""

    first_chars: int = 30
    first_seconds: float = 1.0
    settle_seconds: float = 0.0
    """Seconds before the first text is sent; an answer that ends earlier is one message without edits."""
    edit_seconds: float = 1.5
    slowest_seconds: float = 10.0
    new_chars: int = 20


PRIVATE_PACING = EditPacing(settle_seconds=0.25)
GROUP_PACING = EditPacing(edit_seconds=3.5, settle_seconds=0.25)
NATIVE_PACING = EditPacing(first_chars=1, edit_seconds=0.5, new_chars=1)


@dataclass(slots=True, kw_only=True)
class DraftMessage:
    """A message that shows a piece of the draft; `is_last` is the one with the Stop button."""

    message_id: int
    shown: MessagePart | None = None
    attempt: int = ADOPTED
    is_last: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftEdit:
    """Edit of a bubble."""

    number: int
    message_id: int
    part: MessagePart
    is_last: bool
    seen: DraftProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftProgress:
    """Measure of how much of the draft a view shows."""

    attempt: int = 0
    chars: int = 0
    status: str | None = None


@dataclass(slots=True, kw_only=True)
class ReplyDraft:
    """The text of the newest attempt and the bubbles that show it."""

    pacing: EditPacing
    most_messages: int = MAX_PARTS
    attempt: int = 0
    text: str = ""
    status: str | None = None
    """A line below the text while a tool runs."""
    bubbles: list[DraftMessage] = field(default_factory=list)
    _units: int = 0
    _first_at: float | None = None
    _shown_progress: DraftProgress = field(default_factory=DraftProgress)
    _overflows: bool = False
    _not_before: float = -inf
    _interval: float = 0.0
    _ended: bool = False

    def __post_init__(self) -> None:
        self._interval = self.pacing.edit_seconds

    # -- events ---------------------------------------------------------------------------------------

    def begin(self, attempt: int) -> None:
        """Start a later attempt with an empty text; shown bubbles stay until there is new text."""
        if attempt > self.attempt:
            self.attempt, self.text, self._units, self.status = attempt, "", 0, None
            self._first_at, self._overflows = None, False

    def append(self, delta: Delta, now: float) -> None:
        if delta.attempt < self.attempt:
            return
        self.begin(delta.attempt)
        if delta.offset < self._units:
            self._truncate(delta.offset)
        if delta.offset > self._units:
            return  # a piece is missing: the whole text comes with the end
        self.text += delta.text
        self._units += utf16_units(delta.text)
        self.status = None
        if self._first_at is None and self.text.strip():
            self._first_at = now

    def set_status(self, status: str | None) -> None:
        self.status = status

    # -- next edits -----------------------------------------------------------------------------------

    def wants_bubble(self, now: float) -> bool:
        """Return whether a new message should be sent now: the first, or one for text that fits no longer.

        The first one waits until enough text or time has come, but not while a tool runs. `render_opening`
        returns its content.
        """
        if self._ended or now < self._not_before:
            return False
        if self.bubbles:
            return self._overflows and len(self.bubbles) < self.most_messages
        if self.status is not None:
            return True
        if self._first_at is None or now - self._first_at < self.pacing.settle_seconds:
            return False
        enough = len(self.text.strip()) >= self.pacing.first_chars
        return enough or now - self._first_at >= self.pacing.first_seconds

    def render_opening(self) -> tuple[MessagePart, DraftProgress] | None:
        """Return the content of the next new message and its progress; None if there is nothing to show."""
        views, number = self.render_views(), len(self.bubbles)
        if number >= len(views):
            self._overflows = False
            return None
        return views[number], self._get_progress()

    def next_edit(self, now: float) -> DraftEdit | None:
        """Return the edit of the first bubble that needs one; None if no edit is due now."""
        if not self.bubbles or self._ended or now < self._not_before or not self._has_news():
            return None
        views = self.render_views()
        if not views:
            self._shown_progress = self._get_progress()
            return None
        self._overflows = len(views) > len(self.bubbles)
        last = min(len(views), len(self.bubbles)) - 1
        for number, bubble in enumerate(self.bubbles):
            part = views[number] if number < len(views) else FILLER
            is_last = number == last
            if not self._may_replace(bubble, part, is_full=number < len(views) - 1):
                continue
            if part != bubble.shown or is_last != bubble.is_last:
                return DraftEdit(
                    number=number,
                    message_id=bubble.message_id,
                    part=part,
                    is_last=is_last,
                    seen=self._get_progress(),
                )
        self._shown_progress = self._get_progress()
        return None

    def _may_replace(self, bubble: DraftMessage, part: MessagePart, *, is_full: bool) -> bool:
        """Return whether an edit makes a bubble of a former attempt no shorter; else it waits for the end."""
        if bubble.attempt == self.attempt or is_full:
            return True
        return bubble.shown is not None and len(part.text) >= len(bubble.shown.text)

    def get_next_edit_time(self, now: float) -> float | None:
        """Return the time from which `next_edit` may have an edit; None if there is nothing new to show."""
        if not self.bubbles or self._ended or not self._has_news():
            return None
        return max(now, self._not_before)

    def render_views(self) -> tuple[MessagePart, ...]:
        rendered = render(self.text, live=True)
        if self.status is not None:
            rendered = rendered.append_note(self.status)
        return split(rendered, limit=LIVE_UNITS, grows=True)

    # -- outcomes -------------------------------------------------------------------------------------

    def record_opened(self, message_id: int, part: MessagePart, seen: DraftProgress, now: float) -> None:
        self.bubbles.append(DraftMessage(message_id=message_id, shown=part, attempt=seen.attempt))
        self._overflows = False
        self._not_before = now + self._interval
        self._shown_progress = seen

    def record_edited(self, edit: DraftEdit, now: float) -> None:
        bubble = self.bubbles[edit.number]
        bubble.shown, bubble.is_last, bubble.attempt = edit.part, edit.is_last, edit.seen.attempt
        self._not_before = now + self._interval
        if edit.number == len(self.bubbles) - 1:
            self._shown_progress = edit.seen

    def slow_down(self, retry_after: float | None, now: float) -> None:
        """Pause edits for `retry_after` seconds or the interval between edits, whichever is longer.

        `retry_after` also doubles the interval, up to a limit; None leaves it as it is.
        """
        if retry_after is not None:
            self._interval = min(2 * self._interval, max(self.pacing.slowest_seconds, self._interval))
        self._not_before = now + max(self._interval, retry_after or 0.0)

    def end(self) -> None:
        """Stop showing it."""
        self._ended = True

    @property
    def is_ended(self) -> bool:
        return self._ended

    def _has_news(self) -> bool:
        seen = self._shown_progress
        if self.status != seen.status and (self.status or self.text):
            return True
        if self._first_at is None:
            return False
        if seen.attempt != self.attempt:
            return len(self.text.strip()) >= self.pacing.first_chars
        return len(self.text) - seen.chars >= self.pacing.new_chars

    def _get_progress(self) -> DraftProgress:
        return DraftProgress(attempt=self.attempt, chars=len(self.text), status=self.status)

    def _truncate(self, offset: int) -> None:
        self.text = self.text.encode("utf-16-le")[: 2 * offset].decode("utf-16-le", "ignore")
        self._units = utf16_units(self.text)
