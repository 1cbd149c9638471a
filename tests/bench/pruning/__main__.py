"""Ways to shorten old tool results, over long tool sessions: `python -m tests.bench.pruning [--json]`.

Each way plays the same generated sessions of a coder and of a researcher call by call, without summaries,
under the provider's cache rules with a life of five minutes. `cost_tokens` is uncached + 1.25 × written +
0.1 × read; a token is four characters. `ratio` is against "by turns", which counts ages in turns, decides at
the start of a turn only and marks nothing; `missing` is the share of results that a call worked with when
they were already shortened. Figures are means over the seeds, `worst` is the largest ratio of one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import mean
from typing import Any

from tests.bench.pruning.play import WAYS, Played, play
from tests.bench.pruning.sessions import KINDS, Kind, make

_BASE = "by turns"


def replay(kind: Kind, seeds: Sequence[int], ways: Sequence[str]) -> dict[str, dict[str, Any]]:
    sessions = [make(kind, seed) for seed in seeds]
    played = {name: [play(session, WAYS[name]) for session in sessions] for name in {*ways, _BASE}}
    return {name: _figures(played[name], played[_BASE]) for name in ways}


def _figures(mine: Sequence[Played], base: Sequence[Played]) -> dict[str, Any]:
    ratios = [one.cost_tokens / other.cost_tokens for one, other in zip(mine, base, strict=True)]
    return {
        "cost_tokens": round(mean(one.cost_tokens for one in mine)),
        "ratio": round(mean(ratios), 3),
        "worst": round(max(ratios), 3),
        "sent": round(mean(one.sent for one in mine)),
        "calls": sum(one.calls for one in mine),
        "batches": round(mean(one.batches for one in mine), 1),
        "invalid": sum(one.invalid for one in mine),
        "missing": round(sum(one.missing for one in mine) / max(1, sum(one.needed for one in mine)), 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pruning", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=3, help="how many sessions of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="repeatable; else all")
    given = parser.parse_args(arguments)
    seeds = range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(2) as pool:
        made = {kind: pool.submit(replay, kind, seeds, given.way or tuple(WAYS)) for kind in KINDS}
        found = {str(kind): future.result() for kind, future in made.items()}
    if given.json:
        print(json.dumps(found))
        return 0
    for kind, rows in found.items():
        print(f"{kind:<20}" + "".join(f"{name:>13}" for name in next(iter(rows.values()))))
        for name, row in rows.items():
            print(f"{name:<20}" + "".join(f"{value:>13,}" for value in row.values()))
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
