"""How long a fork takes, and storing a message meanwhile: `python -m tests.bench.forks [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from tests.bench.ground import ground, settings_of
from tests.bench.long_log import write_log
from tests.bench.quiet import keep_quiet
from tests.kit.app_driver import Visit, running_app, visit

LENGTHS = (100, 1_000, 10_000)
TEXT = "The ferry to Bodø passes nine islands, and on each of them somebody waves. " * 4
_EVENTS = """
WITH e AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no)
  SELECT session_id, seq, 'msg', seq, turn_no FROM turn_entries WHERE session_id = $1 RETURNING 1
)
UPDATE sessions SET next_event_seq = next_seq WHERE id = $1
"""


async def measure(lengths: Sequence[int] = LENGTHS, *, times: int = 5) -> dict[str, Any]:
    """Return by number of messages: milliseconds of the middle fork, and of the slowest message."""
    found: dict[str, Any] = {}
    async with ground() as (servers, folder), running_app(settings_of(servers, folder)) as app:
        for length in lengths:
            guest = await visit(app)
            await write_log(app.pool, guest.session_id, turns=length // 2, text=TEXT)
            await app.pool.execute(_EVENTS, guest.session_id)
            await app.pool.execute("UPDATE sessions SET last_channel = 'web' WHERE id = $1", guest.session_id)
            alone = [await _fork(guest, length, f"alone-{number}") for number in range(times)]
            turns = await _say_beside(guest, length, times)
            found[str(length)] = {"fork_ms": sorted(alone)[times // 2], "slowest_accept_ms": max(turns)}
    return found


async def _fork(guest: Visit, seq: int, key: str) -> float:
    began = time.perf_counter()
    await guest.app.stores.forks.fork(guest.session_id, guest.address_id, seq=seq, key=key, title=str)
    return round((time.perf_counter() - began) * 1000, 1)


async def _say_beside(guest: Visit, seq: int, times: int) -> list[float]:
    """Store messages in the source while it is forked again and again; return their milliseconds."""
    forking = asyncio.ensure_future(_fork_often(guest, seq, times))
    took = []
    while not forking.done():
        began = time.perf_counter()
        await guest.say("And now?")
        took.append(round((time.perf_counter() - began) * 1000, 1))
        await asyncio.sleep(0.02)
    await forking
    return took


async def _fork_often(guest: Visit, seq: int, times: int) -> None:
    for number in range(times):
        await _fork(guest, seq, f"beside-{number}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.forks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    keep_quiet()
    found = asyncio.run(measure())
    if given.json:
        print(json.dumps(found))
        return
    for length, row in found.items():
        print(f"{length:>7} messages: fork {row['fork_ms']} ms, slowest accept {row['slowest_accept_ms']} ms")


if __name__ == "__main__":
    main()
