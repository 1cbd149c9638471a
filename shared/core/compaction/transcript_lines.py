"""The hidden part of a conversation as numbered lines, in portions: what a summary is made from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from math import ceil, floor

from shared.core.context.prompts import OUR_TAGS
from shared.core.session.artifacts import LONG_CHARS
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry, answered, turns_of
from shared.core.values.messages import Block, Image, Text, ToolResult, ToolUse, text_of, tool_results
from shared.core.values.secrets_filter import redact
from shared.core.values.tokens import Count, by_script

TOOL_RESULT_TOKENS = 600
MESSAGE_TOKENS = 10_000
_CALL_CHARS = 300
_CHARS_PER_TOKEN = 4

_BEGINNING_CHARS = 2_000
_FIRST_WORDS = 12

NOT_ANSWERED = "(not answered)"
NAMED = "(a message of about "
"""How the line of a message begins that was too long to be read."""

_INJECTED = re.compile(
    rf"<({'|'.join(OUR_TAGS)})\b[^>]*>.*?(?:</\1\s*>|\Z)|<\s*/?\s*(?:{'|'.join(OUR_TAGS)})\b[^>]*>",
    re.IGNORECASE | re.DOTALL,
)
_OPENED = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(OUR_TAGS)})\b)", re.IGNORECASE)
_LINE = re.compile(r"^\[#(\d+)\] (\w+): ?(.*)$")
_DATE = re.compile(r"^--- (\d{4}-\d\d-\d\d) ---$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    seq: int
    author: str
    text: str


def render_source(
    entries: Sequence[Entry],
    *,
    count: Count = by_script,
    message_tokens: int = MESSAGE_TOKENS,
    named: frozenset[int] = frozenset(),
    zone: tzinfo = UTC,
) -> str:
    """Lines `[#12] person: words` under dates of a zone; long results and giant messages by head and tail.

    Messages whose seq is in `named` are told of, not shown. Secrets and what we put into the conversation
    ourselves are taken out. A text cannot imitate a line.
    """
    lines: list[str] = []
    date = ""
    for turn in turns_of(entries):
        for entry in turn:
            if (day := entry.at.astimezone(zone).date().isoformat()) != date:
                date = day
                lines.append(f"--- {day} ---")
            told = entry.seq in named
            words = named_message(entry) if told else _entry_words(entry, count, message_tokens)
            if words:
                lines.append(f"[#{entry.seq}] {entry.author}: {words}")
        if not answered(turn) and lines:
            lines[-1] = f"{lines[-1]} {NOT_ANSWERED}"
    return "\n".join(lines)


def whole_tokens(entry: Entry) -> int:
    """Of all that was said; with a long message stands what its part takes that requests show."""
    words = text_of(entry.blocks) if entry.author == "person" else ""
    return entry.tokens if len(words) <= LONG_CHARS else max(entry.tokens, by_script(words))


def named_message(entry: Entry) -> str:
    """What stands for a message that is too long to be read: when, how long, how it begins."""
    words = redact(_without_injections(text_of(entry.blocks)[:_BEGINNING_CHARS])).split()
    beginning = _harmless(" ".join(words[:_FIRST_WORDS])).replace('"', "'").strip()
    return (
        f"{NAMED}{whole_tokens(entry):,} tokens, sent at {entry.at:%H:%M} UTC, too long to be read here; "
        f'it begins: "{beginning}")'
    )


def source_lines(source_text: str) -> tuple[SourceLine, ...]:
    """What `render_source` wrote, read back."""
    found: list[SourceLine] = []
    for line in source_text.splitlines():
        if match := _LINE.match(line):
            found.append(SourceLine(seq=int(match[1]), author=match[2], text=match[3]))
        elif found and not _DATE.match(line):
            last = found[-1]
            found[-1] = SourceLine(seq=last.seq, author=last.author, text=f"{last.text}\n{line}")
    return tuple(found)


def with_days(ledger: Ledger, entries: Iterable[Entry], zone: tzinfo) -> Ledger:
    """Each item with the day on which the newest of its sources was said, where that is among the entries."""
    days = {entry.seq: entry.at.astimezone(zone).date().isoformat() for entry in entries}
    items = (
        replace(item, day=max((days[seq] for seq in item.sources if seq in days), default=item.day))
        for item in ledger.items
    )
    return replace(ledger, items=tuple(items))


def source_dates(source_text: str) -> tuple[str, ...]:
    return tuple(match[1] for line in source_text.splitlines() if (match := _DATE.match(line)))


def source_words(source_text: str) -> str:
    """The words alone, without dates, numbers and authors."""
    return "\n".join(line.text for line in source_lines(source_text))


def _entry_words(entry: Entry, count: Count, message_tokens: int) -> str:
    words = (_block_words(block, count, message_tokens) for block in entry.blocks)
    joined = "\n".join(word for word in words if word)
    lines = (line.rstrip() for line in redact(joined).splitlines())
    return "\n".join(_harmless(line) for line in lines if line.strip())


def _block_words(block: Block, count: Count, message_tokens: int) -> str:
    match block:
        case Text(text=text):
            return _head_and_tail(_without_injections(text), message_tokens, count)
        case ToolResult(text=text):
            return _head_and_tail(_without_injections(text), TOOL_RESULT_TOKENS, count)
        case Image(attachment_id=number, description=description):
            return f"(picture {number}: {_without_injections(description) or 'not described'})"
        case ToolUse(name=name, input=arguments):
            written = _without_injections(json.dumps(arguments, ensure_ascii=False, default=dict))
            return f"(uses {name} with {written[:_CALL_CHARS]})"
        case _:
            return ""


def _without_injections(text: str) -> str:
    """Again and again: what is left of two broken marks may be a whole one."""
    if "<" not in text:
        return text
    while (cleaned := _INJECTED.sub("", text)) != text:
        text = cleaned
    return _OPENED.sub("‹", text)


def _head_and_tail(text: str, limit: int, count: Count) -> str:
    if len(text) <= limit or count(text) <= limit:
        return text
    half = max(80, limit * len(text) // count(text) // 2)
    if 2 * half >= len(text):
        half = limit * _CHARS_PER_TOKEN // 8
    left_out = len(text) - 2 * half
    return f"{text[:half]} [… {left_out:,} characters left out …] {text[-half:]}"


def _harmless(line: str) -> str:
    """A line of ours begins with a mark that no text may begin with."""
    defused = line.replace("[#", "( #")
    return f" {defused}" if _DATE.match(defused) else defused


CHUNK_TOKENS = 24_000
SUMMARY_ROOM = 4_096
SUMMARY_MOST = 2_000
RULES = 600
RULES_AND_FORMER = RULES + SUMMARY_MOST
"""Tokens of a summary request besides the log: the rules, and a former record at its largest."""
MIN_CHUNK = 500
CHUNK_SHARE = 0.6
"""Of the summariser's window; the rest is for the rules, the former record and the answer."""
NAMED_SHARE = 0.5
"""A message above this share of the summariser's window is named, not sent."""
_NAMED_TOKENS = 60

