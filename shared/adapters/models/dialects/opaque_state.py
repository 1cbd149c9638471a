"""State that a server hands out with a call of a tool and wants back with its result, unchanged.

DeepSeek wants its `reasoning_content`, OpenRouter its `reasoning_details`, Gemini the `thought_signature` in the
`extra_content` of each call, OpenAI the encrypted items of reasoning, and servers of the Messages API their thinking
blocks, with a signature or without. The state is a block of the answer: it goes back to the same model while its
turn is open, is never shown and never summarised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from shared.core.values.messages import Block, ProviderBlock, Thinking, ToolUse
from shared.core.verdicts.abilities import Ability

Json = dict[str, Any]

KIND = "chat_state_thinking"
"""Type of the block; the word `thinking` in it lets the core treat it as a thought."""
MOST_CHARS = 400_000
"""Characters of a thought that are kept; a longer one is left out, as if the server had sent none."""
_DETAILS = "reasoning_details"
_TEXTS = ("reasoning_content", "reasoning")
"""Fields of a part of an answer with a piece of a thought, the one that servers want back first."""


class StateCollector:
    """State of one answer while it streams."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[object] = []
        self._extras: dict[str, Mapping[str, Any]] = {}
        self._chars = 0

    def take(self, delta: Mapping[str, Any]) -> None:
        """Collect what a part of the answer brings."""
        for name in _TEXTS:
            piece = delta.get(name)
            if isinstance(piece, str) and piece:
                self._texts.setdefault(name, []).append(piece)
                self._chars += len(piece)
        details = delta.get(_DETAILS)
        if isinstance(details, list):
            self._details.extend(details)
            self._chars += len(str(details))
        if self._chars > MOST_CHARS:
            self._texts.clear()
            self._details.clear()

    def take_call(self, id_: str, part: Mapping[str, Any]) -> None:
        """Collect what a part of the call `id_` brings."""
        extra = part.get("extra_content")
        if isinstance(extra, Mapping) and len(str(extra)) <= MOST_CHARS:
            self._extras[id_] = extra

    def build(self) -> Json | None:
        """Return the block of an answer with calls; None if the server sent no state."""
        fields: Json = {}
        if self._details and self._chars <= MOST_CHARS:
            fields[_DETAILS] = list(self._details)
        elif self._chars <= MOST_CHARS:
            name = next((name for name in _TEXTS if name in self._texts), None)
            if name is not None:
                fields[name] = "".join(self._texts[name])
        if not fields and not self._extras:
            return None
        return {"type": KIND, "fields": fields, "extras": dict(self._extras)}


class ReasoningCollector:
    """Encrypted reasoning of one answer of the Responses API, by the item that follows each."""

    def __init__(self) -> None:
        self._waiting: list[Json] = []
        self._before: dict[str, list[Json]] = {}
        self._seen: set[str] = set()
        """Encrypted contents so far: the whole response repeats what has come in pieces."""
        self._chars = 0

    def take(self, item: Mapping[str, Any]) -> None:
        """Keep an item of reasoning until the next item comes."""
        sealed = item.get("encrypted_content")
        if not isinstance(sealed, str) or not sealed or sealed in self._seen:
            return
        self._seen.add(sealed)
        self._chars += len(str(item))
        kept = {name: item[name] for name in ("id", "summary", "encrypted_content") if name in item}
        self._waiting.append({"type": "reasoning", "summary": [], **kept})

    def follow(self, id_: str) -> None:
        """Note that the call `id_` follows the reasoning that waits, or text if it is empty."""
        if self._waiting:
            self._before.setdefault(id_, []).extend(self._waiting)
            self._waiting = []

    def build(self) -> Json | None:
        """Return the block of an answer with calls; None if the server sent no reasoning."""
        if not self._before or self._chars > MOST_CHARS:
            return None
        return {"type": KIND, "reasoning": self._before}


def seal(thought: Mapping[str, Any]) -> Json:
    """Return a block of the Messages API as state; the server gets it back as it came."""
    return {"type": KIND, "block": dict(thought)}


def stamp(blocks: Iterable[Block], model: str, *, is_foreign: bool = False) -> tuple[Block, ...]:
    """Return the blocks with the name of the model that their state belongs to.

    Thinking of a foreign server becomes state, since such a server may want it back whatever its abilities.
    """
    return tuple(_stamp(block, model, is_foreign=is_foreign) for block in blocks)


def _stamp(block: Block, model: str, *, is_foreign: bool) -> Block:
    match block:
        case Thinking(text=text, signature=signature) if is_foreign:
            raw = seal({"type": "thinking", "thinking": text, "signature": signature})
            return ProviderBlock(raw={**raw, "model": model})
        case Thinking():
            return replace(block, model=model)
        case ProviderBlock(kind="redacted_thinking"):
            return ProviderBlock(raw={**seal(block.raw), "model": model})
        case ProviderBlock() if is_state(block):
            return ProviderBlock(raw={**block.raw, "model": model})
    return block


def drop_idle(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return an answer without state if it calls no tool: no result will take the state back."""
    if any(isinstance(block, ToolUse) for block in blocks):
        return blocks
    return tuple(block for block in blocks if not is_state(block))


def is_state(block: Block) -> bool:
    return isinstance(block, ProviderBlock) and block.kind == KIND


def find_state(blocks: Iterable[Block], model: str, missing: Collection[Ability]) -> Mapping[str, Any]:
    """Return the state of an answer for its own model; nothing for another one, or where it was refused."""
    if "opaque_state" in missing:
        return {}
    for block in blocks:
        if isinstance(block, ProviderBlock) and block.kind == KIND and block.raw.get("model") == model:
            return block.raw
    return {}


def find_sealed(block: ProviderBlock, model: str, missing: Collection[Ability]) -> Json | None:
    """Return a thought of the Messages API for its own model; None for another one, or where it was refused."""
    if block.raw.get("model") != model or not {"opaque_state", "thinking"}.isdisjoint(missing):
        return None
    thought = block.raw.get("block")
    return dict(thought) if isinstance(thought, Mapping) else None
