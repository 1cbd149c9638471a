"""The last question, edited: model, summaries, recall and search know the newer words only, the log all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.core.session.turns import Accepted
from shared.core.values.errors import CannotEdit, UnknownMessage
from shared.core.values.messages import Text
from tests.acceptance.long_talks import FILLER
from tests.acceptance.sent_requests import again, sorted_keys
from tests.acceptance.turns.repeated_answers import messages_of, run, says, sent, talk
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

OLD, NEW, NEWEST = "Papagei-Alt", "Leuchtturm-Neu", "Kirschbaum-Neuest"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"handover": "on", "context_window": 12_000, "max_output": 1_000, "keep_turns": 2}


async def edit(guest: Visit, seq: int, text: str, cid: str | None = None) -> Accepted:
    accepted, _ = await guest.app.sessions.edit(guest.inbound(text, cid=cid), seq=seq)
    return accepted


async def asked(guest: Visit, provider: RunningFake, text: str, answer: str) -> Accepted:
    await says(provider, answer)
    accepted = await guest.say(text)
    await guest.answered()
    return accepted


async def edited(guest: Visit, provider: RunningFake, seq: int, text: str, answer: str) -> Accepted:
    await says(provider, answer)
    accepted = await edit(guest, seq, text)
    await guest.answered()
    return accepted


async def passages(guest: Visit) -> str:
    index = PostgresRecallIndex(guest.app.pool)
    while await index.index_session(guest.session_id):
        pass
    return str(await guest.one("SELECT string_agg(text, '|') FROM passages"))


async def found(guest: Visit, words: str) -> list[str]:
    page = await guest.app.stores.message_search.search(guest.session_id, words, limit=20)
    return [hit.mid for hit in page.hits]


async def test_the_model_sees_the_newer_words_where_the_former_stood(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Good morning.")
    first = await asked(guest, provider, f"Tell me of {OLD}.", f"{OLD} is a bird.")
    second = await edited(guest, provider, first.seq, f"Tell me of {NEW}.", f"{NEW} is a house.")
    body = await sent(provider)
    assert NEW in body
    assert OLD not in body
    assert [one["role"] for one in messages_of(body)] == ["user", "assistant", "user"]
    await edited(guest, provider, second.seq, f"Tell me of {NEWEST}.", f"{NEWEST} is a tree.")
    await guest.ask("Thank you.")
    body = await sent(provider)
    assert NEWEST in body
    assert OLD not in body
    assert NEW not in body
    former = await guest.app.stores.history.list_versions(guest.session_id, second.seq + 2)
    assert former is not None
    assert [(one["text"], [said["text"] for said in one["answers"]]) for one in former] == [
        (f"Tell me of {OLD}.", [f"{OLD} is a bird."]),
        (f"Tell me of {NEW}.", [f"{NEW} is a house."]),
    ]
    shown = [
        event.payload.get("text") for event in await guest.app.stores.events.list_newest(guest.session_id)
    ]
    assert f"Tell me of {NEWEST}." in shown
    assert not [text for text in shown if text and (OLD in text or NEW in text)]


async def test_each_turn_is_made_again_as_it_was_sent(guest: Visit, provider: RunningFake) -> None:
    bodies = []
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    bodies.append(await sent(provider))
    assert (await run(guest, "retry")).success
    await guest.answered()
    bodies.append(await sent(provider))
    await edited(guest, provider, first.seq, f"What is {NEW}?", f"{NEW} it is.")
    bodies.append(await sent(provider))
    await guest.ask("Thank you.")
    bodies.append(await sent(provider))
    for turn, body in enumerate(bodies, start=1):
        assert sorted_keys(await again(guest, turn)) == sorted_keys(body), turn
    assert OLD not in bodies[2] + bodies[3]


async def test_what_was_asked_before_in_the_same_turn_is_still_asked(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.say("My name is Ada.")
    await says(provider, f"Ada and {OLD}.")
    last = await guest.say(f"I like {OLD}.")
    await guest.answered()
    assert (await run(guest, "retry")).success
    await guest.answered()
    assert (await edit(guest, last.seq - 1, "My name is Eve.")).turn == 2
    await edited(guest, provider, last.seq, f"I like {NEW}.", "I see.")
    body = await sent(provider)
    assert "My name is Eve." in body, messages_of(body)
    assert NEW in body
    assert OLD not in body
    shown = [event.payload["text"] for event in await guest.app.stores.events.list_newest(guest.session_id)]
    assert shown == ["My name is Eve.", f"I like {NEW}.", "I see."]


async def test_a_summary_knows_the_newer_words_only_and_so_does_its_undoing(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 2)
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    await edited(guest, provider, first.seq, f"What is {NEW}?", f"{NEW} it is.")
    await talk(guest, 3)
    assert (await run(guest, "compact", "--force")).success
    assert await guest.one("SELECT base_turn FROM sessions") >= 4
    summary = json.dumps([r["body"] for r in await provider.requests() if r["kind"] == "summary"])
    assert NEW in summary
    assert OLD not in summary
    said = await passages(guest)
    assert NEW in said
    assert OLD not in said
    assert await found(guest, OLD) == []
    assert (await run(guest, "undo")).success
    await guest.ask("And now?")
    assert OLD not in await sent(provider)


async def test_an_edit_that_is_not_answered_yet_counts_already(guest: Visit, provider: RunningFake) -> None:
    await talk(guest, 4)
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is. {FILLER}")
    await edit(guest, first.seq, f"What is {NEW}?")
    assert (await run(guest, "compact", "--force")).success
    assert OLD not in json.dumps([r["body"] for r in await provider.requests() if r["kind"] == "summary"])
    assert OLD not in await passages(guest)
    assert await found(guest, OLD) == []
    assert await found(guest, NEW) == [f"m{first.seq + 2}"]
    await guest.answered()
    assert OLD not in await sent(provider)


async def test_passages_of_an_undone_summary_go_with_the_former_words(
    guest: Visit, provider: RunningFake
) -> None:
    await talk(guest, 3)
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is. {FILLER}")
    assert (await run(guest, "new")).success
    assert OLD in await passages(guest)
    await guest.app.pool.execute(
        """WITH l AS (UPDATE compactions SET active = false, undone_at = now())
           UPDATE sessions SET base_turn = 0, head = NULL, view_epoch = view_epoch + 1"""
    )
    assert await found(guest, OLD)
    await edit(guest, first.seq, f"What is {NEW}?")
    assert OLD not in await passages(guest)
    assert await found(guest, OLD) == []
    await guest.answered()


async def test_edit_of_hidden_message_begins_no_turn(guest: Visit, provider: RunningFake) -> None:
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    assert (await run(guest, "new")).success
    assert (await edit(guest, first.seq, f"What is {NEW}?")).turn == 1
    assert await guest.one("SELECT next_turn FROM sessions") == 2
    former = await guest.app.stores.history.list_versions(guest.session_id, first.seq + 2)
    assert former is not None
    assert [one["text"] for one in former] == [f"What is {OLD}?"]


async def test_question_is_edited_while_it_waits_and_by_its_newest_id_afterwards(
    guest: Visit, provider: RunningFake
) -> None:
    first = await asked(guest, provider, "One?", "Yes.")
    second = await guest.say("Two?")
    waiting = await edit(guest, second.seq, "Two or three?")
    assert waiting.turn == second.turn
    await guest.answered()
    assert "Two or three?" in await sent(provider)
    assert (await edit(guest, first.seq, "Zero?")).turn == 1
    with pytest.raises(UnknownMessage):
        await edit(guest, waiting.seq + 1, "An answer is no question of mine.")
    with pytest.raises(UnknownMessage):
        await edit(guest, 99, "What was never said.")
    await edit(guest, second.seq, "Three?")
    await guest.answered()
    assert "Zero?" in await sent(provider)
    with pytest.raises(CannotEdit, match="changed"):
        await edit(guest, second.seq, "Four?")


async def test_two_edits_at_once_are_one(guest: Visit, provider: RunningFake) -> None:
    first = await asked(guest, provider, "One?", "Yes.")
    done = await asyncio.gather(
        *(edit(guest, first.seq, f"Number {n}?") for n in range(4)), return_exceptions=True
    )
    assert sum(isinstance(one, Accepted) for one in done) == 1
    assert {str(one) for one in done if isinstance(one, CannotEdit)} <= {"edit_busy", "edit_changed"}
    await guest.answered()
    assert await guest.one("SELECT count(*) FROM entries") == 4


async def test_an_edit_that_is_sent_again_is_the_same_one(guest: Visit, provider: RunningFake) -> None:
    first = await asked(guest, provider, "One?", "Yes.")
    once = await edit(guest, first.seq, "Two?", cid="e1")
    twice = await edit(guest, first.seq, "Two?", cid="e1")
    assert (once.mid, once.turn, once.event_seq, False, True) == (
        twice.mid, twice.turn, twice.event_seq, once.repeated, twice.repeated,
    )  # fmt: skip
    await guest.answered()


async def test_a_failed_answer_does_not_bring_the_former_words_back(
    guest: Visit, provider: RunningFake
) -> None:
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    await edit(guest, first.seq, f"What is {NEW}?")
    await guest.app.sessions.stop(guest.session_id)
    await guest.answered()
    await guest.ask("And now?")
    body = await sent(provider)
    assert NEW in body
    assert OLD not in body


async def test_files_stay_with_the_edited_question(guest: Visit, provider: RunningFake) -> None:
    await says(provider, "A list.")
    said = await guest.app.sessions.accept(
        guest.inbound(
            "What is this?", more=(Text(text="[File a.txt]\nBirnbaum-12\n[End of file]", attachment_id=7),)
        )
    )
    await guest.answered()
    _, shown = await guest.app.sessions.edit(guest.inbound("And what is that?"), seq=said.seq)
    assert shown is not None
    assert shown.payload["text"] == "And what is that?"
    await guest.answered()
    body = await sent(provider)
    assert "Birnbaum-12" in body
    assert "What is this?" not in body


async def test_an_export_has_both_and_says_which_was_replaced(guest: Visit, provider: RunningFake) -> None:
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    newer = await edited(guest, provider, first.seq, f"What is {NEW}?", f"{NEW} it is.")
    told = "".join([piece async for piece in guest.app.exporter.stream(guest.session_id, "json")])
    [session] = json.loads(told)["conversations"]
    assert [(one["text"], one.get("replaced_by")) for one in session["messages"]] == [
        (f"What is {OLD}?", newer.seq), (f"{OLD} it is.", newer.seq),
        (f"What is {NEW}?", None), (f"{NEW} it is.", None),
    ]  # fmt: skip
    text = "".join([piece async for piece in guest.app.exporter.stream(guest.session_id, "md")])
    assert text.count(f"replaced by message {newer.seq}") == 2


@pytest.mark.parametrize("seq", [1, 3])
async def test_an_edited_question_is_forgotten_with_its_former_words_and_their_answer(
    guest: Visit, provider: RunningFake, seq: int
) -> None:
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    await edited(guest, provider, first.seq, f"What is {NEW}?", "It is a house.")
    await guest.app.erasure.erase_messages(guest.session_id, [seq], "person")
    for words in (OLD, NEW):
        assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE $1", f"%{words}%") == 0
    assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%It is a house%'") == 1
    with pytest.raises(UnknownMessage):
        await edit(guest, 3, "What is it?")


async def test_a_pinned_former_answer_stays_until_it_is_unpinned(guest: Visit, provider: RunningFake) -> None:
    first = await asked(guest, provider, f"What is {OLD}?", f"{OLD} it is.")
    assert (await run(guest, "pin")).success
    await edited(guest, provider, first.seq, f"What is {NEW}?", f"{NEW} it is.")
    body = await sent(provider)
    assert f"{OLD} it is." in body
    assert f"What is {OLD}?" not in body
