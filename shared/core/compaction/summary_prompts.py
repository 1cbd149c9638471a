"""Who writes a summary, and every sentence that we say to it, by form; golden files show the words."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from shared.core.compaction.note_requests import NOTES_BESIDE
from shared.core.compaction.transcript_lines import source_lines
from shared.core.context.prompts import tagged
from shared.core.session.ledger import Ledger
from shared.core.session.policy import SummaryForm
from shared.core.session.rendering import first_words, render_summary, shortened
from shared.core.session.summary_rules import (
    END_OF_TEXT,
    FORMER_ABOVE,
    LINES,
    MERGING,
    TITLE_LINE,
    WARM,
    Form,
    form_of,
    rules,
    tidying,
    wanted,
)
from shared.core.values.model import Prices

Way = Literal["cheap", "warm"]
_WRITTEN_FACTOR = 1.25
"""What a token costs that the provider is to remember."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What both ways would be charged for, in tokens of the model that counts them."""

    prefix_tokens: int
    """The chat's own request, as the provider may still remember it."""
    instruction_tokens: int
    source_tokens: int
    """What the summary model would read instead."""
    answer_tokens: int
    cache_age_seconds: float
    cache_seconds: float


def cheaper_way(costs: Costs, *, cheap: Prices | None, chat: Prices | None) -> Way:
    """`warm` only when it is surely the cheaper one: with an unknown price the summary model writes."""
    if cheap is None or chat is None:
        return "cheap"
    remembered = costs.cache_age_seconds < costs.cache_seconds
    prefix = chat.cache_read if remembered else chat.input
    warm = (
        costs.prefix_tokens * prefix
        + costs.instruction_tokens * chat.input
        + costs.answer_tokens * chat.output
    )
    by_itself = costs.source_tokens * cheap.input + costs.answer_tokens * cheap.output
    return "warm" if warm < by_itself else "cheap"


def saves_together(costs: Costs, *, writer: Prices | None, chat: Prices | None, same: bool) -> bool:
    """Whether notes and summary in one answer behind the chat cost less than two requests.

    The ghost turn reads the chat's prefix in any case, remembered or not. What is left is the summary: the
    instruction and its answer by the chat model, or the source and its answer by the writer.
    """
    if same:
        return _WRITTEN_FACTOR * costs.instruction_tokens < costs.source_tokens
    if writer is None or chat is None:
        return False
    behind = costs.instruction_tokens * chat.cache_write + costs.answer_tokens * chat.output
    return behind < costs.source_tokens * writer.input + costs.answer_tokens * writer.output


def models_for(summariser: str, *, summary_model: str, own_model: str, falls_back: bool) -> tuple[str, ...]:
    """Who is asked on a request of its own, in this order."""
    first = own_model if summariser == "own" else summary_model
    second = summary_model if summariser == "own" else own_model
    return (first, second) if falls_back and first != second else (first,)


FOCUS_CHARS = 300
"""More than that is no focus."""
_BEGINNING_WORDS = 6
_XML_ROLES = {"person": "user"}
"""How the history of chats names who speaks; all others keep their names."""


def summary_request(
    source_text: str,
    former: Ledger,
    focus: str | None = None,
    *,
    language: str | None = None,
    form: SummaryForm = "ledger",
    most_words: int = 0,
    titled: bool = False,
) -> tuple[str, str]:
    """System and user text that ask for a change of the ledger as JSON, or for the text of a form.

    `titled` asks for what the conversation is to be called, in the same answer.

    Everything that a person could have written is fenced; the fence is made of the text itself, so that
    nobody can have written it before.
    """
    shape = form_of(form)
    fence = _fence(source_text, focus or "")
    parts = [
        _former(former, shape, fence),
        _chat_history(source_text)
        if shape.source == "chat_history"
        else tagged(f"transcript_{fence}", source_text),
        _focus(focus, fence),
        wanted(shape, former, most_words, titled=titled),
    ]
    return rules(shape, language), "\n\n".join(part for part in parts if part)


def merge_request(
    joined: Ledger,
    parts: Sequence[str],
    focus: str | None = None,
    *,
    language: str | None = None,
    form: SummaryForm = "ledger",
    most_words: int = 0,
) -> tuple[str, str]:
    """Asks for one summary instead of several over neighbouring stretches of one conversation."""
    shape = form_of(form)
    fence = _fence(*parts, focus or "")
    if not shape.is_text:
        told = [tagged(f"joined_record_{fence}", _former_lines(joined)), _focus(focus, fence), tidying()]
    else:
        numbered = [tagged(f"part_{number}_{fence}", text) for number, text in enumerate(parts, 1)]
        told = [*numbered, _focus(focus, fence), MERGING, wanted(shape, Ledger(), most_words)]
    return rules(shape, language), "\n\n".join(part for part in told if part)


