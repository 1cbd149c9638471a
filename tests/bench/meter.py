"""How far the meter is from the truth: `python -m tests.bench.meter [--json] [--offline] [--path PATH]`.

There is no tokenizer of the provider to ask here. What stands for it counts with the bundled vocabulary times
the newer models' factor, moved by a bias of its own for each kind of text (up to 6 %), by noise for each
single text (up to 4 %), and by other overheads per message and tool than ours. `rule` is a second, foreign
truth: the strict fake's own rule, UTF-8 bytes / 3.6; nothing in the meter was made for it.

`online` is the error of the number that is shown before a call, from the third turn on; `offline` that of the
first estimate of a whole conversation that nobody ever counted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from shared.adapters.models.catalog import TABLE
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_counted_body
from shared.core.context.build_context import count_fading
from shared.core.presets.catalog import preset
from shared.core.session.session import Entry, View
from shared.core.values.messages import Author, Block, Text, Thinking, ToolResult, ToolSpec, ToolUse
from shared.core.values.tokens import estimate_blocks, measure, update_ratio
from shared.ports import ModelRequest
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from tests.bench.meter_texts import KINDS, texts, texts_of
from tests.kit.fakes.messages_api import prefix

TRUTH = (
    "no tokenizer of the provider: bundled vocabulary x factor, biased per kind (6 %), noisy per text (4 %)"
)
AIMS = {"online_mean_pct": 1.0, "online_p99_pct": 2.5, "offline_mean_pct": 10.0}
SETTLED_AFTER = 2
"""Turns after which the meter is held to its aims."""
TURNS = 60
MODEL = "claude-sonnet-5-5"
START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)
TOOL = ToolSpec(
    name="look_up",
    description="Looks something up in the shop's own records and returns it as it is stored.",
    input_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
COUNTER = VocabularyCounter()

Truth = Callable[[ModelRequest], int]


def vocabulary_truth(kind: str, *, factor: float, seed: int) -> Truth:
    bias = 1 + random.Random(f"bias of {kind} {seed}").uniform(-0.06, 0.06)

    @lru_cache(maxsize=100_000)
    def of_text(text: str) -> float:
        noise = 1 + random.Random(f"{seed} {text}").uniform(-0.04, 0.04)
        return COUNTER.count_tokens(text) * factor * bias * noise

    def truth(request: ModelRequest) -> int:
        body = build_counted_body(request, TABLE[MODEL], MODEL)
        total = 7.0 + sum(570 * (place == 0) + 48 + of_text(json.dumps(tool))
                          for place, tool in enumerate(_bare(body.get("tools", ()))))  # fmt: skip
        for block in _bare(body.get("system", ())):
            total += of_text(block["text"])
        for message in body["messages"]:
            total += 3 + sum(of_text(_words(block)) for block in _bare(message["content"]))
        return round(total)

    return truth


def rule_truth(_kind: str, *, factor: float, seed: int) -> Truth:
    return lambda request: prefix.count(build_counted_body(request, TABLE[MODEL], MODEL))


def _bare(blocks: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def _words(block: Mapping[str, Any]) -> str:
    found = block.get("text") or block.get("thinking") or block.get("content")
    return found if isinstance(found, str) else json.dumps(block.get("input"), ensure_ascii=False)


@dataclass(slots=True, kw_only=True)
class Talk:
    """A session without a database, measured with the services' own formulas."""

    requests: RequestBuilder
    truth: Truth
    entries: list[Entry]
    anchor: int | None = None
    ratio: float = 1.0
    turn: int = 0

    def say(self, author: Author, *blocks: Block) -> Entry:
        seq = len(self.entries) + 1
        entry = Entry(
            seq=seq, turn=self.turn, step=seq, role="assistant" if author == "assistant" else "user",
            author=author, blocks=blocks, tokens=estimate_blocks(blocks, COUNTER.count_tokens),
            at=START + timedelta(minutes=seq),
        )  # fmt: skip
        self.entries.append(entry)
        return entry

    def prepared(self) -> PreparedRequest:
        view = View(session_id=1, base_turn=0, flushed_turn=0, view_epoch=0, cycle=0, head=None,
                    entries=tuple(self.entries), open_turn=self.turn)  # fmt: skip
        made = self.requests.build(
            view, card=TABLE[MODEL], agent_config={}, tools=(TOOL,), token_ratio=self.ratio,
            runtime_facts=f"It is 2026-05-08 09:{self.turn % 60:02d} UTC.",
        )  # fmt: skip
        mine = sum(entry.tokens for entry in self.entries if entry.turn == self.turn)
        shown = measure(self.anchor, mine + made.built.volatile, made.built.estimate, made.ratio)
        return replace(made, estimate=shown)

    def take_turn(self, words: Iterator[str]) -> tuple[int, int]:
        """Shown before the call, and what it really was."""
        self.turn += 1
        self.say("person", Text(text=next(words)))
        made = self.prepared()
        shown, real = made.estimate, self.truth(made.request)
        blocks: tuple[Block, ...] = (Thinking(text=next(words), signature="s"), Text(text=next(words)))
        if self.turn % 4 == 0:
            call = f"toolu_{self.turn}"
            self.say("assistant", *blocks[:1], ToolUse(id=call, name="look_up", input={"query": next(words)}))
            self.say("tool", ToolResult(tool_use_id=call, text=next(words)))
            made = self.prepared()
        answer = self.say("assistant", *blocks)
        counted = self.truth(made.request)
        # What an answer adds to the input of the next call is what the provider calls its output.
        whole = self.truth(replace(made.request, messages=(*made.request.messages, answer.message)))
        self.ratio = update_ratio(made.ratio, counted, made.built.estimate)
        mine = [entry for entry in self.entries if entry.turn == self.turn]
        fades = count_fading(mine, made.policy, COUNTER.count_tokens) + made.built.volatile
        self.anchor = whole - round(self.ratio * fades)
        return shown, real


