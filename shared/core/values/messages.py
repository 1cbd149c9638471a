"""Parts of a model request: messages and their blocks, system text, tools; and their repair and JSON form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

REPLACEMENT = "\ufffd"
"""Character U+FFFD, which replaces characters that the database or a screen cannot hold."""


def storable(text: str) -> str:
    """Return the text as the database accepts it.

    NUL and lone surrogates become U+FFFD; pairs of surrogates become the characters that they mean.
    """
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    return (
        text if is_whole(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def storable_json(value: Any) -> Any:
    """Return a JSON value with `storable` applied to all its texts and keys; tuples become lists."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable_json(key): storable_json(item) for key, item in value.items()}
        case list() | tuple():
            return [storable_json(item) for item in value]
        case _:
            return value


def is_whole(text: str) -> bool:
    """Return whether a text contains no surrogate code points and can be encoded as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ends_in_half(text: str) -> bool:
    """Return whether the last character is the first half of a surrogate pair, which the next piece
    completes.
    """
    return "\ud800" <= text[-1:] <= "\udbff"


Role = Literal["user", "assistant"]
Author = Literal["person", "assistant", "tool", "operator", "program"]
"""Author of a log entry; `program` stands for Evertalk itself, such as a reminder, `operator` for a human."""
BEGINNERS: frozenset[Author] = frozenset({"person", "program", "operator"})
"""Authors whose message can begin a turn: a person, the program (a reminder), or an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text block of a message."""

    text: str
    attachment_id: int | None = None
    """Id of the stored file from which the text was read; clients show the file. None for typed text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Picture of a message by the id of its attachment.

    `description` is text that replaces the picture in later requests; empty until there is one.
    """

    attachment_id: int
    mime: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Call of a tool by the model; `id` is the provider's id of the call, which its result repeats."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Result of a tool call, with the id of the call."""

    tool_use_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Reasoning of the model; sent back with its signature only while its turn is open."""

    text: str
    signature: str
    model: str = ""
    """Provider's name of the model that wrote the reasoning; empty in blocks stored without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBlock:
    """Block that only the provider reads, such as its own search result or encrypted thinking.

    It is sent back unchanged while its turn is open; later turns leave it out.
    """

    raw: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Type of the block by the provider's name; empty if it has none."""
        return str(self.raw.get("type", ""))


Block = Text | Image | ToolUse | ToolResult | Thinking | ProviderBlock
"""Part of a message: text, picture, tool call or result, reasoning, or a block of the provider's own form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Message of a request to a model: a role and its blocks."""

    role: Role
    blocks: tuple[Block, ...]


def text_message(role: Role, text: str) -> Message:
    """Return a message with one text block."""
    return Message(role=role, blocks=(Text(text=text),))


def text_of(blocks: Iterable[Block]) -> str:
    """Return the non-empty text blocks of a message, texts of files included, joined by empty lines."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text) and block.text)


def text_without_files(blocks: Iterable[Block]) -> str:
    """Return the text of a message without the text of its files, which clients show as files."""
    return text_of(
        block for block in blocks if not (isinstance(block, Text) and block.attachment_id is not None)
    )


ERASED = "[erased]"
"""Text that replaces erased content, the same as in the database function `erased_blocks`."""


def is_erased(blocks: Sequence[Block]) -> bool:
    """Return whether all content of a message was erased; False for a message without blocks."""
    return bool(blocks) and all(isinstance(one, Text) and one.text == ERASED for one in blocks)


FILE_OPENED = "[File "
"""Beginning of a file's text in a message; typed text that begins like this is changed."""


def is_typed(block: Block) -> bool:
    """Return whether a block is text that the person typed, quotes of other messages included.

    Pictures and the texts of files are not.
    """
    return isinstance(block, Text) and block.attachment_id is None and not block.text.startswith(FILE_OPENED)


def with_typed_text(blocks: Sequence[Block], text: str) -> tuple[Block, ...]:
    """Return the blocks with the typed text, which is the first block, replaced by `text`; files stay.

    A blank `text` removes it. Blocks without typed text get `text` as their first block.
    """
    rest = tuple(blocks[1:] if blocks and is_typed(blocks[0]) else blocks)
    return (Text(text=text), *rest) if text.strip() else rest


