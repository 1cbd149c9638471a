"""Clients that users generate from the OpenAPI description compile, talk, compact and export."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.postgres.db.pool import open_pool
from tests.kit import clients
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import HatchedProgram
from tests.kit.telegram.deployment import deployment
from tests.kit.web.callers import make_key

pytestmark = pytest.mark.timeout(600)
SETTINGS = {
    "EVERTALK_CONTEXT_WINDOW": "12000",
    "CONTEXT_MAX_OUTPUT_TOKENS": "1000",
    "EVERTALK_KEEP_TURNS": "2",
    "EVERTALK_CAP_TOTAL_PER_DAY_USD": "100",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Address and key of a running deployment."""

    url: str
    token: str


@pytest.fixture(scope="module")
async def rest_place(
    module_database_url: str, module_redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    answers, folder = {"along the river": {"text": "I see."}}, tmp_path_factory.mktemp("clients")
    async with deployment(
        answers, module_database_url, module_redis_url, folder, worker=True, settings=SETTINGS
    ) as here:
        port = free_port()
        web = HatchedProgram("web", {**here.house.settings, "EVERTALK_HTTP_PORT": str(port)})
        await web.start()
        pool = await open_pool(module_database_url, size=1)
        try:
            await web.said("web_ready")
            key = await make_key(pool, "sessions:read", "messages:write", "commands:run")
            yield Place(url=f"http://127.0.0.1:{port}", token=key["Authorization"].removeprefix("Bearer "))
        finally:
            await pool.close()
            assert await web.terminate() == 0, web.words()


def check_journey(output: str) -> None:
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert told["answers"] == ["I see."] * 6
    assert told["succeeded"]
    assert "Summarised" in told["compacted"]
    assert told["messages"] >= 12
    assert "Number 5." in told["exported"]


async def test_generated_python_client_talks_compacts_and_exports(rest_place: Place, tmp_path: Path) -> None:
    packages = await asyncio.to_thread(clients.make_python_client, tmp_path)
    script = str(Path(clients.__file__).with_name("journey.py"))
    check_journey(
        await asyncio.to_thread(
            clients.run, sys.executable, script, rest_place.url, rest_place.token, PYTHONPATH=str(packages)
        )
    )


@pytest.mark.skipif(not clients.has_typescript(), reason="npm ci installs the generator")
async def test_generated_typescript_client_talks_compacts_and_exports(
    rest_place: Place, tmp_path: Path
) -> None:
    packed = await asyncio.to_thread(clients.make_typescript_client, tmp_path)
    check_journey(await asyncio.to_thread(clients.run, "node", str(packed), rest_place.url, rest_place.token))


def test_generator_fails_on_a_description_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CONFIG", {})
    with pytest.raises(RuntimeError, match="audio/mpeg"):
        clients.make_python_client(tmp_path)
