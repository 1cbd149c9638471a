"""One small installation with a backup and a life after it; each test has a copy of its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.bootstrap.app import App
from shared.cli.backup import make_backup
from shared.config.settings import Settings, load_settings
from shared.core.context.notes import NewNote, NoteSource
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.canaries import tables_of
from tests.kit.temp_folders import short_folder

ROOT = Path(__file__).resolve().parents[3]
KEPT, LATER = "Kept-Canary-11", "Later-Canary-22"
FORGOTTEN, ERASED, NOTED = "Forgotten-Canary-33", "Erased-Canary-44", "Noted-Canary-55"
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    data: Path
    backup: Path

    @property
    def settings(self) -> Settings:
        return load_settings(data_dir=self.data)

    async def ask(self, statement: str, *arguments: Any) -> Any:
        """Of its database, with its servers up for a moment."""
        async with EmbeddedServers(self.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
            connection = await asyncpg.connect(servers.database_url, timeout=60)
            try:
                return await connection.fetchval(statement, *arguments)
            finally:
                await connection.close(timeout=30)

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(self.data), **settings}
        return subprocess.run(
            [sys.executable, "-P", "-m", "shared", *arguments],
            env=environment, capture_output=True, text=True, timeout=150, cwd="/",
        )  # fmt: skip


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other accounts may pass through."""
    made = short_folder("evv-")
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
async def lived(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = short_folder("evo-")
    data = folder / "data"
    (data / "workspaces" / "ada").mkdir(parents=True)
    data.chmod(0o711)
    (data / "workspaces" / "ada" / "SOUL.md").write_text("As it was.")
    async with EmbeddedServers(data / "servers") as servers:
        await migrate(servers.database_url)
        settings = settings_for(
            servers.database_url, servers.redis_url, data_dir=data, secret_key="k" * 48
        ).model_copy(update={"secret_key": None})
        (data / "secret_key").write_text("k" * 48)
        (data / "secret_key").chmod(0o600)
        async with running_app(settings) as app:
            backup = await _live(app, settings, servers.database_url)
    (data / "workspaces" / "ada" / "SOUL.md").write_text("Changed since.")
    yield Installation(data=data, backup=backup)
    shutil.rmtree(folder, ignore_errors=True)


async def _live(app: App, settings: Settings, database_url: str) -> Path:
    stays, leaves = await visit(app), await visit(app)
    await stays.ask(f"Hello {KEPT}")
    await stays.ask(f"Also {ERASED}")
    await leaves.ask(f"I am {FORGOTTEN}")
    note = await _note(app, stays)
    await create_login_link(database_url)
    made = await make_backup(settings, database_url, folder=settings.backups)
    await stays.ask(f"And then {LATER}")
    await app.erasure.erase_everything(leaves.session_id, "person")
    await app.erasure.erase_messages(stays.session_id, [3, 4], "person")
    source = await _source(app, stays)
    assert await PostgresNotes(app.pool).erase(source, [note]) == 1
    await leaves.ask("I came back.")
    return made.path


async def _source(app: App, guest: Visit) -> NoteSource:
    contact = await app.pool.fetchval("SELECT contact_id FROM sessions WHERE id = $1", guest.session_id)
    return NoteSource(contact_id=contact, scope="default", session_id=guest.session_id, by_person=True)


async def _note(app: App, guest: Visit) -> int:
    source = await _source(app, guest)
    saved = await PostgresNotes(app.pool).save(NewNote(kind="fact", text=f"Likes {NOTED} a lot."), source)
    assert saved.note is not None
    return saved.note.id


@pytest.fixture
def installation(lived: Installation) -> Iterator[Installation]:
    """A copy of it, stopped."""
    folder = lived.data.parent / f"copy{next(_numbers)}"
    subprocess.run(["cp", "-a", str(lived.data), str(folder)], check=True, timeout=60)
    yield Installation(data=folder, backup=folder / "backups" / lived.backup.name)
    shutil.rmtree(folder, ignore_errors=True)


async def words_of(installation: Installation) -> str:
    """Everything in its database, as text."""
    async with EmbeddedServers(installation.data / "servers", wanted=EmbeddedChoice(redis=False)) as servers:
        return await tables_of(servers.database_url)