def typed_text_of(blocks: Sequence[Block]) -> str:
    """Return the text that the person typed, quotes included, from the first block; empty if it is a file."""
    first = blocks[0] if blocks else None
    return first.text if isinstance(first, Text) and is_typed(first) else ""


def is_file(block: Block) -> bool:
    """Return whether a block is a picture or the text of a file."""
    return not is_typed(block)


def replace_file_blocks(
    blocks: Sequence[Block], file: Sequence[Block], *, place: int | None
) -> tuple[Block, ...]:
    """Return the blocks with the file number `place` (from 0) replaced by the blocks `file`.

    None inserts the file before the others, after the typed text; a number above the last appends it. A text
    and the pictures after it count as one file, such as a document with scanned pages.
    """
    head = tuple(blocks[:1] if blocks and is_typed(blocks[0]) else ())
    files: list[list[Block]] = []
    for block in blocks[len(head) :]:
        if isinstance(block, Image) and files and isinstance(files[-1][0], Text):
            files[-1].append(block)
        else:
            files.append([block])
    if place is None or place >= len(files):
        files.insert(0 if place is None else len(files), list(file))
    else:
        files[place] = list(file)
    return (*head, *(block for one in files for block in one))


def replace_typed_text(
    blocks: Sequence[Block], before: Sequence[Block], after: Sequence[Block]
) -> tuple[Block, ...]:
    """Return the blocks of several joined messages after the typed text of one of them was edited.

    `before` and `after` are the blocks of that message before and after its edit. Each typed block with the
    old text gets the new one; empty texts are dropped.
    """
    old, new = typed_text_of(before), typed_text_of(after)
    swapped = (
        Text(text=new) if isinstance(block, Text) and is_typed(block) and block.text == old else block
        for block in blocks
    )
    return tuple(block for block in swapped if not isinstance(block, Text) or block.text)


def tool_uses(blocks: Iterable[Block]) -> tuple[ToolUse, ...]:
    """Return the tool calls among the blocks, in order."""
    return tuple(block for block in blocks if isinstance(block, ToolUse))


def tool_results(blocks: Iterable[Block]) -> tuple[ToolResult, ...]:
    """Return the tool results among the blocks, in order."""
    return tuple(block for block in blocks if isinstance(block, ToolResult))


def block_to_json(block: Block) -> dict[str, Any]:
    """Return a block as JSON for the database, with its kind in `type`; `block_from_json` reads it."""
    match block:
        case Text(text=text, attachment_id=None):
            return {"type": "text", "text": text}
        case Text(text=text, attachment_id=attachment_id):
            return {"type": "text", "text": text, "attachment_id": attachment_id}
        case Image(attachment_id=attachment_id, mime=mime, description=description):
            return {"type": "image", "attachment_id": attachment_id, "mime": mime, "description": description}
        case ToolUse(id=id_, name=name, input=input_):
            return {"type": "tool_use", "id": id_, "name": name, "input": dict(input_)}
        case ToolResult(tool_use_id=tool_use_id, text=text, is_error=is_error):
            return {"type": "tool_result", "tool_use_id": tool_use_id, "text": text, "is_error": is_error}
        case Thinking(text=text, signature=signature, model=model):
            thought = {"type": "thinking", "text": text, "signature": signature}
            return {**thought, "model": model} if model else thought
        case ProviderBlock(raw=raw):
            return {"type": "provider", "raw": dict(raw)}


def block_from_json(raw: Mapping[str, Any]) -> Block:
    """Return the block that `block_to_json` wrote.

    Raises ValueError for a type that this version does not know, KeyError for a missing field.
    """
    match raw["type"]:
        case "text":
            return Text(text=raw["text"], attachment_id=raw.get("attachment_id"))
        case "image":
            return Image(
                attachment_id=raw["attachment_id"], mime=raw["mime"], description=raw.get("description", "")
            )
        case "tool_use":
            return ToolUse(id=raw["id"], name=raw["name"], input=raw["input"])
        case "tool_result":
            return ToolResult(
                tool_use_id=raw["tool_use_id"], text=raw["text"], is_error=raw.get("is_error", False)
            )
        case "thinking":
            return Thinking(text=raw["text"], signature=raw["signature"], model=raw.get("model", ""))
        case "provider":
            return ProviderBlock(raw=raw["raw"])
        case other:
            raise ValueError(f"unknown block type {other!r}")


