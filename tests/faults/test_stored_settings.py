"""Whoever stores settings dies in the middle: none of them holds, and the next one stores all."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from tests.faults.crash_points import IN_A_CHANGE
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.processes import CRASHED

ROOT = Path(__file__).resolve().parents[2]
GIVEN = {"EVERTALK_MODEL": "one", "EVERTALK_QUIET_HOURS": "22-7"}


async def _import(case: Case, file: Path, **more: str) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared", "settings", "import", str(file), cwd=ROOT,
        env={**os.environ, **case.settings(**more)}, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    async with asyncio.timeout(60):
        return await process.wait()


async def test_settings_of_which_the_last_was_not_stored_are_not_stored(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"format": "evertalk-settings-1", "settings": GIVEN}))
    assert await _import(case, file, EVERTALK_CRASH_POINT=IN_A_CHANGE) == CRASHED
    assert await case.value("SELECT count(*) FROM stored_settings") == 0
    assert await case.value("SELECT count(*) FROM audit") == 0
    assert await _import(case, file) == 0
    stored = await case.rows("SELECT name, value, version FROM stored_settings ORDER BY name")
    assert stored == [{"name": name, "value": text, "version": 1} for name, text in GIVEN.items()]
    assert await case.value("SELECT count(*) FROM audit WHERE action = 'settings.changed'") == 1
