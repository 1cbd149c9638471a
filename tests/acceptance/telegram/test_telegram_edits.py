"""Edits on Telegram: the model reads the new wording, whenever the edit comes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from PIL import Image

from tests.kit.fakes.bot_api import USERNAME, Person
from tests.kit.sample_files import OLD_OFFICE
from tests.kit.telegram.deployment import MINE, Deployment, has_button

OFFER = "Shall I answer again?"
ANSWERS: dict[str, dict[str, Any]] = {
    "slowly": {"latency": 6.0, "text": "At last."},
    "aloud": {"text": " ".join(f"word{number}" for number in range(60)), "pace_ms": 150},
    "flight": {"text": "Have a good trip."},
    "My plan": {"text": "Noted."},
    "Which gate": {"text": "I see."},
    "again and again": {"status": 400, "message": "no"},
}


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"answers": ANSWERS}


async def last_request(here: Deployment, holding: str) -> str:
    """The newest request whose last message has these words, as text."""
    return json.dumps((await here.prompts(holding=holding))[-1]["messages"], ensure_ascii=False)


async def ask(here: Deployment, person: Person, text: str, turns: int, **where: Any) -> str:
    await person.say(text, **where)
    await here.answered(where.get("chat", person.id), turns)
    return await last_request(here, text)


async def settled(here: Deployment) -> None:
    await here.house.handled()


async def test_later_requests_hold_the_newest_wording_only(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("My flight leaves on the 12th.")
    await here.answered(ada.id, 1)
    await ada.edit(said.message_id, "My flight leaves on the 13th.")
    await ada.sees(OFFER)
    for day in ("13th, I think", "14th, I think", "14th, I know", "14th"):
        await ada.edit(said.message_id, f"My flight leaves on the {day}.")
    await settled(here)
    screen = await ada.screen()
    assert sum(OFFER in text for text in screen.texts) == 1
    for number in range(10):
        body = await ask(here, ada, f"Ada asks number {number}.", number + 2)
        assert "leaves on the 14th." in body
        assert "12th" not in body
        assert "13th" not in body
        assert "I think" not in body


async def test_new_answer_to_edited_message_follows_later_edits(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("My flight to Bergen leaves on the 12th.")
    await here.answered(ada.id, 1)
    await ada.edit(said.message_id, "My flight to Bergen leaves on the 13th.")
    await ada.sees(OFFER)
    await ada.tap("Answer again")
    await here.answered(ada.id, 2)
    await ada.edit(said.message_id, "My flight to Bergen leaves on the 14th.")
    await ada.sees(OFFER)
    body = await ask(here, ada, "What about Bergen?", 3)
    assert "14th" in body
    assert "12th" not in body
    assert "13th" not in body


async def test_answer_begins_again_when_nothing_was_shown(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("Answer slowly: do I fly on the 12th?")
    await here.house.until(f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'claimed'", str(ada.id))
    await ada.edit(said.message_id, "Answer slowly: do I fly on the 14th?")
    await here.answered(ada.id, 1)
    assert "12th" not in await last_request(here, "do I fly on the 14th?")
    await settled(here)
    screen = await ada.screen()
    assert screen.texts == ["At last."]
    assert "12th" not in await ask(here, ada, "Thank you, Bergen.", 2)


async def test_new_answer_is_offered_while_the_old_one_is_shown(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("Count aloud to 12.")
    await ada.sees("word10", within=40)
    await ada.edit(said.message_id, "Count aloud to 14.")
    await ada.sees(OFFER)
    await ada.tap("Answer again")
    await here.answered(ada.id, 2)
    body = await last_request(here, "Count aloud to 14.")
    assert "to 12." not in body


async def test_edit_of_older_message_gets_a_sign(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("My flight leaves on the 12th.")
    await here.answered(ada.id, 1)
    await ask(here, ada, "How are you, Vega?", 2)
    await ada.edit(said.message_id, "My flight leaves on the 14th.")
    await settled(here)
    await ada.sees(lambda screen: any("✍" in str(line.raw.get("reactions")) for line in screen.lines))
    body = await ask(here, ada, "And now, Vega?", 3)
    assert "14th" in body
    assert "12th" not in body


async def test_caption_of_document_is_edited_and_its_text_stays(here: Deployment) -> None:
    ada = await here.person()
    sent = await ada.send_file(
        "tickets.txt", b"Gate B7, seat 11C", caption="My flight on the 12th", media_type="text/plain"
    )
    await here.answered(ada.id, 1)
    await ada.edit(sent.message_id, "My flight on the 14th")
    await settled(here)
    body = await ask(here, ada, "Which gate, Vela?", 2)
    assert "on the 14th" in body
    assert "12th" not in body
    assert "Gate B7" in body


async def test_one_part_of_album_paste_and_reply_is_edited(here: Deployment) -> None:
    ada = await here.person()
    album = await ada.album(3, caption="My flight on the 12th")
    await here.answered(ada.id, 1)
    await ada.edit(album[0].message_id, "My flight on the 14th")
    await ada.edit(album[2].message_id, "with two bags")
    await settled(here)
    body = await ask(here, ada, "How many bags, Lyra?", 2)
    assert "My flight on the 14th" in body
    assert "with two bags" in body
    assert "12th" not in body
    said = await ada.say("The house is red and the boat is blue.")
    await here.answered(ada.id, 3)
    reply = await ada.say("Paint it on the 12th?", reply_to=said.message_id, quote="the boat is blue")
    await here.answered(ada.id, 4)
    await ada.edit(reply.message_id, "Paint it on the 15th?")
    await settled(here)
    body = await ask(here, ada, "Well, Lyra?", 5)
    assert "Quoting their own message" in body
    assert "Paint it on the 15th?" in body
    assert "Paint it on the 12th?" not in body


async def test_edit_in_group_is_read_with_its_author(here: Deployment) -> None:
    ada, bob = await here.person(first_name="Ada"), await here.person(first_name="Bob")
    crew = await here.api.group("Crew", ada, members=(bob,))
    await here.house.let_in(crew.id)
    said = await ada.say(f"@{USERNAME} my flight leaves on the 12th.", chat=crew.id)
    await here.answered(crew.id, 1)
    await ada.edit(said.message_id, f"@{USERNAME} my flight leaves on the 14th.", chat=crew.id)
    await settled(here)
    body = await ask(here, bob, f"@{USERNAME} when does Ada fly?", 2, chat=crew.id)
    assert f"Ada: @{USERNAME} my flight leaves on the 14th." in body
    assert "12th" not in body


async def test_mention_added_by_edit_asks_the_bot(here: Deployment) -> None:
    ada = await here.person(first_name="Ada")
    club = await here.api.group("Club", ada)
    await here.house.let_in(club.id)
    said = await ada.say("Does the flight leave today?", chat=club.id)
    await ada.edit(said.message_id, f"@{USERNAME} does the flight leave on the 14th?", chat=club.id)
    await here.answered(club.id, 1)
    assert "on the 14th" in await last_request(here, "on the 14th")


async def test_edit_of_failed_message_is_answered(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("Fail again and again on the 12th.")
    await here.answered(ada.id, 1)
    await ada.edit(said.message_id, "Succeed on the 14th.")
    await ada.sees(OFFER)
    await ada.tap("Answer again")
    await here.answered(ada.id, 2)
    body = await last_request(here, "Succeed on the 14th.")
    assert "12th" not in body


async def test_search_finds_the_newest_wording_only(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("My flight leaves on the 12th from Tromsø.")
    await here.answered(ada.id, 1)
    await ada.edit(said.message_id, "My flight leaves on the 14th from Tromsø.")
    await settled(here)
    await ada.command("search", "Tromsø")
    screen = await ada.sees("14th from")
    assert not any("12th from" in text for text in screen.texts[-1:])
    assert not has_button("12th")(screen)


def picture(colour: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(out, "JPEG")
    return out.getvalue()


def read_blocks(body: str, kind: str) -> list[Any]:
    return [block for message in json.loads(body) for block in message["content"] if block["type"] == kind]


async def test_replaced_document_is_fetched_and_read(here: Deployment) -> None:
    ada = await here.person()
    sent = await ada.send_file("plan.txt", b"Gate B7 on Monday", caption="My plan", media_type="text/plain")
    await here.answered(ada.id, 1)
    await ask(here, ada, "Which gate, Mira?", 2)
    await ada.replace_file(sent.message_id, "plan2.txt", b"Gate C9 on Tuesday", caption="My new plan")
    await settled(here)
    body = await ask(here, ada, "Which gate now, Mira?", 3)
    assert "Gate C9 on Tuesday" in body
    assert "plan2.txt" in body
    assert "My new plan" in body
    assert "Gate B7" not in body
    await ada.edit(sent.message_id, "My newest plan")
    await settled(here)
    body = await ask(here, ada, "And the caption, Mira?", 4)
    assert "My newest plan" in body
    assert body.count("Gate C9 on Tuesday") == 1


async def test_replaced_picture_of_album_is_the_only_new_one(here: Deployment) -> None:
    ada = await here.person()
    album = await ada.album(3, caption="My boats", content=picture("red"))
    await here.answered(ada.id, 1)
    before = read_blocks(await last_request(here, "My boats"), "image")
    await ada.replace_file(album[1].message_id, "blue.jpg", picture("blue"), folder="photos")
    await ada.sees(OFFER)
    await ada.tap("Answer again")
    await here.answered(ada.id, 2)
    after = read_blocks(await last_request(here, "My boats"), "image")
    assert len(before) == len(after) == 3
    same = [old["source"] == new["source"] for old, new in zip(before, after, strict=True)]
    assert same == [True, False, True]


async def test_document_added_by_edit_is_read(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("My plan follows.")
    await here.answered(ada.id, 1)
    await ada.replace_file(said.message_id, "plan.txt", b"Gate D4", caption="My plan is here.")
    await settled(here)
    body = await ask(here, ada, "Which gate, Spica?", 2)
    assert "My plan is here." in body
    assert "Gate D4" in body


async def test_replaced_file_that_cannot_be_read_is_named(here: Deployment) -> None:
    ada = await here.person()
    sent = await ada.send_file("plan.txt", b"Gate E1", caption="My plan", media_type="text/plain")
    await here.answered(ada.id, 1)
    await ada.replace_file(sent.message_id, "old.doc", OLD_OFFICE, caption="My plan")
    await settled(here)
    body = await ask(here, ada, "What is it, Rigel?", 2)
    assert "old.doc, not read" in body
    assert "Gate E1" not in body
