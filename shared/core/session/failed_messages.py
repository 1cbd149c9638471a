"""Short forms in which requests show a person's message after its turn failed.

The log keeps the message whole. A message whose content made a request fail is not sent whole again, since
each later request would fail, too. After any other failure it is still sent whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.core.session.session import Entry, View
from shared.core.values.messages import Text
from shared.core.values.tokens import estimate_blocks, estimate_by_script

BEGINNING_CHARS = 300
"""Characters that requests show of a failed message, so that the model can answer "and now?"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedForm:
    """Short form of a failed message: the reason that the model reads in its place.

    If `has_beginning` is True, the first 300 characters of the message follow.
    """

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
"""Forms by error code of the turn.

Messages that a provider forbade or that stopped a process show no beginning.
"""
NOT_RECALLED = ("model_rejected_request", "content_refused", "internal_error", "process_stopped")
"""Error codes of turns whose messages are never recalled, since any part could make the request fail.

Parts of a message that was only too long may be recalled.
"""

WITHOUT_BEGINNING = "beginning_rejected"
"""Error code under which a rejected message is shown without its beginning."""
_FORMS = {**FAILED_FORMS, WITHOUT_BEGINNING: FailedForm(reason="the model's server rejected the request")}


def show_failed(entry: Entry, code: str) -> Entry:
    """Return a person's message with its content replaced by a short form, for a turn that failed with
    `code`.

    `code` is stored in its `failed`, and its tokens are estimated again. Raises KeyError for a code without a
    form.
    """
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
    """Return the view with rejected messages shown without their beginnings; None if none has one.

    It is used after another rejection, which such a beginning may have caused.
    """
    rejected = {
        entry.seq for entry in (*view.entries, *view.pins) if entry.failed == "model_rejected_request"
    }
    if not rejected:
        return None

    def hide(entry: Entry) -> Entry:
        return show_failed(entry, WITHOUT_BEGINNING) if entry.seq in rejected else entry

    return replace(view, entries=tuple(map(hide, view.entries)), pins=tuple(map(hide, view.pins)))
