"""Choice of the widget's line: WebSocket, event stream or long polling, on a clock of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.needed_programs import refuse
from web.server.pages import STATIC

PLAYER = Path(__file__).with_name("line_choice.mjs")
SOCKET, STREAM, POLL = range(3)
FOUND_MS = 10_000
"""Virtual milliseconds until a page behind any proxy can talk, with the longest random pauses."""


def play(scenario: str) -> dict[str, Any]:
    node = shutil.which("node") or refuse("no node on this machine (Debian: apt-get install nodejs)")
    command = [node, str(PLAYER), str(STATIC / "widget" / "net.js"), scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("scenario", "way"),
    [
        ("all works", SOCKET),
        ("socket refused", STREAM),
        ("socket hangs", STREAM),
        ("socket opens and is mute", STREAM),
        ("socket refused, stream silent", POLL),
        ("socket hangs, stream silent", POLL),
        ("socket hangs, stream refused", POLL),
        ("both refused", POLL),
    ],
)
def test_line_is_found_within_ten_seconds(scenario: str, way: int) -> None:
    found = play(scenario)
    assert [one["way"] for one in found["ways"]] == [way]
    assert found["ways"][0]["at"] <= FOUND_MS
    assert found["online"]
    assert found["open"] == 1, "of the lines that were tried one stays"


def test_working_socket_loads_and_asks_for_nothing_else() -> None:
    found = play("all works")
    assert (found["sockets"], found["streams"], found["polls"]) == (1, 0, 0)


def test_stream_that_falls_silent_gives_way_to_polls() -> None:
    found = play("stream falls silent after its welcome")
    assert [one["way"] for one in found["ways"]] == [STREAM, POLL]
    assert found["seen"] == [1], "the message that was acknowledged is shown"


def test_polls_wait_less_where_a_proxy_cuts_them() -> None:
    found = play("polls are cut after five seconds")
    assert [one["way"] for one in found["ways"]] == [POLL], "a cut request is no lost line"
    assert found["waits"][-1] < 5
    assert found["seen"] == [1]


def test_failed_polls_lose_nothing_and_keep_the_line() -> None:
    found = play("some polls fail")
    assert [one["way"] for one in found["ways"]] == [POLL]
    assert found["seen"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("scenario", "way"), [("socket works again", SOCKET), ("stream works again", STREAM)]
)
def test_better_line_is_taken_when_it_works_again(scenario: str, way: int) -> None:
    found = play(scenario)
    assert [one["way"] for one in found["ways"]] == [POLL, way]
    assert found["states"].count("online") == 1, "nobody is told of the move"
    assert found["seen"] == list(range(1, len(found["seen"]) + 1))
    assert found["open"] == 1


def test_restarted_server_is_reached_by_socket_again() -> None:
    found = play("server restarts")
    assert (found["way"], found["online"]) == (SOCKET, True)
