"""What is remembered, on Telegram: a list with buttons, each of which is checked before it is believed."""

from __future__ import annotations

from itertools import count
from typing import Any

import asyncpg
import pytest

from shared.core.context.memory import gist_of, note_hash
from tests.kit.fakes.bot_api import Person
from tests.kit.telegram.bot_process import TelegramHouse

_numbers = count(10_500)
TOLD = """
SELECT count(*) FROM events e JOIN addresses a USING (session_id) WHERE a.chat = $1 AND e.kind = 'memory'
"""


async def keep(house: TelegramHouse, chat: int, *texts: str) -> list[int]:
    """Notes of the contact of a chat, the first the newest; their ids."""
    connection = await asyncpg.connect(house.database_url)
    ids: list[int] = []
    for age, text in enumerate(texts):
        ids.append(
            await connection.fetchval(
                """INSERT INTO notes (contact_id, scope, kind, text, importance, authority, hash, gist,
                                      session_id, observed_at)
                   SELECT a.contact_id, g.name, 'fact', $2, 5, 'person', $3, $4, s.id,
                          now() - make_interval(mins => $5)
                     FROM addresses a
                     JOIN sessions s ON s.id = a.session_id
                     JOIN agents g ON g.id = s.agent_id
                    WHERE a.chat = $1 RETURNING id""",
                str(chat), text, note_hash(text), list(gist_of(text)), age,
            )
        )  # fmt: skip
    await connection.close()
    return ids


async def talks(house: TelegramHouse, number: int, **told: Any) -> Person:
    person = await house.person(number, first_name="Ada", **told)
    await person.say("Good morning, assistant.")
    await person.sees("Good morning")
    return person


async def kept(house: TelegramHouse, note_id: int) -> bool:
    return bool(await house.one("SELECT forgotten_at IS NULL FROM notes WHERE id = $1", note_id))


