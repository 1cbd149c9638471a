"""What Telegram costs: `python -m tests.bench.telegram [--json] [--rounds N] [--blocks N] [--turns N]`.

Ratios and counts are what is looked at; milliseconds are told because people ask for them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.bench import telegram_inbox, telegram_replies, telegram_turn

AIMS = {"commits": 6, "reply_ratio_1": 2.5, "reply_ratio_10": 2.5, "rss_bot_mib": 260,
        "rss_bot_after_answer_mib": 260, "rss_bot_at_end_mib": 260}  # fmt: skip


async def measure(
    *, rounds: int, blocks: int, turns: int, reply_rounds: int, with_processes: bool
) -> dict[str, Any]:
    """Each part on servers of its own: numbers of updates begin anew with each fake."""
    with capture_logs():
        return await _measure(rounds, blocks, turns, reply_rounds, with_processes=with_processes)


async def _measure(
    rounds: int, blocks: int, turns: int, reply_rounds: int, *, with_processes: bool
) -> dict[str, Any]:
    async with _servers() as (servers, _):
        found = await telegram_inbox.measure(servers.database_url, rounds=rounds, blocks=blocks)
    async with _servers() as (servers, folder):
        found |= await telegram_turn.measure(servers.database_url, servers.redis_url, folder, turns=turns)
    if with_processes:
        async with _servers() as (servers, folder):
            found |= await telegram_replies.measure(
                servers.database_url, servers.redis_url, folder, rounds=reply_rounds
            )
    return found


@asynccontextmanager
async def _servers() -> AsyncIterator[tuple[EmbeddedServers, Path]]:
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with EmbeddedServers(folder / "servers", durable=True) as servers:
            await migrate(servers.database_url)
            yield servers, folder


def as_table(found: dict[str, Any]) -> str:
    lines = []
    for name, value in found.items():
        aim = AIMS.get(name)
        lines.append(f"{name:<30} {value!s:<24} {'' if aim is None else f'aim ≤ {aim}'}".rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.telegram", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=40, help="batches or posts per block")
    parser.add_argument("--blocks", type=int, default=11, help="of each kind")
    parser.add_argument("--turns", type=int, default=15, help="to count statements and commits over")
    parser.add_argument("--reply-rounds", type=int, default=4, help="of ten replies, alone and together")
    parser.add_argument("--no-processes", action="store_true", help="leave replies and memory out")
    given = parser.parse_args(arguments)
    found = asyncio.run(
        measure(
            rounds=given.rounds,
            blocks=given.blocks,
            turns=given.turns,
            reply_rounds=given.reply_rounds,
            with_processes=not given.no_processes,
        )
    )
    print(json.dumps(found) if given.json else as_table(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
