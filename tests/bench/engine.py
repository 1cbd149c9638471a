"""What the context engine costs: `python -m tests.bench.engine [--json] [--entries N] [--turns N]`.

A digest of 25,000 tokens, the build of a request of 200,000 beside its serialisation, and a turn in a
conversation of a million messages beside the same turn in one of a hundred, on real servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_counted_body
from shared.bootstrap.app import App
from shared.config.settings import Settings
from shared.core.compaction.digest import digest
from shared.core.context.build_context import build_context
from shared.core.context.prompts import default_layers
from shared.core.presets.catalog import preset
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry, View
from shared.ports import ModelCard, ModelRequest
from tests.bench.ground import ground, settings_of
from tests.bench.policies.log import entries_of
from tests.bench.policies.workload import telegram
from tests.bench.quiet import keep_quiet
from tests.bench.rest import rss_mib
from tests.bench.turn import ANSWER, QUESTION
from tests.bench.whole import WholeTurns, all_were_answered, app_with_instant_model
from web.app import build_web_process
from web.ports import ModelInfo

AIMS = {"digest_25k_ms": 50, "build_200k_cpu_ms": 20, "million_ratio": 1.1}
REPEATS = 9
SHORT_ENTRIES = 100
"""The conversation that the long one is held against."""
SEEDING_SECONDS = 300
STATISTICS_SECONDS = 11.0
KEPT_TURNS = 40
"""Live turns of both: the same view, behind a summary."""
_CARD = ModelCard(
    name="bench", window=1_000_000, max_output=8_192, window_known=True, prices=None,
    capabilities=frozenset({"tools", "cache"}),
)  # fmt: skip


def measure_core(*, repeats: int = REPEATS) -> dict[str, Any]:
    """CPU alone: nothing here waits for anything."""
    counter = VocabularyCounter()
    talk = entries_of(telegram(900, seed=1, tool_turns=0.3), counter.count_tokens)
    portion = _first(talk, 25_000)
    digested = _median_ms(
        lambda: digest(portion, Ledger(), counter.count_tokens, budget_tokens=1_000), repeats
    )
    view = _view(_first(talk, 200_000))
    policy = preset("steady")
    built = build_context(view, policy=policy, system=default_layers(), count=counter.count_tokens)
    build = _median_ms(
        lambda: build_context(view, policy=policy, system=default_layers(), count=counter.count_tokens),
        repeats,
    )
    request = ModelRequest(
        model="bench", system=built.system, messages=built.messages, cache_at=built.cache_at,
        max_output_tokens=8_192,
    )  # fmt: skip
    serialise = _median_ms(lambda: json.dumps(build_counted_body(request, _CARD, "bench")), repeats)
    return {
        "digest_25k_tokens": sum(entry.tokens for entry in portion),
        "digest_25k_ms": round(digested, 1),
        "build_200k_tokens": built.estimate,
        "build_200k_entries": len(view.entries),
        "build_200k_cpu_ms": round(build, 2),
        "serialise_200k_cpu_ms": round(serialise, 2),
        "build_to_serialise_ratio": round(build / serialise, 2),
    }


async def measure_long(*, entries: int, turns: int, blocks: int) -> dict[str, Any]:
    async with ground() as (servers, folder):
        return await _long(settings_of(servers, folder), entries, turns, blocks)


async def _long(settings: Settings, entries: int, turns: int, blocks: int) -> dict[str, Any]:
    app = await app_with_instant_model(settings, answer=ANSWER)
    process = build_web_process(app, model=ModelInfo(name="bench", offline=False))
    process.hub.start()
    try:
        short, long = WholeTurns(app, process.hub), WholeTurns(app, process.hub)
        began = time.perf_counter()
        for whole, size in ((short, SHORT_ENTRIES), (long, entries)):
            await whole.begin()
            await _grow(app, whole.session_id, size)
        await _vacuumed(app)
        grown = time.perf_counter() - began
        for whole in (short, long):
            await _block(whole, max(5, turns // 2))
        held = rss_mib(os.getpid()) or 0.0
        pairs = [(await _block(short, turns), await _block(long, turns)) for _ in range(blocks)]
        more = (rss_mib(os.getpid()) or 0.0) - held
        read = [await _blocks_read(app, whole, turns) for whole in (short, long)]
        await all_were_answered(app)
        ratios = [after / before for before, after in pairs]
        return {
            "million_entries": entries,
            "million_ratio": round(statistics.median(ratios), 3),
            "million_rss_mib": round(max(0.0, more), 1),
            "million_blocks_ratio": round(read[1] / read[0], 3),
            "blocks_per_turn": [round(blocks, 1) for blocks in read],
            "million_ratios": [round(ratio, 3) for ratio in ratios],
            "million_turn_ms": round(statistics.median(after for _, after in pairs), 2),
            "hundred_turn_ms": round(statistics.median(before for before, _ in pairs), 2),
            "seeding_seconds": round(grown, 1),
        }
    finally:
        await process.tasks.drain(2.0)
        await app.close()


async def _block(whole: WholeTurns, turns: int) -> float:
    await whole.conversation.check_leases()
    began = time.perf_counter()
    for _ in range(turns):
        await whole.turn(QUESTION)
    return (time.perf_counter() - began) * 1_000 / turns


async def _blocks_read(app: App, whole: WholeTurns, turns: int) -> float:
    """Of 8 kB each, by one turn; what the server does by itself meanwhile is in it."""
    before = await _blocks_so_far(app)
    await _block(whole, turns)
    return (await _blocks_so_far(app) - before) / turns


async def _blocks_so_far(app: App) -> int:
    """Connections at rest tell what they have counted after ten seconds."""
    await asyncio.sleep(STATISTICS_SECONDS)
    return int(
        await app.pool.fetchval(
            "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
        )
    )


async def _vacuumed(app: App) -> None:
    """As years of talk are: the server would do so at a moment of its own, and read every block in it."""
    async with app.pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("VACUUM (ANALYZE)", timeout=600)
        await connection.execute("RESET statement_timeout")


async def _grow(app: App, session_id: int, entries: int) -> None:
    """A log of so many messages, all but the newest turns behind one summary, as years of talk leave it."""
    async with app.pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL synchronous_commit = off; SET LOCAL statement_timeout = 0")
        for statement in _GROW:
            await connection.execute(statement, session_id, entries // 2, KEPT_TURNS, timeout=SEEDING_SECONDS)
    await app.pool.execute("ANALYZE entries, turn_entries, turns, compactions, events")


_GROW = (
    """INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
       SELECT $1, n, CASE WHEN n % 2 = 1 THEN 'user' ELSE 'assistant' END,
              CASE WHEN n % 2 = 1 THEN 'person' ELSE 'assistant' END,
              jsonb_build_array(jsonb_build_object('type', 'text', 'text', 'Message ' || n)), 8
         FROM generate_series(1, 2 * $2::bigint) n WHERE $3::bigint > 0""",
    """INSERT INTO turns (session_id, turn_no, state, channel, address_id, ended_at)
       SELECT $1, n, 'answered', 'web', (SELECT min(id) FROM addresses WHERE session_id = $1), now()
         FROM generate_series(1, $2::bigint) n WHERE $3::bigint > 0""",
    """INSERT INTO turn_entries (session_id, seq, turn_no, step)
       SELECT $1, n, (n + 1) / 2, 2 - n % 2 FROM generate_series(1, 2 * $2::bigint) n
        WHERE $3::bigint > 0""",
    """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger,
                          summary_text, tokens)
       SELECT $1, 'summary', 1, $2::bigint - $3::bigint, 1, 2 * ($2::bigint - $3::bigint), 'limit',
              'They talked of many things.', 6""",
    """UPDATE sessions SET next_seq = 2 * $2::bigint + 1, next_turn = $2::bigint + 1,
              answered_turn = $2::bigint, base_turn = $2::bigint - $3::bigint, cycle = 1,
              flushed_turn = $2::bigint - $3::bigint,
              head = (SELECT max(id) FROM compactions WHERE session_id = $1)
        WHERE id = $1""",
)


def _view(entries: Sequence[Entry]) -> View:
    return View(
        session_id=1, base_turn=0, flushed_turn=0, view_epoch=0, cycle=0, head=None,
        entries=tuple(entries), open_turn=entries[-1].turn,
    )  # fmt: skip


def _first(entries: Sequence[Entry], tokens: int) -> tuple[Entry, ...]:
    """Whole turns from the beginning until so many tokens are together."""
    total, end = 0, 0
    for index, entry in enumerate(entries):
        total += entry.tokens
        if total > tokens:
            break
        end = index + 1
    while end and entries[end - 1].author != "assistant":
        end -= 1
    return tuple(entries[:end])


def _median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1_000)
    return statistics.median(times)


def as_table(found: dict[str, Any]) -> str:
    lines = []
    for name, value in found.items():
        aim = AIMS.get(name)
        lines.append(f"{name:<28} {value!s:<28} {'' if aim is None else f'aim ≤ {aim}'}".rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engine", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the long conversation")
    parser.add_argument("--turns", type=int, default=20, help="per block")
    parser.add_argument("--blocks", type=int, default=15, help="of each conversation")
    given = parser.parse_args(arguments)
    keep_quiet()
    found = measure_core()
    found |= asyncio.run(measure_long(entries=given.entries, turns=given.turns, blocks=given.blocks))
    print(json.dumps(found) if given.json else as_table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
