"""Operators' actions on several conversations: each has its own result, and a refusal stops no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.handover.inbox import PostgresInbox
from shared.adapters.postgres.people.operator_auth import Operators
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.core.identity.handover import NewHandover, TakenByOther
from shared.core.identity.macros import HandoverOff, UnfilledVariable
from shared.core.values.errors import StorageUnavailable
from shared.runtime import ignore_crash_point
from shared.services.tools.handover import HandoverService
from shared.services.tools.handover_actions import ActingOperator, ActionResult, HandoverActions, HandoverMove
from tests.kit.operator_driver import Unheard

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


class Inbox:
    """Two operators, their actions, and conversations that wait for them."""

    def __init__(self, pool: Pool, anna: ActingOperator, ben: ActingOperator, store: PostgresInbox) -> None:
        self.pool, self.anna, self.ben, self.store = pool, anna, ben, store
        handovers = HandoverService(
            PostgresHandovers(pool), Unheard(), VocabularyCounter(), crash_point=ignore_crash_point
        )
        self.handovers = handovers
        self.actions = HandoverActions(handovers, store, Operators(pool))

    async def waiting(self, name: str = "") -> UUID:
        row = await PostgresVisitors(self.pool).create(generate_token(), site="default")
        assert row is not None
        await PostgresHandovers(self.pool).request_handover(
            NewHandover(session_id=row.session_id, address_id=row.address_id, asked_by="person")
        )
        if name:
            await self.pool.execute(
                """UPDATE contacts SET display_name = $2
                    WHERE id = (SELECT contact_id FROM sessions WHERE id = $1)""",
                row.session_id,
                name,
            )
        return UUID(str(row.session_public_id))

    async def move(self, session: UUID, move: HandoverMove, by: ActingOperator) -> None:
        session_id = await self.handovers.find_session(session)
        assert session_id is not None
        await self.actions.move(session_id, move, version=0, by=by)

    async def save_macro(self, name: str, **values: Any) -> None:
        whole = {"labels": (), "assignee": "", "reply": "", "resolve": False, **values}
        await self.store.save_macro(name, version=0, by="anna", **whole)

    async def run(
        self, name: str, *sessions: UUID, cid: str = "c1", by: ActingOperator | None = None
    ) -> dict[UUID, ActionResult]:
        found = await self.actions.run_macro_on_several(sessions, name, cid=cid, by=by or self.anna)
        assert found is not None
        return {one.session: one for one in found}

    async def replies(self) -> list[str]:
        rows = await self.pool.fetch(
            "SELECT blocks -> 0 ->> 'text' AS text FROM entries WHERE author = 'operator' ORDER BY 1"
        )
        return [row["text"] for row in rows]

    async def audited(self) -> list[str]:
        rows = await self.pool.fetch(
            """SELECT object, detail ->> 'macro' AS name FROM audit
                WHERE action = 'macro.run' AND actor = 'anna'"""
        )
        assert {row["name"] for row in rows} <= {"bye"}
        return sorted(row["object"] for row in rows)


@pytest.fixture
async def desk(pool: Pool) -> Inbox:
    acting = []
    for name in ("anna", "ben"):
        operator_id = await pool.fetchval(
            "INSERT INTO operators (name, role, display_name) VALUES ($1, 'operator', $2) RETURNING id",
            name,
            name.title(),
        )
        acting.append(
            ActingOperator(
                operator_id=operator_id, login=name, shown_name=name.title(), is_admin=False, may_take=True
            )
        )
    anna, ben = acting
    return Inbox(pool, anna, ben, PostgresInbox(pool))


async def test_macro_on_several_reports_what_happened_to_each(desk: Inbox) -> None:
    ada, eve, unnamed, bens = [await desk.waiting(name) for name in ("Ada", "Eve", "", "Kim")]
    resolved, unknown = await desk.waiting("Old"), uuid4()
    await desk.move(resolved, HandoverMove(action="resolve"), desk.anna)
    await desk.move(bens, HandoverMove(action="take"), desk.ben)
    await desk.save_macro("bye", labels=("Done",), reply="Bye {{name}}, {{operator}}.", resolve=True)
    found = await desk.run("bye", ada, unnamed, resolved, bens, unknown, eve, ada)
    assert {session: (one.outcome, one.error) for session, one in found.items()} == {
        ada: ("done", ""),
        eve: ("done", ""),
        unnamed: ("refused", "unfilled"),
        resolved: ("already_resolved", ""),
        bens: ("refused", "taken_by_other"),
        unknown: ("refused", "not_found"),
    }
    assert "ben" in found[bens].reason
    assert await desk.replies() == ["Bye Ada, Anna.", "Bye Eve, Anna."]
    assert await desk.audited() == sorted([str(ada), str(eve)])
    rows = await desk.pool.fetch("SELECT labels FROM handovers WHERE ended_by = 'resolved'")
    assert sorted(row["labels"] for row in rows) == [[], ["Done"], ["Done"]]


async def test_repeated_run_on_several_sends_no_second_reply(desk: Inbox) -> None:
    sessions = [await desk.waiting(f"Person {number}") for number in range(12)]
    await desk.save_macro("bye", reply="Bye.", resolve=True)
    for _ in range(2):
        found = await desk.run("bye", *sessions)
        assert [one.outcome for one in found.values()] == ["done"] * 12
    assert await desk.replies() == ["Bye."] * 12
    assert len(await desk.audited()) == 12


async def test_failed_storage_for_one_conversation_leaves_the_others_done(
    desk: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = [await desk.waiting() for _ in range(3)]
    await desk.save_macro("bye", labels=("Done",), resolve=True)
    broken = await desk.handovers.find_session(second)
    find_open = desk.store.find_open

    async def fail_for_one(session_id: int) -> Any:
        if session_id == broken:
            raise StorageUnavailable("cut")
        return await find_open(session_id)

    monkeypatch.setattr(desk.store, "find_open", fail_for_one)
    found = await desk.run("bye", first, second, third)
    assert [one.outcome for one in found.values()] == ["done", "refused", "done"]
    assert (found[second].error, "Try again" in found[second].reason) == ("storage_unavailable", True)
    monkeypatch.undo()
    assert (await desk.run("bye", second))[second].outcome == "done"


async def test_unknown_macro_is_reported_before_any_conversation_changes(desk: Inbox) -> None:
    session = await desk.waiting()
    assert await desk.actions.run_macro_on_several([session], "none", cid="c1", by=desk.anna) is None
    assert await desk.actions.run_macro(session, "none", cid="c1", text="", by=desk.anna) is None


async def test_macro_that_takes_is_refused_when_handover_is_off(desk: Inbox) -> None:
    session = await desk.waiting()
    await desk.save_macro("hello", reply="Hello.")
    off = replace(desk.anna, may_take=False)
    with pytest.raises(HandoverOff):
        await desk.actions.run_macro(session, "hello", cid="c1", text="", by=off)
    assert (await desk.run("hello", session, by=off))[session].error == "handover_off"
    assert await desk.replies() == []


async def test_single_run_fills_in_variables_or_changes_nothing(desk: Inbox) -> None:
    named, unnamed = await desk.waiting("Ada"), await desk.waiting()
    await desk.save_macro("hello", labels=("New",), reply="Dear {{name}}.")
    moved = await desk.actions.run_macro(named, "hello", cid="c1", text="", by=desk.anna)
    assert moved is not None
    with pytest.raises(UnfilledVariable):
        await desk.actions.run_macro(unnamed, "hello", cid="c1", text="", by=desk.anna)
    assert await desk.replies() == ["Dear Ada."]
    states = await desk.pool.fetch("SELECT state, labels FROM handovers ORDER BY state")
    assert [tuple(row) for row in states] == [("human", ["New"]), ("waiting", [])]


async def test_labels_of_several_are_added_to_present_ones(desk: Inbox) -> None:
    first, second = await desk.waiting(), await desk.waiting()
    await desk.move(first, HandoverMove(action="label", labels=("VIP",)), desk.anna)
    move = HandoverMove(action="label", labels=("Refund",))
    found = await desk.actions.move_several({first: 1, second: 0, uuid4(): 0}, move, by=desk.anna)
    assert [(one.outcome, one.error) for one in found] == [
        ("done", ""),
        ("done", ""),
        ("refused", "not_found"),
    ]
    rows = await desk.pool.fetch("SELECT labels FROM handovers ORDER BY id")
    assert [row["labels"] for row in rows] == [["VIP", "Refund"], ["Refund"]]


async def test_stale_version_of_one_conversation_stops_no_other(desk: Inbox) -> None:
    first, second = await desk.waiting(), await desk.waiting()
    move = HandoverMove(action="assign", operator="ben")
    found = await desk.actions.move_several({first: 7, second: 0}, move, by=desk.anna)
    assert [(one.outcome, one.error) for one in found] == [("refused", "changed_meanwhile"), ("done", "")]
    with pytest.raises(TakenByOther):
        await desk.move(second, HandoverMove(action="resolve"), desk.anna)
