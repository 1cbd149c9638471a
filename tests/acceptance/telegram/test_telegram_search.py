"""A search on Telegram: a list with days, whose buttons or links lead to the messages."""

from __future__ import annotations

import asyncpg

from tests.kit.fakes.bot_api import USERNAME
from tests.kit.telegram.bot_process import TelegramHouse


async def test_a_result_leads_to_the_message_and_others_follow(demo: TelegramHouse) -> None:
    ada = await demo.person(700, first_name="Ada")
    bob = await demo.person(701, first_name="Bob")
    await bob.say("My walnut tree is mine alone.")
    await bob.sees("walnut")
    asked = {}
    for number in range(5):
        asked[number] = await ada.say(f"Walnut cake number {number} was good.")
        await ada.sees(f"number {number}")
    await ada.command("search")
    await ada.sees("Send /search with the words")
    await ada.command("search", "walnuts")
    screen = await ada.sees("Found, newest first")
    listed = screen.answers[-1]
    assert "mine alone" not in listed.text
    assert "You: Walnut cake number 4 was good." in listed.text
    assert {"bold"} == {entity["type"] for entity in listed.entities}
    assert "number 0" not in listed.text, "eight results a page"
    await ada.tap("Next ›", message_id=listed.message_id)
    screen = await ada.sees(lambda seen: "number 0" in seen.answers[-1].text)
    assert screen.answers[-1].message_id == listed.message_id
    rows = screen.answers[-1].text.splitlines()
    row = next(row for row in rows if "You: Walnut cake number 0" in row)
    await ada.tap(f"→ {row.partition('.')[0]}", message_id=listed.message_id)
    await ada.sees("⬆️")
    sent = [call["params"] for call in await demo.api.calls(chat=ada.id) if call["method"] == "sendMessage"]
    assert sent[-1]["reply_parameters"]["message_id"] == asked[0].message_id
    await ada.tap("‹ Back", message_id=listed.message_id)
    await ada.sees(lambda seen: any("number 4 was good." in one.text for one in seen.answers[-2:]))
    await ada.command("search", "zeppelin")
    await ada.sees("Nothing was found for “zeppelin”.")


async def test_why_shows_notes_and_explains_the_answer_replied_to(demo: TelegramHouse) -> None:
    ada = await demo.person(705, first_name="Ada")
    await ada.command("remember", "My walnut tree is called Gustav.")
    await ada.sees("Gustav")
    await ada.say("Good morning.")
    answer = (await ada.sees("Good morning")).answers[-1]
    await ada.command("why")
    await ada.sees("1. My walnut tree is called Gustav.")
    await ada.command("why", reply_to=answer.message_id)
    await ada.sees(lambda seen: sum("Notes I was given" in text for text in seen.texts) == 2)
    await ada.command("forget", "1")
    await ada.sees("Erased for good")


async def test_search_hides_results_of_other_chats_from_strangers(demo: TelegramHouse) -> None:
    eve = await demo.person(702, first_name="Eve")
    said = await eve.say("The boat is called Albatross.")
    await eve.sees("Albatross")
    connection = await asyncpg.connect(demo.database_url)
    place = await connection.fetchrow("SELECT id, session_id FROM addresses WHERE chat = '702'")
    assert place is not None
    seq = await connection.fetchval(
        "DELETE FROM telegram_messages WHERE chat_id = 702 AND message_id = $1 RETURNING seq", said.message_id
    )
    await connection.close()
    await eve.command("search", "boat called")
    listed = (await eve.sees("Found, newest first")).answers[-1]
    await eve.tap(listed.buttons[-1], message_id=listed.message_id)
    await eve.sees("You\n\nThe boat is called Albatross.")
    fay = await demo.person(703, first_name="Fay")
    await fay.say("Good morning.")
    await fay.sees("Good morning")
    mine = await demo.one("SELECT id FROM addresses WHERE chat = '703'")
    for forged in (
        f"v1:found:{place['id']}:{seq}:{place['session_id']}", f"v1:found:{mine}:{seq}:{place['session_id']}",
        f"v1:older:{mine}:0",
    ):  # fmt: skip
        screen = await fay.screen()
        await fay.forge_tap(screen.answers[-1].message_id, forged)
    assert not any("Albatross" in text for text in (await fay.screen()).texts)


async def test_in_a_supergroup_results_are_links(demo: TelegramHouse) -> None:
    ada = await demo.person(704, first_name="Ada")
    club = await demo.api.group("Club", ada)
    await demo.let_in(club.id)
    await ada.say(f"@{USERNAME} The key lies under the heron.", chat=club.id)
    await ada.sees("heron", chat=club.id)
    await ada.command("search", "heron key", chat=club.id)
    listed = (await ada.sees("Found, newest first", chat=club.id)).answers[-1]
    links = [entity["url"] for entity in listed.entities if entity["type"] == "text_link"]
    chat = f"https://t.me/c/{-1_000_000_000_000 - club.id}/"
    assert [link.startswith(chat) for link in links] == [True] * len(listed.text.splitlines()[2:])
    assert not listed.buttons
