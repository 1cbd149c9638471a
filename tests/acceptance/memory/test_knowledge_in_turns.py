"""What stands only in an agent's own files is found by the worker, and comes into a turn with its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.postgres.people.agents import PostgresAgents
from shared.bootstrap.app import App, open_app
from tests.acceptance.memory.recalled_texts import chats, recalled
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.sample_files import pdf
from worker.jobs import index_knowledge

PATIENCE_SECONDS = 60.0
QUESTION = "How many days do I have to return a kettle?"
RETURNS = """# Shop rules
We are open from nine to five.

## Returns of kettles
A kettle can be returned within 43 days, if the box is there.
"""


@pytest.fixture
def app_options(tmp_path: Path) -> dict[str, Any]:
    shelf(tmp_path).mkdir(parents=True)
    return {"data_dir": tmp_path, "workspace_poll_seconds": 1}


@pytest.fixture(autouse=True)
async def reading_worker(app: App) -> AsyncIterator[None]:
    """A worker that reads what is put on the shelf."""
    worker = await open_app(app.settings, role="worker")
    reading = asyncio.ensure_future(index_knowledge(worker))
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        await worker.close()


def shelf(data_dir: Path, folder: str = "ada") -> Path:
    return data_dir / "workspaces" / folder / "knowledge"


async def give(guest: Visit, **config: Any) -> None:
    agents = PostgresAgents(guest.app.pool)
    row = await agents.find("default")
    assert row is not None
    assert await agents.change("default", config, seen=row.version, by="test") == row.version + 1


async def until_kept(guest: Visit, words: str, *, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await guest.one("SELECT count(*) FROM knowledge WHERE text LIKE $1", f"%{words}%") != count:
            await asyncio.sleep(0.1)


async def asked(guest: Visit, provider: RunningFake, question: str = QUESTION) -> str:
    await guest.ask(question)
    return recalled((await chats(provider))[-1])


async def test_knowledge_answer_names_file_and_heading(guest: Visit, provider: RunningFake) -> None:
    (shelf(guest.app.settings.data_dir) / "returns.md").write_text(RETURNS)
    await give(guest, workspace="ada")
    await until_kept(guest, "43 days")
    told = await asked(guest, provider)
    assert "[returns.md › Shop rules › Returns of kettles] A kettle can be returned within 43 days" in told
    assert "when an answer rests on one of them, name the file and the heading" in told
    assert not await provider.warnings()


async def test_changed_knowledge_file_is_updated_and_deleted_file_is_dropped(
    guest: Visit, provider: RunningFake
) -> None:
    path = shelf(guest.app.settings.data_dir) / "returns.md"
    path.write_text(RETURNS)
    await give(guest, workspace="ada")
    await until_kept(guest, "43 days")
    path.write_text(RETURNS.replace("43 days", "51 days"))
    await until_kept(guest, "51 days")
    assert "within 51 days" in await asked(guest, provider)
    path.unlink()
    await until_kept(guest, "51 days", count=0)
    assert "51 days" not in await asked(guest, provider)


async def test_tables_and_printed_pages_are_found_as_well(guest: Visit, provider: RunningFake) -> None:
    folder = shelf(guest.app.settings.data_dir)
    (folder / "prices.csv").write_text("article,price\nsamovar,317 crowns\nteapot,44 crowns\n")
    (folder / "care.pdf").write_bytes(pdf("Descale the percolator with vinegar every ninth week."))
    await give(guest, workspace="ada")
    await until_kept(guest, "samovar")
    await until_kept(guest, "percolator")
    assert "317 crowns" in await asked(guest, provider, "What is the price of a samovar?")
    assert "[care.pdf" in await asked(guest, provider, "When should the percolator be descaled?")


async def test_another_agent_does_not_know_what_stands_in_these_files(
    guest: Visit, provider: RunningFake
) -> None:
    (shelf(guest.app.settings.data_dir) / "returns.md").write_text(RETURNS)
    await guest.app.pool.execute(
        "INSERT INTO agents (name, config) VALUES ('other', jsonb_build_object('workspace', 'ada'))"
    )
    await until_kept(guest, "43 days")
    assert await asked(guest, provider) == ""


async def test_a_model_that_looks_for_it_itself_gets_the_place_too(
    guest: Visit, provider: RunningFake
) -> None:
    (shelf(guest.app.settings.data_dir) / "returns.md").write_text(RETURNS)
    await give(guest, workspace="ada", memory={"recall_tokens": 0})
    await until_kept(guest, "43 days")
    calls = [{"name": "recall", "input": {"query": "kettle returned days"}}]
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": calls}}])
    await guest.ask("Please look that up.")
    result = await guest.one("SELECT blocks ->> 0 FROM entries WHERE author = 'tool' ORDER BY seq DESC")
    assert "[returns.md › Shop rules › Returns of kettles] A kettle can be returned" in result
