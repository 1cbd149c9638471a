"""Fills an earlier program's demo with conversations and makes a backup.

Runs with that program on `PYTHONPATH`.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import asyncpg

TURNS = 30
HOMES = {
    "EmbeddedServers": ("shared.adapters.embedded",),
    "migrate": ("shared.adapters.postgres.db.migrate", "shared.adapters.postgres.migrate"),
    "PostgresNotes": ("shared.adapters.postgres.memory.notes", "shared.adapters.postgres.notes"),
    "NewNote": ("shared.core.context.notes", "shared.core.memory.notes", "shared.core.notes"),
    "NoteSource": ("shared.core.context.notes", "shared.core.memory.notes", "shared.core.notes"),
    "make_backup": ("shared.cli.backup", "shared.backups"),
    "settings_for": ("tests.kit.app_driver", "tests.journeys.house"),
    "running_app": ("tests.kit.app_driver", "tests.journeys.house"),
    "visit": ("tests.kit.app_driver", "tests.journeys.house"),
}
"""Modules, by the name of a part, in which programs of different times have it."""


def find(name: str) -> Any:
    """Return a part of the program from the first module that has it."""
    for home in HOMES[name]:
        try:
            return getattr(importlib.import_module(home), name)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"this program has no {name}")


async def live(data: Path, target: Path, keepsake: str, note: str, secret: str) -> None:
    """Let two people talk until a summary is written, then back everything up to `target`."""
    data.mkdir(mode=0o711)
    (data / "secret_key").write_text(secret)
    (data / "secret_key").chmod(0o600)
    async with find("EmbeddedServers")(data / "servers") as servers:
        await find("migrate")(servers.database_url)
        settings = find("settings_for")(
            servers.database_url, servers.redis_url, data_dir=data, secret_key=secret, soft_budget=6_000
        )
        async with find("running_app")(settings) as app:
            guest, other = await find("visit")(app), await find("visit")(app)
            await guest.ask(keepsake)
            await keep_note(app, guest, note)
            await other.ask("Is anybody there?")
            for number in range(TURNS):
                await guest.ask(
                    f"Day {number} of the voyage: {'we saw gulls and a grey sea, ' * 40}and slept."
                )
                await guest.run_due_jobs()
                if await guest.one("SELECT count(*) FROM links"):
                    break
            else:
                raise SystemExit("nothing was summarised")
        connection = await asyncpg.connect(servers.database_url)
        # A heartbeat would disclose the machine's name and folders.
        await connection.execute("UPDATE workers SET health = '{}'")
        await connection.close()
        made = await find("make_backup")(
            settings.model_copy(update={"secret_key": None}), servers.database_url, folder=data / "backups"
        )
    target.write_bytes(made.path.read_bytes())


async def keep_note(app: Any, guest: Any, note: str) -> None:
    """Save one note of the first person."""
    owner = dict(await app.pool.fetchrow("SELECT * FROM sessions WHERE id = $1", guest.session_id))
    key = "contact_id" if "contact_id" in owner else "party_id"
    source = find("NoteSource")(
        scope="default", session_id=guest.session_id, by_person=True, **{key: owner[key]}
    )
    await find("PostgresNotes")(app.pool).save(find("NewNote")(kind="fact", text=note), source)


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
