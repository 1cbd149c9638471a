"""The web process dies behind an opinion, an edit, a read mark, an operator's wish: each is kept once."""

from __future__ import annotations

import aiohttp

from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import EDIT, FEEDBACK, READ, WORK
from tests.faults.operator_browser import Dashboard
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.deployment.telegram import SECONDS, Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake


async def test_an_opinion_whose_acknowledgement_died_is_kept_once_with_its_words(
    case: Case, recovery: Recovery
) -> None:
    async with case.web(crash_point=FEEDBACK) as web, Person(case.port) as person:
        answer = await person.ask("Good morning.")
        judged = await person.judge(answer["mid"], -1, "Too long.")
        await web.crashed()
        await person.until(lambda: judged in person.acks, "the acknowledgement of an opinion")
        recovery.note("web died behind an opinion", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert person.acks[judged]["dup"] is True
        await person.until(lambda: "feedback" in (e["t"] for e in person.seen.values()), "the opinion")
        await person.ask("Thank you.")
        assert await case.value("SELECT array_agg((opinion, words)::text) FROM feedback") == [
            '(bad,"Too long.")'
        ]
        assert await case.value("SELECT count(*) FROM events WHERE kind = 'feedback'") == 1
        await case.promises_hold(person)


async def test_an_edit_whose_acknowledgement_died_is_made_and_answered_once(
    case: Case, recovery: Recovery
) -> None:
    async with case.web(crash_point=EDIT) as web, Person(case.port) as person:
        await person.ask("My cat is called Miso.")
        asked = await person.ask("What is my dog called?")
        mid = await case.value(
            "SELECT 'm' || max(seq) FROM entries WHERE author = 'person' AND seq < $1", int(asked["mid"][1:])
        )
        edited = await person.edit(mid, "What is my cat called?")
        await web.crashed()
        await person.until(lambda: edited in person.acks, "the acknowledgement of an edit")
        recovery.note("web died behind an edit", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert person.acks[edited]["dup"] is True
        await person.until(
            lambda: any("Miso" in e.get("text", "") and e.get("turn") == 3 for e in person.seen.values()),
            "the answer to the newer words",
        )
        assert await case.value("SELECT count(*) FROM turns") == 3
        assert await case.value("SELECT count(*) FROM turn_entries WHERE replaced_by IS NOT NULL") == 2
        await case.promises_hold(person)


async def test_what_was_read_stays_read_when_the_process_dies_behind_it(
    case: Case, recovery: Recovery
) -> None:
    async with case.web(crash_point=READ) as web, Person(case.port) as person:
        await person.ask("Good morning.")
        until_here = person.last_seq
        await person.read(until_here)
        await web.crashed()
        await person.until(lambda: person.connections >= 2, "the next welcome")
        recovery.note("web died behind a read mark", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert person.read_so_far == until_here
        await person.read(until_here - 1)
        await person.ask("And now?")
        assert await case.value("SELECT read_seq FROM addresses") == until_here, "nobody reads backwards"
        await case.promises_hold(person)


async def test_job_retried_by_operator_is_done_without_a_doorbell(case: Case, recovery: Recovery) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        case.web(crash_point=WORK) as web,
        case.worker(),
        Person(case.port) as person,
        aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        await person.ask("Good morning.")
        job = await case.value(
            """INSERT INTO jobs (kind, session_id, key, state, attempt, faults, last_error,
                                 started_at, ended_at)
               SELECT 'tidy', id, 'tidy:failed', 'dead', 3, 3, 'The lights went out.', now(), now()
                 FROM sessions RETURNING id"""
        )
        operator = Dashboard(case, http)
        await operator.log_in()
        told = await operator.call("jobs/retry", {"ids": [job]})
        recovery.note("web died behind a job begun again", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert told["changed"] == 0, "it was changed before the first answer died"
        await case.until(f"SELECT state = 'done' FROM jobs WHERE id = {job}")
        assert await case.value("SELECT count(*) FROM audit WHERE action = 'job.retry'") == 1
        await person.ask("Still there?")
        await case.promises_hold(person)


async def test_part_resent_by_operator_arrives_once_without_an_announcement(
    hatchery: Hatchery, plant: Plant, fake: RunningFake, recovery: Recovery
) -> None:
    case = await plant.case(TEMPLATE)
    jar = aiohttp.CookieJar(unsafe=True)
    async with running_bot_api() as api:
        await Telegram.answers_of(fake, {"morning": {"text": "Hello."}, "Still": {"text": "Yes."}})
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        ada = await telegram.talker()
        async with (
            telegram.bot(crash_point="telegram_before_send") as bot,
            case.web(crash_point=WORK) as web,
            aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=20)) as http,
        ):
            await ada.say("Good morning.")
            await bot.crashed()
            await telegram.until("SELECT bool_or(state = 'uncertain') FROM deliveries")
            operator = Dashboard(case, http)
            await operator.log_in()
            session = await case.value("SELECT public_id::text FROM sessions")
            part = {"session": session, "turn": 1, "part": 0}
            told = await operator.call("deliveries/send-again", {"parts": [part]})
            recovery.note("web died behind a part to be sent again", web.fell_at)
            assert web.exits == [CRASHED], web.words()
            assert told["changed"] == 0, "it was changed before the first answer died"
            await ada.person.sees("Hello.", within=SECONDS)
            await ada.ask("Still there?")
            assert await case.value("SELECT count(*) FROM audit WHERE action = 'delivery.send_again'") == 1
        texts = (await ada.person.screen()).texts
        assert sum("Hello." in text for text in texts) == 1
    await plant.drop(case.database)
