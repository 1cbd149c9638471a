"""A process ends as if cut off from power at each named place; nobody waits in vain or hears it twice."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest

from shared.runtime import CRASH_POINTS
from tests.acceptance.operations.copies import COPY_POINTS as COPIES
from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import ALERT_POINTS as ALERTS
from tests.faults.crash_points import ASIDE_POINTS as ASIDES
from tests.faults.crash_points import BOT_NOTICES as TOLD
from tests.faults.crash_points import BOT_POINTS as BOT
from tests.faults.crash_points import GUEST_POINTS as GUESTS
from tests.faults.crash_points import HANDOVER_POINTS as HANDED_OVER
from tests.faults.crash_points import HOOK_POINTS as HOOKS
from tests.faults.crash_points import LOGIN_POINTS as LOGINS
from tests.faults.crash_points import MONEY_POINTS as MONEY
from tests.faults.crash_points import PUSH_POINTS as PUSH
from tests.faults.crash_points import PUT_BACK, SECRETARY_POINTS, TOKEN_POINT
from tests.faults.crash_points import REMINDER_POINTS as REMINDERS
from tests.faults.crash_points import SAMPLE_POINTS as SAMPLES
from tests.faults.crash_points import SETTINGS_POINTS as STORED_SETTINGS
from tests.faults.crash_points import VOICE_POINTS as VOICE
from tests.faults.scenes import Played, case_of_its_own, play
from tests.faults.slow_answers import ABORTED
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.person import PATIENCE_SECONDS, WALK, Person
from tests.kit.deployment.processes import CRASHED, Process, first_or_drawn

REMEMBER = "Please remember that my cat is called Miso."
WEB_CASES = (
    pytest.param("before_accept", marks=pytest.mark.row("F01")),
    pytest.param("after_accept", marks=pytest.mark.row("F02")),
    pytest.param("after_claim", marks=pytest.mark.row("F04")),
    "before_model",
    pytest.param("mid_stream:3", marks=pytest.mark.row("F05")),
    pytest.param("after_model", marks=pytest.mark.row("F06")),
    pytest.param("after_model:2", marks=pytest.mark.row("F06")),
    "after_tool_calls",
    "after_note",
    "after_tool_run",
    "after_tool_results",
    pytest.param("after_answer", marks=pytest.mark.row("F07")),
    "after_delivered",
    pytest.param("after_accept:2", marks=pytest.mark.row("F02")),
    pytest.param("after_claim:2", marks=pytest.mark.row("F04")),
)
BEGUN = ("after_accept:2", "after_claim:2")
"""The second message of an idle conversation is stored and its turn taken in one commit."""
WEB = (
    "before_accept",
    "after_accept",
    "after_claim",
    "before_model",
    "mid_stream",
    "after_model",
    "after_tool_calls",
    "after_note",
    "after_tool_run",
    "after_tool_results",
    "after_answer",
    "after_delivered",
)
WEB_POINTS = (
    *(point for point in WEB if point != "mid_stream"),
    "mid_stream:3",
    "after_model:2",
)
WORKER_CASES = (
    "after_job_claim",
    pytest.param("after_flush_model", marks=pytest.mark.row("F13")),
    pytest.param("after_flush", marks=pytest.mark.row("F14")),
    pytest.param("after_summary_model", marks=pytest.mark.row("F15")),
    "before_compaction",
    pytest.param("after_compaction", marks=pytest.mark.row("F16")),
    "before_indexing",
)
WORKER = (
    "after_job_claim",
    "after_flush_model",
    "after_flush",
    "after_summary_model",
    "before_compaction",
    "after_compaction",
    "before_indexing",
)
NIGHT = ("after_tidy",)
LISTING = ("mid_listing",)
COUNTING = ("mid_counting",)
LINKED = "after_link"
ERASURE = ("mid_erasure", "mid_erasure:4", "mid_erasure:12")
AT_MOST_MORE = 20
Fall = Callable[[Case, Recovery, str, int], Awaitable[None]]
BY_SIGNAL = {"after_ack"}
"""Whoever hears the acknowledgement ends the process: that is the place."""


IMPORTS = ("mid_import", "import_looked", "import_stored", "before_import_summary", "after_import_summary")
"""Tried in tests/integration/cli/test_import_cli.py, tests/acceptance/memory/test_imports.py and
test_import_summaries.py beside it."""
FORK = "mid_fork"
"""Tried in tests/integration/adapters/postgres/people/test_forks.py: the fork is asked for again."""
POISON = "after_process_fault"
"""Tried in test_poison.py, where a process first has to stop."""


def test_every_crash_point_is_tried() -> None:
    tries = (
        *WEB, *WORKER, *NIGHT, *LISTING, *COUNTING, *BOT, *REMINDERS, *HANDED_OVER, LINKED, *ERASURE, *ALERTS,
        *ASIDES, *LOGINS, *STORED_SETTINGS, *SAMPLES, *VOICE, *PUSH, *COPIES, PUT_BACK, *MONEY, *TOLD, POISON,
        TOKEN_POINT, *HOOKS, *GUESTS, *SECRETARY_POINTS, *IMPORTS, FORK,
    )  # fmt: skip
    tried = {point.partition(":")[0] for point in tries} | BY_SIGNAL
    assert tried == set(CRASH_POINTS)


async def test_a_link_is_made_once_though_its_process_dies_before_saying_so(case: Case) -> None:
    """Typed again by the browser that had no answer, the same code has done its work already."""
    async with case.web(crash_point=LINKED) as web:
        async with Person(case.port, name="other") as other:
            await other.ask(REMEMBER)
            asked = await other.command("link")
            await other.until(lambda: asked in other.commands, "a code")
        code = re.search(r"[A-Z2-9]{4}-[A-Z2-9]{4}", other.commands[asked]["result"])
        assert code is not None
        async with Person(case.port) as person:
            typed = await person.command("link", code[0])
            await web.crashed()
            await person.until(lambda: typed in person.commands, "the words about the link")
            assert web.exits == [CRASHED], web.words()
            assert person.commands[typed]["success"] is True
            await person.ask("What is my cat called?")
            await case.promises_hold(person)
        assert await case.value("SELECT count(*) FROM contact_links") == 1
        assert await case.value("SELECT count(DISTINCT session_id) FROM addresses") == 1


@pytest.fixture(scope="module")
async def played(request: pytest.FixtureRequest, plant: Plant, recovery: Recovery, seed: int) -> Played:
    """Each with a database of its own."""
    falls: dict[str, Fall] = {
        **dict.fromkeys(WEB_POINTS, _a_web_process_falls),
        **dict.fromkeys(BEGUN, _a_web_process_falls_with_a_turn_begun),
        **dict.fromkeys(ERASURE, _an_erasure_is_cut_off),
        **dict.fromkeys(WORKER, _a_worker_falls),
        **dict.fromkeys(NIGHT, _a_worker_falls_at_night),
        **dict.fromkeys(LISTING, _a_worker_falls_while_it_tells_the_list),
        **dict.fromkeys(COUNTING, _a_worker_falls_while_it_counts),
    }

    async def played(fall: Fall, point: str) -> None:
        async with case_of_its_own(plant, TEMPLATE) as case:
            await fall(case, recovery, point, seed)

    return await play(request, {point: partial(played, fall, point) for point, fall in falls.items()})


@pytest.mark.parametrize("point", WEB_CASES)
async def test_web_process_crash_leaves_no_message_unanswered(played: Played, point: str) -> None:
    played.went_well(point)


async def _a_web_process_falls(case: Case, recovery: Recovery, point: str, seed: int) -> None:
    crash_point = first_or_drawn(point, seed)
    async with case.web(crash_point=crash_point) as web, Person(case.port) as person:
        await person.say(REMEMBER)
        await person.say("And what is my cat called?")
        await _talks_until_it_falls(web, person, Random(f"{seed} {point}") if seed > 1 else None)
        await person.answered()
        recovery.note(f"web died at {crash_point}", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        await person.ask("What is my cat called now?")
        await case.promises_hold(person)
        assert person.connections >= 2
        assert await case.value("SELECT count(*) FROM notes") == 1
        await _gauge_foretells_the_next_call(case, person)
        if point.startswith("mid_stream"):
            assert await case.value(ABORTED) == 1


async def _a_web_process_falls_with_a_turn_begun(case: Case, recovery: Recovery, point: str, _: int) -> None:
    async with case.web(crash_point=point) as web, Person(case.port) as person:
        await person.ask(REMEMBER)
        await person.say("And what is my cat called?")
        await web.crashed()
        assert web.exits == [CRASHED], web.words()
        assert await case.value("SELECT claimed_at = opened_at FROM turns WHERE turn_no = 2"), "not begun"
        await person.answered()
        recovery.note(f"web died at {point}", web.fell_at)
        await case.promises_hold(person)
        assert await case.value("SELECT attempt FROM turns WHERE turn_no = 2") == 2


async def _talks_until_it_falls(web: Process, person: Person, chance: Random | None) -> None:
    """At a later passing of its place, it may take some more messages, at moments of their own."""
    for number in range(AT_MOST_MORE if chance else 0):
        assert chance is not None
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        if web.exits:
            break
        await person.say(REMEMBER if number % 2 else f"And what else do you know, number {number}?")
    await web.crashed()


@pytest.mark.row("F03")
async def test_web_process_killed_at_its_acknowledgement_leaves_no_message_unanswered(
    case: Case, recovery: Recovery, seed: int
) -> None:
    async with case.web() as web, Person(case.port) as person:
        await person.say(REMEMBER)
        await person.acknowledged()
        await asyncio.sleep(0.0 if seed == 1 else Random(seed).uniform(0.0, 0.1))
        web.kill()
        await web.crashed()
        await person.answered()
        recovery.note("web killed after its ack", web.fell_at)
        await case.promises_hold(person)


@pytest.mark.parametrize("point", ERASURE)
async def test_an_erasure_that_is_cut_off_is_finished_by_a_worker(played: Played, point: str) -> None:
    played.went_well(point)


async def _an_erasure_is_cut_off(case: Case, recovery: Recovery, point: str, _: int) -> None:
    async with case.web(crash_point=point) as web, case.worker(), Person(case.port) as person:
        await person.ask(REMEMBER)
        asked = await person.command("forget", "everything")
        await person.until(lambda: asked in person.commands, "the preview")
        await person.command("forget", "everything yes")
        await web.crashed()
        await case.until("SELECT count(*) = 1 FROM erasures WHERE state = 'done'")
        recovery.note(f"web died at {point}", web.fell_at)
    assert web.exits[:1] == [CRASHED], web.words()
    for table, column in (
        ("entries", "blocks"),
        ("notes", "text"),
        ("events", "payload"),
        ("prompt_parts", "body"),
    ):
        assert await case.value(f"SELECT count(*) FROM {table} WHERE {column}::text LIKE '%Miso%'") == 0
    await case.promises_hold()


_HERE = "session_id = (SELECT session_id FROM entries WHERE cid = $1)"
ONCE = {
    f"SELECT count(*) FROM compactions WHERE active AND kind = 'summary' AND {_HERE}": 1,
    f"SELECT count(*) FROM compactions WHERE NOT active AND {_HERE}": 0,
}
"""What a worker's death must not double."""