Portion = tuple[Entry, ...]


def summary_room(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """The longest answer to a summary request, in tokens: a quarter of a small window."""
    return min(max(SUMMARY_ROOM, summary_most + summary_most // 4), summariser_window // 4)


def readable(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """How much of the log fits into one request beside rules, former record and answer."""
    former = min(summary_most, summariser_window // 4)
    beside = summary_room(summariser_window, summary_most) + RULES + former
    return max(MIN_CHUNK, min(floor(CHUNK_SHARE * summariser_window), summariser_window - beside))


def chunk_limit(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """How large a portion is where there have to be several."""
    return min(CHUNK_TOKENS, readable(summariser_window, summary_most))


def oversized(entries: Iterable[Entry], summariser_window: int, ratio: float = 1.0) -> frozenset[int]:
    """Seqs of the messages that are only named. Tool results never are: they are shown by head and tail."""
    most = floor(NAMED_SHARE * summariser_window)
    return frozenset(e.seq for e in entries if e.author != "tool" and ceil(whole_tokens(e) * ratio) > most)


def portions(
    entries: Sequence[Entry],
    *,
    whole: int,
    limit: int,
    ratio: float = 1.0,
    named: frozenset[int] = frozenset(),
    even: bool = False,
) -> tuple[Portion, ...]:
    """Everything at once if `whole` tokens are enough, else portions of at most `limit`.

    `even` makes them about equally large: each is summarised by itself, and none should weigh more.
    """
    total = source_tokens(entries, ratio, named)
    if total <= whole:
        return (tuple(entries),) if entries else ()
    if even:
        parts = ceil(total / limit)
        made = _even(entries, total / parts, ratio, named)
        if all(source_tokens(portion, ratio, named) <= limit for portion in made):
            return made
    return chunked(entries, limit, ratio, named)


def chunked(
    entries: Sequence[Entry], limit: int, ratio: float = 1.0, named: frozenset[int] = frozenset()
) -> tuple[Portion, ...]:
    """Portions of at most `limit` tokens, cut between turns; a turn is cut only if too large alone."""
    pieces: list[Portion] = []
    for turn in turns_of(entries):
        fits = source_tokens(turn, ratio, named) <= limit
        pieces.extend([turn] if fits else [(entry,) for entry in turn])
    chunks: list[Portion] = []
    room = 0
    for piece in pieces:
        size = source_tokens(piece, ratio, named)
        if chunks and size <= room:
            chunks[-1] += piece
            room -= size
        else:
            chunks.append(piece)
            room = limit - size
    return tuple(chunks)


def halves(portion: Portion) -> tuple[Portion, Portion] | None:
    """Two portions instead of one that was refused: cut between turns, else between messages, else not."""
    turns = turns_of(portion)
    pieces = turns if len(turns) > 1 else tuple((entry,) for entry in portion)
    if len(pieces) < 2:
        return None
    half = source_tokens(portion) / 2
    first: Portion = pieces[0]
    for place in range(1, len(pieces) - 1):
        if source_tokens(first) + source_tokens(pieces[place]) / 2 > half:
            break
        first += pieces[place]
    return first, portion[len(first) :]


def source_tokens(entries: Iterable[Entry], ratio: float = 1.0, named: frozenset[int] = frozenset()) -> int:
    """As `render_source` will show them."""
    return ceil(sum(_shown_tokens(entry, named) for entry in entries) * ratio)


def _shown_tokens(entry: Entry, named: frozenset[int]) -> int:
    if entry.seq in named:
        return _NAMED_TOKENS
    if entry.author == "tool":
        return min(entry.tokens, TOOL_RESULT_TOKENS * len(tool_results(entry.blocks)))
    return min(whole_tokens(entry), MESSAGE_TOKENS)


def _even(entries: Sequence[Entry], share: float, ratio: float, named: frozenset[int]) -> tuple[Portion, ...]:
    made: list[list[Entry]] = [[]]
    done = 0.0
    for turn in turns_of(entries):
        size = source_tokens(turn, ratio, named)
        if made[-1] and done + size / 2 > share * len(made):
            made.append([])
        made[-1].extend(turn)
        done += size
    return tuple(tuple(portion) for portion in made)
