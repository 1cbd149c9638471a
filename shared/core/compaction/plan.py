"""Plan of a compaction: which turns it hides, in which portions a model reads them, and as which text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from math import ceil, floor
from typing import Literal

from shared.core.context.prompts import OUR_TAGS
from shared.core.session.artifacts import LONG_CHARS
from shared.core.session.budget import ContextBudget
from shared.core.session.ledger import Ledger
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import (
    Entry,
    View,
    drop_edited,
    find_unresolved_turns,
    is_answered,
    list_corrections,
    turns_of,
)
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.messages import Block, Image, Text, ToolResult, ToolUse, text_of, tool_results
from shared.core.values.secrets_filter import redact
from shared.core.values.tokens import Count, estimate_by_script

NoReason = Literal["nothing_old", "open_turn_too_big", "pins", "unanswered", "gain_too_small", "grows"]
"""Reasons why nothing is hidden.

`nothing_old`: all turns are kept; `open_turn_too_big`: the open turn fills the budget; `pins`: the rest is
pinned; `unanswered`: the rest is not answered; `gain_too_small`: too little would be saved; `grows`: the
context would become larger.
"""
Turn = tuple[Entry, ...]

MIN_SUMMARY = 64
"""Fewest tokens in which a summary can say anything."""
CHUNK_TOKENS = 24_000
"""Most tokens of a portion if several are needed."""
SUMMARY_ROOM = 4_096
"""Fewest tokens that an answer to a summary request may have, except for small windows."""
SUMMARY_MOST = 2_000
"""Default of the most tokens of a summary."""
RULES = 600
"""Tokens of a summary request besides the messages and the former summary."""
MIN_CHUNK = 500
"""Fewest tokens of a portion, even for a small window."""
CHUNK_SHARE = 0.6
"""Largest share of the summary model's window for a portion; the rest is for rules, former summary and
answer.
"""
NAMED_SHARE = 0.5
"""Share of the summary model's window above which a message is only mentioned, not sent."""
_NAMED_TOKENS = 60
TOOL_RESULT_TOKENS = 600
"""Most tokens that a summary request shows of one tool result."""
MESSAGE_TOKENS = 10_000
"""Most tokens that a summary request shows of one message."""
_CALL_CHARS = 300
_CHARS_PER_TOKEN = 4

_BEGINNING_CHARS = 2_000
_FIRST_WORDS = 12

NOT_ANSWERED = "(not answered)"
"""Mark after the last line of a turn without an answer."""
NAMED = "(a message of about "
"""Beginning of the line that mentions a message too long to be read."""

_INJECTED = re.compile(
    rf"<({'|'.join(OUR_TAGS)})\b[^<>]*+>.*?(?:</\1\s*+>|\Z)"
    rf"|<\s*+/?+\s*+(?:{'|'.join(OUR_TAGS)})\b[^<>]*+>",
    re.IGNORECASE | re.DOTALL,
)
_MOST_ROUNDS = 8
"""Rounds in which nested tags are removed; deeper ones are made harmless like incomplete tags."""
_OPENED = re.compile(rf"<(?=\s*+/?+\s*+(?:{'|'.join(OUR_TAGS)})\b)", re.IGNORECASE)
_LINE = re.compile(r"^\[#(\d+)\] (\w+): ?(.*)$")
_DATE = re.compile(r"^--- (\d{4}-\d\d-\d\d) ---$")

Portion = tuple[Entry, ...]
"""Entries of a compaction that one request to the summary model covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """Turns that a compaction will hide, `from_turn` to `through_turn`, and the limits of its summary.

    `tokens_before` and `expected_after` are sizes of the context; `chunks` are the portions to be summarised,
    in order.
    """

    from_turn: int
    through_turn: int
    through_seq: int
    entries: tuple[Entry, ...]
    """Entries to summarise: the hidden turns without pinned messages."""
    former: Ledger
    """Ledger of the turns hidden before; the new summary replaces it, too."""
    tokens_before: int
    expected_after: int
    summary_limit: int
    """Most estimated tokens of the new summary, so that the context becomes small enough."""
    chunks: tuple[Portion, ...]
    form: SummaryForm = "ledger"
    merged: bool = False
    """True summarises portions separately and lets the model merge them; False extends one summary portion by
    portion.
    """
    summary_most: int = SUMMARY_MOST
    """Most tokens of the intermediate summary between two portions."""
    named: frozenset[int] = frozenset()
    """`seq` of messages that are too long for the summary model; the request only mentions them."""
    stays: int = 0
    """Tokens of a request besides the new summary, as the chat model counts them."""
    replaced: int = 0
    """Tokens that the new summary replaces, as the chat model counts them."""
    ratio: float = 1.0
    """Tokens of the chat model per estimated token."""
    zone: tzinfo = UTC
    """Time zone of the dates in the source text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToCompact:
    """Result in place of a plan or a commit: the reason why there is none, and its English `detail`."""

    reason: NoReason
    detail: str
    sizes: tuple[int, ...] = ()
    """Tokens of the context now and with a summary; empty if unknown."""


