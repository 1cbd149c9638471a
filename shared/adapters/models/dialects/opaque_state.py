"""State that a server hands out with a call of a tool and wants back with its result, unchanged.

DeepSeek wants its `reasoning_content`, OpenRouter its `reasoning_details`, Gemini the `thought_signature` in the
`extra_content` of each call. The state is a block of the answer: it goes back to the same model while its turn is
open, is never shown and never summarised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from shared.core.values.messages import Block, ProviderBlock
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


def stamp(blocks: Iterable[Block], model: str) -> tuple[Block, ...]:
    """Return the blocks with the name of the model that their state belongs to."""
    return tuple(
        ProviderBlock(raw={**block.raw, "model": model})
        if isinstance(block, ProviderBlock) and is_state(block)
        else block
        for block in blocks
    )


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
