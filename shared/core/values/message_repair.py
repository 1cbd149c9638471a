"""Makes any list of messages a request that the provider accepts, without touching what was said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shared.core.values.messages import (
    Block,
    Image,
    Message,
    ProviderBlock,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
    tool_results,
    tool_uses,
)

NOT_EXECUTED = "[not executed]"
NO_OUTPUT = "[no output]"
EARLIER = "[The beginning of this conversation is not shown.]"
GO_ON = "[Please continue.]"
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Roles alternate from user to user, each tool call is answered at once, no block is empty.

    A call whose result was lost gets a synthetic one; a result without its call is dropped; results come
    first in their message. A valid request comes back unchanged, an empty one stays empty.
    """
    if _is_fine(messages):
        return tuple(messages)
    merged = _merged(_cleaned(messages))
    paired = _merged(_paired(merged))
    return _framed(paired)


def _is_fine(messages: Sequence[Message]) -> bool:
    """True when there is nothing to mend, as nearly always: one look instead of five passes of copying."""
    calls: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role: Role = "assistant" if index % 2 else "user"
        if message.role != role or not message.blocks:
            return False
        first = message.blocks[0]
        if len(message.blocks) == 1 and not waiting and isinstance(first, Text) and _is_words(first.text):
            continue
        asked: list[str] = []
        given: list[str] = []
        for block in message.blocks:
            if _usable(block, role) is not block:
                return False
            if isinstance(block, ToolUse):
                asked.append(block.id)
            elif isinstance(block, ToolResult):
                given.append(block.tool_use_id)
        if given != waiting or len(tool_results(message.blocks[: len(given)])) < len(given):
            return False
        if is_thought(message.blocks[-1]) or len({*calls, *asked}) < len(calls) + len(asked):
            return False
        calls.update(asked)
        waiting = asked
    return len(messages) % 2 == 1


def _is_words(text: str) -> bool:
    return bool(text) and not text.isspace()


def _cleaned(messages: Iterable[Message]) -> list[Message]:
    """Without blocks that the provider refuses by themselves: blank, of the other role, repeated."""
    calls: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        blocks: list[Block] = []
        for block in message.blocks:
            if isinstance(block, ToolUse):
                if block.id in calls:
                    continue
                calls.add(block.id)
            usable = _usable(block, message.role)
            if usable is not None:
                blocks.append(usable)
        kept.append(replace(message, blocks=tuple(blocks)))
    return kept


def _usable(block: Block, role: Role) -> Block | None:
    match block:
        case Text(text=text):
            return block if text.strip() else None
        case Thinking(signature=signature):
            return block if signature and role == "assistant" else None
        case ToolUse(id=id_, name=name):
            well_formed = _CALL_ID.fullmatch(id_) and _TOOL_NAME.fullmatch(name)
            return block if role == "assistant" and well_formed else None
        case ProviderBlock():
            return block if role == "assistant" else None
        case Image():
            return block if role == "user" else None
        case ToolResult(text=text):
            if role != "user":
                return None
            return block if text.strip() else replace(block, text=NO_OUTPUT)


def _merged(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one role as one message; none is empty, none of the assistant's ends in thinking."""
    return _joined(map(_without_trailing_thinking, _joined(messages)))


def is_thought(block: Block) -> bool:
    return isinstance(block, Thinking) or (isinstance(block, ProviderBlock) and "thinking" in block.kind)


def _joined(messages: Iterable[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        if not message.blocks:
            continue
        if joined and joined[-1].role == message.role:
            joined[-1] = replace(message, blocks=joined[-1].blocks + message.blocks)
        else:
            joined.append(message)
    return joined


def _without_trailing_thinking(message: Message) -> Message:
    blocks = message.blocks
    while blocks and is_thought(blocks[-1]):
        blocks = blocks[:-1]
    return message if blocks == message.blocks else replace(message, blocks=blocks)


def _paired(messages: Sequence[Message]) -> list[Message]:
    paired: list[Message] = []
    waiting: tuple[ToolUse, ...] = ()
    for message in messages:
        if message.role == "assistant":
            if waiting:
                paired.append(_answering(waiting, ()))
            paired.append(message)
            waiting = tool_uses(message.blocks)
        else:
            paired.append(_answering(waiting, message.blocks))
            waiting = ()
    if waiting:
        paired.append(_answering(waiting, ()))
    return paired


def _answering(calls: Sequence[ToolUse], blocks: Sequence[Block]) -> Message:
    """The user message after these calls: one result for each, then everything else."""
    given: dict[str, ToolResult] = {}
    for result in tool_results(blocks):
        given.setdefault(result.tool_use_id, result)
    results = (
        given.get(call.id, ToolResult(tool_use_id=call.id, text=NOT_EXECUTED, is_error=True))
        for call in calls
    )
    rest = (block for block in blocks if not isinstance(block, ToolResult))
    return Message(role="user", blocks=(*results, *rest))


def _framed(messages: list[Message]) -> tuple[Message, ...]:
    if messages and messages[0].role == "assistant":
        messages = [text_message("user", EARLIER), *messages]
    if messages and messages[-1].role == "assistant":
        messages = [*messages, text_message("user", GO_ON)]
    return tuple(messages)
