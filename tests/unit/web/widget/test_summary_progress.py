"""Progress of a summary in the widget: it ends with its job, also if only the stored event arrives."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.kit.needed_programs import refuse
from web.server.pages import STATIC

FRAMES = Path(__file__).with_name("summary_progress.mjs")
STATE = STATIC / "widget" / "state.js"


def test_widget_shows_progress_until_its_job_has_ended() -> None:
    node = shutil.which("node") or refuse("no node on this machine (Debian: apt-get install nodejs)")
    command = [node, str(FRAMES), str(STATE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "stored": None,
        "undone": {"id": "17", "percent": 60, "failed": False},
        "next": {"id": "18", "percent": 5, "failed": False},
        "other": {"id": "18", "percent": 5, "failed": False},
        "late": None,
        "failed": {"id": "17", "percent": 50, "failed": True},
    }
