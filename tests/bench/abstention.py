"""Unanswerable questions to a reader that follows the rule: `python -m tests.bench.abstention --data FILE …`.

`./evertalk eval --unanswerable` runs with each file on real servers. The provider is the strict fake in a
process of its own; it quotes what is recalled, and uses `recall` once before it says that it does not know.
It proves the way that questions take, and nothing about a real model, which `./evertalk eval` measures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.cli.eval import EvalTerminal, read_eval_arguments, run_eval
from tests.bench.ground import ground, settings_of
from tests.bench.quiet import keep_quiet
from tests.kit.fakes.messages_api import running_fake

READS = [{"match": {"kind": "chat"}, "times": -1, "action": {"read": True}}]


async def measure(files: Sequence[Path], *, talks: int, unanswerable: int) -> list[dict[str, Any]]:
    """Return the row of each file, with every answer."""
    rows: list[dict[str, Any]] = []
    async with running_fake(window=1_000_000) as fake, ground(durable=False) as (servers, where):
        await fake.script(READS)
        settings = settings_of(servers, where, anthropic_api_key="bench", anthropic_base_url=fake.base_url)
        for file in files:
            said: list[str] = []
            terminal = EvalTerminal(say=said.append, tell=lambda line: print(line, file=sys.stderr), ask=None)
            words = ("--data", str(file), "--unanswerable", str(unanswerable), "--talks", str(talks))
            wish = read_eval_arguments((*words, "--judge", "rules", "--yes", "--cap", "50", "--json"))
            await run_eval(wish, settings=settings, terminal=terminal)
            rows += json.loads(said[0])["rows"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.abstention", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of recorded talk")
    parser.add_argument("--talks", type=int, default=10, help="talks of each file")
    parser.add_argument("--unanswerable", type=int, default=4, help="questions of each talk")
    parser.add_argument("--json", action="store_true", help="print every answer")
    chosen = parser.parse_args()
    keep_quiet()
    rows = asyncio.run(measure(chosen.data, talks=chosen.talks, unanswerable=chosen.unanswerable))
    if chosen.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        print(json.dumps({name: value for name, value in row.items() if name != "answers"}))


if __name__ == "__main__":
    main()
