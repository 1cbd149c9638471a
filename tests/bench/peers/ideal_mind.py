"""What the fake provider answers here: the recorded words, every fact that it sees, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.bench.peers.talks import Planted
from tests.bench.policies.reach import holds
from tests.kit.fakes.messages_api.brain import Answer, calls, kind_of, said
from tests.kit.fakes.messages_api.schema_values import filled
from tests.kit.fakes.messages_api.sentences import sentences
from tests.kit.fakes.messages_api.shapes import Json, blocks_of, compact_json, newest_words, text_of
from tests.kit.fakes.messages_api.summaries import (
    HEADING,
    MOST_WORDS,
    SourceLine,
    asks_for_text,
    source_lines,
)

RECALL_TOOL, SAVE_TOOL = "recall", "save_memory"
MOST_NOTES = re.compile(r"\bat most (\d+) in all\b")
FORMER = re.compile(r"<former_record_\w+>.*?</former_record_\w+>", re.DOTALL)
LONGEST_SENTENCE = 30
"""Words; longer ones make no good beginning of a summary."""
UNKNOWN = "I cannot find that in our conversation."


class IdealMind:
    """A model that overlooks nothing: it keeps, saves and finds each planted fact that it is shown."""

    def __init__(self, facts: Sequence[Planted]) -> None:
        self._facts = facts
        self._saved: set[str] = set()
        self.next_answer = ""
        self.asked: Planted | None = None
        """The question that is open; without one the recorded words are said."""
        self.in_prompt: set[str] = set()
        self.found: set[str] = set()
        """Literals that stood in a request for them, and those that only a call of `recall` brought."""

    def __call__(self, body: Json) -> Answer:
        words, after_tools = newest_words(body["messages"])
        match kind_of(body):
            case "summary":
                return said(self._summary(body, words))
            case "flush":
                return said("SILENT") if after_tools else self._flushed(body, words)
        return self._replied(body, after_tools)

    def _replied(self, body: Json, after_tools: bool) -> Answer:
        asked = self.asked
        if asked is None:
            return said(self.next_answer)
        if holds(everything_in(body), asked.literal):
            (self.found if after_tools else self.in_prompt).add(asked.literal)
            return said(f"It is {asked.literal}.")
        if not after_tools and (tool := _tool(body, RECALL_TOOL)):
            return calls(
                body, [(RECALL_TOOL, filled(tool["input_schema"], asked.question) | _query(tool, asked))]
            )
        return said(UNKNOWN)

    def _flushed(self, body: Json, instruction: str) -> Answer:
        tool = _tool(body, SAVE_TOOL)
        seen = [fact for fact in self._seen(body) if fact.literal not in self._saved]
        most = MOST_NOTES.search(instruction)
        chosen = seen[: int(most[1]) if most else 8]
        if tool is None or not chosen:
            return said("SILENT")
        self._saved.update(fact.literal for fact in chosen)
        return calls(body, [(SAVE_TOOL, filled(tool["input_schema"], fact.sentence)) for fact in chosen])

    def _summary(self, body: Json, words: str) -> str:
        if asks_for_text(words):
            headings = HEADING.findall(everything_in(body))
            told = [f"- {fact.sentence}" for fact in self._seen(body)]
            told = (
                _within(MOST_WORDS.search(words), told) if told else [_newest_sentence(source_lines(words))]
            )
            return "\n".join((*headings[-4:-3], *told))
        record = FORMER.search(everything_in(body))
        new = [fact for fact in self._seen(body) if record is None or not holds(record[0], fact.literal)]
        lines = _transcript(body, words)
        add = [
            {"kind": "fact", "text": fact.sentence, "sources": [line.seq], "author": "person"}
            for fact in new
            for line in lines
            if line.seq is not None and holds(line.text, fact.literal)
        ]
        made: Json = {"narrative": _newest_sentence(lines), "add": add, "replace": [], "close": []}
        if '"notes": [' in words:
            kept = [fact for fact in self._seen(body) if fact.literal not in self._saved]
            self._saved.update(fact.literal for fact in kept)
            made["notes"] = [{"kind": "fact", "text": fact.sentence} for fact in kept]
        return compact_json(made)

    def _seen(self, body: Json) -> list[Planted]:
        shown = everything_in({"messages": body["messages"]})
        return [fact for fact in self._facts if holds(shown, fact.literal)]


def everything_in(body: Json) -> str:
    texts = [text_of(body.get("system"))]
    for message in body["messages"]:
        for block in blocks_of(message["content"]):
            is_result = block.get("type") == "tool_result"
            texts.append(text_of(block.get("content")) if is_result else text_of([block]))
    return "\n".join(texts)


def _transcript(body: Json, words: str) -> list[SourceLine]:
    """The lines to summarise; behind a warm prefix only their beginnings are told, the words stand above."""
    above = [text_of([block]) for m in body["messages"][:-1] for block in blocks_of(m["content"])]
    lines = source_lines(words)
    whole = {text[:20]: text for text in above}
    return [
        SourceLine(seq=line.seq, author=line.author, text=whole.get(line.text[:20], line.text))
        for line in lines
    ]


def _within(most: re.Match[str] | None, told: list[str]) -> list[str]:
    """The newest of them that fit into the words that are allowed."""
    words = sum(len(line.split()) for line in told)
    while most is not None and len(told) > 1 and words > int(most[1]):
        words -= len(told.pop(0).split())
    return told


def _newest_sentence(lines: Sequence[SourceLine]) -> str:
    """What the talk is about, in words that were said: each summary says something new."""
    told = (part for line in reversed(lines) for part in sentences(line.text))
    return next((part for part in told if 5 <= len(part.split()) <= LONGEST_SENTENCE), "They talk.")


def _query(tool: Json, asked: Planted) -> Json:
    return {"query": asked.question} if "query" in tool["input_schema"].get("properties", {}) else {}


def _tool(body: Json, name: str) -> Json | None:
    return next((tool for tool in body.get("tools") or () if tool.get("name") == name), None)
