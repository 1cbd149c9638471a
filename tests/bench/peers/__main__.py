"""The same talk under each preset and through an ideal loop: `python -m tests.bench.peers [--json] …`.

500 turns of everyday talk with 50 planted facts and 200 long turns with 20 go through the running system on
real servers; the provider is a strict fake that keeps a prompt cache and overlooks nothing. `cost_tokens` is
uncached + 1.25 × written + 0.1 × read, of the input of every call; `facts` were in the request that asked
for them. Each preset gets a window with the run's limit, and one model for answers and for what is written
in the background, as the ideal loop and other systems have. `two_models` is `steady` with the two models
that are shipped, `default` is as all is shipped: the largest window, two models.
The talk is recorded (`--data`, a folder with `locomo-dev.json` and `beam-dev.json`) or made up (`--made-up`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shared.core.presets.catalog import PRESETS
from tests.bench.ground import ground, settings_of
from tests.bench.peers.ideal_loop import play_ideal
from tests.bench.peers.play import Course, play
from tests.bench.peers.talks import Talk, everyday, long_turns
from tests.bench.quiet import keep_quiet

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
NEEDED = ("locomo-dev.json", "beam-dev.json")
RUNS = ("everyday", "long", "halved")
TRIGGERS = {"everyday": 8_000, "long": 30_000, "halved": 8_000}
DEFAULT, TWO_MODELS = "default", "two_models"
"""What is no preset: `steady` in other circumstances."""


def talk_of(run: str, folder: Path | None, *, turns: int | None, seed: int) -> Talk:
    if run == "long":
        return long_turns(folder, turns=turns or 200, every=10, seed=seed)
    return everyday(folder, turns=turns or 500, every=12 if run == "halved" else 10, seed=seed)


async def measure(
    runs: Sequence[str], presets: Sequence[str], folder: Path | None, *, turns: int | None, seed: int
) -> dict[str, dict[str, Any]]:
    """By run, and in it by preset; `ideal` is the loop that all are held against."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        talk = talk_of(run, folder, turns=turns, seed=seed)
        found[run] = {} if run == "halved" else {"ideal": play_ideal(talk, trigger=TRIGGERS[run])}
        for name in presets:
            if name == DEFAULT and run == "halved":
                continue
            # A database for each: what one conversation leaves behind is not read by the next.
            async with ground(durable=False) as (servers, where):
                settings_with = partial(settings_of, servers, where)
                course = _course(run, name, len(talk.exchanges))
                row = found[run][name] = await play(course, talk, settings_with=settings_with)
            sys.stderr.write(f"{run} {name}: {row['facts']}/{row['asked']}, {row['cost_tokens']:,}\n")
    return found


def _course(run: str, name: str, turns: int) -> Course:
    return Course(
        preset=name if name in PRESETS else "steady",
        trigger=None if name == DEFAULT else TRIGGERS[run],
        one_model=name in PRESETS,
        halved_at=turns // 2 if run == "halved" else None,
    )


def as_table(found: dict[str, dict[str, Any]]) -> str:
    lines = []
    for run, rows in found.items():
        lines.append(
            f"{run:<12}{'facts':>8}{'cost':>12}{'of ideal':>10}{'calls':>7}{'invalid':>9}  by kind, by part"
        )
        floor = rows["ideal"]["cost_tokens"] if "ideal" in rows else None
        for name, row in rows.items():
            share = f"{row['cost_tokens'] / floor:.2f}" if floor else "–"
            lines.append(
                f"{name:<12}{row['facts']:>5}/{row['asked']}{row['cost_tokens']:>12,}{share:>10}{row['calls']:>7}"
                f"{row['invalid']:>9}  {_told(row['cost_by_kind'])} | {_told(row['cost_by_part'])}"
            )
    return "\n".join(lines)


def _told(costs: dict[str, int]) -> str:
    return ", ".join(f"{name} {cost:,}" for name, cost in costs.items())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with recorded talk")
    parser.add_argument(
        "--made-up", action="store_true", help="talk made from a seed in place of recorded talk"
    )
    parser.add_argument("--run", action="append", choices=RUNS, help="repeatable; else all")
    parser.add_argument(
        "--preset", action="append", choices=[*sorted(PRESETS), TWO_MODELS, DEFAULT], help="repeatable"
    )
    parser.add_argument("--turns", type=int, help="in place of 500 and 200")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)
    missing = [name for name in NEEDED if not (given.data / name).is_file()]
    if missing and not given.made_up:
        sys.stderr.write(
            f"There is no {' and no '.join(missing)} in {given.data}. Name their folder with --data, or play "
            "made-up talk with --made-up.\n"
        )
        return 2
    keep_quiet()
    presets = given.preset or (*PRESETS, TWO_MODELS, DEFAULT)
    folder = None if given.made_up else given.data
    found = asyncio.run(measure(given.run or RUNS, presets, folder, turns=given.turns, seed=given.seed))
    print(json.dumps(found) if given.json else as_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
