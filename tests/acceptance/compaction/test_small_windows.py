"""Small windows and models without tools keep their memory; the cursor passes over nothing unread."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.context.prompts import SILENT
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import pack_passages, rank_passages, render_passages
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.night import rest_at_night

SMALL = 4_600
"""No tool of the chat fits into a fifth of it."""
PLAIN = "claude-sonnet-5-5"
FACTS = {
    1: "My aunt Solveig keeps eleven hives on Hitra.",
    2: "The invoice number of the loom is LM-7782.",
    10: "We decided to paint the boathouse in falu red.",
    11: "My cat Tordis is allergic to salmon.",
}
"""By turn."""
FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 8


@asynccontextmanager
async def app_with(
    database_url: str, redis_url: str, provider: RunningFake, **overrides: Any
) -> AsyncIterator[Visit]:
    given = {"context_window": SMALL, "max_output": 600, "cap_total_per_day_usd": "100", **overrides}
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url, **given
    )
    async with running_app(settings) as app:
        yield await visit(app)
    connection = await asyncpg.connect(database_url)
    found = await check_invariants(connection)
    await connection.close()
    assert not found


async def talk(guest: Visit, turns: int) -> None:
    for number in range(turns):
        fact = FACTS.get(number + 1, "")
        await guest.ask(f"{fact} Then came the {NAMES[number].lower()}. {FILLER}")
        await guest.run_due_jobs()


async def all_is_read(guest: Visit) -> None:
    for _ in range(8):
        await guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")
        await guest.run_due_jobs()
    assert await guest.one("SELECT base_turn > 4 AND flushed_turn >= base_turn FROM sessions")


async def flushes(provider: RunningFake) -> list[dict[str, Any]]:
    return [record["body"] for record in await provider.requests() if record["kind"] == "flush"]


async def notes(guest: Visit) -> set[str]:
    return {row["text"] for row in await guest.app.pool.fetch("SELECT text FROM notes")}


def without_tools(folder: Path, url: str) -> dict[str, Any]:
    """What an operator writes for a model that can only talk."""
    path = folder / "models.json"
    entry = {"name": PLAIN, "base_url": url, "window": SMALL, "max_output": 600, "capabilities": []}
    path.write_text(json.dumps([entry]))
    return {"models_file": path, "model": PLAIN, "summary_model": PLAIN}


async def test_small_window_flush_offers_only_save_memory(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    async with app_with(database_url, redis_url, provider) as guest:
        await talk(guest, 20)
        await all_is_read(guest)
        asked = await flushes(provider)
        assert asked
        assert {tuple(tool["name"] for tool in body["tools"]) for body in asked} == {("save_memory",)}
        chats = [record["body"] for record in await provider.requests() if record["kind"] == "chat"]
        assert "save_memory" not in {tool["name"] for body in chats for tool in body.get("tools") or ()}
        assert set(FACTS.values()) <= await notes(guest)
        shown = "\n".join(str(body["messages"]) for body in asked)
        assert all(f"Then came the {NAMES[number].lower()}." in shown for number in range(await base(guest)))
        assert await guest.one("SELECT bool_and(authority = 'person') FROM notes")
        assert max(record["input_tokens"] for record in await provider.requests()) < SMALL


async def test_context_and_the_dashboard_say_that_notes_are_saved_apart(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    for window, way in ((SMALL, "request"), (40_000, "prefix")):
        async with app_with(database_url, redis_url, provider, context_window=window) as guest:
            await guest.ask("Good evening.")
            done = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="context")
            assert ("Notes are saved by separate requests" in done.result) is (way == "request")
            assert (await guest.app.context_inspector.load_snapshot(guest.session_id)).memory == way


async def base(guest: Visit) -> int:
    return int(await guest.one("SELECT base_turn FROM sessions"))


async def test_flush_asks_model_without_tools_for_lines_with_turns(
    database_url: str, redis_url: str, provider: RunningFake, tmp_path: Path
) -> None:
    await provider.reset()
    plain = without_tools(tmp_path, provider.base_url)
    async with app_with(database_url, redis_url, provider, **plain) as guest:
        await talk(guest, 20)
        await all_is_read(guest)
        asked = await flushes(provider)
        assert asked
        assert not any(body.get("tools") for body in asked)
        assert set(FACTS.values()) <= await notes(guest)
        rows = await guest.app.pool.fetch("SELECT text, from_turn, through_turn FROM notes")
        turns = {row["text"]: (row["from_turn"], row["through_turn"]) for row in rows}
        assert {turn: turns[fact] for turn, fact in FACTS.items()} == {turn: (turn, turn) for turn in FACTS}


async def test_where_no_model_can_make_notes_code_makes_them_from_the_record(
    database_url: str, redis_url: str, provider: RunningFake, tmp_path: Path
) -> None:
    await provider.reset()
    chatter = {"match": {"kind": "flush"}, "times": -1, "action": {"text": "What a lovely conversation!"}}
    await provider.script([chatter])
    plain = without_tools(tmp_path, provider.base_url)
    async with app_with(database_url, redis_url, provider, **plain) as guest:
        await talk(guest, 20)
        await all_is_read(guest)
        kept = await notes(guest)
        assert kept & set(FACTS.values()), kept
        assert await guest.one("SELECT bool_and(importance < 5) FROM notes")
        assert await guest.one("SELECT count(*) FROM flushes WHERE outcome = 'saved'") > 0


async def test_late_flush_without_model_keeps_ledger_items_of_its_turns(
    database_url: str, redis_url: str, provider: RunningFake, tmp_path: Path
) -> None:
    await provider.reset()
    refusal = {"match": {"kind": "flush"}, "times": -1, "action": {"status": 400, "message": "Not now."}}
    await provider.script([refusal])
    plain = without_tools(tmp_path, provider.base_url)
    async with app_with(database_url, redis_url, provider, **plain) as guest:
        await talk(guest, 20)
        assert await base(guest) > 10
        await provider.script([{**refusal, "action": {"text": "What a lovely conversation!"}}])
        await all_is_read(guest)
        row = await guest.app.pool.fetchrow("SELECT * FROM notes WHERE text = $1", FACTS[10])
        assert row is not None
        assert (row["kind"], row["authority"]) == ("decision", "person"), "no digest knows of decisions"
        assert (row["from_turn"], row["through_turn"]) == (10, 10)


async def test_failed_small_flush_keeps_cursor_and_reads_turns_later(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    await provider.script(
        [{"match": {"kind": "flush"}, "times": -1, "action": {"status": 400, "message": "Not now."}}]
    )
    async with app_with(database_url, redis_url, provider) as guest:
        await talk(guest, 20)
        assert await base(guest) > 0
        assert await guest.one("SELECT flushed_turn FROM sessions") == 0
        await provider.reset()
        await talk(guest, 2)
        await all_is_read(guest)
        shown = "\n".join(str(body["messages"]) for body in await flushes(provider))
        assert all(fact in shown for fact in FACTS.values())
        assert len(await notes(guest) & set(FACTS.values())) >= 2


@pytest.mark.parametrize("seed", rest_at_night([3, 11], by_day=[3]))
async def test_facts_stay_in_prompt_or_recall_after_window_is_halved(
    database_url: str, redis_url: str, provider: RunningFake, seed: int
) -> None:
    await provider.reset()
    chance = random.Random(seed)
    facts = [f"The code of locker {name} is {chance.randrange(10_000, 99_999)}." for name in NAMES]
    async with app_with(database_url, redis_url, provider, context_window=2 * SMALL) as guest:
        for fact in facts[:20]:
            await guest.ask(f"{fact} {FILLER}")
            await guest.run_due_jobs()
        where = guest.session_id, guest.address_id
    async with app_with(database_url, redis_url, provider) as other:
        guest = Visit(app=other.app, session_id=where[0], address_id=where[1])
        for fact in facts[20:]:
            await guest.ask(f"{fact} {FILLER}")
            await guest.run_due_jobs()
        await all_is_read_of(guest)
        await guest.ask("Good evening.")
        prompt = str((await provider.requests())[-1]["body"])
        found = [fact in prompt or fact in await recalled(guest, fact) for fact in facts]
        assert sum(found) >= 38, [fact for fact, one in zip(facts, found, strict=True) if not one]
        assert SILENT not in prompt


async def all_is_read_of(guest: Visit) -> None:
    for _ in range(8):
        await guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")
        await guest.run_due_jobs()
    row = await guest.app.pool.fetchrow(
        "SELECT base_turn, flushed_turn FROM sessions WHERE id = $1", guest.session_id
    )
    assert row is not None
    assert 4 < row["base_turn"] <= row["flushed_turn"]


async def recalled(guest: Visit, fact: str) -> str:
    """What a question brings back within 2,000 tokens."""
    question = fact.replace("The code of", "What is the code of").partition(" is ")
    asked = read_question(f"{question[0]} is {question[2].partition(' is ')[0]}?")
    turn = await guest.one("SELECT base_turn FROM sessions WHERE id = $1", guest.session_id)
    query = RecallQuery(
        session_id=guest.session_id, base_turn=turn, words=asked.words,
        dictionary=asked.dictionary, turn=turn + 1, known_notes=(),
    )  # fmt: skip
    found = rank_passages(await guest.app.stores.recall.search(query), asked)
    count = guest.app.counter.count_tokens
    taken = pack_passages(found, limit_tokens=2_000, count=count, session_id=guest.session_id)
    return render_passages(taken, session_id=guest.session_id)


NAMES = (
    "Alder", "Birch", "Cedar", "Dogwood", "Elder", "Fir", "Ginkgo", "Hazel", "Ivy", "Juniper", "Koa", "Larch",
    "Maple", "Nutmeg", "Oak", "Poplar", "Quince", "Rowan", "Spruce", "Tamarack", "Umbrella", "Viburnum",
    "Willow", "Yew", "Zelkova", "Acacia", "Banyan", "Cypress", "Ebony", "Frangipani", "Gum", "Holly",
    "Ironwood", "Jasmine", "Kauri", "Linden", "Myrtle", "Neem", "Olive", "Pine",
)  # fmt: skip
