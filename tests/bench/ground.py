"""Servers of its own for a bench, the way in from the command line, and what pairs of blocks amount to."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from shared.config.settings import Settings, load_settings
from tests.bench.quiet import keep_quiet

CAPS: dict[str, Any] = {
    "cap_total_per_day_usd": 100_000,
    "cap_person_per_day_usd": 100_000,
    "cap_visitor_per_day_usd": 100_000,
}
Measure = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


@asynccontextmanager
async def ground(*, durable: bool = True) -> AsyncIterator[tuple[EmbeddedServers, Path]]:
    """PostgreSQL and Valkey in a folder that goes away with them."""
    with tempfile.TemporaryDirectory(prefix="evertalk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with EmbeddedServers(folder / "servers", durable=durable) as servers:
            await migrate(servers.database_url)
            yield servers, folder


def settings_of(servers: EmbeddedServers, folder: Path, **more: Any) -> Settings:
    return load_settings(
        database_url=servers.database_url, redis_url=servers.redis_url, data_dir=folder, **CAPS, **more
    )


def environment_of(servers: EmbeddedServers, folder: Path, **more: str) -> dict[str, str]:
    """The same for a process."""
    caps = {f"EVERTALK_{name.upper()}": str(value) for name, value in CAPS.items()}
    return {
        "DATABASE_URL": servers.database_url,
        "REDIS_URL": servers.redis_url,
        "EVERTALK_DATA_DIR": str(folder),
        "EVERTALK_SECRET_KEY": "for-benches-and-nothing-else-at-all",
        **caps,
        **more,
    }


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of ours beside the floor, each pair measured side by side."""
    return statistics.median(ours / bare for bare, ours in pairs)


def share(values: Sequence[float], of: float) -> float:
    """The value below which such a share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * of))]


def loop_factory() -> Any:
    """uvloop's where it is installed, as in the web process."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def run(
    name: str, about: str | None, measure: Measure, arguments: Sequence[str] | None = None, **numbers: int
) -> int:
    """`numbers` are the options with their usual values."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.bench.{name}", description=about)
    parser.add_argument("--json", action="store_true")
    for option, usual in numbers.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=int, default=usual)
    given = parser.parse_args(arguments)
    keep_quiet()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        found = runner.run(measure(**{option: getattr(given, option) for option in numbers}))
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.writelines(f"{key:<34} {value}\n" for key, value in found.items())
    return 0
