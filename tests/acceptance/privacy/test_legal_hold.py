"""Who is on hold loses nothing: no rule about age applies, nobody forgets them, and time goes by."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from shared.adapters.postgres.people.people_directory import PostgresPeopleDirectory
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.core.privacy.erasures import AGAIN
from shared.core.values.errors import OnHold
from shared.services.commands.command_service import CommandResult
from tests.kit.app_driver import Visit, visit
from tests.kit.canaries import dumped

HELD, FREE = "Gehaltener-Kanarienvogel-31", "Freier-Kanarienvogel-32"
OLD = (
    "UPDATE sessions SET last_active_at = now() - interval '31 days'",
    "UPDATE events SET at = now() - interval '400 days'",
    """INSERT INTO checkpoints (session_id, from_turn, through_turn, created_at)
       SELECT id, 1, 1, now() - interval '100 days' FROM sessions""",
    """INSERT INTO attachments (session_id, sha256, mime, size, state, created_at)
       SELECT id, '\\x02', 'image/png', 1, 'stored', now() - interval '5 days' FROM sessions""",
    """INSERT INTO jobs (kind, session_id, key, state, ended_at)
       SELECT 'tidy', id, 'old:' || id, 'done', now() - interval '33 days' FROM sessions""",
    """UPDATE notes SET forgotten_at = now() - interval '31 days', undo_until = now() - interval '1 day'""",
)


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"retention_days": 30}


@pytest.fixture(autouse=True)
async def held_turn(guest: Visit) -> None:
    await guest.ask(f"Please remember that my dog {HELD} is allergic to chicken.")


async def hold(guest: Visit, *, on: bool = True) -> bool | None:
    public_id: UUID = await guest.one(
        "SELECT p.public_id FROM contacts p JOIN sessions s ON s.contact_id = p.id WHERE s.id = $1",
        guest.session_id,
    )
    return await PostgresPeopleDirectory(guest.app.pool).set_legal_hold(public_id, on=on, by="ada")


async def run(guest: Visit, name: str, args: str = "", **more: Any) -> CommandResult:
    return await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, **more
    )


async def time_goes_by(guest: Visit) -> dict[str, int]:
    for statement in OLD:
        await guest.app.pool.execute(statement)
    await guest.app.stores.session_list.catch_up()
    return await guest.app.retention.sweep()


@pytest.mark.control("S42")
async def test_time_takes_what_is_free_and_nothing_that_is_on_hold(guest: Visit) -> None:
    other = await visit(guest.app)
    await other.ask(f"Please remember that my cat {FREE} sleeps all day.")
    assert await hold(guest)
    gone = await time_goes_by(guest)
    assert (gone["conversations"], gone["checkpoints"], gone["attachments"], gone["jobs"]) == (1, 1, 1, 1)
    left = await dumped(guest.app.settings)
    assert HELD in left
    for table in ("checkpoints", "attachments"):
        rows = await guest.app.pool.fetch(f"SELECT session_id FROM {table}")
        assert [row["session_id"] for row in rows] == [guest.session_id]
    assert await guest.one("SELECT count(*) FROM notes WHERE text LIKE '%' || $1 || '%'", HELD) == 1
    assert await guest.app.retention.sweep() == {}


@pytest.mark.control("S42")
async def test_when_the_hold_is_lifted_what_is_too_old_goes(guest: Visit) -> None:
    assert await hold(guest)
    assert await time_goes_by(guest) == {}
    assert await hold(guest, on=False)
    assert (await guest.app.retention.sweep())["conversations"] == 1
    said = "SELECT string_agg(blocks::text, ' ') FROM entries WHERE session_id = $1"
    assert HELD not in await guest.one(said, guest.session_id)


@pytest.mark.control("S40", "S42")
async def test_legal_hold_refuses_erasure_in_the_persons_language(guest: Visit) -> None:
    assert await hold(guest)
    await run(guest, "forget", "everything")
    told = await run(guest, "forget", "everything yes")
    assert not told.success
    assert "legal hold" in told.result
    await run(guest, "forget", "everything")
    german = await run(guest, "forget", "everything yes", language="de")
    assert "aus rechtlichen Gründen" in german.result
    await run(guest, "forget", "dog")
    assert not (await run(guest, "forget", "1")).success
    with pytest.raises(OnHold):
        await PostgresErasure(guest.app.pool).erase_messages(guest.session_id, [1], actor="operator:1")
    assert await guest.one("SELECT count(*) FROM erasures") == 0
    assert HELD in await dumped(guest.app.settings)
    assert await guest.ask("Are you still there?")


@pytest.mark.control("S42")
async def test_what_was_forgotten_before_stays_so_in_a_restored_backup(guest: Visit) -> None:
    assert await hold(guest)
    store = PostgresErasure(guest.app.pool)
    begun = await store.start_erasure(guest.session_id, actor=AGAIN)
    while await store.advance(begun.erasure_id) is None:
        pass
    assert HELD not in await dumped(guest.app.settings)


@pytest.mark.control("S14", "S42")
async def test_a_hold_is_set_once_and_each_change_is_on_record(guest: Visit) -> None:
    assert [await hold(guest, on=on) for on in (True, True, False, False)] == [True, False, True, False]
    rows = await guest.app.pool.fetch(
        "SELECT actor, action FROM audit WHERE action LIKE 'person.%' ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [("ada", "person.hold"), ("ada", "person.release")]
    nobody = PostgresPeopleDirectory(guest.app.pool).set_legal_hold(UUID(int=7), on=True, by="ada")
    assert await nobody is None
