"""Long sessions of an agent with tools, made from a seed: a coder's and a researcher's.

Their sizes are those of public sessions: some 450 calls in turns of about 8, 370,000 and 130,000 tokens, of
which two fifths are the agent's own words and edits. Most results are short, some are long, more at first
than later, and some are asked for again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from shared.core.session.session import Entry
from shared.core.values.messages import Block, Role, Text, ToolResult, ToolUse
from shared.core.values.tokens import estimate_blocks

Kind = Literal["coder", "researcher"]
KINDS: tuple[Kind, ...] = ("coder", "researcher")
_BEGIN = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
_WORDS = (
    "table",
    "order",
    "stock",
    "query",
    "value",
    "state",
    "event",
    "route",
    "cache",
    "parse",
    "model",
    "entry",
)
_FAILS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """How often a tool is called, how many characters it gives back, how many its call takes."""

    name: str
    share: float
    result: tuple[float, float]
    """Median, and spread of the logarithm."""
    call: tuple[float, float]
    again: float = 0.0
    """How often it asks for something that it was given before."""
    source: str = ""
    """The tool whose results it works with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    calls: int
    turns: float
    """Calls of a turn on average."""
    pauses: float
    """Of the turns, how many begin after the provider has forgotten the prefix."""
    tools: tuple[Tool, ...]
    words: float
    """Characters that go with a call, by the median."""


SHAPES: dict[Kind, Shape] = {
    "coder": Shape(
        calls=469,
        turns=8,
        pauses=0.03,
        words=90,
        tools=(
            Tool(name="read_file", share=0.27, result=(3_500, 0.9), call=(90, 0.2), again=0.35),
            Tool(name="search_files", share=0.18, result=(1_300, 0.9), call=(110, 0.3), again=0.1),
            Tool(name="run", share=0.25, result=(1_500, 0.9), call=(160, 0.5), again=0.1),
            Tool(name="edit_file", share=0.30, result=(150, 0.2), call=(2_200, 0.9), source="read_file"),
        ),
    ),
    "researcher": Shape(
        calls=438,
        turns=9,
        pauses=0.04,
        words=160,
        tools=(
            Tool(name="search_web", share=0.55, result=(520, 0.6), call=(80, 0.3), again=0.05),
            Tool(name="fetch_page", share=0.25, result=(900, 1.0), call=(100, 0.2), again=0.2),
            Tool(name="take_note", share=0.20, result=(60, 0.2), call=(420, 0.7), source="fetch_page"),
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    entries: tuple[Entry, ...]
    needs: dict[int, int]
    """By the step of a call, the seq of an earlier result that it works with."""


def count(text: str) -> int:
    """Four characters a token, as the figures of public sessions are counted."""
    return len(text) // 4


def make(kind: Kind, seed: int) -> Session:
    return _Maker(SHAPES[kind], random.Random(f"{kind} {seed}")).session()


class _Maker:
    def __init__(self, shape: Shape, chance: random.Random) -> None:
        self._shape, self._chance = shape, chance
        self._at = _BEGIN
        self._entries: list[Entry] = []
        self._given: dict[str, list[tuple[str, str, int]]] = {tool.name: [] for tool in shape.tools}
        """By tool: what was asked, what came, in which entry."""
        self._needs: dict[int, int] = {}

    def session(self) -> Session:
        left, turn = self._shape.calls, 0
        while left:
            turn += 1
            left -= self._turn(turn, left)
        return Session(entries=tuple(self._entries), needs=self._needs)

    def _turn(self, turn: int, most: int) -> int:
        """The person's words, rounds of tools, an answer; says how many calls that were."""
        pause = (360, 7_200) if self._chance.random() < self._shape.pauses else (10, 150)
        self._wait(*pause)
        self._add(turn, "person", (Text(text=self._text(self._chance.lognormvariate(5.3, 0.8))),))
        calls = min(most, max(1, round(self._chance.gammavariate(2.5, self._shape.turns / 2.5))))
        for _ in range(calls - 1):
            self._round(turn)
        self._wait(3, 15)
        self._add(turn, "assistant", (Text(text=self._text(self._chance.lognormvariate(6.0, 0.7))),))
        return calls

    def _wait(self, least: float, most: float) -> None:
        self._at += timedelta(seconds=self._chance.uniform(least, most))

    def _round(self, turn: int) -> None:
        tool = self._chance.choices(self._shape.tools, [one.share for one in self._shape.tools])[0]
        asked, given = self._asked(tool)
        call = ToolUse(
            id=f"call_{len(self._entries)}",
            name=tool.name,
            input={"what": asked, "with": self._text(self._log(tool.call) - len(asked))},
        )
        said = self._text(self._chance.lognormvariate(0, 0.8) * self._shape.words)
        self._wait(3, 15)
        self._add(turn, "assistant", (Text(text=said), call))
        self._wait(0.1, 6)
        failed = self._chance.random() < _FAILS
        text = f"error: {given[:300]}" if failed else given
        self._add(turn, "tool", (ToolResult(tool_use_id=call.id, text=text, is_error=failed),))
        if not failed:
            self._given[tool.name].append((asked, given, len(self._entries)))

    def _asked(self, tool: Tool) -> tuple[str, str]:
        """What a call asks for and gets; an edit changes what was read, so that it reads otherwise later."""
        before = self._given[tool.name]
        if before and self._chance.random() < tool.again:
            asked, given, _ = self._recent(before)
            return asked, given
        if read := self._given.get(tool.source):
            asked, _, seq = self._recent(read)
            self._needs[len(self._entries) + 1] = seq
            return asked, self._text(self._log(tool.result))
        return f"place/{self._chance.randrange(10**6)}", self._text(self._log(tool.result))

    def _recent(self, given: list[tuple[str, str, int]]) -> tuple[str, str, int]:
        return given[-min(len(given), 1 + int(self._chance.expovariate(0.5)))]

    def _log(self, size: tuple[float, float]) -> float:
        """Much is read at first, less later."""
        done = len(self._entries) / (2 * self._shape.calls)
        return min(51_000.0, self._chance.lognormvariate(0, size[1]) * size[0] * (1.5 - done))

    def _text(self, chars: float) -> str:
        begin = f"{self._chance.choice(_WORDS)} {self._chance.randrange(10**6)} "
        return (begin + " ".join(self._chance.choices(_WORDS, k=max(1, int(chars / 6)))))[
            : max(4, int(chars))
        ]

    def _add(
        self, turn: int, author: Literal["person", "assistant", "tool"], blocks: tuple[Block, ...]
    ) -> None:
        seq = len(self._entries) + 1
        role: Role = "assistant" if author == "assistant" else "user"
        tokens = estimate_blocks(blocks, count)
        self._entries.append(
            Entry(
                seq=seq, turn=turn, step=seq, role=role, author=author, blocks=blocks, tokens=tokens,
                at=self._at,
            )
        )  # fmt: skip
