"""People talk with the bot on Telegram, from the first hello to the undo of a summary."""

from __future__ import annotations

from itertools import count

import pytest

from tests.kit.fakes.bot_api import USERNAME, Person, Screen
from tests.kit.telegram.bot_process import TelegramHouse

_numbers = count(10_100)


async def answered(house: TelegramHouse, person: Person, turns: int) -> None:
    """So many turns that this person began in their own chat are answered."""
    await house.until(
        f"SELECT count(*) = $2 FROM turns t {MINE} AND t.state = 'answered'", str(person.id), turns
    )


MINE = "JOIN addresses a ON a.session_id = t.session_id WHERE a.chat = $1"
"""Rows `t` of the sessions of one chat."""


async def test_a_person_talks_with_the_bot(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number, first_name="Ada")
    await ada.command("start")
    await ada.sees("Ada")
    await ada.say("Please remember that my dog Bertil is allergic to chicken.")
    await ada.sees("Bertil is allergic to chicken")
    await ada.say("What is my dog allergic to?")
    screen = await ada.sees("I found this")
    assert screen.notifications == 3
    delivered = f"SELECT count(*) = 2 FROM deliveries t {MINE} AND t.state = 'delivered'"
    await demo.until(delivered, str(ada.id))
    await demo.handled()


async def test_a_stranger_gets_a_code_and_talks_when_an_operator_approves(
    demo: TelegramHouse, number: int
) -> None:
    eve = await demo.person(number, allowed=False, first_name="Eve")
    await eve.say("Hello?")
    screen = await eve.sees("good for one hour")
    code = await demo.one("SELECT code FROM telegram_access WHERE chat_id = $1", eve.id)
    assert code in screen.answers[-1].text
    await eve.say("And now?")
    await demo.handled()
    assert len((await eve.screen()).answers) == 1
    assert await demo.one(f"SELECT count(*) FROM turns t {MINE}", str(eve.id)) == 0
    await demo.let_in(eve.id)
    await eve.say("Good day to you.")
    await eve.sees("Good day to you")


async def test_the_owner_link_makes_its_first_bearer_the_owner(demo: TelegramHouse, number: int) -> None:
    code = "A" * 32
    await demo.one(
        """INSERT INTO one_time_codes (code_hash, purpose, bot_id, expires_at)
           SELECT sha256($1), 'telegram_owner', bot_id, now() + interval '1 hour' FROM telegram_bots""",
        code.encode(),
    )
    ada = await demo.person(number, allowed=False, first_name="Ada", language_code="de")
    await ada.command("start", code)
    await demo.until("SELECT owner FROM telegram_access WHERE chat_id = $1", ada.id)
    await ada.say("Guten Tag, ich heiße Ada.")
    await ada.sees("Guten Tag")
    eve = await demo.person(next(_numbers), allowed=False)
    await eve.command("start", code)
    await eve.sees("good for one hour")