def plan_compaction(
    view: View,
    *,
    budget: ContextBudget,
    policy: ContextPolicy,
    now_tokens: int,
    force: bool = False,
    keep_turns: int | None = None,
    summariser_window: int = 200_000,
    ratio: float = 1.0,
    zone: tzinfo = UTC,
) -> CompactionPlan | NothingToCompact:
    """Return the plan of a compaction, or the reason why no turn can be hidden; nothing is stored.

    `now_tokens` is the size of the context. `force` plans even if little is saved. `keep_turns` replaces the
    policy's number of newest turns to keep, down to its least; None keeps it. `summariser_window` is the
    window of the summary model in tokens; `ratio` is the chat model's tokens per estimated token. The open
    turn and pins are never hidden.
    """
    ended = tuple(turn for turn in turns_of(view.entries) if turn[0].turn != view.open_turn)
    open_tokens = _tokens((e for e in view.entries if e.turn == view.open_turn), ratio)
    most, patience = _find_tail_limits(view, budget, policy, ratio, asked=keep_turns is not None)
    wanted = _tail_length(ended, open_tokens, most, budget, policy, keep_turns, ratio, relaxed=force)
    unresolved = find_unresolved_turns(view.entries, view.open_turn)
    kept = _with_unresolved(ended, unresolved, wanted, patience, ratio, relaxed=force)
    hidden = ended[: len(ended) - kept]
    source = tuple(entry for turn in hidden for entry in turn if not entry.pinned)
    corrections = list_corrections(view)
    if not source:
        return _explain_nothing(hidden, open_tokens, budget, kept, wanted)
    tail_tokens = open_tokens + _tokens((e for turn in ended[len(hidden) :] for e in turn), ratio)
    pin_tokens = _tokens((*view.pins, *(e for turn in hidden for e in turn if e.pinned)), ratio)
    summary_limit = _summary_limit(budget, policy, tail_tokens + pin_tokens, summariser_window, ratio)
    summary_tokens = _expected_summary(view, source, summary_limit, ratio)
    expected = budget.fixed + tail_tokens + pin_tokens + summary_tokens
    if not force and not _gains(now_tokens, expected, budget, policy):
        detail = f"{now_tokens:,} tokens now, about {expected:,} after"
        return NothingToCompact(reason="gain_too_small", detail=detail, sizes=(now_tokens, expected))
    former_seq = max(view.head.through_seq if view.head else 0, *(entry.seq for entry in corrections), 0)
    source += corrections
    margin = ratio * policy.writing.summary_margin
    named = find_oversized(source, summariser_window, margin)
    return CompactionPlan(
        from_turn=view.base_turn + 1,
        through_turn=hidden[-1][0].turn,
        through_seq=max(former_seq, *(entry.seq for turn in hidden for entry in turn)),
        entries=source,
        former=drop_edited(view.head.ledger, corrections) if view.head else Ledger(),
        tokens_before=now_tokens,
        expected_after=expected,
        summary_limit=summary_limit,
        chunks=portions(
            source,
            whole=readable(summariser_window, policy.writing.summary_most),
            limit=chunk_limit(summariser_window, policy.writing.summary_most),
            ratio=margin,
            named=named,
            even=policy.writing.summary_merged,
        ),
        form=policy.writing.summary_form,
        merged=policy.writing.summary_merged,
        summary_most=min(policy.writing.summary_most, summariser_window // 4),
        named=named,
        stays=budget.fixed + tail_tokens + pin_tokens,
        replaced=_tokens(source, ratio) + (ceil(view.head.tokens * ratio) if view.head else 0),
        ratio=ratio,
        zone=zone,
    )


def why_not_committed(
    plan: CompactionPlan, summary_tokens: int, *, budget: ContextBudget, policy: ContextPolicy, force: bool
) -> NothingToCompact | None:
    """Return why a written summary of `summary_tokens` estimated tokens must not be committed; None if it may
    be.

    A summary larger than what it replaces is always refused. `force` skips the check that enough is saved.
    """
    summary = ceil(plan.ratio * summary_tokens)
    after = plan.stays + summary
    if summary > plan.replaced:
        grown = plan.tokens_before + summary - plan.replaced
        detail = f"{plan.tokens_before:,} → {grown:,} tokens"
        reason: NoReason = "grows" if force else "gain_too_small"
        return NothingToCompact(reason=reason, detail=detail, sizes=(plan.tokens_before, grown))
    lands = after - budget.fixed <= policy.keeping.find_landing(budget.conversation)
    helps = _gains(plan.tokens_before, after, budget, policy) and (
        lands or summary_tokens <= policy.writing.summary_least
    )
    if force or helps:
        return None
    detail = f"{plan.tokens_before:,} tokens now, {after:,} with the summary that was written"
    return NothingToCompact(reason="gain_too_small", detail=detail, sizes=(plan.tokens_before, after))


def why_not_smaller(before: int, after: int) -> NothingToCompact | None:
    """Return the reason to refuse a change of the view; None if it makes the next request smaller.

    `before` and `after` are the tokens of the request.
    """
    if after < before:
        return None
    return NothingToCompact(reason="grows", detail=f"{before:,} → {after:,} tokens", sizes=(before, after))


def smaller_summary(plan: CompactionPlan, *, budget: ContextBudget, policy: ContextPolicy) -> int | None:
    """Return the most estimated tokens with which a summary of this plan would save enough.

    None if not even the smallest, of 64 tokens, would.
    """
    gain = budget.fixed + floor(policy.keeping.gain_at_most * (plan.tokens_before - budget.fixed))
    landing = budget.fixed + policy.keeping.find_landing(budget.conversation)
    room = min(plan.replaced, min(gain, landing) - plan.stays)
    most = floor(room / plan.ratio)
    return most if most >= MIN_SUMMARY else None


def _find_tail_limits(
    view: View, budget: ContextBudget, policy: ContextPolicy, ratio: float, *, asked: bool
) -> tuple[int, int]:
    """Return two limits for the turns kept live, in tokens: usual, and to keep an unanswered message.

    The second is half the budget, and so is the first if `asked` says that a number of turns was requested.
    Both shrink to leave room for the shortest summary and all pins.
    """
    half = budget.conversation // 2
    most = policy.keeping.find_tail_room(budget.conversation)
    most = max(most, half) if asked else most
    pins = _tokens((*view.pins, *(entry for entry in view.entries if entry.pinned)), ratio)
    landing = max(0, policy.keeping.find_landing(budget.conversation) - policy.writing.summary_least - pins)
    return min(most, landing), min(max(most, half) if most else 0, landing)


def _tail_length(
    ended: Sequence[Turn],
    open_tokens: int,
    most: int,
    budget: ContextBudget,
    policy: ContextPolicy,
    keep_turns: int | None,
    ratio: float,
    *,
    relaxed: bool,
) -> int:
    """Return how many of the newest ended turns stay live: as many as wanted, within the token limits."""
    keeping = policy.keeping
    wanted = max(keeping.keep_turns_least, keeping.keep_turns if keep_turns is None else keep_turns)
    least = 0 if relaxed or keep_turns is not None else keeping.find_least_tail(budget.conversation)
    tokens = open_tokens
    kept = 0
    for turn in reversed(ended):
        size = _tokens(turn, ratio)
        enough = kept >= wanted and tokens >= least
        too_much = kept >= keeping.keep_turns_least and tokens + size > most
        if enough or too_much:
            break
        kept += 1
        tokens += size
    return kept


def _with_unresolved(
    ended: Sequence[Turn],
    unresolved: frozenset[int],
    kept: int,
    most: int,
    ratio: float,
    *,
    relaxed: bool,
) -> int:
    """Return how many turns stay live if the oldest unresolved turn that fits is kept, too; at least `kept`.

    An unresolved turn that would need more than `most` tokens is summarised and marked as unanswered.
    """
    for place, turn in enumerate(ended[: len(ended) - kept]):
        if turn[0].turn in unresolved and (place > 0 or not relaxed):
            longer = ended[place:]
            if _tokens((entry for t in longer for entry in t), ratio) <= most:
                return len(longer)
    return kept


def _explain_nothing(
    hidden: Sequence[Turn], open_tokens: int, budget: ContextBudget, kept: int, wanted: int
) -> NothingToCompact:
    if hidden:
        return NothingToCompact(reason="pins", detail="all older messages are pinned")
    if open_tokens > budget.conversation // 2:
        detail = f"the message that is being answered takes {open_tokens:,} tokens"
        return NothingToCompact(reason="open_turn_too_big", detail=detail)
    if kept > wanted:
        detail = "the oldest message that is left was not answered, or what it asked for failed"
        return NothingToCompact(reason="unanswered", detail=detail)
    return NothingToCompact(
        reason="nothing_old", detail=f"only the last {kept} turns are there, and they stay"
    )


def _summary_limit(
    budget: ContextBudget, policy: ContextPolicy, stays: int, summariser_window: int, ratio: float
) -> int:
    """Return the most tokens of the new summary, in estimated tokens."""
    left = floor((policy.keeping.find_landing(budget.conversation) - stays) / ratio)
    most = min(policy.writing.summary_most, max(MIN_SUMMARY, summariser_window // 4))
    return min(most, max(policy.writing.summary_least, left))


def _expected_summary(view: View, source: Sequence[Entry], summary_limit: int, ratio: float) -> int:
    former = ceil(view.head.tokens * ratio) if view.head else 0
    return min(ceil(summary_limit * ratio), former + _tokens(source, ratio) // 4)


def _gains(before: int, after: int, budget: ContextBudget, policy: ContextPolicy) -> bool:
    """Return whether the conversation, without system and tools, shrinks enough."""
    return after - budget.fixed <= policy.keeping.gain_at_most * (before - budget.fixed)


def _tokens(entries: Iterable[Entry], ratio: float) -> int:
    return ceil(sum(entry.tokens for entry in entries) * ratio)


def summary_room(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """Return the most tokens of an answer to a summary request, at most a quarter of the model's window.

    `summary_most` is the most tokens of the summary itself.
    """
    return min(max(SUMMARY_ROOM, summary_most + summary_most // 4), summariser_window // 4)


def readable(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """Return the tokens of messages that fit into one summary request, besides rules, former summary and
    answer.
    """
    former = min(summary_most, summariser_window // 4)
    beside = summary_room(summariser_window, summary_most) + RULES + former
    return max(MIN_CHUNK, min(floor(CHUNK_SHARE * summariser_window), summariser_window - beside))


def chunk_limit(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """Return the most tokens of a portion if several are needed: 24,000, or what one request can read if
    less.
    """
    return min(CHUNK_TOKENS, readable(summariser_window, summary_most))


def find_oversized(entries: Iterable[Entry], summariser_window: int, ratio: float = 1.0) -> frozenset[int]:
    """Return the `seq` of messages above half of the summary model's window, which requests only mention.

    `ratio` is the model's tokens per stored token. Tool results are never among them, since they are sent by
    head and tail.
    """
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
    """Return the entries as one portion if they fit into `whole` tokens, else as portions of at most `limit`
    tokens.

    A message above `limit` forms a portion alone. `even` makes portions similar in size, so that each has the
    same weight when they are summarised separately. `ratio` and `named` are as in `split_into_chunks`.
    """
    total = source_tokens(entries, ratio, named)
    if total <= whole:
        return (tuple(entries),) if entries else ()
    if even:
        parts = ceil(total / limit)
        made = _split_evenly(entries, total / parts, ratio, named)
        if all(source_tokens(portion, ratio, named) <= limit for portion in made):
            return made
    return split_into_chunks(entries, limit, ratio, named)


def split_into_chunks(
    entries: Sequence[Entry], limit: int, ratio: float = 1.0, named: frozenset[int] = frozenset()
) -> tuple[Portion, ...]:
    """Return the entries in portions of at most `limit` tokens, split between turns.

    A turn above `limit` is split between its messages; a message is never split. `ratio` is the model's
    tokens per stored token; messages in `named` count as their short mention.
    """
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
    """Return a portion in two halves of about equal size, split between turns or else between messages.

    None for a single message.
    """
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
    """Return the tokens of the entries as `render_source` shows them, times `ratio`, rounded up.

    Messages in `named` count as their short mention.
    """
    return ceil(sum(_shown_tokens(entry, named) for entry in entries) * ratio)


def _shown_tokens(entry: Entry, named: frozenset[int]) -> int:
    if entry.seq in named:
        return _NAMED_TOKENS
    if entry.author == "tool":
        return min(entry.tokens, TOOL_RESULT_TOKENS * len(tool_results(entry.blocks)))
    return min(whole_tokens(entry), MESSAGE_TOKENS)


def _split_evenly(
    entries: Sequence[Entry], share: float, ratio: float, named: frozenset[int]
) -> tuple[Portion, ...]:
    made: list[list[Entry]] = [[]]
    done = 0.0
    for turn in turns_of(entries):
        size = source_tokens(turn, ratio, named)
        if made[-1] and done + size / 2 > share * len(made):
            made.append([])
        made[-1].extend(turn)
        done += size
    return tuple(tuple(portion) for portion in made)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """Message in the source text of a summary; `text` may have several lines."""

    seq: int
    author: str
    text: str


def render_source(
    entries: Sequence[Entry],
    *,
    count: Count = estimate_by_script,
    message_tokens: int = MESSAGE_TOKENS,
    named: frozenset[int] = frozenset(),
    zone: tzinfo = UTC,
) -> str:
    """Return the messages as lines `[#12] person: text` below their dates, for a summary request.

    Long messages and results are shown by head and tail, those in `named` only mentioned. Secrets and the
    program's own additions are removed, and no text can imitate such a line. A turn without an answer ends
    with `NOT_ANSWERED`. `zone` is that of the dates.
    """
    lines: list[str] = []
    date = ""
    for turn in turns_of(entries):
        for entry in turn:
            if (day := entry.at.astimezone(zone).date().isoformat()) != date:
                date = day
                lines.append(f"--- {day} ---")
            told = entry.seq in named
            words = render_message_name(entry) if told else _entry_words(entry, count, message_tokens)
            if words:
                lines.append(f"[#{entry.seq}] {entry.author}: {words}")
        if not is_answered(turn) and lines:
            lines[-1] = f"{lines[-1]} {NOT_ANSWERED}"
    return "\n".join(lines)


def whole_tokens(entry: Entry) -> int:
    """Return the estimated tokens of a whole message.

    An entry of a person's long message stores only the tokens of the part that requests show.
    """
    words = text_of(entry.blocks) if entry.author == "person" else ""
    return entry.tokens if len(words) <= LONG_CHARS else max(entry.tokens, estimate_by_script(words))


def render_message_name(entry: Entry) -> str:
    """Return the line for a message that is too long to read: its size, time in UTC and first twelve
    words.
    """
    words = redact(_without_injections(text_of(entry.blocks)[:_BEGINNING_CHARS])).split()
    beginning = _escape_line(" ".join(words[:_FIRST_WORDS])).replace('"', "'").strip()
    return (
        f"{NAMED}{whole_tokens(entry):,} tokens, sent at {entry.at:%H:%M} UTC, too long to be read here; "
        f'it begins: "{beginning}")'
    )


def source_lines(source_text: str) -> tuple[SourceLine, ...]:
    """Return the messages in a text that `render_source` made, in order."""
    found: list[SourceLine] = []
    for line in source_text.splitlines():
        if match := _LINE.match(line):
            found.append(SourceLine(seq=int(match[1]), author=match[2], text=match[3]))
        elif found and not _DATE.match(line):
            last = found[-1]
            found[-1] = SourceLine(seq=last.seq, author=last.author, text=f"{last.text}\n{line}")
    return tuple(found)


def source_dates(source_text: str) -> tuple[str, ...]:
    """Return the ISO dates in a text that `render_source` made, in order."""
    return tuple(match[1] for line in source_text.splitlines() if (match := _DATE.match(line)))


def source_words(source_text: str) -> str:
    """Return the texts of the messages in a text that `render_source` made, one per line, without dates and
    authors.
    """
    return "\n".join(line.text for line in source_lines(source_text))


def _entry_words(entry: Entry, count: Count, message_tokens: int) -> str:
    words = (_block_words(block, count, message_tokens) for block in entry.blocks)
    joined = "\n".join(word for word in words if word)
    lines = (line.rstrip() for line in redact(joined).splitlines())
    return "\n".join(_escape_line(line) for line in lines if line.strip())


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
    """Return the text without the program's own tags and their content.

    Removal is repeated, since what is left of two broken tags may form a whole one.
    """
    if "<" not in text:
        return text
    for _ in range(_MOST_ROUNDS):
        text, removed = _INJECTED.subn("", text)
        if not removed:
            break
    return _OPENED.sub("‹", text)


def _head_and_tail(text: str, limit: int, count: Count) -> str:
    if len(text) <= limit or count(text) <= limit:
        return text
    half = max(80, limit * len(text) // count(text) // 2)
    if 2 * half >= len(text):
        half = limit * _CHARS_PER_TOKEN // 8
    left_out = len(text) - 2 * half
    return f"{text[:half]} [… {left_out:,} characters left out …] {text[-half:]}"


def _escape_line(line: str) -> str:
    """Return the line with signs escaped that could imitate a line of the source text."""
    defused = line.replace("[#", "( #")
    return f" {defused}" if _DATE.match(defused) else defused
