"""State that a server returns with a tool call and needs back, unchanged, with the tool's result.

DeepSeek needs its `reasoning_content`, OpenRouter its `reasoning_details`, Gemini the `thought_signature` in
the `extra_content` of each call, OpenAI encrypted reasoning items, and servers of the Messages API thinking
blocks. The state is a block of the answer: sent back to the same model during its turn, never shown or
summarised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from shared.core.values.messages import Block, ProviderBlock, Thinking, ToolUse
from shared.core.verdicts.abilities import Ability

Json = dict[str, Any]

KIND = "chat_state_thinking"
"""Type of the state's block; since it contains `thinking`, the core treats the block as a thought."""
MOST_CHARS = 400_000
"""Maximum characters of a state; a longer one is dropped, as if the server had sent none."""
_DETAILS = "reasoning_details"
_TEXTS = ("reasoning_content", "reasoning")
"""Fields of a streamed part with a piece of a thought; the one that servers need back comes first."""


class StateCollector:
    """Collector of the state of one answer while it is streamed."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[object] = []
        self._extras: dict[str, Mapping[str, Any]] = {}
        self._chars = 0

    def take(self, delta: Mapping[str, Any]) -> None:
        """Add the state in a part of the answer."""
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
        """Add the state in a part of the tool call `id_`."""
        extra = part.get("extra_content")
        if isinstance(extra, Mapping) and len(str(extra)) <= MOST_CHARS:
            self._extras[id_] = extra

    def build(self) -> Json | None:
        """Return the block with the collected state; None if the server sent none."""
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
    """Collector of a Responses answer's encrypted reasoning items, grouped by the item after them."""

    def __init__(self) -> None:
        self._waiting: list[Json] = []
        self._before: dict[str, list[Json]] = {}
        self._seen: set[str] = set()
        """Encrypted contents so far, since the final response repeats them."""
        self._chars = 0

    def take(self, item: Mapping[str, Any]) -> None:
        """Keep a reasoning item until `follow`; ignore it if it has no encrypted content or is known."""
        sealed = item.get("encrypted_content")
        if not isinstance(sealed, str) or not sealed or sealed in self._seen:
            return
        self._seen.add(sealed)
        self._chars += len(str(item))
        kept = {name: item[name] for name in ("id", "summary", "encrypted_content") if name in item}
        self._waiting.append({"type": "reasoning", "summary": [], **kept})

    def follow(self, id_: str) -> None:
        """Assign the waiting reasoning to the call `id_` that follows it; "" means text."""
        if self._waiting:
            self._before.setdefault(id_, []).extend(self._waiting)
            self._waiting = []

    def build(self) -> Json | None:
        """Return the block with the collected reasoning; None if the server sent none."""
        if not self._before or self._chars > MOST_CHARS:
            return None
        return {"type": KIND, "reasoning": self._before}


def seal(thought: Mapping[str, Any]) -> Json:
    """Return a thinking block of the Messages API as a state block."""
    return {"type": KIND, "block": dict(thought)}


def stamp(blocks: Iterable[Block], model: str, *, is_foreign: bool = False) -> tuple[Block, ...]:
    """Return the blocks with the name of the model to which their state belongs.

    Thinking of a foreign server becomes state, since such a server may need it back whatever its abilities.
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
    """Return the blocks, without state if they have no tool call whose result would send it back."""
    if any(isinstance(block, ToolUse) for block in blocks):
        return blocks
    return tuple(block for block in blocks if not is_state(block))


def is_state(block: Block) -> bool:
    """Return whether a block holds the opaque state of a server with Chat Completions."""
    return isinstance(block, ProviderBlock) and block.kind == KIND


def find_state(blocks: Iterable[Block], model: str, missing: Collection[Ability]) -> Mapping[str, Any]:
    """Return the state of `model` in these blocks; empty if there is none or the server refused it."""
    if "opaque_state" in missing:
        return {}
    for block in blocks:
        if isinstance(block, ProviderBlock) and block.kind == KIND and block.raw.get("model") == model:
            return block.raw
    return {}


def find_sealed(block: ProviderBlock, model: str, missing: Collection[Ability]) -> Json | None:
    """Return the thinking block that `block` keeps in the form of the API, for a request to `model`.

    Returns None if another model made it, or if `missing` says that the server refuses such blocks.
    """
    if block.raw.get("model") != model or not {"opaque_state", "thinking"}.isdisjoint(missing):
        return None
    thought = block.raw.get("block")
    return dict(thought) if isinstance(thought, Mapping) else None
