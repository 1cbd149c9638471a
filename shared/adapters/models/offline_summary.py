"""Answers a summary request out of the very sentences of its source, each with its seq; invents nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.models.offline_words import (
    OWN_PHRASES,
    TOOL_CALL,
    OfflineLine,
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
_FORMER = re.compile(r'^\{"former narrative":.*\}$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    place: int
    line: OfflineLine
    text: str
    kind: str
    weight: int


def asks_for_summary(text: str) -> bool:
    return '"narrative"' in text and '"add"' in text


def summary(request: str) -> str:
    """The JSON that a summary request wants: narrative, add, replace, close."""
    chosen = _chosen(_candidates(_open_lines(source_lines(request))))
    add = [
        {
            "kind": item.kind,
            "text": shortened(item.text, _MAX_ITEM_CHARS),
            "sources": [item.line.seq],
            "author": "person" if item.line.by_person else "assistant",
        }
        for item in chosen
    ]
    answer = {
        "narrative": _narrative(chosen, former=_former_narrative(request)),
        "add": add,
        "replace": {},
        "close": {},
    }
    return json.dumps(answer, ensure_ascii=False)


def _open_lines(lines: Sequence[OfflineLine]) -> tuple[OfflineLine, ...]:
    """The lines without the questions that were answered since."""
    answered = max((number for number, line in enumerate(lines) if not line.by_person), default=-1)
    return tuple(
        line if number > answered or line.unanswered else line.without_questions()
        for number, line in enumerate(lines)
    )


def _former_narrative(request: str) -> str:
    """Read back from the line in which the request gives it."""
    found = _FORMER.search(request)
    try:
        told = json.loads(found[0]) if found else {}
    except ValueError:
        return ""
    return " ".join(str(told.get("former narrative", "")).split())


def _candidates(lines: Sequence[OfflineLine]) -> tuple[_Candidate, ...]:
    found: dict[str, _Candidate] = {}
    for line in lines:
        for sentence in sentences(line.words):
            if sentence.startswith(TOOL_CALL) or (not line.by_person and _is_own(sentence)):
                continue
            weight = salience(sentence) + (2 if line.by_person else 0)
            candidate = _Candidate(
                place=len(found), line=line, text=sentence, kind=kind_of(sentence), weight=weight
            )
            found.setdefault(sentence.casefold(), candidate)
    return tuple(found.values())


def _is_own(sentence: str) -> bool:
    return sentence.startswith(OWN_PHRASES) or "offline demo of Evertalk" in sentence


def _chosen(candidates: Sequence[_Candidate]) -> tuple[_Candidate, ...]:
    """What a person forbade and their last question always stay; the rest by weight, in order of time."""
    persons = [item for item in candidates if item.line.by_person]
    must = {item.place for item in persons if item.kind == "constraint"}
    must.update(item.place for item in [item for item in persons if item.kind == "question"][-1:])
    ranked = sorted(candidates, key=lambda item: (item.place not in must, -item.weight, item.place))
    return tuple(sorted(ranked[: max(_MAX_ITEMS, len(must))], key=lambda item: item.place))


def _narrative(items: Sequence[_Candidate], *, former: str) -> str:
    """The first sentences of the former one, so that the beginning is not lost, then the weightiest new."""
    before: list[str] = []
    for sentence in sentences(former):
        if len(" ".join([*before, sentence]).split()) <= _NARRATIVE_WORDS // 2:
            before.append(sentence)
    room = _NARRATIVE_WORDS - len(" ".join(before).split())
    kept: list[_Candidate] = []
    for item in sorted(items, key=lambda item: (-item.weight, item.place)):
        words = len(item.text.split())
        if words <= room and len(kept) < _NARRATIVE_SENTENCES:
            kept.append(item)
            room -= words
    new = [item.text for item in sorted(kept, key=lambda item: item.place)]
    return " ".join([*before, *(text for text in new if text not in before)])
