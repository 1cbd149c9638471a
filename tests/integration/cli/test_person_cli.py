"""People at the terminal: found, exported, and erased only by whoever types the id again."""

from __future__ import annotations

import json

import pytest

from shared.cli.person import PersonTerminal, read_person_arguments, run_person
from tests.kit.app_driver import Visit, visit
from tests.kit.audit import read_audit
from tests.kit.canaries import dumped

CANARY = "Terminal-Kanarienvogel-77"


async def person(guest: Visit, *words: str, typed: str = "") -> tuple[int, str, str]:
    said: list[str] = []
    written: list[bytes] = []
    terminal = PersonTerminal(say=said.append, ask=lambda _: typed, write=written.append)
    url = guest.app.settings.database_url
    assert url is not None
    code = await run_person(
        read_person_arguments(words), database_url=url.get_secret_value(), terminal=terminal
    )
    return code, "\n".join(said), b"".join(written).decode()


async def id_of(guest: Visit) -> str:
    return str(
        await guest.one(
            "SELECT p.public_id FROM contacts p JOIN sessions s ON s.contact_id = p.id WHERE s.id = $1",
            guest.session_id,
        )
    )


async def test_people_are_listed_and_found_by_a_part_of_their_name(guest: Visit) -> None:
    await guest.ask(f"Hello {CANARY}")
    await guest.app.pool.execute("UPDATE contacts SET display_name = 'Ada_50%'")
    _, listed, _ = await person(guest, "list")
    assert await id_of(guest) in listed
    assert "Ada_50%" in listed
    assert "2 messages" in listed
    assert CANARY not in listed
    assert await id_of(guest) in (await person(guest, "list", "a_50%"))[1]
    assert (await person(guest, "list", "a%x"))[1] == "Nobody was found."


@pytest.mark.control("S14", "S41")
async def test_an_export_is_everything_and_leaves_a_link_in_the_audit(guest: Visit) -> None:
    await guest.ask(f"Hello {CANARY}")
    code, said, written = await person(guest, "export", await id_of(guest))
    assert (code, said) == (0, "")
    exported = json.loads(written)
    assert (exported["schema"], exported["version"]) == ("evertalk-export", 1)
    assert CANARY in exported["conversations"][0]["messages"][0]["text"]
    assert await guest.one("SELECT action FROM audit ORDER BY id DESC LIMIT 1") == "person.export"
    _, _, markdown = await person(guest, "export", await id_of(guest), "--format", "md")
    assert markdown.startswith("---\nschema: ")


@pytest.mark.control("S40")
async def test_erasing_asks_for_the_id_and_then_does_it(guest: Visit) -> None:
    other = await visit(guest.app)
    await other.ask("Something else altogether")
    await guest.ask(f"Hello {CANARY}")
    mine = await id_of(guest)
    code, said, _ = await person(guest, "erase", mine, typed="yes")
    assert (code, "Nothing was erased" in said) == (1, True)
    assert CANARY in await dumped(guest.app.settings)
    code, said, _ = await person(guest, "erase", mine, typed=f"{mine}\n")
    assert (code, "Erased: 2 messages" in said) == (0, True), said
    after = await dumped(guest.app.settings)
    assert CANARY not in after
    assert "Something else altogether" in after
    assert await guest.one("SELECT actor FROM erasures") == "command line"
    entries = [(entry.action, entry.actor, entry.about) for entry in await read_audit(guest.app.pool)]
    assert entries[0] == ("person.erase", "command line", mine)
    assert [action for action, _, _ in entries] == ["person.erase", "erasure.everything"]


@pytest.mark.control("S40")
async def test_erased_person_is_not_listed(guest: Visit) -> None:
    other = await visit(guest.app)
    await other.ask("Something else altogether")
    await guest.ask(f"Hello {CANARY}")
    await guest.ask("And good night")
    mine = await id_of(guest)
    assert mine in (await person(guest, "list"))[1]
    await person(guest, "erase", mine, typed=mine)
    listed = (await person(guest, "list"))[1]
    assert (mine in listed, await id_of(other) in listed) == (False, True)
    assert (await person(guest, "list", mine))[1] == "Nobody was found."


async def test_list_counts_only_what_came_after_an_erasure(guest: Visit) -> None:
    await guest.ask(f"Hello {CANARY}")
    await guest.ask("And good night")
    mine = await id_of(guest)
    await person(guest, "erase", mine, typed=mine)
    await guest.ask("I came back.")
    listed = (await person(guest, "list"))[1]
    assert "2 messages in 1 conversation" in listed, listed


async def test_list_counts_nothing_of_a_conversation_that_retention_erased(guest: Visit) -> None:
    """The person stays: their name and notes have no age."""
    await guest.ask(f"Hello {CANARY}")
    await guest.app.pool.execute("UPDATE contacts SET display_name = 'Ada'")
    await guest.app.pool.execute("UPDATE sessions SET last_active_at = now() - interval '1 day'")
    report = await guest.app.stores.erasure.start_erasure(guest.session_id, actor="rule", scope="retention")
    while await guest.app.stores.erasure.advance(report.erasure_id) is None:
        pass
    listed = (await person(guest, "list"))[1]
    assert (await id_of(guest) in listed, "0 messages in 0 conversations" in listed) == (True, True), listed


async def test_an_unknown_id_and_a_bad_one_are_refused(guest: Visit) -> None:
    code, said, _ = await person(guest, "erase", "00000000-0000-0000-0000-000000000000")
    assert (code, "Nobody has the id" in said) == (1, True)
    with pytest.raises(SystemExit):
        read_person_arguments(["erase", "7"])


@pytest.mark.control("S14", "S42")
async def test_who_is_on_hold_is_not_erased_until_released(guest: Visit) -> None:
    await guest.ask(f"Hello {CANARY}")
    mine = await id_of(guest)
    assert (await person(guest, "hold", mine))[0] == 0
    code, said, _ = await person(guest, "erase", mine, typed=mine)
    assert (code, "on legal hold" in said) == (1, True)
    assert CANARY in await dumped(guest.app.settings)
    assert (await person(guest, "hold", mine))[1] == "They are on hold already."
    assert (await person(guest, "release", mine))[0] == 0
    assert (await person(guest, "erase", mine, typed=mine))[0] == 0
    assert CANARY not in await dumped(guest.app.settings)
    nobody = "00000000-0000-0000-0000-000000000007"
    assert (await person(guest, "hold", nobody))[0] == 1
    done = await guest.app.pool.fetch("SELECT action FROM audit WHERE actor = 'command line' ORDER BY id")
    assert [row["action"] for row in done][:3] == ["person.hold", "person.release", "person.erase"]
