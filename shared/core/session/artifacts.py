"""Artifacts: oversized texts that are stored whole, while the log shows an excerpt and the model reads on by
tool.
"""

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
"""Most tokens of one portion of an artifact, its header included."""
LONG_CHARS = 16_000
"""Characters above which requests show only part of a message text; its files stay."""
SHOWN_CHARS = 12_000
"""Characters that requests show of a message above `LONG_CHARS`: two thirds of its head, one third of its
tail.
"""
_LEAST_SHOWN_CHARS = 600
READER = "recall"
"""Name of the tool with which a model reads the rest of an artifact."""
_HEADER_TOKENS = 150
_HEAD_PART, _TAIL_PART = 8, 16
"""Divisors of `spill_over` that give the tokens of an excerpt's head and tail: an eighth and a sixteenth."""
_CHARS_PER_TOKEN_MOST, _TOKENS_PER_CHAR_MOST = 8, 4
_BEFORE_A_FIND = 300
_MORE_FINDS = 5
_ID = re.compile(r"art_[0-9a-f]{12}")
_MESSAGE = re.compile(r"msg_([1-9][0-9]{0,17})")
_REFERENCE = re.compile(r"\[Kept whole as art_[0-9a-f]{12}: [^\n]*\]")


class ArtifactNotReadable(EvertalkError):
    """Request by the model for an artifact that does not exist, or for a portion that it does not have.

    `advice` is the text of the tool's result, which the model reads.
    """

    sentence = "There is no such artifact, or it has no such portion."
    code = "artifact_not_readable"

    def __init__(self, advice: str) -> None:
        super().__init__(advice, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Full text of which the log or a request shows only head and tail; `id` as in `artifact_id`."""

    id: str
    body: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Part of an artifact's text that begins at character `start`."""

    start: int
    text: str
    found: tuple[int, ...] = ()
    """Character positions at which the searched text occurs, from the first match on; at most 6."""

    @property
    def end(self) -> int:
        """Position of the character after the part."""
        return self.start + len(self.text)


def can_open(tools: Iterable[ToolSpec]) -> bool:
    """Return whether the model is offered the tool that reads artifacts."""
    return any(tool.name == READER for tool in tools)


def artifact_id(text: str) -> str:
    """Return the id of a text, such as `art_0123456789ab`; equal texts have equal ids."""
    return f"art_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def digest_prefix(artifact: str) -> str:
    """Return the 12 hex digits of an artifact's id. Raises ArtifactNotReadable if it is not an id."""
    if not _ID.fullmatch(artifact):
        raise ArtifactNotReadable(
            f"{artifact[:40]!r} is not the id of an artifact; one looks like art_0123456789ab."
        )
    return artifact.removeprefix("art_")


def message_in(artifact: str) -> int | None:
    """Return the `seq` of the message that an id such as `msg_7` names; None if the id is of another form.

    Messages stay whole in the log, so no artifact is stored for them.
    """
    found = _MESSAGE.fullmatch(artifact)
    return int(found[1]) if found else None


def shorten_blocks(blocks: tuple[Block, ...], seq: int) -> tuple[Block, ...]:
    """Return the blocks of a message, its texts cut to head and tail if they exceed 16,000 characters
    together.

    The result is the same for each request. `seq` is the message's number, under which a line names the rest.
    """
    total = sum(len(block.text) for block in blocks if isinstance(block, Text))
    if total <= LONG_CHARS:
        return blocks
    return tuple(
        _excerpt_text(block, max(_LEAST_SHOWN_CHARS, SHOWN_CHARS * len(block.text) // total), seq)
        if isinstance(block, Text)
        else block
        for block in blocks
    )


def _excerpt_text(block: Text, room: int, seq: int) -> Text:
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
    """Return the text, or its excerpt if it has more than the policy's `spill_over` tokens; nothing is
    stored.

    `artifact` is the id that the excerpt names, under which the caller keeps the whole text.
    """
    whole = _make_artifact(text, policy, count)
    return text if whole is None else _keep_excerpt(replace(whole, id=artifact), policy, count)


def _make_artifact(text: str, policy: ContextPolicy, count: Count) -> Artifact | None:
    if len(text) <= policy.pruning.spill_over // _TOKENS_PER_CHAR_MOST:
        return None  # a text of this length cannot have more tokens than the limit
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
    """Return the first `head` and last `tail` tokens of an artifact, below a line with its id and size.

    The line comes first because pruning keeps it there.
    """
    body = artifact.body
    begin, end = head_and_tail(body, head=head, tail=tail, count=count)
    reference = (
        f"[Kept whole as {artifact.id}: {len(body):,} characters, about {artifact.tokens:,} tokens. "
        f"Its beginning and its end follow; {READER} reads the rest.]"
    )
    left_out = len(body) - len(begin) - len(end)
    return f"{reference}\n{begin}\n[… {left_out:,} characters left out …]\n{end}"


def head_and_tail(body: str, *, head: int, tail: int, count: Count) -> tuple[str, str]:
    """Return the beginning and the end of a text, of at most `head` and `tail` tokens, without overlap."""
    begin = body[: _fitting(head, len(body), lambda size: count(body[:size]))]
    rest = body[len(begin) :]
    end = rest[len(rest) - _fitting(tail, len(rest), lambda size: count(rest[len(rest) - size :])) :]
    return begin, end


def spill_results(
    results: Sequence[ToolResult], policy: ContextPolicy, count: Count, *, spare: Collection[str] = ()
) -> tuple[tuple[ToolResult, ...], tuple[Artifact, ...]]:
    """Return tool results as the log stores them, and the artifacts of the oversized ones, still to be
    stored.

    Results above the policy's `spill_over` tokens become excerpts, except those of the call ids in `spare`.
    """
    kept: list[Artifact] = []
    shown: list[ToolResult] = []
    for result in results:
        whole = None if result.tool_use_id in spare else _make_artifact(result.text, policy, count)
        if whole is not None:
            kept.append(whole)
        shown.append(result if whole is None else replace(result, text=_keep_excerpt(whole, policy, count)))
    return tuple(shown), tuple(kept)


def artifact_of(text: str, count: Count) -> Artifact:
    """Return the artifact of a text, with its id and its tokens; it is not stored."""
    return Artifact(id=artifact_id(text), body=text, tokens=count(text))


def reference_in(text: str) -> str:
    """Return the first line of an excerpt, which names its artifact; empty if the text is no excerpt."""
    found = _REFERENCE.match(text)
    return found.group() if found else ""


def portion(
    body: str, *, offset: int = 0, find: str = "", count: Count, most: int = PORTION_TOKENS
) -> Portion:
    """Return at most `most` tokens of a text, 150 of them for its header, from the character `offset` on.

    With `find`, in any case of letters, the portion begins up to 300 characters before the next occurrence,
    but not before `offset`. Raises ArtifactNotReadable if `offset` is outside the text or `find` does not
    occur.
    """
    if not 0 <= offset < len(body):
        raise ArtifactNotReadable(
            f"`offset` is {offset}; the artifact has {len(body):,} characters, so 0 … {len(body) - 1}."
        )
    found: tuple[int, ...] = ()
    start = offset
    if find:
        found = _find_places(body, offset, find)
        start = max(offset, found[0] - _BEFORE_A_FIND)
    size = _fitting(most - _HEADER_TOKENS, len(body) - start, lambda size: count(body[start : start + size]))
    return Portion(start=start, text=body[start : start + max(1, size)], found=found)


def portion_text(artifact: str, body: str, shown: Portion) -> str:
    """Return the text that the model receives for a portion: its place, further matches, its text, the next
    offset.
    """
    lines = [f"{artifact}, characters {shown.start:,} to {shown.end:,} of {len(body):,}."]
    if shown.found:
        first, *more = shown.found
        also = f"; next at {', '.join(map(str, more))}" if more else "; nowhere after that"
        lines.append(f"Found at {first}{also}.")
    lines.append(shown.text)
    if shown.end < len(body):
        lines.append(f"[goes on at offset={shown.end}]")
    return "\n".join(lines)


def _find_places(body: str, offset: int, find: str) -> tuple[int, ...]:
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
    """Return the largest number of characters, within 8, that takes at most `limit` tokens."""
    low, high = 0, min(chars, limit * _CHARS_PER_TOKEN_MOST)
    if tokens(high) <= limit:
        return high
    while high - low > _CHARS_PER_TOKEN_MOST:
        middle = (low + high) // 2
        low, high = (middle, high) if tokens(middle) <= limit else (low, middle)
    return low