async def test_a_note_is_put_away_and_had_back_by_buttons(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    tea, train = await keep(demo, ada.id, "Ada drinks *green* tea.", "Ada goes by train.")
    await ada.command("memory")
    screen = await ada.sees("Memory")
    assert "1. Ada drinks *green* tea." in screen.answers[-1].text
    listed = screen.answers[-1].message_id
    await ada.tap("🗑 1")
    screen = await ada.sees("Deleted. You can restore it for 30 days")
    assert screen.answers[-1].message_id == listed
    assert "1. Ada goes by train." in screen.answers[-1].text
    assert "Ada drinks *green* tea. Deleted" in screen.answers[-1].text
    assert not await kept(demo, tea)
    assert await demo.one(TOLD, str(ada.id)) == 1
    await ada.tap("Undo")
    await ada.sees("2. Ada goes by train.")
    assert await kept(demo, tea)
    assert await kept(demo, train)
    await ada.command("forget", "2")
    await ada.sees("Erased for good: 1 note.")
    assert await demo.one("SELECT text = '' FROM notes WHERE id = $1", train)


async def test_a_button_that_is_pressed_twice_works_once(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    (tea,) = await keep(demo, ada.id, "Ada drinks tea.")
    await ada.command("memory")
    listed = (await ada.sees("1. Ada drinks tea.")).answers[-1].message_id
    address = await demo.one("SELECT id FROM addresses WHERE chat = $1", str(ada.id))
    press = f"v1:note:{address}:{tea}:p0"
    await ada.forge_tap(listed, press)
    await ada.forge_tap(listed, press)
    await ada.sees("Deleted. You can restore it for 30 days")
    await demo.handled()
    assert await demo.one(TOLD, str(ada.id)) == 1
    await ada.forge_tap(listed, f"v1:back:{address}:{tea}:p0")
    await ada.forge_tap(listed, f"v1:back:{address}:{tea}:p0")
    await ada.sees("1. Ada drinks tea.")
    await demo.handled()
    assert await kept(demo, tea)
    assert await demo.one(TOLD, str(ada.id)) == 2


@pytest.mark.control("S22")
async def test_a_forged_press_reaches_no_note_of_anybody_else(demo: TelegramHouse, number: int) -> None:
    ada, eve = await talks(demo, number), await talks(demo, next(_numbers))
    (tea,) = await keep(demo, ada.id, "Ada drinks tea.")
    (own,) = await keep(demo, eve.id, "Eve likes locks.")
    await eve.command("memory")
    listed = (await eve.sees("1. Eve likes locks.")).answers[-1].message_id
    hers = await demo.one("SELECT id FROM addresses WHERE chat = $1", str(ada.id))
    mine = await demo.one("SELECT id FROM addresses WHERE chat = $1", str(eve.id))
    forged = (
        f"v1:note:{mine}:{tea}:p0", f"v1:note:{hers}:{tea}:p0", f"v1:back:{mine}:{tea}:found",
        f"v1:note:{mine}:{'9' * 18}:p99", f"v1:page:{hers}:0", f"v1:page:{mine}:{'9' * 18}",
        f"v1:note:{mine}:{tea}:p_x", f"v1:all:{mine}:0", "v1:note", f"v0:note:{mine}:{own}",
    )  # fmt: skip
    for press in forged:
        await eve.forge_tap(listed, press)
    await demo.handled()
    assert await kept(demo, tea)
    assert await kept(demo, own)
    screen = await eve.screen()
    assert "1. Eve likes locks." in screen.answers[-1].text
    assert not any("drinks tea" in line.text for line in screen.answers)


async def test_a_long_list_has_pages(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    ids = await keep(demo, ada.id, *(f"Ada has been in town {chr(65 + at) * 5}." for at in range(10)))
    await ada.command("memory")
    screen = await ada.sees("8. Ada has been in town HHHHH.")
    assert "IIIII" not in screen.answers[-1].text
    await ada.tap("Next ›")
    screen = await ada.sees("10. Ada has been in town JJJJJ.")
    assert "HHHHH" not in screen.answers[-1].text
    for note in ids[8:]:
        await ada.tap("🗑 9")
        await demo.until("SELECT forgotten_at IS NOT NULL FROM notes WHERE id = $1", note)
        await ada.sees(f"town {chr(65 + ids.index(note)) * 5}. Deleted")
    screen = await ada.sees("1. Ada has been in town AAAAA.")
    assert "8. Ada has been in town HHHHH." in screen.answers[-1].text


async def test_outdated_notes_list_is_redrawn(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    _, old = await keep(demo, ada.id, "Ada drinks tea.", "Ada lives in Graz.")
    await ada.command("memory")
    await ada.sees("2. Ada lives in Graz.")
    (new,) = await keep(demo, ada.id, "Ada lives in Linz.")
    await demo.one("UPDATE notes SET superseded_by = $2 WHERE id = $1 RETURNING id", old, new)
    await ada.tap("🗑 2")
    screen = await ada.sees("Ada lives in Linz.")
    assert "Graz" not in screen.answers[-1].text
    assert await kept(demo, new)
    await demo.one("UPDATE notes SET text = '', forgotten_at = now() WHERE id = $1 RETURNING id", new)
    await ada.tap("🗑 2")
    await ada.sees(lambda screen: "Linz" not in screen.answers[-1].text)


async def test_what_a_search_has_found_is_put_away_too(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number, language_code="de")
    tea, _ = await keep(demo, ada.id, "Ada trinkt gern Tee.", "Ada fährt mit dem Zug.")
    await ada.command("memory", "Tee")
    screen = await ada.sees("1. Ada trinkt gern Tee.")
    assert "Zug" not in screen.answers[-1].text
    await ada.tap("🗑 1")
    screen = await ada.sees("30 Tage lang")
    assert "Zug" not in screen.answers[-1].text
    assert not await kept(demo, tea)
    await ada.tap("Rückgängig")
    await ada.sees("2. Ada fährt mit dem Zug.")
    assert await kept(demo, tea)
    await ada.command("memory", "Wal")
    await ada.sees("Zu „Wal“ weiß ich nichts.")


@pytest.mark.control("S47")
async def test_in_a_group_only_its_administrators_put_notes_away(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    bob = await demo.person(next(_numbers), allowed=False, first_name="Bob")
    family = await demo.api.group("Family", ada, members=(bob,))
    await demo.let_in(family.id)
    await ada.command("memory", chat=family.id)
    await ada.sees("I remember nothing yet", chat=family.id)
    (note,) = await keep(demo, family.id, "The family eats at six.")
    await bob.command("memory", chat=family.id)
    listed = (await bob.sees("1. The family eats at six.", chat=family.id)).answers[-1].message_id
    await bob.tap("🗑 1", chat=family.id, message_id=listed)
    await demo.handled()
    assert await kept(demo, note)
    await ada.tap("🗑 1", chat=family.id, message_id=listed)
    await ada.sees("Deleted", chat=family.id)
    assert not await kept(demo, note)
    await bob.tap("Undo", chat=family.id, message_id=listed)
    await demo.handled()
    assert not await kept(demo, note)


async def test_everything_is_forgotten_by_a_button_and_only_after_it_was_shown(
    demo: TelegramHouse, number: int
) -> None:
    ada = await talks(demo, number)
    (note,) = await keep(demo, ada.id, "Ada drinks tea.")
    await ada.command("forget", "everything")
    asked = (await ada.sees("This would be erased permanently")).answers[-1].message_id
    await ada.tap("Cancel")
    await ada.sees("Nothing was erased.")
    address = await demo.one("SELECT id FROM addresses WHERE chat = $1", str(ada.id))
    await ada.forge_tap(asked, f"v1:all:{address}:0")
    await demo.handled()
    assert await kept(demo, note)
    await ada.command("forget", "Everything")
    asked = (await ada.sees("This would be erased permanently")).answers[-1].message_id
    await ada.tap("Yes, erase everything")
    screen = await ada.sees("Forgotten")
    assert screen.answers[-1].message_id == asked
    await ada.forge_tap(asked, f"v1:all:{address}:0")
    await demo.handled()
    assert "Forgotten" in (await ada.screen()).answers[-1].text
    assert await demo.one("SELECT count(*) FROM notes WHERE text LIKE 'Ada drinks%' AND id = $1", note) == 0


async def test_mode_button_changes_mode_and_forged_button_changes_nothing(
    demo: TelegramHouse, number: int
) -> None:
    ada = await talks(demo, number)
    await ada.command("mode")
    screen = await ada.sees("brief")
    asked = screen.answers[-1]
    assert asked.buttons == ["brief", "thorough"]
    await ada.tap("brief", message_id=asked.message_id)
    screen = await ada.sees("brief")
    chosen = "SELECT s.mode FROM sessions s JOIN addresses a ON a.session_id = s.id WHERE a.chat = $1"
    await demo.until(f"SELECT ({chosen}) = 'brief'", str(ada.id))
    assert screen.answers[-1].message_id == asked.message_id
    address = await demo.one("SELECT id FROM addresses WHERE chat = $1", str(ada.id))
    await keep(demo, ada.id, "Ada has a red boat.")
    await ada.command("forget", "boat")
    await ada.sees("red boat")
    for word in ("mode=000000000000", "forget=yes", "forget=1", "retry=1"):
        await ada.forge_tap(asked.message_id, f"v1:choose:{address}:0:{word}")
    await demo.handled()
    assert await demo.one(chosen, str(ada.id)) == "brief"
    assert await demo.one("SELECT count(*) FROM notes WHERE text = 'Ada has a red boat.'") == 1
