"""The process that plays a sample dies in the middle: the next one plays on, and no message comes twice."""

from __future__ import annotations

from shared.samples import load_year
from tests.faults.crash_points import PLAYED
from tests.kit.deployment.breakable_servers import Case, Recovery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import CRASHED

SAID = """
SELECT array_agg(e.words ORDER BY te.turn_no, te.seq)
  FROM entry_rows e JOIN turn_entries te USING (session_id, seq)
 WHERE e.dedupe_key LIKE 'sample:%'
"""
ANSWERED = "SELECT count(*) FROM entry_rows WHERE author = 'assistant'"


async def test_a_sample_is_played_to_its_end_though_its_process_dies(case: Case, recovery: Recovery) -> None:
    year = load_year()
    async with case.web(crash_point=f"{PLAYED}:3") as web, Person(case.port) as person:
        await person.ask("Good morning.")
        await person.command("sample")
        await web.crashed()
        last = year[-1].assistant
        await person.until(lambda: any(frame["text"] == last for frame in person.finals), "the last answer")
        recovery.note(f"web died at {PLAYED} of a sample", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        await case.promises_hold(person)
    assert await case.value(SAID) == [one.person for one in year]
    assert await case.value(ANSWERED) == len(year) + 1
    assert await case.value("SELECT played = total FROM sample_plays")
