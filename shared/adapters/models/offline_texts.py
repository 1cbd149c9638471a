"""Answers a request for a summary in running words: what stood before, then the weightiest new sentences."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from shared.adapters.models.offline_words import (
    TOOL_CALL,
    OfflineLine,
    kind_of,
    salience,
    sentences,
    source_lines,
    unique,
)
from shared.core.session.summary_formats import FORMS, Form, sections_in

_TURN = re.compile(r"<(user|assistant|tool)>(.*?)</\1>", re.DOTALL)
_BEFORE = re.compile(r"<((?:earlier_summary|part_\d+)_\w+)>\n(.*?)\n</\1>", re.DOTALL)
_MOST_WORDS = re.compile(r"\bat most (\d+) words\. ")
_NEW_SENTENCES = 12
_SPARE_WORDS = 0.8


def text_summary(request: str) -> str:
    form = _form_in(request)
    room = int(_SPARE_WORDS * int(found[1])) if (found := _MOST_WORDS.search(request)) else 10_000
    new = _weighty(_lines(request))
    if form is None:
        before = [line for _, text in _BEFORE.findall(request) for line in sentences(text)]
        return " ".join(_within(room, unique([*before, *new]), keep=len(before)))
    return _under_headings(request, form, new, room)


def _form_in(request: str) -> Form | None:
    """The form whose headings are all asked for."""
    return next(
        (f for f in FORMS.values() if f.headings and all(f"\n## {h.title}\n" in request for h in f.headings)),
        None,
    )


def _lines(request: str) -> list[OfflineLine]:
    bare = _BEFORE.sub("", request)
    told = [
        OfflineLine(seq=0, author="person" if role == "user" else role, text=html.unescape(text))
        for role, text in _TURN.findall(bare)
    ]
    return told or list(source_lines(bare))


def _weighty(lines: Sequence[OfflineLine]) -> list[str]:
    """What a person forbade and their last question, and what weighs most, in order of time."""
    said = [
        (line, text) for line in lines for text in sentences(line.words) if not text.startswith(TOOL_CALL)
    ]
    places = {text: place for place, (_, text) in reversed(list(enumerate(said)))}
    asked = [text for line, text in said if line.by_person and kind_of(text) == "question"][-1:]
    must = {text for line, text in said if line.by_person and kind_of(text) == "constraint"} | set(asked)
    weight = {text: salience(text) + 2 * line.by_person for line, text in said}
    ranked = sorted(places, key=lambda text: (text not in must, -weight[text], places[text]))
    return sorted(ranked[: max(_NEW_SENTENCES, len(must))], key=lambda text: places[text])


def _under_headings(request: str, form: Form, new: Sequence[str], room: int) -> str:
    kinds = {heading.kind: heading.title for heading in reversed(form.headings) if heading.kind}
    found: dict[str, list[str]] = {heading.title: [] for heading in form.headings}
    for _, text in _BEFORE.findall(request):
        for section in sections_in(text, form):
            title = section.heading if section.heading in found else form.headings[0].title
            found[title].extend(section.text.splitlines())
    for text in new:
        kind = kind_of(text)
        told = "action" if kind in ("question", "promise") else kind
        title = next((kinds[k] for k in (told, "fact") if k in kinds), form.headings[0].title)
        found[title].append(f"- {text}")
    each = room // len(form.headings)
    return "\n\n".join(_parts(found, each))


def _parts(found: dict[str, list[str]], each: int) -> Iterator[str]:
    for title, lines in found.items():
        kept = _within(each, unique(lines), keep=0)
        if kept:
            yield "\n".join((f"## {title}", *kept))


def _within(room: int, lines: Sequence[str], *, keep: int) -> list[str]:
    """The first `keep` as far as half the room goes, then the newest, in their order."""
    first = _taken(room // 2 if len(lines) > keep else room, lines[:keep])
    left = room - sum(len(line.split()) for line in first)
    newest = _taken(left, tuple(reversed(lines[keep:])))
    return [*first, *reversed(newest)]


def _taken(room: int, lines: Sequence[str]) -> list[str]:
    taken: list[str] = []
    for line in lines:
        room -= len(line.split())
        if room < 0:
            break
        taken.append(line)
    return taken
