"""What a process writes into its log when something breaks, in both formats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared.supervision.child_process import ChildProcess

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "700001:" + "t" * 35
WORDS = "ada-bird-told-in-private"
BREAKS = f"""
import logging, structlog
from shared.bootstrap.logs import configure_logs
from shared.config.settings import load_settings
configure_logs(load_settings(), process="web")
log = structlog.get_logger("x")

def answer(said, key):
    raise RuntimeError("cannot reach https://api.example/bot" + key)

def hear(said, key):
    try:
        answer(said, key)
    except RuntimeError:
        log.exception("it_broke", text=said, authorization=key)
        logging.getLogger("other").exception("it broke at %s", "https://api.example/bot" + key)

hear({WORDS!r}, {TOKEN!r})
log.warning("odd", reason="mail ada@example.org, card 4111 1111 1111 1111, Bearer " + "q" * 40)
"""


@pytest.mark.control("S03", "S36")
@pytest.mark.parametrize("how", ["text", "json"])
def test_a_trace_shows_neither_variables_nor_secrets(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BREAKS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        env={"EVERTALK_ENV_FILE": "", "EVERTALK_LOG_FORMAT": how, "TELEGRAM_BOT_TOKEN": TOKEN, "PATH": ""},
    )  # fmt: skip
    assert "it_broke" in done.stderr
    assert done.stderr.count("Traceback") == 2
    for hidden in (WORDS, TOKEN, "q" * 40):
        assert hidden not in done.stderr, hidden


@pytest.mark.control("S03", "S37")
async def test_no_list_of_processes_shows_what_a_child_is_given(tmp_path: Path) -> None:
    """Everybody on a machine reads command lines; the environment of others only root does."""
    child = ChildProcess(name="bot", environment={"TELEGRAM_BOT_TOKEN": TOKEN}, folder=tmp_path, say=print)
    assert list(child.command) == [sys.executable, "-m", "bot"]
    assert TOKEN not in repr(child.command)
