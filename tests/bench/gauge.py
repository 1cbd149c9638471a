"""How far the gauge is from what the provider counts: `python -m tests.bench.gauge [--json] [--turns N]`.

Talks go through the running system: short and long turns, every preset and the shipped default, over
Messages and over Chat Completions, with recall on. The gauge that is shown between two turns is held against
the strict fake's own count of the next request, less what came with it: the new message, recalled passages
and the clock. The next request is the first of its turn, also when the provider refuses it: what is sent
after a refusal is cut. A summary that its turn waited for has shown a gauge before the request: that one is
read. `saved` holds what a compaction says it saved against the difference of the two real requests around it.
`cut` counts requests that were cut, or whose filler was hidden, before they were sent, since the new message
crossed a limit: their size depends on that message.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.config.settings import Settings
from shared.core.context.prompts import DAY_TAG, FACTS_TAG, RECALL_TAG
from shared.core.presets.catalog import PRESETS, preset
from tests.bench.ground import ground, run, settings_of, share
from tests.bench.peers.__main__ import DATA, DEFAULT, NEEDED
from tests.bench.peers.ideal_mind import IdealMind
from tests.bench.peers.play import window_for
from tests.bench.peers.provider import SECONDS_BETWEEN_TURNS, listening
from tests.bench.peers.talks import Talk, everyday, long_turns
from tests.kit.app_driver import Visit, running_app, visit
from tests.kit.fakes.chat_completions.requests import as_messages
from tests.kit.fakes.chat_completions.server import ChatCompletionsApi
from tests.kit.fakes.messages_api import prefix
from tests.kit.fakes.messages_api.journal import Record
from tests.kit.fakes.messages_api.server import MessagesApi
from tests.kit.fakes.messages_api.shapes import Json, blocks_of
from tests.kit.fakes.messages_api.tokens import block_tokens

MODEL = "claude-sonnet-5-5"
AIMS = {"before": 1.0, "after": 1.0, "saved": 2.0}
"""Largest 95th percentile of the error, in percent."""
SETTLED_AFTER = 2
"""Turns after which a session has learned how its model counts."""
TURNS = 120
EVERY = 10
"""Turns for each planted fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A talk under a preset over a wire; the window is chosen for the limit `trigger`."""

    preset: str
    talk: str
    wire: str

    @property
    def name(self) -> str:
        return f"{self.preset}, {self.talk} turns, {self.wire}"

    @property
    def window(self) -> int:
        """The model's window; the default has the one in which `steady` has that limit."""
        trigger = 12_000 if self.preset == "pantheon" and self.talk == "long" else TRIGGERS[self.talk]
        return window_for(preset("steady" if self.preset == DEFAULT else self.preset), trigger)

    @property
    def models(self) -> dict[str, str]:
        """The same model for answers and summaries; by default the two that are shipped."""
        if self.preset == DEFAULT:
            return {"preset": "steady", "model": MODEL}
        return {"preset": self.preset, "model": MODEL, "summary_model": MODEL}


TRIGGERS = {"short": 6_000, "long": 16_000}
WIRES = ("messages", "completions")
SHORT_TURNS = frozenset({"steady", "langmem", "chatbox", DEFAULT})
LONG_TURNS = frozenset({*PRESETS, DEFAULT} - {"langmem", "chatbox"})
"""The two that never send more than 4,000 tokens or six messages are played with short turns alone."""
RUNS = tuple(
    Run(preset=name, talk=talk, wire=wire)
    for wire in WIRES
    for talk, names in (("short", SHORT_TURNS), ("long", LONG_TURNS))
    for name in sorted(names)
)


@dataclass(slots=True)
class Readings:
    """Pairs of tokens: what was shown, and what the provider counted."""

    before: list[tuple[int, int]] = field(default_factory=list)
    """Until the first summary."""
    after: list[tuple[int, int]] = field(default_factory=list)
    """From the first summary on."""
    just_after: list[tuple[int, int]] = field(default_factory=list)
    """Of `after` those between a compaction and the next turn."""
    cut: int = 0
    """Readings without a request to compare, since it was cut to fit."""
    saved: list[tuple[int, int]] = field(default_factory=list)
    """What compactions say that they saved, and the difference of the two real requests around them."""

    def as_json(self) -> dict[str, Any]:
        saved = _errors(self.saved)
        return {
            "before": _spread(_errors(self.before)),
            "after": _spread(_errors(self.after)),
            "just_after": _spread(_errors(self.just_after)),
            "saved": _spread(saved),
            "cut": self.cut,
        }


def talk_of(kind: str, turns: int, seed: int, folder: Path | None = None) -> Talk:
    made = everyday if kind == "short" else long_turns
    return made(folder, turns=turns, every=EVERY, seed=seed)


async def play(talk: Talk, settings: Settings, api: MessagesApi, mind: IdealMind) -> Readings:
    """Say the talk, and read the gauge and the provider's count around each turn."""
    found = Readings()
    async with running_app(settings) as app:
        guest = await visit(app)
        shown, head = 0, None
        whole: int | None = None
        claimed: int | None = None
        for number, exchange in enumerate(talk.exchanges):
            mind.next_answer = exchange.answer
            api.journal.reset()
            await guest.ask(exchange.person)
            sent = await guest.app.pool.fetchrow(_SENT, guest.session_id)
            assert sent is not None
            if sent["head"] != head and sent["head"] is not None:
                head, shown, claimed = sent["head"], sent["after"], sent["saved"]
            first = _first_request(api)
            counted = count_again(_body_of(api, first), exchange.person)
            cut = sent["cut"] and first.outcome == "answered"
            if cut:
                found.cut += 1
            elif number > SETTLED_AFTER:
                (found.after if head else found.before).append((shown, counted.sent))
                if claimed is not None:
                    found.just_after.append((shown, counted.sent))
                    if whole is not None:
                        found.saved.append((claimed, whole - counted.sent))
            whole, claimed = None if cut else counted.with_message + _answer_tokens(api), None
            await guest.run_due_jobs()
            if (now := await guest.one(_HEAD)) not in (None, head):
                head, claimed = now, await guest.one(_CLAIMED)
            shown = await _read_gauge(guest)
            api.advance_clock(SECONDS_BETWEEN_TURNS)
    return found


