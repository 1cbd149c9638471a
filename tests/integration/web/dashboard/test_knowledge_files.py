"""Knowledge files on an agent's page: uploaded, listed, searched and removed; the folder's are left alone."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.files.knowledge_files import MOST_BYTES
from shared.adapters.postgres.memory.knowledge import PostgresKnowledge
from shared.config.settings import load_settings
from shared.core.memory.knowledge import Passage
from shared.services.memory import knowledge_indexer
from tests.kit.dashboard.fixtures import SAME_ORIGIN
from tests.kit.dashboard.serve import served
from tests.kit.web.callers import make_operator

PLANTS = b"# Roses\n\nWater the roses twice a week.\n\n# Cacti\n\nWater a cactus once a month.\n"


class Shelf:
    def __init__(self, url: str, http: aiohttp.ClientSession, pool: Any) -> None:
        self._url, self._http, self._pool = url, http, pool
        self._known: dict[str, Any] = {}

    async def ask(
        self, method: str, query: str = "", *, role: str = "admin", agent: str = "default", data: Any = None
    ) -> tuple[int, Any]:
        if role not in self._known:
            self._known[role] = await make_operator(self._pool, role)
        url = f"{self._url}/api/v1/agents/{agent}/knowledge{query}"
        headers = {**SAME_ORIGIN, **self._known[role], "Content-Type": "application/octet-stream"}
        async with self._http.request(method, url, headers=headers, data=data) as response:
            return response.status, await response.json()


@pytest.fixture
async def shelf(pool: Any, tmp_path: Path) -> AsyncIterator[Shelf]:
    await pool.execute("INSERT INTO agents (name) VALUES ('default') ON CONFLICT DO NOTHING")
    settings = load_settings(data_dir=tmp_path)
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=None) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        yield Shelf(url, http, pool)


async def agent_id(pool: Any) -> int:
    found: int = await pool.fetchval("SELECT id FROM agents WHERE name = 'default'")
    return found


async def test_a_file_is_uploaded_found_replaced_and_taken_away(shelf: Shelf, pool: Any) -> None:
    status, kept = await shelf.ask("PUT", "?file=plants.md", data=PLANTS)
    assert (status, kept) == (200, {"path": "plants.md", "passages": 2})
    _, found = await shelf.ask("GET", "?q=cactus", role="viewer")
    assert [(one["path"], one["passages"], one["uploaded_by"]) for one in found["files"]] == [
        ("plants.md", 2, "admin")
    ]
    assert [one["heading"] for one in found["passages"]] == ["Cacti"]
    await shelf.ask("PUT", "?file=plants.md", data=b"# Ferns\n\nFerns like shade.")
    _, now = await shelf.ask("GET", "?q=cactus")
    assert (now["files"][0]["passages"], now["passages"]) == (1, [])
    assert (await shelf.ask("DELETE", "?file=plants.md"))[0] == 200
    assert (await shelf.ask("DELETE", "?file=plants.md"))[0] == 404
    assert (await shelf.ask("GET"))[1] == {"files": []}
    assert await pool.fetchval("SELECT count(*) FROM recall_words WHERE lane = 'knowledge'") == 0
    actions = await pool.fetch("SELECT action FROM audit WHERE action LIKE 'agent.knowledge%' ORDER BY id")
    assert [row["action"].rpartition("_")[2] for row in actions] == ["kept", "kept", "discarded"]


async def test_the_folder_and_what_is_uploaded_leave_each_other_alone(shelf: Shelf, pool: Any) -> None:
    store, agent = PostgresKnowledge(pool), await agent_id(pool)
    said = [Passage(heading="", text="From the folder.")]
    await store.replace(agent, "hours.txt", sha256=b"1" * 32, passages=said)
    assert (await shelf.ask("PUT", "?file=hours.txt", data=b"Nine to five."))[0] == 409
    await shelf.ask("PUT", "?file=plants.md", data=PLANTS)
    assert (await shelf.ask("DELETE", "?file=hours.txt"))[0] == 404
    assert set(await store.load_hashes(agent)) == {"hours.txt"}
    await store.remove(agent, ["hours.txt", "plants.md"])
    assert [one.path for one in await store.list_files(agent)] == ["plants.md"]


@pytest.mark.parametrize("name", ["", "a/b.md", "a%00.md", "x" * 201 + ".md"])
async def test_a_name_must_be_one(shelf: Shelf, name: str) -> None:
    assert (await shelf.ask("PUT", f"?file={name}", data=b"Words."))[0] in (400, 422)


async def test_what_cannot_be_read_or_is_too_much_is_refused(
    shelf: Shelf, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, told = await shelf.ask("PUT", "?file=photo.jpg", data=b"\xff\xd8")
    assert (status, told["code"]) == (422, "unreadable")
    assert ".md" in told["details"]["reason"]
    assert (await shelf.ask("PUT", "?file=x.pdf", data=b"no pdf"))[0] == 422
    assert (await shelf.ask("PUT", "?file=x.txt", data=io.BytesIO(b"x" * (MOST_BYTES + 1))))[0] == 413
    outcome = await PostgresKnowledge(pool).upload(
        await agent_id(pool), "x.txt", sha256=b"1" * 32, by="anna", most=1,
        passages=[Passage(heading="", text=text) for text in ("One.", "Two.")],
    )  # fmt: skip
    assert outcome == "full"
    assert knowledge_indexer.MAX_PASSAGES == 5_000


async def test_only_admins_change_what_an_agent_knows(shelf: Shelf) -> None:
    for role in ("viewer", "operator"):
        assert (await shelf.ask("PUT", "?file=a.md", data=b"Words.", role=role))[0] == 403
        assert (await shelf.ask("DELETE", "?file=a.md", role=role))[0] == 403
    assert (await shelf.ask("GET", agent="nobody"))[0] == 404
