"""What a process needs to begin and to count is on the machine: it asks nobody elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ALONE = """
import socket

def nobody(*_, **__):
    raise OSError("there is no network")

socket.getaddrinfo = nobody
socket.socket.connect = nobody
socket.create_connection = nobody
import shared.bootstrap.app, shared.bootstrap.process, web.app, worker.jobs
from shared.adapters.models.token_counter import VocabularyCounter
from shared.config.settings import load_settings

load_settings()
counter = VocabularyCounter()
assert counter.count_tokens("Hello there, how are you today?") > 4
assert counter.problem is None, counter.problem
print("alone")
"""


@pytest.mark.control("S45")
def test_without_a_network_everything_is_there_and_tokens_are_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
        env={"EVERTALK_ENV_FILE": "", "HOME": "/nonexistent", "PATH": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "alone\n"), done.stderr
