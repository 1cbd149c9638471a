"""Order of the messages on the screen: that of the log, whatever arrives first."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.kit.needed_programs import refuse
from tests.kit.night import by_night
from web.server.pages import STATIC

STORMS = Path(__file__).with_name("message_storms.mjs")
STATE = STATIC / "widget" / "state.js"


def play(storms: int, *, seed: int) -> dict[str, object]:
    node = shutil.which("node") or refuse("no node on this machine (Debian: apt-get install nodejs)")
    command = [node, str(STORMS), str(STATE), str(storms), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_two_tabs_show_the_order_of_the_log_after_500_storms() -> None:
    assert play(by_night(10_000, else_=500), seed=1) == {"bad": 0, "first": ""}
