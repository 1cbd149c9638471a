"""What a large import costs: `python -m tests.bench.past [--json] [--messages N] [--summaries N]`.

A Telegram export is imported on PostgreSQL, interrupted in the middle and resumed, made searchable, partly
summarised by the provider of the tests in a process of its own, and undone.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from shared.adapters.past.exports import read_past
from shared.bootstrap.app import App
from shared.core.memory.past import PastImport
from shared.core.values.errors import BadInput
from shared.services.memory.import_runner import digest_export
from shared.services.memory.past_importer import PastImporter
from tests.bench.ground import ground, run, settings_of
from tests.kit.app_driver import Visit, running_app, visit
from tests.kit.fakes.messages_api.harness import running_fake

T = TypeVar("T")
TEXTS = (
    "Did you see the ferry this morning? It passed the islands an hour late.",
    "Yes. Ingrid waved from the quay, and Bertil barked at the gulls.",
    "Let us meet on Thursday at the old boathouse, with the ochre paint.",
    "Fine, I bring the brushes and the invoice of the piano.",
    "ok",
)


class Interrupted(Exception):
    """Stands for the end of the process in the middle of an import."""


def write_export(path: Path, messages: int) -> None:
    """Write an export of a chat between two people, a message each five minutes, with pauses at night."""
    with path.open("w", encoding="utf-8") as out:
        out.write('{"name": "Ben", "type": "personal_chat", "id": 42, "messages": [\n')
        for at in range(messages):
            seconds = 1_400_000_000 + 300 * at + 36_000 * (at // 100)
            row = {
                "id": at, "type": "message", "date_unixtime": str(seconds),
                "from": "Ben" if at % 2 else "Ada", "from_id": "user42" if at % 2 else "user17",
                "text": f"{TEXTS[at % len(TEXTS)]} ({at})",
            }  # fmt: skip
            out.write(json.dumps(row) + (",\n" if at + 1 < messages else "\n"))
        out.write("]}\n")


async def measure(messages: int = 500_000, summaries: int = 20) -> dict[str, Any]:
    """Return seconds, mebibytes of memory and of the database, by step."""
    async with running_fake() as fake, ground() as (servers, folder):
        settings = settings_of(
            servers, folder, anthropic_api_key="test-key", anthropic_base_url=fake.base_url
        )
        async with running_app(settings) as app:
            return await _measure(app, folder, messages, summaries)


async def _measure(app: App, folder: Path, messages: int, summaries: int) -> dict[str, Any]:
    guest, path = await visit(app), folder / "result.json"
    write_export(path, messages)
    found: dict[str, Any] = {"messages": messages, "export_mib": path.stat().st_size // 2**20}
    before, memory = await _database_mib(app), _memory_mib()
    digest = digest_export("telegram", "", path)

    stops = messages // 2

    async def interrupted() -> int:
        def stop(stored: int) -> None:
            if stored >= stops:
                raise Interrupted

        with suppress(Interrupted):
            await _import(guest, path, digest, stop)
        count: int = await guest.one("SELECT messages FROM past_imports")
        return count

    found["first_half_seconds"], found["kept_messages"] = await _timed(interrupted)
    found["resume_seconds"], made = await _timed(lambda: _import(guest, path, digest, lambda stored: None))
    if made.messages != messages:
        raise BadInput(f"{made.messages} of {messages} messages are stored")
    found["database_growth_mib"] = await _database_mib(app) - before
    found["memory_growth_mib"] = _memory_mib() - memory

    async def make_searchable() -> None:
        while await app.stores.recall_index.index_session(made.session_id):
            pass

    found["indexing_seconds"], _ = await _timed(make_searchable)
    found["searchable_growth_mib"] = await _database_mib(app) - before

    async def summarise() -> int:
        for _ in range(summaries):
            await app.stores.import_summaries.request_due()
            for job in await app.stores.jobs.due_jobs():
                await app.job_runner.run(job.id)
        count: int = await guest.one("SELECT count(*) FROM past_summaries WHERE passages > 0")
        return count

    found["summaries_seconds"], found["summaries"] = await _timed(summarise)
    [after] = await app.stores.past_imports.list_imports(guest.session_id)
    found["summarised_percent"], found["summaries_usd"] = after.summarised_percent, after.cost_micro / 1e6
    found["peak_memory_mib"] = _memory_mib()

    async def undo() -> None:
        await _importer(app).undo(guest.session_id, made.id, "command line")
        await app.erasure.finish_pending()

    found["undo_seconds"], _ = await _timed(undo)
    left = "SELECT count(*) FROM passages UNION ALL SELECT count(*) FROM past_summaries"
    found["left_rows"] = sum(row["count"] for row in await app.pool.fetch(left))
    found["load"] = round(os.getloadavg()[0], 1)
    return found


def _importer(app: App) -> PastImporter:
    return PastImporter(store=app.stores.past_imports, eraser=app.erasure, crash_point=lambda name: None)


async def _import(guest: Visit, path: Path, digest: bytes, on_stored: Callable[[int], None]) -> PastImport:
    app = guest.app
    read = read_past("telegram", path, zone=ZoneInfo("UTC"), now=app.clock.now(), me="")
    return await _importer(app).import_past(guest.session_id, "telegram", digest, read, on_stored=on_stored)


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    began = time.perf_counter()
    result = await work()
    return round(time.perf_counter() - began, 1), result


async def _database_mib(app: App) -> int:
    size: int = await app.pool.fetchval("SELECT pg_database_size(current_database()) / 1048576")
    return size


def _memory_mib() -> int:
    """Return the peak of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    sys.exit(run("past", __doc__, measure, messages=500_000, summaries=20))