def online(kind: str, words: Iterator[str], truth: Truth, *, turns: int) -> list[float]:
    """Errors in percent, of every turn after the meter has settled."""
    talk = Talk(requests=requests(), truth=truth, entries=[])
    pairs = [talk.take_turn(words) for _ in range(turns)]
    return [100 * abs(shown - real) / real for shown, real in pairs[SETTLED_AFTER:]]


def offline(kind: str, words: Iterator[str], truth: Truth) -> float:
    """Of the first estimate of a conversation of thirty turns."""
    talk = Talk(requests=requests(), truth=truth, entries=[], turn=31)
    for turn in range(30):
        talk.say("person" if turn % 2 == 0 else "assistant", Text(text=next(words)))
    talk.say("person", Text(text=next(words)))
    made = talk.prepared()
    real = truth(made.request)
    return 100 * abs(made.estimate - real) / real


def requests() -> RequestBuilder:
    return RequestBuilder(
        policy=preset("steady"), chat_model=MODEL, summary_model=MODEL, max_output=8_192, counter=COUNTER
    )


def run(*, turns: int, seed: int, path: Path | None, only_offline: bool) -> dict[str, Any]:
    given = texts_of(path) if path is not None else {}
    kinds = tuple(given) or tuple(KINDS)
    factor = TABLE[MODEL].token_factor

    def words(kind: str) -> Iterator[str]:
        return _for_ever(given[kind]) if given else texts(kind, seed=seed)

    found: dict[str, Any] = {"model": MODEL, "turns": turns, "seed": seed, "truth": TRUTH, "kinds": {}}
    every: dict[str, list[float]] = {"online": [], "offline": [], "rule": []}
    for kind in kinds:
        truth = vocabulary_truth(kind, factor=factor, seed=seed)
        row: dict[str, float] = {"offline_pct": offline(kind, words(kind), truth)}
        every["offline"].append(row["offline_pct"])
        if not only_offline:
            errors = online(kind, words(kind), truth, turns=turns)
            foreign = online(kind, words(kind), rule_truth(kind, factor=factor, seed=seed), turns=turns)
            row |= {"online_mean_pct": statistics.fmean(errors), "online_p99_pct": p99(errors)}
            row |= {"rule_mean_pct": statistics.fmean(foreign), "rule_p99_pct": p99(foreign)}
            every["online"] += errors
            every["rule"] += foreign
        found["kinds"][kind] = {name: round(value, 3) for name, value in row.items()}
    found["offline_mean_pct"] = round(statistics.fmean(every["offline"]), 3)
    for name in ("online", "rule"):
        if every[name]:
            found[f"{name}_mean_pct"] = round(statistics.fmean(every[name]), 3)
            found[f"{name}_p99_pct"] = round(p99(every[name]), 3)
    found["aims"] = {
        name: {"aim": aim, "met": found[name] <= aim} for name, aim in AIMS.items() if name in found
    }
    return found


def p99(values: list[float]) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(0.99 * (len(ranked) - 1)))]


def _for_ever(given: list[str]) -> Iterator[str]:
    while True:
        yield from given


def as_table(found: Mapping[str, Any]) -> str:
    names = sorted({name for row in found["kinds"].values() for name in row})
    lines = [" ".join([f"{'kind':<12}", *(f"{name:>16}" for name in names)])]
    for kind, row in found["kinds"].items():
        lines.append(" ".join([f"{kind:<12}", *(f"{row.get(name, 0):>16.2f}" for name in names)]))
    lines += [f"{name}: {found[name]} (aim {aim['aim']})" for name, aim in found["aims"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--offline", action="store_true", help="first estimates only")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", type=Path, help="a file, or a folder whose files are the kinds")
    chosen = parser.parse_args()
    found = run(turns=chosen.turns, seed=chosen.seed, path=chosen.path, only_offline=chosen.offline)
    print(json.dumps(found, ensure_ascii=False) if chosen.json else as_table(found))


if __name__ == "__main__":
    main()
