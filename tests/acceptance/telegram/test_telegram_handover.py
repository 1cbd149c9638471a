"""A human takes over a chat of Telegram: their words arrive once, and the assistant is silent meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.adapters.redis.announcer import RedisAnnouncer
from tests.kit.fakes.bot_api import Person
from tests.kit.operator_driver import drive_operator
from tests.kit.telegram.bot_process import TelegramHouse


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"settings": {"EVERTALK_HANDOVER": "on"}}


async def talks(house: TelegramHouse, number: int) -> Person:
    person = await house.person(number, first_name="Ada")
    await person.say("Good morning, assistant.")
    await person.sees("Good morning")
    return person


async def stored(house: TelegramHouse, person: Person, words: str) -> None:
    await house.until(
        """SELECT EXISTS (SELECT FROM entries e JOIN addresses a USING (session_id)
            WHERE a.chat = $1 AND e.blocks::text LIKE '%' || $2 || '%')""",
        str(person.id), words,
    )  # fmt: skip


async def test_the_operator_writes_and_the_assistant_goes_on_afterwards(
    demo: TelegramHouse, number: int
) -> None:
    ada = await talks(demo, number)
    await ada.command("human", "my parcel is lost")
    await ada.sees("I have asked for somebody of our team")
    await ada.say("Is anybody there?")
    await stored(demo, ada, "Is anybody there")
    async with drive_operator(demo.database_url, ada.id) as operator:
        await operator.take_over()
        await operator.record_reply("It arrives *tomorrow*.", cid="r1")
        screen = await ada.sees("It arrives tomorrow.")
        assert "👤 Anna" in screen.answers[-1].text
        await operator.record_reply("At noon.", cid="r2")
        await ada.sees("At noon.")
        await ada.say("Thank you, and the invoice?")
        await stored(demo, ada, "the invoice")
        await asyncio.sleep(1.5)  # long enough for an assistant that would not be silent
        assert "At noon." in (await ada.screen()).answers[-1].text
        await operator.release()
    await ada.sees("The assistant answers here again.")
    await ada.sees(lambda screen: "answers here again" in screen.answers[-2].text)
    texts = (await ada.screen()).texts
    assert sum("tomorrow" in text for text in texts) == 1
    assert sum("answers here again" in text for text in texts) == 1


async def test_a_file_of_the_operator_arrives_once(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    async with drive_operator(demo.database_url, ada.id) as operator:
        await operator.take_over()
        first = await operator.send_file("bill.txt", "You owe us nothing.", cid="f1")
        again = await operator.send_file("bill.txt", "You owe us nothing.", cid="f1")
        assert (again.seq, again.repeated) == (first.seq, True)
        await ada.sees(lambda screen: any(one.document for one in screen.answers))
        await operator.record_reply("That is the bill.", cid="r1")
        await ada.sees("That is the bill.")
        await operator.release()
    screen = await ada.screen()
    assert [one.document for one in screen.answers if one.document] == ["bill.txt"]
    assert any("👤 Anna" in text for text in screen.texts)


async def test_the_help_is_rated_once_by_a_button(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    async with drive_operator(demo.database_url, ada.id) as operator:
        await operator.take_over()
        await operator.record_reply("It arrives tomorrow.", cid="r1")
        await ada.sees("It arrives tomorrow.")
        await operator.release(resolved=True)
    screen = await ada.sees("How was our help?")
    asked = screen.answers[-1]
    assert asked.buttons == ["1 ★", "2 ★", "3 ★", "4 ★", "5 ★"]
    await ada.tap("4 ★", message_id=asked.message_id)
    await ada.sees("★★★★☆")
    rating = """SELECT h.rating FROM handovers h JOIN addresses a ON a.id = h.address_id WHERE a.chat = $1"""
    assert await demo.one(rating, str(ada.id)) == 4
    assert (await ada.screen()).answers[-1].buttons == []


async def test_the_chat_shows_that_the_operator_writes(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    announcer = RedisAnnouncer(demo.redis_url)
    async with drive_operator(demo.database_url, ada.id, announcer) as operator:
        await operator.take_over()
        assert not (await ada.screen()).is_typing
        await operator.say_typing()
        await ada.sees(lambda screen: screen.is_typing)
        await operator.record_reply("It arrives tomorrow.", cid="r1")
        await ada.sees("It arrives tomorrow.")
        await operator.release()
    await announcer.close()


async def test_handover_without_operator_is_announced_in_chat(demo: TelegramHouse, number: int) -> None:
    ada = await talks(demo, number)
    await ada.command("human")
    await ada.sees("I have asked for somebody")
    await ada.say("Hello, humans?")
    await stored(demo, ada, "humans?")
    await demo.one(
        """UPDATE handovers h SET asked_at = now() - interval '11 minutes' FROM addresses a
            WHERE a.id = h.address_id AND a.chat = $1 RETURNING h.id""",
        str(ada.id),
    )
    await ada.sees("nobody was free to come")
    # First the honest word, then the answer.
    await ada.sees(lambda screen: "nobody was free" in screen.answers[-2].text)


async def test_the_bot_that_was_away_brings_the_words_when_it_is_back(
    demo: TelegramHouse, number: int
) -> None:
    ada = await talks(demo, number)
    async with drive_operator(demo.database_url, ada.id) as operator:
        await operator.take_over()
        await demo.bot.kill()
        await operator.record_reply("Said while nobody sent.", cid="r1")
        await operator.record_reply("Said while nobody sent.", cid="r1")
        await operator.release()
    await demo.start()
    await ada.sees("Said while nobody sent.")
    await ada.sees("The assistant answers here again.")
    assert sum("nobody sent" in text for text in (await ada.screen()).texts) == 1
    await ada.sees(lambda screen: "nobody sent" in screen.answers[-2].text)
    await ada.say("And you, assistant?")
    await ada.sees(lambda screen: "answers here again" in screen.answers[-2].text)
