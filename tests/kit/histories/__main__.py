"""Plays random histories: `python -m tests.kit.histories --histories 1000000 [--seed N] [--jobs 2]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.kit.histories.promises import PROMISES
from tests.kit.histories.running import Findings, run

PORTION = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the others follow it")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    wish = parser.parse_args()
    began, found = time.monotonic(), Findings()
    last = wish.seed + wish.histories
    portions = (range(at, min(at + PORTION, last)) for at in range(wish.seed, last, PORTION))
    for part in _each(portions, wish.jobs):
        found.add(part)
        rate = found.histories / (time.monotonic() - began)
        print(
            f"\r{found.histories:,}/{wish.histories:,}, {rate:,.0f} a second, {found.failures} broken",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip
    print(file=sys.stderr)
    for promise in PROMISES:
        broken = found.broken.get(promise)
        print(f"{promise:16} {found.judge.looked[promise]:>14,} looks   {broken or 'holds'}")
    return 1 if found.broken else 0


def _each(portions: Iterator[range], jobs: int) -> Iterator[Findings]:
    if jobs <= 1:
        yield from map(run, portions)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting: set[Future[Findings]] = set()
        for portion in portions:
            waiting.add(pool.submit(run, portion))
            if len(waiting) > 2 * jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in waiting)


if __name__ == "__main__":
    raise SystemExit(main())
