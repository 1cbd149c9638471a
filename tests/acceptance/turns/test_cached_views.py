"""A turn after one that this process answered reads no entry again; after any change they are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.adapters.postgres.turns import turns as turns_module
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.adapters.postgres.turns.view_cache import CachedView
from shared.core.session.session import Entry
from shared.core.session.turns import Claim
from shared.core.values.messages import Text
from tests.acceptance.turns.begun_turns import begin, begun_claim
from tests.kit.app_driver import Visit, running_app
from tests.kit.rival_compactors import rivals_of

pytestmark = pytest.mark.usefixtures("first_answer")

NEW_OPERATOR = "INSERT INTO operators (name, role) VALUES ('Ada', 'operator') RETURNING id"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seqs of entries that were read with a claim."""
    seqs: list[int] = []
    joins = turns_module._with_the_message

    def counted(
        said: Entry, known: CachedView | None, rows: Sequence[Any] | None
    ) -> tuple[Entry, ...] | None:
        seqs.extend(row["seq"] for row in rows or ())
        return joins(said, known, rows)

    monkeypatch.setattr(turns_module, "_with_the_message", counted)
    return seqs


async def told(guest: Visit, *texts: str) -> None:
    for text in texts:
        await begin(guest, text)
        await guest.answered()


async def loaded(guest: Visit, claim: Claim) -> tuple[Entry, ...]:
    base = claim.view.base_turn
    return await guest.app.stores.turns.load(guest.session_id, base_turn=base, through_turn=claim.turn)


async def test_a_talk_is_read_once(guest: Visit, read: list[int]) -> None:
    await told(guest, "The ferry leaves at 9:40.", "And I have a dog.", "Rex.")
    assert read == [1, 2]
    claim = await begun_claim(guest, "What did I say?")
    assert read == [1, 2]
    assert claim.entries == await loaded(guest, claim)
    assert [entry.seq for entry in claim.entries or ()] == list(range(1, 10))
    await guest.answered()
    assert await guest.one("SELECT bool_and(state = 'answered') FROM turns")


async def test_when_turns_began_is_known_as_if_it_had_been_read(guest: Visit, read: list[int]) -> None:
    await told(guest, *(f"Message {number}." for number in range(24)))
    claim = await begun_claim(guest, "The last one.")
    assert read == [1, 2]
    await guest.app.sessions.release_unanswered()
    again = await guest.app.sessions._claim(guest.session_id)
    assert again is not None
    assert again.turn_times == claim.turn_times
    assert len(claim.turn_times) == 21
    await guest.app.sessions._release_claim(again)
    await guest.answered()


async def pin(guest: Visit) -> None:
    assert await PostgresPins(guest.app.pool).pin(guest.session_id, 3, most_tokens=1_000) == "pinned"


async def pin_and_unpin(guest: Visit) -> None:
    await pin(guest)
    assert await PostgresPins(guest.app.pool).unpin(guest.session_id, 3) == "unpinned"


async def edit(guest: Visit) -> None:
    assert await guest.reword(5, "I have a cat.", key="web:edit") == "last"


async def ask_again(guest: Visit) -> None:
    edits = PostgresEdits(guest.app.pool)
    await edits.request_retry(
        guest.session_id, channel="web", address_id=guest.address_id, dedupe_key="web:again"
    )
    await guest.answered()


async def forget_a_message(guest: Visit) -> None:
    report = await PostgresErasure(guest.app.pool).erase_messages(guest.session_id, [3], actor="person")
    assert report.counts


async def forget_everything(guest: Visit) -> None:
    erasure = PostgresErasure(guest.app.pool)
    begun = await erasure.start_erasure(guest.session_id, actor="person")
    while await erasure.advance(begun.erasure_id) is None:
        pass


async def compact(guest: Visit) -> None:
    rivals = await rivals_of(guest)
    await rivals.try_once()
    assert rivals.told["committed"] == 1
    await guest.app.stores.jobs.end_job(rivals.job, state="done", outcome={})


