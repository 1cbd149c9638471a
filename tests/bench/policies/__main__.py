"""Every preset on the same conversations: `python -m tests.bench.policies [--json] [--data PATH] [--png P]`.

No model is asked. The same conversations run under each preset with the provider's cache rules and the
price table; `--data` adds recorded two-person conversations, `--turns` sets the length of the generated
Telegram talk. `cost_tokens` is uncached + 1.25 × written + 0.1 × read; money is by the price table of the
default models; `background_pct` is the share of flushes and summaries in it; `saved_pct` is what a
compaction takes off the context on average; `reachable` is the share of literal facts that still stand in the
prompt or are found by plain full-text recall in 2,000 tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from pathlib import Path
from statistics import mean
from typing import Any

from shared.adapters.models.token_counter import VocabularyCounter
from shared.core.presets.catalog import PRESETS, preset
from tests.bench.policies.chart import svg, write_png
from tests.bench.policies.play import Played, Tally
from tests.bench.policies.workload import Conversation, recorded, telegram

TURNS = 1_000
TOOL_HEAVY_TURNS = 250
WORKLOADS = ("telegram", "tools", "recorded")
_SHOWN = (
    "usd_per_1000_turns", "usd_per_1000_turns_at_3_15", "cost_tokens", "compactions", "turns_per_compaction",
    "usd_per_compaction", "usd_per_flush", "background_pct", "saved_pct", "waited", "refused", "invalid",
    "reachable", "in_prompt",
)  # fmt: skip


def conversations(
    *, turns: int, tool_turns: int, data: Path | None, seed: int
) -> list[tuple[str, Conversation]]:
    """With the name of the workload that each belongs to."""
    made = [
        ("telegram", telegram(turns, seed=seed)),
        ("tools", telegram(tool_turns, seed=seed + 1, tool_turns=0.8, name="tools")),
    ]
    return made + ([("recorded", one) for one in recorded(data)] if data else [])


def replay(name: str, talks: Sequence[tuple[str, Conversation]]) -> dict[str, Any]:
    """One preset over all conversations, together and by workload."""
    counter = VocabularyCounter()
    played = [(kind, Played(preset(name), counter.count_tokens).run(talk)) for kind, talk in talks]
    found = figures(tally for _, tally in played)
    kinds = [kind for kind in WORKLOADS if any(kind == other for other, _ in played)]
    found["workloads"] = {kind: figures(tally for other, tally in played if other == kind) for kind in kinds}
    return found


def figures(tallies: Iterable[Tally]) -> dict[str, Any]:
    whole = _together(list(tallies))
    usd = whole.micro / 1_000_000
    return {
        "turns": whole.turns,
        "uncached": whole.uncached,
        "cached": whole.cached,
        "written": whole.written,
        "out": whole.out,
        "cost_tokens": round(whole.uncached + 1.25 * whole.written + 0.1 * whole.cached),
        "usd_per_1000_turns": round(1_000 * usd / whole.turns, 2),
        "usd_per_1000_turns_at_3_15": round(1_000 * _at_older_prices(whole) / whole.turns, 2),
        "compactions": whole.compactions,
        "usd_per_compaction": _share(whole.compaction_micro / 1_000_000, whole.compactions, 4),
        "turns_per_compaction": _share(whole.turns, whole.compactions, 1),
        "flushes": whole.flushes,
        "usd_per_flush": _share(whole.flush_micro / 1_000_000, whole.flushes, 4),
        "background_pct": _share(100 * (whole.compaction_micro + whole.flush_micro), whole.micro, 1),
        "saved_pct": round(100 * mean(whole.saved_shares), 1) if whole.saved_shares else None,
        "waited": whole.waited,
        "refused": whole.refused,
        "invalid": whole.invalid,
        "largest": whole.largest,
        "cached_pct": round(100 * whole.cached / max(1, whole.uncached + whole.cached + whole.written), 1),
        "reachable": _share(whole.reached, whole.facts, 3),
        "in_prompt": _share(whole.in_prompt, whole.facts, 3),
    }


def _at_older_prices(whole: Tally) -> float:
    """At 3 and 15 dollars per million for every call, as older figures were made; summaries, too."""
    return (3 * (whole.uncached + 1.25 * whole.written + 0.1 * whole.cached) + 15 * whole.out) / 1_000_000


def _together(tallies: Sequence[Tally]) -> Tally:
    whole = Tally()
    for tally in tallies:
        for spec in fields(Tally):
            if spec.name == "largest":
                whole.largest = max(whole.largest, tally.largest)
            else:
                setattr(whole, spec.name, getattr(whole, spec.name) + getattr(tally, spec.name))
    return whole


def _share(amount: float, of: int, digits: int) -> float | None:
    return round(amount / of, digits) if of else None


def replay_all(
    talks: Sequence[tuple[str, Conversation]], *, presets: Sequence[str], jobs: int
) -> dict[str, dict[str, Any]]:
    if jobs == 1:
        return {name: replay(name, talks) for name in presets}
    with ProcessPoolExecutor(jobs) as pool:
        made = {name: pool.submit(replay, name, talks) for name in presets}
        return {name: future.result() for name, future in made.items()}


def as_table(found: dict[str, dict[str, Any]], *, workload: str = "telegram") -> str:
    ranked = sorted(found, key=lambda name: found[name]["workloads"][workload]["usd_per_1000_turns"])
    lines = [f"{workload:<12}" + "".join(f"{name:>27}" for name in _SHOWN)]
    for name in ranked:
        row = found[name]["workloads"][workload]
        cells = ("–" if row[key] is None else f"{row[key]:,}" for key in _SHOWN)
        lines.append(f"{name:<12}" + "".join(f"{cell:>27}" for cell in cells))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.policies", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, help="recorded conversations in the shape of LoCoMo")
    parser.add_argument("--turns", type=int, default=TURNS, help="of the Telegram talk")
    parser.add_argument("--tool-turns", type=int, default=TOOL_HEAVY_TURNS, help="of the tool-heavy talk")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--preset", action="append", choices=sorted(PRESETS), help="repeatable; else all")
    parser.add_argument("--png", type=Path, help="draw the Telegram talk's figures")
    given = parser.parse_args(arguments)
    talks = conversations(turns=given.turns, tool_turns=given.tool_turns, data=given.data, seed=given.seed)
    found = replay_all(talks, presets=given.preset or tuple(PRESETS), jobs=given.jobs)
    if given.png:
        # What the Telegram talk costs, and what can be reached in all conversations.
        shown = {
            name: {**row["workloads"]["telegram"], "reachable": row["reachable"]}
            for name, row in found.items()
        }
        write_png(svg(shown, title=f"The same {given.turns:,} Telegram turns under every preset"), given.png)
    if given.json:
        print(json.dumps(found))
    else:
        for workload in found[next(iter(found))]["workloads"]:
            print(as_table(found, workload=workload), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
