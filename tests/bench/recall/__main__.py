"""`python -m tests.bench.recall --data PATH … [--json] [--entries N …]`: what is found again, and how fast.

The data are files of LoCoMo, BEAM, MemDaily or RealMem that stay outside this repository; without one only
the speed is measured, over made-up conversations. Each question goes through the same statement and the same
ranking as in a turn. The first figures are those of a turn as shipped: nobody has a name, and 1,200 tokens
may be recalled. Beside them stands plain BM25 over the same passages, packed in the same way. The bench fails
if plain BM25 finds more, in a whole file or in a category of at least 40 questions.
With `--rerank URL` or `--embeddings URL`, a server orders passages, and is waited for however long it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.meaning.client import LocalEncoder
from shared.adapters.models.embeddings import HttpEncoder
from shared.adapters.models.reranker import HttpReranker
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from shared.ports import Encoder, Reranker
from tests.bench.quiet import keep_quiet
from tests.bench.recall.data import OTHER_SCRIPTS, Conversation, conversations, made_up
from tests.bench.recall.measuring import below_plain, quality, resident_mib, speed
from tests.kit.fakes.encoder import running_encoder

AIMS = {
    "LoCoMo": {"recall_at_10": 0.774, "within_2000": 0.88, "survival": 0.88},
    "BEAM": {"within_1200": 0.658},
    "MemDaily": {"within_1200": 0.70},
    "RealMem": {"within_1200": 0.46},
    "cpu_p95_ms_100000": 12,
    "meaning_cpu_p95_ms_100000": 25,
    "encoder_mib": 60,
}
MESSAGES_A_DAY = 100
OWN = Path()
"""Stands for an encoder's process of the bench."""
PATIENCE_SECONDS = 120.0


async def measure(
    files: Mapping[str, Sequence[Conversation]],
    entries: Sequence[int],
    orderer: Reranker | None = None,
    encoder: Encoder | None = None,
    encoder_pid: int = 0,
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        async with EmbeddedServers(Path(name) / "servers", durable=False) as servers:
            await migrate(servers.database_url)
            pool = await open_pool(servers.database_url)
            try:
                found: dict[str, Any] = {}
                for name_of_file, talks in files.items():
                    found[name_of_file] = await quality(pool, talks, orderer, encoder)
                for number in entries:
                    talk = made_up(
                        days=max(1, number // MESSAGES_A_DAY), messages_a_day=MESSAGES_A_DAY,
                        scripts=OTHER_SCRIPTS,
                    )  # fmt: skip
                    found |= await speed(pool, talk, encoder, encoder_pid=encoder_pid)
                if encoder_pid:
                    found["encoder_mib"] = round(resident_mib(str(encoder_pid)), 1)
                    found["encoder_own_mib"] = round(resident_mib(str(encoder_pid), "Pss_Anon"), 1)
            finally:
                await pool.close()
                for server in (orderer, encoder):
                    if server is not None:
                        await server.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recall", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="files of conversations")
    parser.add_argument("--entries", type=int, nargs="*", default=[6_000, 100_000])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rerank", metavar="URL", default="", help="of a server with /rerank")
    encoders = parser.add_mutually_exclusive_group()
    encoders.add_argument("--embeddings", metavar="URL", default="", help="of a server with /embeddings")
    encoders.add_argument(
        "--meaning", metavar="SOCKET", type=Path, nargs="?", const=OWN,
        help="of the encoder's process; without a path, one with the installed package is started",
    )  # fmt: skip
    parser.add_argument("--model", default="", help="of these servers, where they have several")
    chosen = parser.parse_args()
    keep_quiet()
    files = {path.stem: conversations(path) for path in chosen.data}
    found = asyncio.run(_measure(files, chosen))
    below = [f"{name}: {row}" for name in files for row in below_plain(found[name])]
    print(json.dumps({**found, "below": below, "aims": AIMS}, indent=2) if chosen.json else _table(found))
    if below:
        sys.exit("plain BM25 finds more:\n" + "\n".join(below))


async def _measure(files: Mapping[str, Sequence[Conversation]], chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure with the chosen servers, and with an encoder's process of our own if none is named."""
    if chosen.meaning != OWN:
        return await measure(files, chosen.entries, _orderer(chosen), _encoder(chosen))
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-") as folder:
        path = Path(folder) / "e.sock"
        async with running_encoder(path, "shared.adapters.meaning.process") as process:
            encoder = LocalEncoder(path, question_seconds=PATIENCE_SECONDS)
            return await measure(files, chosen.entries, _orderer(chosen), encoder, process.pid)


def _orderer(chosen: argparse.Namespace) -> Reranker | None:
    if not chosen.rerank:
        return None
    return HttpReranker(url=chosen.rerank, key="", model=chosen.model, seconds=PATIENCE_SECONDS)


def _encoder(chosen: argparse.Namespace) -> Encoder | None:
    if chosen.meaning is not None:
        return LocalEncoder(chosen.meaning, question_seconds=PATIENCE_SECONDS)
    if not chosen.embeddings:
        return None
    return HttpEncoder(url=chosen.embeddings, key="", model=chosen.model, seconds=PATIENCE_SECONDS)


def _table(found: Mapping[str, Any]) -> str:
    """Lay each figure in a line of its own, with that of plain BM25 beside it."""
    return "\n".join(_lines(found, ""))


def _lines(found: Mapping[str, Any], place: str) -> Iterator[str]:
    plain = found.get("plain", {})
    for name, value in found.items():
        if isinstance(value, Mapping):
            if name != "plain":
                yield from _lines(value, f"{place}{name}.")
        else:
            beside = f"   BM25 {plain[name]}" if name in plain else ""
            yield f"{place + name:60} {value}{beside}"


if __name__ == "__main__":
    main()
