"""What a run costs at the provider, by kind of call and by part of the request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.core.context.prompts import FACTS_TAG, NOTES_TAG, PINS_TAG, RECALL_TAG, SUMMARY_TAG
from shared.core.session.summary import SECTIONS_TAG
from tests.kit.fakes.messages_api.cache import InputUsage
from tests.kit.fakes.messages_api.prefix import Piece, pieces_of
from tests.kit.fakes.messages_api.shapes import Json, compact_json

UNCACHED, WRITTEN, READ = 1.0, 1.25, 0.1
"""What a token of input costs beside one that the provider reads for the first time and forgets."""
KINDS = {"chat": "turn", "flush": "flush", "summary": "summary"}
_TAGS = {
    RECALL_TAG: "recall", NOTES_TAG: "notes", SUMMARY_TAG: "summary", SECTIONS_TAG: "summary",
    PINS_TAG: "pins", FACTS_TAG: "runtime_facts",
}  # fmt: skip


def _counts() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class Bill:
    calls: Counter[str] = field(default_factory=Counter)
    by_kind: defaultdict[str, float] = field(default_factory=_counts)
    by_part: defaultdict[str, float] = field(default_factory=_counts)
    """`rewritten` is what had been written before with the same words, whatever part it belongs to."""
    tokens: Counter[str] = field(default_factory=Counter)
    written: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, kind: str, body: Json, usage: InputUsage) -> None:
        name = KINDS.get(kind, kind)
        self.calls[name] += 1
        self.by_kind[name] += cost_of(usage)
        self.tokens.update(uncached=usage.fresh, written=usage.written, read=usage.read)
        end = 0
        for piece in pieces_of(body):
            end += piece.tokens
            self._add_piece(str(body["model"]), piece, end, usage)

    def _add_piece(self, model: str, piece: Piece, end: int, usage: InputUsage) -> None:
        part, rate = _part_of(piece), UNCACHED
        if end <= usage.read:
            rate = READ
        elif end <= usage.read + usage.written:
            rate = WRITTEN
            key = (model, piece.place, compact_json(piece.block))
            part = "rewritten" if key in self.written else part
            self.written.add(key)
        self.by_part[part] += rate * piece.tokens

    def as_json(self) -> dict[str, Any]:
        return {
            "cost_tokens": round(sum(self.by_kind.values())),
            "calls": sum(self.calls.values()),
            "calls_by_kind": dict(self.calls),
            "cost_by_kind": _rounded(self.by_kind),
            "cost_by_part": _rounded(self.by_part),
            **self.tokens,
        }


def cost_of(usage: InputUsage) -> float:
    return UNCACHED * usage.fresh + WRITTEN * usage.written + READ * usage.read


def _part_of(piece: Piece) -> str:
    if piece.place == "tools":
        return "tools"
    text = str(piece.block.get("text", ""))
    tag = next((part for name, part in _TAGS.items() if f"<{name}" in text), None)
    return tag or ("system" if piece.place == "system" else "messages")


def _rounded(counts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(cost) for name, cost in sorted(counts.items(), key=lambda pair: -pair[1])}
