"""Tells a person's own words from what they only pass on, and what tools have brought into a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from shared.core.session.session import Entry
from shared.core.values.messages import Block, Image, ProviderBlock, Text, text_of, tool_results, tool_uses

FROM_A_TOOL = ", from a tool"
"""Marks a note that only a tool vouches for, where notes are listed."""
SEARCH_OF_NOTES = "search_memory"
OF_OUR_MAKING = frozenset(
    {"save_memory", "update_memory", "forget_memory", "current_time", "calculate", "remind_me"}
)
"""Their results hold nothing that the model or the person has not said, or that anybody else could write."""
_OWN_QUOTE = re.compile(r"\[(?:In reply to|Quoting) their own message\]$")
_FILE, _END_OF_FILE = re.compile(r"\[File [^\]\n]*\]$"), "[End of file]"
_QUOTE = ">"
_PROVIDER_READS = ("server_tool_use", "_tool_result")
"""How the names of blocks end with which a provider tells of what it has looked up itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What can be read in some turns, by whose words it is."""

    own: tuple[str, ...]
    foreign: tuple[str, ...]


def own_words(blocks: Iterable[Block]) -> str:
    """What a person has written themselves: no quotes of others, no files, nothing that a picture shows."""
    return "\n".join(line for line, own in _lines(blocks) if own)


def passed_on(blocks: Iterable[Block]) -> str:
    """The rest of a person's message: who wrote it is not known."""
    return "\n".join(line for line, own in _lines(blocks) if not own)


def looked_up(blocks: Iterable[Block]) -> bool:
    """Whether the provider has searched or read something itself for this answer."""
    return any(isinstance(block, ProviderBlock) and block.kind.endswith(_PROVIDER_READS) for block in blocks)


def foreign_part(tool: str, result: str) -> str:
    """What of a tool's result others may have written; of notes, those that only a tool vouches for."""
    if tool in OF_OUR_MAKING:
        return ""
    if tool == SEARCH_OF_NOTES:
        return "\n".join(line for line in result.splitlines() if FROM_A_TOOL in line.partition(")")[0])
    return result


def heard(entries: Sequence[Entry]) -> Heard:
    """Of entries in the order of their turns.

    What the assistant says in a turn that something foreign came into may repeat it, and counts as foreign.
    """
    tools = {call.id: call.name for entry in entries for call in tool_uses(entry.blocks)}
    own: list[str] = []
    foreign: list[str] = []
    for _, group in groupby(entries, key=lambda entry: entry.turn):
        turn = list(group)
        brought = [text for entry in turn for text in _brought(entry, tools)]
        if brought or any(looked_up(entry.blocks) for entry in turn):
            brought += [text_of(entry.blocks) for entry in turn if entry.author == "assistant"]
        own += [own_words(entry.blocks) for entry in turn if entry.author == "person"]
        foreign += brought
    return Heard(own=tuple(filter(None, own)), foreign=tuple(filter(None, foreign)))


def _brought(entry: Entry, tools: Mapping[str, str]) -> list[str]:
    match entry.author:
        case "person":
            texts = [passed_on(entry.blocks)]
        case "tool":
            results = tool_results(entry.blocks)
            texts = [foreign_part(tools.get(result.tool_use_id, ""), result.text) for result in results]
        case _:
            texts = []
    return [text for text in texts if text]


def _lines(blocks: Iterable[Block]) -> Iterable[tuple[str, bool]]:
    for block in blocks:
        match block:
            case Text(text=text):
                yield from _of_text(text)
            case Image(description=description) if description:
                yield description, False


def _of_text(text: str) -> Iterable[tuple[str, bool]]:
    """Lines, and whether they are the person's own; a file without an end goes on to that of the text."""
    inside: Literal["", "file", "own quote"] = ""
    for line in text.splitlines():
        quote = line.lstrip().startswith(_QUOTE)
        if inside == "file":
            inside = "" if line == _END_OF_FILE else "file"
            yield line, False
        elif _FILE.match(line):
            inside = "file"
            yield line, False
        elif _OWN_QUOTE.search(line):
            inside = "own quote"
        else:
            inside = inside if quote else ""
            yield line, not quote or inside == "own quote"