@pytest.mark.parametrize("point", WORKER_CASES)
async def test_a_worker_that_dies_delays_a_summary_and_nothing_else(played: Played, point: str) -> None:
    played.went_well(point)


async def _a_worker_falls(case: Case, recovery: Recovery, point: str, seed: int) -> None:
    messages = 8 if seed == 1 else Random(f"{seed} {point}").randint(6, 20)
    async with case.web():
        token = await _talked(case.port, messages)
        async with (
            case.worker(crash_point=point) as worker,
            Person(case.port, token=token, name=point) as person,
        ):
            asked = await person.command("compact", "--force")
            await worker.crashed()
            await person.ask("Does anybody hear me while it is down?")
            await person.until(lambda: asked in person.commands, "the summary")
            recovery.note(f"worker died at {point}", worker.fell_at)
            assert worker.exits == [CRASHED], worker.words()
            assert person.commands[asked]["success"], person.commands[asked]
            await _worker_rests(case)
            await case.promises_hold(person)
            for what, number in ONCE.items():
                assert await case.value(what, next(iter(person.said))) == number, what
            await _gauge_foretells_the_next_call(case, person)


GAUGE = "SELECT context_tokens FROM sessions WHERE id = (SELECT session_id FROM entries WHERE cid = $1)"
COUNTED = """SELECT reported_input_tokens FROM turn_context_audit WHERE session_id =
               (SELECT session_id FROM entries WHERE cid = $1) ORDER BY id DESC LIMIT 1"""
