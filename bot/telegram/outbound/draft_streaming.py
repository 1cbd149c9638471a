"""Decides how a chat shows an unfinished answer: which message to send and which to edit, and when.

It reads no clock and calls nothing: the caller passes the time in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from bot.telegram.markup.entity_text import LIVE_UNITS, MAX_PARTS, MessagePart, render, split
from shared.core.session.turns import Delta, utf16_units

FILLER = MessagePart(text="…")
"""Text of a shown message for which the answer has no more text, as after a new attempt."""
ADOPTED = -1
"""Attempt number of a message that another process sent, whose shown text is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPacing:
    """Timing of the messages that show an unfinished answer; edits count towards Telegram's rate limits."""

    first_chars: int = 30
    """Minimum characters before the first message is sent."""
    first_seconds: float = 1.0
    """Seconds after which the first message is sent even with fewer characters."""
    settle_seconds: float = 0.0
    """Seconds before the first message is sent; an answer that ends earlier is one message without edits."""
    edit_seconds: float = 1.5
    """Seconds between two edits."""
    slowest_seconds: float = 10.0
    """Maximum of `edit_seconds` after rate limits have doubled it."""
    new_chars: int = 20
    """Minimum new characters for an edit."""


PRIVATE_PACING = EditPacing(settle_seconds=0.25)
"""Timing in private chats."""
GROUP_PACING = EditPacing(edit_seconds=3.5, settle_seconds=0.25)
"""Timing in groups, which allow 20 messages and edits a minute."""
NATIVE_PACING = EditPacing(first_chars=1, edit_seconds=0.5, new_chars=1)
"""Timing of native drafts, which do not count towards the limits of the chat."""


@dataclass(slots=True, kw_only=True)
class DraftMessage:
    """Message in the chat that shows a piece of the draft.

    `shown` is its text, None if unknown. `is_last` marks the message with the Stop button.
    """

    message_id: int
    shown: MessagePart | None = None
    attempt: int = ADOPTED
    is_last: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftEdit:
    """Edit that is due: the new content of message `number` of the draft, counted from 0."""

    number: int
    message_id: int
    part: MessagePart
    is_last: bool
    seen: DraftProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftProgress:
    """How much of a draft is shown: attempt, number of characters and status line."""

    attempt: int = 0
    chars: int = 0
    status: str | None = None


@dataclass(slots=True, kw_only=True)
class ReplyDraft:
    """Text of the newest attempt at an answer, and the messages ("bubbles") that show it."""

    pacing: EditPacing
    most_messages: int = MAX_PARTS
    attempt: int = 0
    text: str = ""
    status: str | None = None
    """Line below the text while a tool runs; None for no line."""
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
        """Start a later attempt with an empty text; shown messages stay until there is new text."""
        if attempt > self.attempt:
            self.attempt, self.text, self._units, self.status = attempt, "", 0, None
            self._first_at, self._overflows = None, False

    def append(self, delta: Delta, now: float) -> None:
        """Append a piece of text; a piece of an older attempt, or after a gap, is ignored."""
        if delta.attempt < self.attempt:
            return
        self.begin(delta.attempt)
        if delta.offset < self._units:
            self._truncate(delta.offset)
        if delta.offset > self._units:
            return  # a piece is missing: the stored answer brings the whole text
        self.text += delta.text
        self._units += utf16_units(delta.text)
        self.status = None
        if self._first_at is None and self.text.strip():
            self._first_at = now

    def set_status(self, status: str | None) -> None:
        """Show a line such as "searching …" below the text; None removes it."""
        self.status = status

    # -- next edits -----------------------------------------------------------------------------------

    def wants_bubble(self, now: float) -> bool:
        """Return whether a new message should be sent now: the first, or one for text that no longer fits.

        The first waits for enough text or time, but not while a tool runs. `render_opening` returns the
        content.
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
        """Return content and progress of the next new message; None if there is no text for it."""
        views, number = self.render_views(), len(self.bubbles)
        if number >= len(views):
            self._overflows = False
            return None
        return views[number], self._get_progress()

    def next_edit(self, now: float) -> DraftEdit | None:
        """Return the edit of the first message whose content is outdated; None if no edit is due now."""
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
        """Return whether a message may get this content now.

        A message of a former attempt must not become shorter while the text grows again.
        """
        if bubble.attempt == self.attempt or is_full:
            return True
        return bubble.shown is not None and len(part.text) >= len(bubble.shown.text)

    def get_next_edit_time(self, now: float) -> float | None:
        """Return the earliest time at which `next_edit` can return an edit.

        None if there is nothing new to show.
        """
        if not self.bubbles or self._ended or not self._has_news():
            return None
        return max(now, self._not_before)

    def render_views(self) -> tuple[MessagePart, ...]:
        """Return the draft as message contents, one for each message it needs."""
        rendered = render(self.text, live=True)
        if self.status is not None:
            rendered = rendered.append_note(self.status)
        return split(rendered, limit=LIVE_UNITS, grows=True)

    # -- outcomes -------------------------------------------------------------------------------------

    def record_opened(self, message_id: int, part: MessagePart, seen: DraftProgress, now: float) -> None:
        """Record that a new message was sent, with the progress that it shows."""
        self.bubbles.append(DraftMessage(message_id=message_id, shown=part, attempt=seen.attempt))
        self._overflows = False
        self._not_before = now + self._interval
        self._shown_progress = seen

    def record_edited(self, edit: DraftEdit, now: float) -> None:
        """Record that an edit was made."""
        bubble = self.bubbles[edit.number]
        bubble.shown, bubble.is_last, bubble.attempt = edit.part, edit.is_last, edit.seen.attempt
        self._not_before = now + self._interval
        if edit.number == len(self.bubbles) - 1:
            self._shown_progress = edit.seen

    def slow_down(self, retry_after: float | None, now: float) -> None:
        """Make no edit for `retry_after` seconds or the interval between edits, whichever is longer.

        A value also doubles the interval, up to `slowest_seconds`; None does not change it.
        """
        if retry_after is not None:
            self._interval = min(2 * self._interval, max(self.pacing.slowest_seconds, self._interval))
        self._not_before = now + max(self._interval, retry_after or 0.0)

    def end(self) -> None:
        """Ask for no more edits and messages, for good; one under way is not stopped.

        `wants_bubble` returns False from now on, `next_edit` and `get_next_edit_time` None.
        """
        self._ended = True

    @property
    def is_ended(self) -> bool:
        """Whether `end` was called."""
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
        """Cut the text to the first `offset` UTF-16 units."""
        self.text = self.text.encode("utf-16-le")[: 2 * offset].decode("utf-16-le", "ignore")
        self._units = utf16_units(self.text)
