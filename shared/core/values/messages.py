"""Messages as plain values: blocks, roles, and their JSON form in the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["user", "assistant"]
Author = Literal["person", "assistant", "tool", "operator", "program"]
BEGINNERS: frozenset[Author] = frozenset({"person", "program", "operator"})
"""Whose message may begin a turn: a person's, ours when a reminder is due, or an operator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str
    attachment_id: int | None = None
    """The stored file that it was read from; screens show the file in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture by reference; the bytes are an attachment, `description` is what later turns see."""

    attachment_id: int
    mime: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    tool_use_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The model's own reasoning; sent back only inside the open turn, with its signature untouched."""

    text: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBlock:
    """A block that only the provider understands: a search of its own, its result, thinking under seal.

    It is sent back unchanged while its turn is open; later the words around it say enough.
    """

    raw: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.raw.get("type", ""))


Block = Text | Image | ToolUse | ToolResult | Thinking | ProviderBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: Role
    blocks: tuple[Block, ...]


def text_message(role: Role, text: str) -> Message:
    return Message(role=role, blocks=(Text(text=text),))


def text_of(blocks: Iterable[Block]) -> str:
    """The words of a message: its text blocks, joined by an empty line."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text) and block.text)


def said_of(blocks: Iterable[Block]) -> str:
    """The words of a message without those of its files, which screens show as files."""
    return text_of(
        block for block in blocks if not (isinstance(block, Text) and block.attachment_id is not None)
    )


def tool_uses(blocks: Iterable[Block]) -> tuple[ToolUse, ...]:
    return tuple(block for block in blocks if isinstance(block, ToolUse))


def tool_results(blocks: Iterable[Block]) -> tuple[ToolResult, ...]:
    return tuple(block for block in blocks if isinstance(block, ToolResult))


def block_to_json(block: Block) -> dict[str, Any]:
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
        case Thinking(text=text, signature=signature):
            return {"type": "thinking", "text": text, "signature": signature}
        case ProviderBlock(raw=raw):
            return {"type": "provider", "raw": dict(raw)}


def block_from_json(raw: Mapping[str, Any]) -> Block:
    """Inverse of `block_to_json`; raises ValueError for a kind that this version does not know."""
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
            return Thinking(text=raw["text"], signature=raw["signature"])
        case "provider":
            return ProviderBlock(raw=raw["raw"])
        case other:
            raise ValueError(f"unknown block type {other!r}")


def blocks_to_json(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    return [block_to_json(block) for block in blocks]


def blocks_from_json(raw: Iterable[Mapping[str, Any]]) -> tuple[Block, ...]:
    return tuple(
        [
            Text(text=item["text"]) if item["type"] == "text" and len(item) == 2 else block_from_json(item)
            for item in raw
        ]
    )