def blocks_to_json(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return blocks as a JSON list for the database, in order."""
    return [block_to_json(block) for block in blocks]


def blocks_from_json(raw: Iterable[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Return the blocks that `blocks_to_json` wrote. Raises as `block_from_json` does."""
    return tuple(
        [
            Text(text=item["text"]) if item["type"] == "text" and len(item) == 2 else block_from_json(item)
            for item in raw
        ]
    )


NOT_EXECUTED = "[not executed]"
"""Error text of a tool result that `repair` adds for a call without one."""
NO_OUTPUT = "[no output]"
"""Text that replaces a blank tool result, since providers refuse empty ones."""
EARLIER = "[The beginning of this conversation is not shown.]"
"""Text of the user message that `repair` puts before a leading answer."""
GO_ON = "[Please continue.]"
"""Text of the user message that `repair` adds after a trailing answer."""
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages that providers accept: roles alternate from user to user, every tool call has its
    result.

    A missing result is added. Blank texts, results without a call, calls with a bad id or name, reasoning
    without signature and reasoning at the end of a message are dropped. Valid messages are returned
    unchanged; an empty list stays empty.
    """
    if _is_fine(messages):
        return tuple(messages)
    merged = _merge(_clean(messages))
    paired = _merge(_pair(merged))
    return _frame(paired)


def _is_fine(messages: Sequence[Message]) -> bool:
    """Return whether the messages need no repair, which is checked first because it is nearly always so."""
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
            if _keep_usable(block, role) is not block:
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


def _clean(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without blocks that providers refuse: blank, of the wrong role, or repeated."""
    calls: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        blocks: list[Block] = []
        for block in message.blocks:
            if isinstance(block, ToolUse):
                if block.id in calls:
                    continue
                calls.add(block.id)
            usable = _keep_usable(block, message.role)
            if usable is not None:
                blocks.append(usable)
        kept.append(replace(message, blocks=tuple(blocks)))
    return kept


def _keep_usable(block: Block, role: Role) -> Block | None:
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


def _merge(messages: Iterable[Message]) -> list[Message]:
    """Return messages with neighbours of the same role joined, none empty, and none ending in thinking."""
    return _join(map(_without_trailing_thinking, _join(messages)))


def is_thought(block: Block) -> bool:
    """Return whether a block is reasoning of the model, also in a provider's own form."""
    return isinstance(block, Thinking) or (isinstance(block, ProviderBlock) and "thinking" in block.kind)


def _join(messages: Iterable[Message]) -> list[Message]:
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


def _pair(messages: Sequence[Message]) -> list[Message]:
    paired: list[Message] = []
    waiting: tuple[ToolUse, ...] = ()
    for message in messages:
        if message.role == "assistant":
            if waiting:
                paired.append(_answer_calls(waiting, ()))
            paired.append(message)
            waiting = tool_uses(message.blocks)
        else:
            paired.append(_answer_calls(waiting, message.blocks))
            waiting = ()
    if waiting:
        paired.append(_answer_calls(waiting, ()))
    return paired


def _answer_calls(calls: Sequence[ToolUse], blocks: Sequence[Block]) -> Message:
    """Return the user message after these calls: one result for each call, then the other blocks.

    A call without a result gets an error.
    """
    given: dict[str, ToolResult] = {}
    for result in tool_results(blocks):
        given.setdefault(result.tool_use_id, result)
    results = (
        given.get(call.id, ToolResult(tool_use_id=call.id, text=NOT_EXECUTED, is_error=True))
        for call in calls
    )
    rest = (block for block in blocks if not isinstance(block, ToolResult))
    return Message(role="user", blocks=(*results, *rest))


def _frame(messages: list[Message]) -> tuple[Message, ...]:
    if messages and messages[0].role == "assistant":
        messages = [text_message("user", EARLIER), *messages]
    if messages and messages[-1].role == "assistant":
        messages = [*messages, text_message("user", GO_ON)]
    return tuple(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """Tool that a request offers to the model; `input_schema` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(hash=False)
    provider: Mapping[str, Any] | None = field(default=None, hash=False)
    """Definition of a tool that the provider runs itself, sent unchanged; None for our own tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPart:
    """Part of the system text of a request to a model."""

    text: str
    cache: bool = False
    """True if the text up to here does not change between calls, so that the provider can cache it."""
