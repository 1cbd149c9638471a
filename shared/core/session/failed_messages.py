"""Forms in which later requests show a person's message whose turn failed.

The message stays whole in the log. A request that failed by its own content is not sent whole again, since
each later one would fail like it. A turn that failed for another reason keeps its message whole in requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.core.session.session import Entry, View
from shared.core.values.messages import Text
from shared.core.values.tokens import estimate_blocks, estimate_by_script

BEGINNING_CHARS = 300
"""Characters of a message that later requests show: enough to answer "and now?"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedForm:
    """Reason that the model reads in place of a message, and whether the message's beginning follows it."""

    reason: str
    has_beginning: bool = False


FAILED_FORMS: Mapping[str, FailedForm] = {
    "model_rejected_request": FailedForm(
        reason="the model's server rejected the request", has_beginning=True
    ),
    "context_budget_exceeded": FailedForm(reason="it was too long for a request", has_beginning=True),
    "prompt_too_long": FailedForm(reason="it was too long for a request", has_beginning=True),
    "internal_error": FailedForm(reason="the program failed at it", has_beginning=True),
    "content_refused": FailedForm(reason="the provider's rules on content forbade it"),
    "process_stopped": FailedForm(reason="it stopped the program"),
}
"""Forms by the error code of the turn. What a provider forbade, or stopped a process, is not repeated."""
NOT_RECALLED = ("model_rejected_request", "content_refused", "internal_error", "process_stopped")
"""Codes of turns whose messages are never recalled: any part of them may fail the request.

Parts of a message that was too long may be recalled.
"""

WITHOUT_BEGINNING = "beginning_rejected"
"""Form of a rejected message whose beginning was rejected, too."""
_FORMS = {**FAILED_FORMS, WITHOUT_BEGINNING: FailedForm(reason="the model's server rejected the request")}


def show_failed(entry: Entry, code: str) -> Entry:
    """Return a person's message as requests show it after its turn ended with the error `code`."""
    form = _FORMS[code]
    mark = f"This message was not answered: {form.reason}."
    words = "\n".join(block.text for block in entry.blocks if isinstance(block, Text)).strip()
    if not form.has_beginning or not words:
        text = f"[{mark}]"
    elif len(words) > BEGINNING_CHARS:
        text = f"[{mark} It began:]\n{words[:BEGINNING_CHARS].rstrip()} …"
    else:
        text = f"[{mark} It was:]\n{words}"
    blocks = (Text(text=text),)
    return replace(entry, blocks=blocks, tokens=estimate_blocks(blocks, estimate_by_script), failed=code)


def hide_beginnings(view: View) -> View | None:
    """Return the view with marks alone in place of rejected messages; None if it holds no beginning of one.

    It is for a request that was rejected as well, perhaps because of what such a beginning says.
    """
    rejected = {
        entry.seq for entry in (*view.entries, *view.pins) if entry.failed == "model_rejected_request"
    }
    if not rejected:
        return None

    def hide(entry: Entry) -> Entry:
        return show_failed(entry, WITHOUT_BEGINNING) if entry.seq in rejected else entry

    return replace(view, entries=tuple(map(hide, view.entries)), pins=tuple(map(hide, view.pins)))
