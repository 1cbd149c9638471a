"""Artifacts: excerpts in the log of texts that are too large, and how the model reads the rest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from shared.core.session.policy import ContextPolicy
from shared.core.values.errors import EvertalkError
from shared.core.values.messages import Block, Text, ToolResult, ToolSpec
from shared.core.values.tokens import Count

PORTION_TOKENS = 4_000
LONG_CHARS = 16_000
"""Longer messages of people are shown in part, with all their files."""
SHOWN_CHARS = 12_000
"""Characters shown of such a message: two thirds from its head, a third from its tail."""
_LEAST_SHOWN_CHARS = 600
READER = "recall"
"""The tool that reads the rest."""
_HEADER_TOKENS = 150
_HEAD_PART, _TAIL_PART = 8, 16
"""Head and tail that the log shows, as parts of `spill_over`."""
_CHARS_PER_TOKEN_MOST, _TOKENS_PER_CHAR_MOST = 8, 4
_BEFORE_A_FIND = 300
_MORE_FINDS = 5
_ID = re.compile(r"art_[0-9a-f]{12}")
_MESSAGE = re.compile(r"msg_([1-9][0-9]{0,17})")
_REFERENCE = re.compile(r"\[Kept whole as art_[0-9a-f]{12}: [^\n]*\]")


class ArtifactNotReadable(EvertalkError):
    """An artifact was asked for that is not there, or a portion that it does not have."""

    code = "artifact_not_readable"

    def __init__(self, advice: str) -> None:
        super().__init__(advice, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """The whole of a text that the log or a request shows by head and tail."""

    id: str
    body: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    start: int
    text: str
    found: tuple[int, ...] = ()
    """Where the words stand from the first find on, a few of them."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def can_open(tools: Iterable[ToolSpec]) -> bool:
    """Whether a model that is offered these tools can read on in an artifact."""
    return any(tool.name == READER for tool in tools)


def artifact_id(text: str) -> str:
    """The same text has the same id, so that storing it again changes nothing and repeats stay repeats."""
    return f"art_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def digest_prefix(artifact: str) -> str:
    """The first six bytes, in hex, of the digest that an id names; raises `ArtifactNotReadable`."""
    if not _ID.fullmatch(artifact):
        raise ArtifactNotReadable(
            f"{artifact[:40]!r} is not the id of an artifact; one looks like art_0123456789ab."
        )
    return artifact.removeprefix("art_")


def message_in(artifact: str) -> int | None:
    """The number of the message that an id names; the log has it whole, so that nothing is stored for it."""
    found = _MESSAGE.fullmatch(artifact)
    return int(found[1]) if found else None