_HEAD = "SELECT max(id) FROM compactions WHERE kind IN ('summary', 'digest')"
_CLAIMED = """
SELECT tokens_before - tokens_after FROM compactions
 WHERE kind IN ('summary', 'digest') ORDER BY id DESC LIMIT 1
"""
_SENT = """
SELECT l.id AS head, l.tokens_after AS after, l.tokens_before - l.tokens_after AS saved,
       a.recipe ? 'fit' OR a.estimated_input_tokens_before > a.hard_limit OR EXISTS (
         SELECT FROM prune_decisions d WHERE d.session_id = a.session_id AND d.turn_no = a.turn_id
            AND d.form = 'hide' AND a.prune_seqs @> to_jsonb(d.seq)) AS cut
  FROM turn_context_audit a LEFT JOIN compactions l ON l.id = a.head AND l.kind IN ('summary', 'digest')
 WHERE a.session_id = $1 ORDER BY a.id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    sent: int
    """Tokens of a request without what came with its turn."""
    with_message: int
    """The same with the new message, which stays."""


def count_again(body: Json, words: str) -> Counted:
    """Count a request by the fake's rule, part by part."""
    whole = prefix.count(body)
    newest = [str(block.get("text", "")) for block in blocks_of(body["messages"][-1]["content"])]
    passing = sum(_text_tokens(text) - (_text_tokens(kept) if kept else 0)
                  for text in newest if (kept := _PASSING.split(text)[0].rstrip()) != text)  # fmt: skip
    new = sum(
        _text_tokens(kept)
        for text in newest
        if (kept := _PASSING.split(text)[0].rstrip()) and (words in kept or kept.startswith(f"<{DAY_TAG}>"))
    )
    return Counted(sent=whole - passing - new, with_message=whole - passing)


_PASSING = re.compile(rf"<(?:{FACTS_TAG}|{RECALL_TAG})>")


def _text_tokens(text: str) -> int:
    return block_tokens({"type": "text", "text": text})


def _first_request(api: MessagesApi) -> Record:
    """Return the turn's first request for an answer, whether it was answered or refused."""
    return next(record for record in api.journal.records if record.kind == "chat")


def _body_of(api: MessagesApi, record: Record) -> Json:
    body = json.loads(record.raw or b"")
    return as_messages(body) if isinstance(api, ChatCompletionsApi) else body


def _answer_tokens(api: MessagesApi) -> int:
    """Return the tokens of the newest answer as the next request holds it; the window may have cut it."""
    newest = [one for one in api.journal.records if one.kind == "chat" and one.outcome == "answered"][-1]
    return sum(map(block_tokens, newest.answer))


async def _read_gauge(guest: Visit) -> int:
    measured = await guest.app.sessions.measure_context(guest.session_id)
    assert measured is not None
    return measured.used


def _errors(pairs: Iterable[tuple[int, int]]) -> list[float]:
    return [100 * abs(shown - real) / abs(real) for shown, real in pairs if real]


def _spread(errors: Sequence[float]) -> dict[str, float | int]:
    if not errors:
        return {"readings": 0}
    return {
        "readings": len(errors),
        "mean_pct": round(sum(errors) / len(errors), 2),
        "p95_pct": round(share(errors, 0.95), 2),
        "most_pct": round(max(errors), 2),
    }


async def measure(*, turns: int, seed: int) -> dict[str, Any]:
    """By run, with the aims that are met."""
    folder = DATA if all((DATA / name).is_file() for name in NEEDED) else None
    found: dict[str, Any] = {}
    for one in RUNS:
        talk = talk_of(one.talk, turns, seed, folder)
        mind = IdealMind(talk.facts)
        api = (ChatCompletionsApi if one.wire == "completions" else MessagesApi)(mind=mind)
        api.models.set_window(MODEL, one.window)
        async with ground(durable=False) as (servers, where), listening(api) as url:
            settings = settings_of(
                servers, where, **one.models, **connect(one, url, where, window=one.window)
            )
            found[one.name] = (await play(talk, settings, api, mind)).as_json()
        sys.stderr.write(f"{one.name}: {json.dumps(found[one.name])}\n")
    rows = tuple(found.values())
    found["talk"] = "made up" if folder is None else "recorded"
    found["aims"] = {
        name: all(row[name].get("p95_pct", 0.0) <= aim for row in rows) for name, aim in AIMS.items()
    }
    return found


def connect(one: Run, url: str, folder: Path, *, window: int) -> dict[str, Any]:
    """Return the settings with which a model of this window is asked over the run's wire."""
    if one.wire == "messages":
        return {"anthropic_api_key": "bench", "anthropic_base_url": url}
    models = folder / "models.json"
    entry = {
        "name": MODEL,
        "wire": "openai",
        "base_url": url,
        "window": window,
        "prices": {"input": 2, "output": 9},
    }
    models.write_text(json.dumps([entry]))
    return {"models_file": models}


if __name__ == "__main__":
    sys.exit(run("gauge", __doc__, measure, turns=TURNS, seed=7))