RESERVED = """SELECT context_reserved FROM sessions
               WHERE id = (SELECT session_id FROM entries WHERE cid = $1)"""
SHORT_MESSAGE = 120
"""More tokens than a short message takes, with the clock and a mark of the day."""


async def _gauge_foretells_the_next_call(case: Case, person: Person) -> None:
    """The next call holds what the gauge says, its message, and at most what is reserved."""
    cid = next(iter(person.said))
    shown, reserved = await case.value(GAUGE, cid), await case.value(RESERVED, cid)
    await person.ask("Is all well again?")
    counted = await case.value(COUNTED, cid)
    assert 0.99 * shown <= counted <= 1.01 * shown + reserved + SHORT_MESSAGE, (shown, reserved, counted)


async def _talked(port: int, messages: int) -> str | None:
    """The token of somebody with a conversation behind them."""
    async with Person(port, name="seed") as person:
        for number in range(messages):
            await person.ask(f"Number {number}: we meet on 2026-05-{number + 10} in Lisbon. {WALK}")
    return person.token


@pytest.mark.parametrize("point", NIGHT)
async def test_a_worker_that_dies_at_night_tidies_again(played: Played, point: str) -> None:
    played.went_well(point)


async def _a_worker_falls_at_night(case: Case, recovery: Recovery, point: str, _: int) -> None:
    async with case.web(), Person(case.port) as person:
        await person.ask(REMEMBER)
        await person.ask("Please remember that I am in Rome on 2020-05-01.")
        await case.value(
            "UPDATE notes SET durability = 'ephemeral', event_date = '2020-05-01' WHERE text ~ 'Rome'"
        )
        await case.value(
            """INSERT INTO jobs (kind, session_id, key) SELECT 'tidy', min(session_id), 'tidy:now' FROM notes
               RETURNING id"""
        )
        async with case.worker(crash_point=point) as worker:
            await worker.crashed()
            recovery.note(f"worker died at {point}", worker.fell_at)
            await _worker_rests(case)
            assert worker.exits == [CRASHED], worker.words()
        assert await case.value("SELECT state FROM jobs WHERE kind = 'tidy' AND key = 'tidy:now'") == "done"
        assert await case.value("SELECT count(*) FROM notes WHERE expired_at IS NOT NULL") == 1
        await person.ask("What is my cat called now?")
        await case.promises_hold(person)