async def compact_and_undo(guest: Visit) -> None:
    await compact(guest)
    await guest.app.stores.jobs.undo_compaction(guest.session_id, limit_tokens=100_000, fixed_tokens=100)


async def begin_anew(guest: Visit) -> None:
    await guest.app.stores.jobs.start_new_conversation(guest.session_id, fixed_tokens=100)


async def a_human_answers(guest: Visit) -> None:
    handovers, ada = PostgresHandovers(guest.app.pool), await guest.one(NEW_OPERATOR)
    await handovers.take_over(guest.session_id, operator_id=ada, name="Ada")
    words = (Text(text="I am Ada."),)
    await handovers.record_reply(guest.session_id, operator_id=ada, cid="o1", blocks=words, tokens=4)
    await handovers.release(guest.session_id, by="operator", operator_id=ada)


async def another_process_answers(guest: Visit) -> None:
    async with running_app(guest.app.settings) as other:
        there = Visit(app=other, session_id=guest.session_id, address_id=guest.address_id)
        await there.ask("Said elsewhere.")


async def only_the_turn_before_is_remembered(guest: Visit) -> None:
    views = guest.app.stores.turns._views
    older = views.take(guest.session_id)
    assert older is not None
    await told(guest, "Once more.")
    views.keep(guest.session_id, older)


async def a_standby_took_over_that_was_behind(guest: Visit) -> None:
    """The number of a transaction that was lost is another one's now."""
    views = guest.app.stores.turns._views
    kept = views.take(guest.session_id)
    assert kept is not None
    lost = replace(kept.entries[-1], seq=kept.entries[-1].seq + 1)
    views.keep(guest.session_id, replace(kept, entries=(*kept.entries, lost)))


async def said_while_answering(guest: Visit) -> None:
    await begin(guest, "First.")
    await asyncio.gather(guest.answered(), begin(guest, "Second."))
    await guest.answered()


CHANGES: tuple[Callable[[Visit], Awaitable[None]], ...] = (
    pin, pin_and_unpin, edit, ask_again, forget_a_message, forget_everything, compact, compact_and_undo,
    begin_anew, a_human_answers, another_process_answers, only_the_turn_before_is_remembered,
    a_standby_took_over_that_was_behind, said_while_answering,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_changed_view_shows_nothing_of_the_former_one(
    guest: Visit, read: list[int], change: Callable[[Visit], Awaitable[None]]
) -> None:
    await told(guest, "The ferry leaves at 9:40.", "And I have a dog.")
    await change(guest)
    claim = await begun_claim(guest, "What did I say?")
    assert claim.entries in (None, await loaded(guest, claim))
    await guest.answered()
    claim = await begun_claim(guest, "And before that?")
    assert claim.entries == await loaded(guest, claim)
    await guest.answered()


async def test_outdated_view_is_reloaded_and_cached_from_next_turn(guest: Visit, read: list[int]) -> None:
    await told(guest, "The ferry leaves at 9:40.")
    await pin(guest)
    read.clear()
    claim = await begun_claim(guest, "And I have a dog.")
    assert claim.entries is None
    await guest.answered()
    assert not read
    await told(guest, "Rex.", "What did I say?")
    assert read == list(range(1, 7))
    assert await guest.one("SELECT bool_and(state = 'answered') FROM turns")


async def test_change_during_a_turn_is_seen_by_the_next_turn(guest: Visit, read: list[int]) -> None:
    await told(guest, "The ferry leaves at 9:40.")
    await begin(guest, "And I have a dog.")
    await pin(guest)
    await guest.answered()
    read.clear()
    claim = await begun_claim(guest, "What did I say?")
    assert read
    assert claim.entries == await loaded(guest, claim)
    assert [entry.seq for entry in claim.entries or () if entry.pinned] == [3]
    await guest.answered()