def shorten_blocks(blocks: tuple[Block, ...], seq: int) -> tuple[Block, ...]:
    """Shorten a long message to heads and tails as requests show it, the same way each time."""
    total = sum(len(block.text) for block in blocks if isinstance(block, Text))
    if total <= LONG_CHARS:
        return blocks
    return tuple(
        _text_in_part(block, max(_LEAST_SHOWN_CHARS, SHOWN_CHARS * len(block.text) // total), seq)
        if isinstance(block, Text)
        else block
        for block in blocks
    )


def _text_in_part(block: Text, room: int, seq: int) -> Text:
    text, tail = block.text, room // 3
    reference = (
        f"[Shown in part: {len(text):,} characters of message #{seq}. Its beginning and its end follow; "
        f"{READER} reads the rest, with the artifact msg_{seq}.]"
    )
    if len(text) <= room + len(reference):
        return block
    head = room - tail
    left_out = f"[… {len(text) - room:,} characters left out …]"
    return replace(block, text=f"{reference}\n{text[:head]}\n{left_out}\n{text[-tail:]}")


def spill_text(text: str, artifact: str, policy: ContextPolicy, count: Count) -> str:
    """The text itself, or, above `spill_over` tokens, its head and tail behind a line with the id."""
    whole = _too_long(text, policy, count)
    return text if whole is None else _keep_excerpt(replace(whole, id=artifact), policy, count)


def _too_long(text: str, policy: ContextPolicy, count: Count) -> Artifact | None:
    if len(text) <= policy.pruning.spill_over // _TOKENS_PER_CHAR_MOST:
        return None  # no counter finds that many tokens in it
    tokens = count(text)
    return (
        Artifact(id=artifact_id(text), body=text, tokens=tokens)
        if tokens > policy.pruning.spill_over
        else None
    )


def _keep_excerpt(whole: Artifact, policy: ContextPolicy, count: Count) -> str:
    head, tail = policy.pruning.spill_over // _HEAD_PART, policy.pruning.spill_over // _TAIL_PART
    return excerpt(whole, head=head, tail=tail, count=count)


def excerpt(artifact: Artifact, *, head: int, tail: int, count: Count) -> str:
    """Return head and tail in tokens; the line with the id comes first, where pruning leaves it."""
    body = artifact.body
    begin, end = head_and_tail(body, head=head, tail=tail, count=count)
    reference = (
        f"[Kept whole as {artifact.id}: {len(body):,} characters, about {artifact.tokens:,} tokens. "
        f"Its beginning and its end follow; {READER} reads the rest.]"
    )
    left_out = len(body) - len(begin) - len(end)
    return f"{reference}\n{begin}\n[… {left_out:,} characters left out …]\n{end}"


def head_and_tail(body: str, *, head: int, tail: int, count: Count) -> tuple[str, str]:
    """Return beginning and end of a text, at most `head` and `tail` tokens, without overlap."""
    begin = body[: _fitting(head, len(body), lambda size: count(body[:size]))]
    rest = body[len(begin) :]
    end = rest[len(rest) - _fitting(tail, len(rest), lambda size: count(rest[len(rest) - size :])) :]
    return begin, end


def spill_results(
    results: Sequence[ToolResult], policy: ContextPolicy, count: Count, *, spare: Collection[str] = ()
) -> tuple[tuple[ToolResult, ...], tuple[Artifact, ...]]:
    """Results as they enter the log, and the artifacts to be stored with them; `spare` names calls."""
    kept: list[Artifact] = []
    shown: list[ToolResult] = []
    for result in results:
        whole = None if result.tool_use_id in spare else _too_long(result.text, policy, count)
        if whole is not None:
            kept.append(whole)
        shown.append(result if whole is None else replace(result, text=_keep_excerpt(whole, policy, count)))
    return tuple(shown), tuple(kept)


def artifact_of(text: str, count: Count) -> Artifact:
    return Artifact(id=artifact_id(text), body=text, tokens=count(text))


def reference_in(text: str) -> str:
    """The line that names a spilled text's artifact, or nothing: it stays when the rest is cleared."""
    found = _REFERENCE.match(text)
    return found.group() if found else ""


def portion(
    body: str, *, offset: int = 0, find: str = "", count: Count, most: int = PORTION_TOKENS
) -> Portion:
    """Return at most `most` tokens from `offset`, or from near the next `find`. Raises
    ArtifactNotReadable.
    """
    if not 0 <= offset < len(body):
        raise ArtifactNotReadable(
            f"`offset` is {offset}; the artifact has {len(body):,} characters, so 0 … {len(body) - 1}."
        )
    found: tuple[int, ...] = ()
    start = offset
    if find:
        found = _places(body, offset, find)
        start = max(offset, found[0] - _BEFORE_A_FIND)
    size = _fitting(most - _HEADER_TOKENS, len(body) - start, lambda size: count(body[start : start + size]))
    return Portion(start=start, text=body[start : start + max(1, size)], found=found)


def portion_text(artifact: str, body: str, shown: Portion) -> str:
    """Return a portion as the model reads it: its place, its text, and how to continue."""
    lines = [f"{artifact}, characters {shown.start:,} to {shown.end:,} of {len(body):,}."]
    if shown.found:
        first, *more = shown.found
        also = f"; next at {', '.join(map(str, more))}" if more else "; nowhere after that"
        lines.append(f"Found at {first}{also}.")
    lines.append(shown.text)
    if shown.end < len(body):
        lines.append(f"[goes on at offset={shown.end}]")
    return "\n".join(lines)


def _places(body: str, offset: int, find: str) -> tuple[int, ...]:
    wanted = re.compile(re.escape(find), re.IGNORECASE)
    found: list[int] = []
    for match in wanted.finditer(body, offset):
        found.append(match.start())
        if len(found) > _MORE_FINDS:
            break
    if found:
        return tuple(found)
    before = wanted.search(body)
    where = f"only before character {offset:,}: ask with a smaller offset" if before else "nowhere in it"
    raise ArtifactNotReadable(f"{find[:80]!r} stands {where}. Try fewer or other words, or read by offset.")


def _fitting(limit: int, chars: int, tokens: Callable[[int], int]) -> int:
    """The largest number of characters, to within a few, that takes at most `limit` tokens."""
    low, high = 0, min(chars, limit * _CHARS_PER_TOKEN_MOST)
    if tokens(high) <= limit:
        return high
    while high - low > _CHARS_PER_TOKEN_MOST:
        middle = (low + high) // 2
        low, high = (middle, high) if tokens(middle) <= limit else (low, middle)
    return low