@pytest.mark.parametrize("point", LISTING)
async def test_a_worker_that_dies_leaves_the_list_no_poorer(played: Played, point: str) -> None:
    played.went_well(point)


async def _a_worker_falls_while_it_tells_the_list(case: Case, recovery: Recovery, point: str, _: int) -> None:
    async with case.web(), Person(case.port) as person:
        await person.ask(REMEMBER)
        assert await case.value("SELECT count(*) FROM session_list_changes") > 0
        async with case.worker(crash_point=point) as worker:
            await worker.crashed()
            await case.until("SELECT count(*) = 0 FROM session_list_changes")
            recovery.note(f"worker died at {point}", worker.fell_at)
            assert worker.exits == [CRASHED], worker.words()
            assert await case.value(LISTED)
            await case.promises_hold(person)


@pytest.mark.parametrize("point", COUNTING)
async def test_hours_count_a_turn_once_when_the_worker_dies_counting(played: Played, point: str) -> None:
    played.went_well(point)


async def _a_worker_falls_while_it_counts(case: Case, recovery: Recovery, point: str, _: int) -> None:
    async with case.web(), Person(case.port) as person:
        await person.ask(REMEMBER)
        assert await case.value("SELECT count(*) FROM hour_turns") > 0
        async with case.worker(crash_point=point) as worker:
            await worker.crashed()
            await case.until("SELECT count(*) = 0 FROM hour_turns")
            recovery.note(f"worker died at {point}", worker.fell_at)
            assert worker.exits == [CRASHED], worker.words()
            assert await case.value("SELECT (sum(messages), sum(answers)) = (1, 1) FROM hourly_stats")
            await case.promises_hold(person)


LISTED = """
SELECT (l.next_turn, l.last_active_at, l.context_tokens) = (s.next_turn, s.last_active_at, s.context_tokens)
  FROM sessions s JOIN session_list l ON l.id = s.id
"""


async def _worker_rests(case: Case) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while await case.value("SELECT count(*) FROM jobs WHERE state IN ('due', 'running')"):
        assert time.monotonic() < end, "a job never ended"
        await asyncio.sleep(0.1)
