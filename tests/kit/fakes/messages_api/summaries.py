"""Builds a summary from the words of the source lines, so that nothing in it is invented."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from tests.kit.fakes.messages_api.sentences import salience, sentences, shortened
from tests.kit.fakes.messages_api.shapes import Json, blocks_of, compact_json

LINE = re.compile(r"^\s*(?:[-*]\s*)?\[#(\d+)[^\]]*\]\s*([^:\n]{1,80}?)\s*:\s?(.*)$")
HISTORY = re.compile(r"<(user|assistant|tool)>(.*?)</\1>", re.DOTALL)
EARLIER = re.compile(r"<((?:earlier_summary|part_\d+)_\w+)>\n(.*?)\n</\1>", re.DOTALL)
HEADING = re.compile(r"^## .+$", re.MULTILINE)
MOST_WORDS = re.compile(r"at most (\d+) words\. ")
CUT = " …"
MAX_ITEMS = 12
MAX_ITEM_CHARS = 300
MAX_NARRATIVE_WORDS = 100
KINDS = (
    (
        "constraint",
        re.compile(r"\b(never|must not|mustn't|do not|don't|not allowed|forbid\w*|no more)\b", re.IGNORECASE),
    ),
    ("decision", re.compile(r"\b(decided?|decision|agreed|let's go with|we chose)\b", re.IGNORECASE)),
    ("preference", re.compile(r"\b(prefers?|likes?|loves?|hates?|favou?rite|rather)\b", re.IGNORECASE)),
    ("goal", re.compile(r"\b(goal|wants? to|trying to|aims? to|hope to)\b", re.IGNORECASE)),
    ("promise", re.compile(r"\b(promise|I will|I'll)\b", re.IGNORECASE)),
    (
        "action",
        re.compile(r"\b(todo|to-do|need to|needs to|have to|has to|next step|remind)\b", re.IGNORECASE),
    ),
    (
        "artifact",
        re.compile(r"https?://|\b[\w-]+/[\w./-]+|\b[\w-]+\.(?:py|md|txt|json|csv|pdf)\b", re.IGNORECASE),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    seq: int | None
    author: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    place: int
    weight: int
    kind: str
    line: SourceLine
    text: str


def summary_json(instruction: str, messages: list[Json]) -> str:
    lines = _in_full(source_lines(instruction), messages) or _from_messages(messages)
    chosen = _chosen(lines)
    add = [
        {
            "kind": item.kind,
            "text": shortened(item.text, MAX_ITEM_CHARS),
            "sources": [] if item.line.seq is None else [item.line.seq],
            "author": item.line.author,
        }
        for item in chosen
    ]
    made: Json = {"narrative": _narrative(chosen), "add": add, "replace": {}, "close": {}}
    if '"title": "' in instruction:
        made["title"] = _title(chosen)
    if '"notes": [' in instruction:
        kept = [item for item in chosen if item.line.author == "person" and item.kind == "fact"]
        made["notes"] = [
            {"kind": "fact", "text": shortened(item.text, MAX_ITEM_CHARS), "source": item.line.seq}
            for item in kept[:3]
        ]
    return compact_json(made)


def asks_for_text(words: str) -> bool:
    """Return whether a summary in words is wanted instead of JSON, recognised by the prompt's last
    sentence.
    """
    return "Answer with the summary alone." in words


def summary_text(asked: str) -> str:
    """Return the sentences chosen for a summary as bullets, below the second of the headings asked for."""
    chosen = _chosen(_of_history(asked) or source_lines(asked))
    before = [text for found in EARLIER.finditer(asked) for text in sentences(found[2]) if text[0] != "#"]
    bullets = list(dict.fromkeys(f"- {text}" for text in (*before, *(item.text for item in chosen))))
    most = MOST_WORDS.search(asked)
    while most and len(bullets) > 1 and len(" ".join(bullets).split()) > 0.8 * int(most[1]):
        bullets.pop()
    headings = HEADING.findall(asked)
    title = [f"Title: {_title(chosen)}"] if 'one line: "Title: "' in asked else []
    return "\n".join((*title, *headings[1:2], *bullets))


def _title(chosen: list[_Item]) -> str:
    """Return the first six words of the first item as a title; "" without items."""
    return " ".join(chosen[0].text.split()[:6]) if chosen else ""


def _of_history(asked: str) -> list[SourceLine]:
    return [
        SourceLine(seq=None, author="person" if role == "user" else role, text=html.unescape(text))
        for role, text in HISTORY.findall(asked)
    ]


def source_lines(text: str) -> list[SourceLine]:
    """Return the lines of the form `[#12] author: words`.

    The words end at an empty line, at the next mark, or at anything like a tag.
    """
    found: list[SourceLine] = []
    goes_on = False
    for raw in text.splitlines():
        mark = LINE.match(raw)
        if mark:
            found.append(SourceLine(seq=int(mark[1]), author=mark[2], text=mark[3]))
            goes_on = True
        elif not raw.strip() or raw.lstrip().startswith(("<", "{", "[")) or '"narrative"' in raw:
            goes_on = False
        elif goes_on:
            last = found[-1]
            found[-1] = SourceLine(seq=last.seq, author=last.author, text=f"{last.text}\n{raw.strip()}")
    return found


def _in_full(lines: list[SourceLine], messages: list[Json]) -> list[SourceLine]:
    """Return the lines with their full text.

    A line that was shortened is completed from the messages above it.
    """
    if not any(line.text.endswith(CUT) for line in lines):
        return lines
    above = [" ".join(line.text.split()) for line in _from_messages(messages)]
    found = []
    for line in lines:
        begun = line.text.removesuffix(CUT)
        whole = (text[text.index(begun) :] for text in above if line.text != begun and begun in text)
        found.append(SourceLine(seq=line.seq, author=line.author, text=next(whole, line.text)))
    return found


def _from_messages(messages: list[Json]) -> list[SourceLine]:
    return [
        SourceLine(
            seq=None, author="person" if message["role"] == "user" else "assistant", text=block["text"]
        )
        for message in messages[:-1]
        for block in blocks_of(message["content"])
        if block.get("type") == "text"
    ]


def _chosen(lines: list[SourceLine]) -> list[_Item]:
    items: list[_Item] = []
    seen: set[str] = set()
    for line in lines:
        for sentence in sentences(line.text):
            if sentence.lower() not in seen:
                seen.add(sentence.lower())
                items.append(_item(len(items), line, sentence))
    questions = [item for item in items if item.kind == "question" and not _is_assistant(item.line)]
    must = {item.place for item in items if item.kind == "constraint" and not _is_assistant(item.line)}
    must |= {item.place for item in questions[-1:]}
    ranked = sorted(items, key=lambda item: (item.place not in must, -item.weight, item.place))
    return sorted(ranked[: max(MAX_ITEMS, len(must))], key=lambda item: item.place)


def _item(place: int, line: SourceLine, sentence: str) -> _Item:
    kind = (
        "question"
        if sentence.endswith("?")
        else next((k for k, sign in KINDS if sign.search(sentence)), "fact")
    )
    weight = salience(sentence) - (2 if _is_assistant(line) else 0)
    return _Item(place=place, weight=weight, kind=kind, line=line, text=sentence)


def _is_assistant(line: SourceLine) -> bool:
    return line.author.lower().startswith(("assistant", "bot", "evertalk"))


def _narrative(items: list[_Item]) -> str:
    chosen: list[_Item] = []
    words_left = MAX_NARRATIVE_WORDS
    for item in sorted(items, key=lambda item: (-item.weight, item.place)):
        words = len(item.text.split())
        if words <= words_left and len(chosen) < 5:
            chosen.append(item)
            words_left -= words
    return " ".join(item.text for item in sorted(chosen, key=lambda item: item.place))
