"""A conversation is named by its first summary: no request more, and the title shares the summary's fate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shared.adapters.postgres.compaction.jobs import PostgresJobs
from shared.adapters.postgres.dashboard.people_queries import PeopleInsights
from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery
from shared.adapters.postgres.people.visitors import ConversationRow, PostgresVisitors
from shared.adapters.postgres.privacy.export import PostgresExport
from shared.core.session.session_state import build_window_compaction
from shared.core.session.turns import JobOrder
from tests.acceptance.long_talks import FACTS, FILLER, WINDOW
from tests.kit.app_driver import Visit
from tests.kit.canaries import dumped
from tests.kit.fakes.messages_api import RunningFake

MODEL = "claude-sonnet-5-5"
ASKED = '\\"title\\": \\"'
"""How a request for a title looks in the JSON of a body."""
GIVEN = "Glaciers of Ingrid"


@pytest.fixture
async def model_options(module_provider: RunningFake, wire: str, tmp_path: Path) -> dict[str, Any]:
    await module_provider.reset()
    models = tmp_path / "models.json"
    entry = {
        "name": MODEL,
        "wire": wire,
        "base_url": module_provider.base_url,
        "prices": {"input": 2, "output": 9},
    }
    models.write_text(json.dumps([entry]))
    return {"models_file": models, "model": MODEL, "summary_model": MODEL, "cap_total_per_day_usd": "100"}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000, "keep_turns": 2}


async def talk_and_compact(guest: Visit, first: int = 0) -> None:
    for number in range(first, first + 4):
        await guest.ask(f"{FACTS[number % 4]} Message {number}. {FILLER}")
    order = JobOrder(kind="compact", key=f"by-hand-{first}", trigger="manual", payload={"force": True})
    await guest.app.stores.jobs.request_job(guest.session_id, order)
    await guest.run_due_jobs()


async def shown(guest: Visit) -> ConversationRow:
    visitors = PostgresVisitors(guest.app.pool)
    [found] = await visitors.list_conversations(guest.address_id, moment=None, row=None, limit=5)
    return found


async def dashboard_titles(guest: Visit) -> set[str | None]:
    """On the list, on the page of the session, and on that of its person."""
    insights = Insights(guest.app.pool)
    [listed] = (await insights.load_sessions(SessionQuery()))["sessions"]
    page = await insights.load_session(UUID(listed["id"]))
    person = await PeopleInsights(guest.app.pool).load_person(UUID(listed["person_id"]))
    assert page is not None
    assert person is not None
    [talk] = person["conversations"]
    return {listed["title"], page["title"], talk["title"]}


async def summaries(module_provider: RunningFake) -> list[dict[str, Any]]:
    return [one["body"] for one in await module_provider.requests() if one["kind"] == "summary"]


async def undo(guest: Visit) -> None:
    done = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")
    assert done.success, done.result


async def test_the_first_summary_names_the_conversation_and_no_later_one_is_asked(
    guest: Visit, module_provider: RunningFake
) -> None:
    first_words = "My sister Ingrid lives in Tromsø and works as a glaciologist…"
    await talk_and_compact(guest)
    title = (await shown(guest)).title
    assert title not in ("", first_words), title
    assert not (await shown(guest)).named
    assert await dashboard_titles(guest) == {title}
    await talk_and_compact(guest, 4)
    assert await guest.one("SELECT count(*) FROM compactions WHERE kind = 'summary' AND active") == 2
    assert [ASKED in json.dumps(body) for body in await summaries(module_provider)] == [True, False]
    assert (await shown(guest)).title == title
    requests = await module_provider.requests()
    assert {one["outcome"] for one in requests} == {"answered"}, [one["error"] for one in requests]
    assert {one["kind"] for one in requests} == {"chat", "flush", "summary"}
    chats = json.dumps([one["body"] for one in requests if one["kind"] == "chat"][-1])
    assert f'"title": "{title}"' not in chats, "no model is shown it"
    await undo(guest)
    await undo(guest)
    assert (await shown(guest)).title.startswith("My sister Ingrid lives")
    assert await dashboard_titles(guest) == {None}


async def test_the_name_that_the_person_gives_always_wins(guest: Visit) -> None:
    visitors = PostgresVisitors(guest.app.pool)
    await visitors.name_conversation(guest.address_id, "My own")
    await talk_and_compact(guest)
    assert ((await shown(guest)).title, (await shown(guest)).named) == ("My own", True)
    assert await dashboard_titles(guest) == {"My own"}
    await visitors.name_conversation(guest.address_id, "")
    assert (await shown(guest)).title not in ("", "My own")
    assert await guest.one("SELECT count(*) FROM compactions WHERE ledger ? 'title'") == 1
    head = await PostgresExport(guest.app.pool).load_head(guest.session_id)
    assert head.sessions[0].facts["title"] == (await shown(guest)).title


@pytest.mark.parametrize("window", [False, True])
async def test_summary_title_is_erased_with_any_of_its_messages(
    guest: Visit, module_provider: RunningFake, window: bool
) -> None:
    summary = {
        "narrative": f"They talk about {GIVEN}.",
        "add": [],
        "replace": [],
        "close": [],
        "title": GIVEN,
    }
    rule = {"match": {"kind": "summary"}, "times": 1, "action": {"text": json.dumps(summary)}}
    await module_provider.script([rule])
    await guest.ask(f"{GIVEN} is the name of my book. {FILLER}")
    await talk_and_compact(guest)
    assert (await shown(guest)).title == GIVEN
    if window:
        await slide(guest)
        assert (
            await guest.one("SELECT count(*) FROM compactions WHERE kind = 'window' AND ledger ? 'title'")
            == 1
        )
        assert (await shown(guest)).title == GIVEN
    gone = await guest.app.pool.fetch("SELECT seq FROM entries WHERE blocks::text LIKE $1", f"%{GIVEN}%")
    await guest.app.erasure.erase_messages(guest.session_id, [row["seq"] for row in gone], "person")
    assert GIVEN not in (await shown(guest)).title
    assert GIVEN not in await dumped(guest.app.settings)


async def slide(guest: Visit) -> None:
    """As where a preset leaves out what is too old."""
    jobs: PostgresJobs = guest.app.stores.jobs
    order = JobOrder(kind="compact", key="window", trigger="window")
    await jobs.request_job(guest.session_id, order)
    job_id = await guest.one("SELECT id FROM jobs WHERE trigger = 'window'")
    job = await jobs.claim_job(job_id, worker_id=guest.app.worker_id)
    assert job is not None
    state = await jobs.load_state(guest.session_id)
    compaction = build_window_compaction(state.view, state.answered_turn - 1, flush_id=None)
    await jobs.record_compaction(job, compaction, seen=state, spent=())


async def test_new_leaves_the_title_behind_and_forgetting_everything_erases_it(guest: Visit) -> None:
    await talk_and_compact(guest)
    title = (await shown(guest)).title
    done = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="new")
    assert done.success
    assert await dashboard_titles(guest) == {None}
    await guest.app.erasure.erase_everything(guest.session_id, "person")
    assert await guest.one("SELECT count(*) FROM compactions WHERE ledger ? 'title'") == 0
    assert title not in await dumped(guest.app.settings)
