"""Answers a summary request out of the very sentences of its source, each with its seq; invents nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.models.offline_words import (
    SourceLine,
    kind_of,
    salience,
    sentences,
    shortened,
    source_lines,
)

_MAX_ITEMS = 14
_MAX_ITEM_CHARS = 280
_NARRATIVE_SENTENCES = 4
_NARRATIVE_WORDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    place: int
    line: SourceLine
    text: str
    kind: str
    weight: int


def asks_for_summary(text: str) -> bool:
    return '"narrative"' in text and '"add"' in text


def summary(request: str) -> str:
    """The JSON that a summary request wants: narrative, add, replace, close."""
    chosen = _chosen(_candidates(source_lines(request)))
    add = [
        {
            "kind": item.kind,
            "text": shortened(item.text, _MAX_ITEM_CHARS),
            "sources": [item.line.seq],
            "author": "person" if item.line.by_person else "assistant",
        }
        for item in chosen
    ]
    answer = {"narrative": _narrative(chosen), "add": add, "replace": {}, "close": {}}
    return json.dumps(answer, ensure_ascii=False)


def _candidates(lines: Sequence[SourceLine]) -> tuple[_Candidate, ...]:
    found: dict[str, _Candidate] = {}
    for line in lines:
        for sentence in sentences(line.text):
            weight = salience(sentence) + (2 if line.by_person else 0)
            candidate = _Candidate(
                place=len(found), line=line, text=sentence, kind=kind_of(sentence), weight=weight
            )
            found.setdefault(sentence.casefold(), candidate)
    return tuple(found.values())


def _chosen(candidates: Sequence[_Candidate]) -> tuple[_Candidate, ...]:
    """What a person forbade and their last question always stay; the rest by weight, in order of time."""
    persons = [item for item in candidates if item.line.by_person]
    must = {item.place for item in persons if item.kind == "constraint"}
    must.update(item.place for item in [item for item in persons if item.kind == "question"][-1:])
    ranked = sorted(candidates, key=lambda item: (item.place not in must, -item.weight, item.place))
    return tuple(sorted(ranked[: max(_MAX_ITEMS, len(must))], key=lambda item: item.place))


def _narrative(items: Sequence[_Candidate]) -> str:
    room = _NARRATIVE_WORDS
    kept: list[_Candidate] = []
    for item in sorted(items, key=lambda item: (-item.weight, item.place)):
        words = len(item.text.split())
        if words <= room and len(kept) < _NARRATIVE_SENTENCES:
            kept.append(item)
            room -= words
    return " ".join(item.text for item in sorted(kept, key=lambda item: item.place))