async def test_a_long_paste_is_one_turn_with_the_original_text(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    text = "".join(f"Line{line:05d}." for line in range(1300))
    await ada.paste(text)
    await answered(demo, ada, 1)
    words = f"SELECT blocks->0->>'text' FROM entries t {MINE} AND t.author = 'person'"
    assert await demo.one(words, str(ada.id)) == text
    parts = f"SELECT count(*) FROM telegram_messages t {MINE} AND t.seq = 1"
    assert await demo.one(parts, str(ada.id)) == 4


async def test_commands_answer_in_the_chat(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    await ada.say("My boat is called Njord.")
    await ada.sees("Njord")
    await ada.command("context")
    await ada.sees("tokens")
    await ada.command("help")
    await ada.sees("/compact")
    await ada.say("/help compact")
    await ada.sees("also when there is little to gain")
    await ada.command("status")
    await ada.sees("Turns: 1")
    await ada.command("export")
    screen = await ada.sees("Our conversation: 2 messages")
    assert screen.answers[-1].document is not None
    await ada.say("/frobnicate the boat")
    await ada.sees("Unknown command /frobnicate. /help shows what I know.")


async def test_question_that_begins_with_a_slash_is_answered(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    questions = ("/etc/passwd what is that?", "/tmp what is that?", "/dev is a folder with many files")
    for turns, question in enumerate(questions, 1):
        await ada.say(question)
        await answered(demo, ada, turns)
    words = f"SELECT array_agg(blocks->0->>'text' ORDER BY seq) FROM entries t {MINE} AND t.author = 'person'"
    assert await demo.one(words, str(ada.id)) == list(questions)
    assert not [text for text in (await ada.screen()).texts if "Unknown command" in text]


@pytest.mark.parametrize(("emoji", "mark"), [("❤️", "❤"), ("🦩", "👍")])
async def test_a_sticker_gets_one_reaction_and_no_answer(
    demo: TelegramHouse, number: int, emoji: str, mark: str
) -> None:
    ada = await demo.person(number)
    await ada.say("My boat is called Njord.")
    await ada.sees("Njord")
    sticker = {
        "file_id": "s", "file_unique_id": "u", "type": "regular", "width": 512, "height": 512,
        "is_animated": False, "is_video": False, "emoji": emoji,
    }  # fmt: skip
    sent = await ada.send_content({"sticker": sticker})

    def marks(screen: Screen) -> list[str]:
        """Of the sticker, by anybody."""
        (line,) = [one for one in screen.lines if one.message_id == sent.message_id]
        return [each["emoji"] for given in line.raw["reactions"].values() for each in given]

    assert marks(await ada.sees(lambda screen: bool(marks(screen)))) == [mark]
    await ada.say("Good day to you.")
    await ada.sees("Good day to you")
    assert await demo.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 2
    assert len((await ada.screen()).answers) == 2


async def test_a_pinned_message_is_kept_by_reply_and_by_telegrams_own_pin(
    demo: TelegramHouse, number: int
) -> None:
    ada = await demo.person(number)
    pins = f"SELECT count(*) = $2 FROM pins t {MINE}"
    said = await ada.say("The door code is 4711.")
    await ada.sees("4711")
    await ada.command("pin", reply_to=said.message_id)
    await ada.sees("Pinned")
    other = await ada.say("The garage code is 0815.")
    await ada.sees("0815")
    await ada.pin(other.message_id)
    await demo.until(pins, str(ada.id), 2)
    await ada.command("pins")
    await ada.sees("2. ")
    await ada.command("unpin", reply_to=said.message_id)
    await demo.until(pins, str(ada.id), 1)


async def test_an_edited_message_may_be_answered_again(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    said = await ada.say("Please remember that my cat is called Mizo.")
    await ada.sees("Mizo")
    await ada.edit(said.message_id, "Please remember that my cat is called Miso.")
    await ada.sees("Shall I answer again?")
    await ada.tap("Answer again")
    await ada.sees("called Miso")
    await answered(demo, ada, 2)


async def test_reactions_are_opinions(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    opinion = f"SELECT t.opinion = $2 FROM feedback t {MINE}"
    await ada.say("Hello!")
    screen = await ada.sees("offline demo")
    answer = screen.answers[-1].message_id
    await ada.react(answer, "👎")
    await demo.until(opinion, str(ada.id), "bad")
    await ada.react(answer, "👍")
    await demo.until(opinion, str(ada.id), "good")
    await ada.react(answer, None)
    await demo.until(f"SELECT count(*) = 0 FROM feedback t {MINE}", str(ada.id))


async def test_buttons_request_a_new_answer(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    await ada.say("Tell me of the sea.")
    await ada.sees("the sea")
    await ada.tap("Again")
    await answered(demo, ada, 2)
    await ada.sees(lambda screen: sum("Shorter" in line.buttons for line in screen.answers) == 2)
    await ada.tap("Shorter")
    await answered(demo, ada, 3)
    screen = await ada.sees(lambda screen: sum(bool(line.buttons) for line in screen.answers) == 3)
    assert not await demo.api.calls("editMessageReplyMarkup", chat=ada.id)
    older = screen.answers[0].message_id
    await ada.tap("Shorter", message_id=older)
    await ada.sees(lambda screen: [bool(line.buttons) for line in screen.answers] == [False, True, True])
    assert await demo.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 3, "of which answer?"
    await ada.tap("Again", message_id=screen.answers[1].message_id)
    await answered(demo, ada, 4)


@pytest.mark.control("S47")
async def test_each_topic_is_a_conversation_of_its_own(demo: TelegramHouse, number: int) -> None:
    await demo.api.change_bot(topics=True)
    ada = await demo.person(number)
    await ada.say("Hello in no topic.")
    await answered(demo, ada, 1)
    boats, bread = await ada.create_topic("Boats"), await ada.create_topic("Bread")
    await ada.say("My boat is called Njord.", thread=boats)
    await ada.say("My sourdough is called Herman.", thread=bread)
    await answered(demo, ada, 3)
    await ada.say("What is my boat called?", thread=bread)
    screen = await ada.sees(lambda screen: len(screen.answers) == 4)
    assert {line.thread for line in screen.answers} == {None, boats, bread}
    assert "Njord" not in screen.answers[-1].text
    sessions = f"SELECT count(DISTINCT t.session_id) FROM turns t {MINE}"
    assert await demo.one(sessions, str(ada.id)) == 3


async def test_unknown_command_names_the_nearest_and_calls_no_model(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    await ada.command("forgt", "everything")
    await ada.sees("Unknown command /forgt. Did you mean /forget?")
    family = await demo.api.group("Family", ada)
    await ada.sees(lambda screen: len(screen.answers) == 1, chat=family.id)
    await demo.let_in(family.id)
    await ada.sees("Mention me", chat=family.id)
    await ada.command("roll", "two dice", chat=family.id)
    await ada.command(f"contxt@{USERNAME}", chat=family.id)
    screen = await ada.sees("Did you mean /context?", chat=family.id)
    assert len(screen.answers) == 3, "its code, its welcome, and not a word to another bot's command"
    for chat in (ada.id, family.id):
        assert await demo.one(f"SELECT count(*) FROM turns t {MINE}", str(chat)) == 0


async def test_a_group_is_answered_only_when_it_asks(demo: TelegramHouse, number: int) -> None:
    ada = await demo.person(number)
    bob = await demo.person(next(_numbers), allowed=False, first_name="Bob")
    family = await demo.api.group("Family", ada, members=(bob,))
    await bob.sees(lambda screen: len(screen.answers) == 1, chat=family.id)
    await demo.let_in(family.id)
    await bob.sees("Mention me", chat=family.id)
    await bob.say("Nobody asks the bot here.", chat=family.id)
    await bob.say(f"@{USERNAME} what is the capital of Peru?", chat=family.id)
    screen = await bob.sees("find nothing", chat=family.id)
    assert len(screen.answers) == 3, "its code when it was added, its welcome, and the answer"
    words = f"SELECT blocks->0->>'text' FROM entries t {MINE} AND t.author = 'person'"
    assert (await demo.one(words, str(family.id))).startswith("Bob: ")
    await bob.command("compact", chat=family.id)
    await bob.sees("administrators", chat=family.id)


async def test_where_there_is_nothing_to_summarise_only_that_is_said(
    demo: TelegramHouse, number: int
) -> None:
    """No worker runs here: nobody has to look."""
    ada = await demo.person(number)
    await ada.say("My boat is called Njord.")
    await answered(demo, ada, 1)
    before = len((await ada.screen()).answers)
    await ada.command("compact")
    screen = await ada.sees(lambda screen: len(screen.answers) > before)
    assert not [line for line in screen.answers if "Summarising" in line.text]
    assert await demo.one("SELECT count(*) FROM jobs WHERE kind = 'compact'") == 0


async def test_a_summary_that_takes_its_time_delays_no_message(demo: TelegramHouse, number: int) -> None:
    """No worker runs here, so that the summary is never made."""
    ada = await demo.person(number)
    for turns in range(1, 7):  # the newest four stay as they are
        await ada.say(f"My boat number {turns} is called Njord.")
        await answered(demo, ada, turns)
    await ada.command("compact", "--force")
    await ada.sees("Summarising")
    await ada.say("And my sister is called Ingrid.")
    await ada.sees("Ingrid")
    await answered(demo, ada, 7)