def warm_instruction(
    source_text: str,
    former: Ledger,
    focus: str | None = None,
    *,
    language: str | None = None,
    form: SummaryForm = "ledger",
    most_words: int = 0,
    with_notes: bool = False,
    titled: bool = False,
) -> str:
    """The last user message behind the unchanged chat: log and former record stand above, so both are only
    named, the one by numbers, the other by ids.

    `with_notes` asks for what a flush would save, in the same answer.
    """
    shape = form_of(form)
    fence = _fence(source_text, focus or "")
    parts = [
        WARM,
        rules(shape, language),
        _former(former, shape, fence, shown=True),
        tagged(f"beginnings_{fence}", "\n".join(_beginnings(source_text))),
        _focus(focus, fence),
        wanted(shape, former, most_words, notes=NOTES_BESIDE if with_notes else "", titled=titled),
    ]
    return "\n\n".join(part for part in parts if part)


def repair_request(reason: str, *, form: SummaryForm = "ledger") -> str:
    """Asks once more after an answer that could not be used."""
    if form_of(form).is_text:
        return f"""\
That answer cannot be used: {reason}.
Write the whole summary again as requested, using only what you were shown. {END_OF_TEXT}"""
    return f"""\
That answer cannot be used: {reason}.
Send the whole JSON object again with the keys "narrative", "add", "replace" and "close", and nothing \
else. Use only what the transcript and the former record say. If you cannot write JSON, {LINES}"""


def in_lines(request: str, *, titled: bool = False) -> str:
    """What `summary_request` asks for, from a model of which it is known that it writes no JSON."""
    told = f"{request}\n\nDo not write JSON. Instead, {LINES}"
    return f"{told}\n{TITLE_LINE}" if titled else told


def asks_for_text(words: str) -> bool:
    """Whether a request wants a summary as a text; for what stands in for a model."""
    return END_OF_TEXT in words


def own_sentences() -> frozenset[str]:
    """What we say to every summariser, word by word: an answer that repeats it says nothing."""
    asked = [
        text
        for form in get_args(SummaryForm)
        for text in (
            *summary_request("", Ledger(), form=form, most_words=100),
            *summary_request("", Ledger(), form=form, most_words=100, titled=True),
            repair_request("", form=form),
        )
    ]
    found = (_plain(part) for text in (*asked, WARM, MERGING, TITLE_LINE) for part in _SPLIT.split(text))
    return frozenset(sentence for sentence in found if len(sentence) > _TELLING_CHARS)


def is_own_sentence(text: str, own: frozenset[str]) -> bool:
    return _plain(text) in own


_SPLIT = re.compile(r"(?<=[.!?:])\s+|\n+")
_TELLING_CHARS = 24


def _beginnings(source_text: str) -> list[str]:
    """Numbers and first words; an answer right after what it answers is not listed, its number is clear."""
    found = []
    asked = -1
    for line in source_lines(source_text):
        if (line.author, line.seq) != ("assistant", asked + 1):
            found.append(f"[#{line.seq}] {line.author}: {first_words(line.text, _BEGINNING_WORDS)}")
        asked = line.seq if line.author == "person" else -1
    return found


def _former(former: Ledger, form: Form, fence: str, *, shown: bool = False) -> str:
    """`shown` means that the whole record stands above, as the summary of the chat."""
    if not (former.items or former.narrative or former.sections):
        return ""
    if form.is_text:
        return tagged(f"earlier_summary_{fence}", render_summary(former))
    if shown:
        ids = _former_ids(former)
        return f"{FORMER_ABOVE}\n{tagged(f'former_record_{fence}', ids)}" if ids else ""
    return tagged(f"former_record_{fence}", _former_lines(former))


def _former_ids(former: Ledger) -> str:
    return "\n".join(
        f"{item.id} ({item.kind}): {first_words(item.text, _BEGINNING_WORDS)}"
        f"{''.join(f' #{seq}' for seq in item.sources[:1])}"
        for item in former.items
        if item.closed is None
    )


def _former_lines(former: Ledger) -> str:
    head = [_json_line({"former narrative": former.narrative})] if former.narrative else []
    items = [
        _json_line({"id": item.id, "kind": item.kind, "text": item.text})
        for item in former.items
        if item.closed is None
    ]
    return "\n".join(head + items)


def _chat_history(source_text: str) -> str:
    """Escaped, so that no text in it can close or open a tag."""
    lines = []
    for line in source_lines(source_text):
        role = _XML_ROLES.get(line.author, line.author)
        lines.append(f"<{role}>{html.escape(line.text, quote=False)}</{role}>")
    return tagged("chat_history", "\n".join(lines))


def _focus(focus: str | None, fence: str) -> str:
    told = shortened(focus or "", FOCUS_CHARS)
    return tagged(f"requested_focus_{fence}", told) if told else ""


def _fence(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:10]


def _json_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
