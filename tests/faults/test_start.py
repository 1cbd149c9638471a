"""What cannot work is refused at the start, with the name of what is wrong and an exit code that says so."""

from __future__ import annotations

import socket

import pytest

from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.processes import ended

BAD_SETTINGS = 2
NOWHERE = "postgresql://postgres@/evertalk?host=/tmp/evertalk-nowhere"


async def test_a_port_in_use_is_named(case: Case) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, words = await ended("web", case.settings(EVERTALK_HTTP_PORT=str(port)))
    assert code not in (0, BAD_SETTINGS)
    assert "port_listen_failed" in words
    assert str(port) in words
    assert "Traceback" not in words
    await case.promises_hold()


@pytest.mark.parametrize("module", ["web", "worker"])
async def test_a_broken_setting_is_named_with_its_value_and_the_reason(case: Case, module: str) -> None:
    code, words = await ended(
        module, case.settings(EVERTALK_CONTEXT_WINDOW="plenty", EVERTALK_TIMEZONE="Mars/Olympus")
    )
    assert code == BAD_SETTINGS
    assert "EVERTALK_CONTEXT_WINDOW=plenty" in words
    assert "EVERTALK_TIMEZONE=Mars/Olympus" in words
    assert "Traceback" not in words


@pytest.mark.parametrize("module", ["web", "worker"])
async def test_a_database_that_is_not_there_is_named(case: Case, module: str) -> None:
    code, words = await ended(module, case.settings(DATABASE_URL=NOWHERE))
    assert code not in (0, BAD_SETTINGS)
    assert "evertalk-nowhere" in words
    assert "Traceback" not in words


@pytest.mark.parametrize("module", ["web", "worker"])
async def test_an_unknown_crash_point_is_refused(case: Case, module: str) -> None:
    code, words = await ended(module, case.settings(EVERTALK_CRASH_POINT="after_lunch"))
    assert code != 0
    assert "after_lunch" in words
    assert "Traceback" not in words
