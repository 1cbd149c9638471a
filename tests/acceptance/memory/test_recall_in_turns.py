"""What was said long ago comes back into the turn that asks for it, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.adapters.models.catalog import ModelEntry, build_card
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_request_body
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.core.context.memory import note_from
from shared.services.memory.passage_encoder import PassageEncoder
from shared.services.turns.request_replay import rebuild_request
from tests.acceptance.long_talks import WINDOW, talk_with_upkeep
from tests.acceptance.memory.recalled_texts import chats, recalled
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.embeddings.harness import RunningEmbeddings
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.rerank.harness import RunningReranker

PARROT = "The parrot Zanzibarine eats papaya" + ", mango" * 60 + "."
HEIRLOOM = "The heirloom of grandmother is a piano with an invoice."
QUESTION = "What is the invoice number of the piano?"
CHAT = "claude-sonnet-5-5"
COUNTER = VocabularyCounter()


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


async def test_a_hidden_fact_comes_back_word_for_word_behind_the_last_breakpoint(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 10)
    assert await guest.one("SELECT base_turn FROM sessions") > 2
    assert await guest.one("SELECT indexed_turn = base_turn FROM sessions")
    await guest.ask(QUESTION)
    body = (await chats(provider))[-1]
    assert "#3 person: The invoice number of the piano is PX-4471." in recalled(body)
    assert "cache_control" not in body["messages"][-1]["content"][-1]
    assert not await provider.warnings()


async def test_fact_of_the_summary_recalls_the_message_that_it_cites(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 10)
    question = "Which heirloom did grandmother leave behind?"
    await guest.ask(question)
    assert "#3 person" not in recalled((await chats(provider))[-1])
    item = {"id": "f900", "kind": "fact", "text": HEIRLOOM, "sources": [3]}
    await guest.app.pool.execute(
        """UPDATE compactions SET ledger = jsonb_set(ledger, '{items}', ledger -> 'items' || $1::jsonb)
            WHERE active""",
        [item],
    )
    await guest.ask(question)
    assert "#3 person: The invoice number of the piano is PX-4471." in recalled((await chats(provider))[-1])


async def test_later_of_two_recalled_facts_is_marked(guest: Visit, provider: RunningFake) -> None:
    await guest.ask("My dentist appointment is on Monday at nine.")
    await guest.ask("My dentist appointment was moved to Thursday.")
    await talk_with_upkeep(guest, 10)
    await guest.app.pool.execute("UPDATE passages SET at = at - interval '9 days' WHERE seq = 1")
    await guest.ask("When is my dentist appointment?")
    text = recalled((await chats(provider))[-1])
    assert "#1 person: My dentist appointment is on Monday at nine." in text
    assert "#3 person, later: My dentist appointment was moved to Thursday." in text


async def test_question_by_name_finds_what_an_unnamed_visitor_said(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Hi, I'm Ada.")
    await talk_with_upkeep(guest, 10)
    assert await guest.one("SELECT DISTINCT speaker FROM passages WHERE author = 'person'") == "Ada"
    assert await guest.one("SELECT display_name FROM contacts") == ""
    await guest.ask("What is the invoice number of Ada's piano?")
    assert "person: The invoice number of the piano is PX-4471." in recalled((await chats(provider))[-1])


async def test_what_is_live_is_not_recalled_as_well(guest: Visit, provider: RunningFake) -> None:
    await talk_with_upkeep(guest, 10)
    base = await guest.one("SELECT base_turn FROM sessions")
    await guest.ask("Where does my sister Ingrid live, and what is message 1?")
    seqs = await guest.app.pool.fetch("SELECT seq FROM turn_entries WHERE turn_no > $1", base)
    text = recalled((await chats(provider))[-1])
    assert text
    assert not any(f"#{row['seq']} " in text for row in seqs)


async def test_the_request_with_recall_is_made_again_byte_for_byte(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.ask(QUESTION)
    turn = await guest.one("SELECT answered_turn FROM sessions")
    stored = await PostgresReplays(guest.app.pool).load_turn(guest.session_id, turn)
    assert stored is not None
    request = rebuild_request(stored, count=COUNTER.count_tokens)
    again = {**build_request_body(request, build_card(ModelEntry(name=CHAT)), CHAT), "stream": True}
    body = (await chats(provider))[-1]
    assert recalled(body)
    assert json.dumps(dict(sorted(again.items()))) == json.dumps(dict(sorted(body.items())))


async def test_recall_does_not_change_the_prefix_of_the_next_turn(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.ask(QUESTION)
    await guest.ask("And where does my sister Ingrid live?")
    before, after = (await chats(provider))[-2:]
    for body in (before, after):
        for message in body["messages"]:
            for block in message["content"]:
                block.pop("cache_control", None)
    stable = before["messages"][:-1]
    assert json.dumps(after["messages"][: len(stable)]) == json.dumps(stable)
    assert after["messages"][len(stable)]["content"] == [before["messages"][-1]["content"][0]]


async def test_nothing_comes_back_from_before_a_fresh_start(guest: Visit, provider: RunningFake) -> None:
    await talk_with_upkeep(guest, 10)
    assert (await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")).success
    await guest.app.pool.execute("DELETE FROM notes")
    await guest.app.recall_indexer.sweep()
    assert await guest.one("SELECT indexed_turn = base_turn FROM sessions")
    await guest.ask(QUESTION)
    assert recalled((await chats(provider))[-1]) == ""


async def test_what_a_dead_worker_left_unsearchable_is_found_after_the_sweep(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 10)
    await guest.app.pool.execute("UPDATE sessions SET indexed_turn = 0")
    await guest.app.pool.execute("DELETE FROM passages")
    await guest.ask(QUESTION)
    assert "[#3]" not in recalled((await chats(provider))[-1])
    await guest.app.recall_indexer.sweep()
    await guest.ask(QUESTION)
    assert "#3 person: The invoice number" in recalled((await chats(provider))[-1])


async def test_the_tool_finds_the_original_words(guest: Visit, provider: RunningFake) -> None:
    await talk_with_upkeep(guest, 10)
    calls = [{"name": "recall", "input": {"query": "Ingrid glaciologist"}}]
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": calls}}])
    await guest.ask("Please look that up.")
    result = await guest.one(
        "SELECT blocks ->> 0 FROM entries WHERE author = 'tool' ORDER BY seq DESC LIMIT 1"
    )
    assert "#1 person: My sister Ingrid lives in Tromsø" in result


async def test_recalled_note_leaves_no_stored_request_after_forgetting(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url
    )
    async with running_app(settings) as app:
        await forget_a_recalled_note(await visit(app), provider)


async def forget_a_recalled_note(guest: Visit, provider: RunningFake) -> None:
    whose = await guest.app.stores.notes.load_owner(guest.session_id)
    for number in range(12):
        filler = (
            f"Agreement {number} about house {number * 7}: " + f"the {number} walls stay white and bare. " * 8
        )
        await guest.app.stores.notes.save(note_from({"text": filler, "importance": 9}), whose)
    kept = await guest.app.stores.notes.save(note_from({"text": PARROT, "importance": 1}), whose)
    assert kept.note is not None
    await guest.app.recall_indexer.sweep()
    await guest.ask("What does the parrot eat?")
    assert f"[note] {PARROT}" in recalled((await chats(provider))[-1])
    shown = "SELECT count(*) FROM prompt_parts WHERE body LIKE '%Zanzibarine%'"
    assert await guest.one(shown) == 1
    assert await guest.app.stores.notes.erase(whose, [kept.note.id]) == 1
    assert await guest.one(shown) == 0


async def test_a_server_orders_what_is_recalled_and_is_not_waited_for(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    async with RunningReranker() as reranker:
        settings = settings_for(
            database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
            context_window=WINDOW, max_output=1_000, cap_total_per_day_usd="100", **reranker.settings,
        )  # fmt: skip
        async with running_app(settings) as app:
            guest = await visit(app)
            await talk_with_upkeep(guest, 10)
            await reranker.requests()
            await guest.ask(QUESTION)
            [asked] = await reranker.requests()
            assert asked["query"] == QUESTION
            assert any("PX-4471" in passage for passage in asked["documents"])
            assert "PX-4471" in recalled((await chats(provider))[-1])
            await reranker.next({"latency": 60})
            await guest.ask(f"{QUESTION} I ask again.")
            assert "PX-4471" in recalled((await chats(provider))[-1])


async def test_server_of_embeddings_finds_what_was_said_in_another_language(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    async with RunningEmbeddings() as server:
        settings = settings_for(
            database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
            context_window=WINDOW, max_output=1_000, cap_total_per_day_usd="100", **server.settings,
        )  # fmt: skip
        async with running_app(settings) as app:
            assert app.encoder is not None
            guest = await visit(app)
            await guest.ask("My bicycle is in the cellar.")
            await talk_with_upkeep(guest, 10)
            work = PassageEncoder(app.stores.passage_vectors, app.encoder)
            await work.sweep()
            assert await guest.one("SELECT count(*) FROM unencoded_sessions") == 0
            await guest.ask("Wo ist mein Fahrrad?")
            assert "My bicycle is in the cellar." in recalled((await chats(provider))[-1])
            await server.next({"latency": 60})
            await guest.ask(QUESTION)
            assert "PX-4471" in recalled((await chats(provider))[-1])
