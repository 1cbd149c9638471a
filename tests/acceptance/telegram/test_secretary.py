"""Business accounts: drafts for their owners, who send, change or drop them; nothing goes out by itself."""

from __future__ import annotations

import asyncio
import base64
from itertools import count
from typing import Any

import pytest

from shared.adapters.postgres.dashboard.read_models import Insights
from shared.adapters.postgres.db.pool import open_pool
from shared.bootstrap.app import open_app
from shared.config.settings import load_settings
from tests.kit.fakes.bot_api import Person
from tests.kit.fakes.bot_api.sight import Line
from tests.kit.telegram.deployment import Answers, Deployment, deployment, has_button

ANSWERS: Answers = {  # the first that a whole request holds
    "tide": {"text": "At six, in the evening."},
    "ferry": {"text": "It **leaves** at noon."},
    "museum": {"latency": 2.0, "text": "It opens at ten."},
}
DRAFTS = {"EVERTALK_TELEGRAM_SECRETARY": "drafts"}
STATES = """
SELECT array_agg(state ORDER BY draft_id) FROM secretary_drafts WHERE owner_id = $1
"""
_numbers = count(70_000)


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"answers": ANSWERS, "settings": DRAFTS}


@pytest.fixture(scope="module", autouse=True)
async def bot_takes_business(here: Deployment) -> None:
    await here.api.change_bot(business=True)


async def customer(here: Deployment, name: str = "Cara") -> Person:
    """A person who has no access to the bot."""
    return await here.house.person(next(_numbers), allowed=False, first_name=name)


async def owner(here: Deployment, *, can_reply: bool = True, **told: Any) -> Person:
    """A person with access whose business account is connected."""
    person = await here.house.person(next(_numbers), first_name="Olga", **told)
    await person.connects_business(can_reply=can_reply)
    return person


async def draft(owner: Person, text: str) -> Line:
    """The newest message of the owner's chat with this text and the button Send."""
    screen = await owner.sees(
        lambda seen: any(text in line.text and "Send" in line.buttons for line in seen.answers)
    )
    return [line for line in screen.answers if text in line.text and "Send" in line.buttons][-1]


async def question_for_text(owner: Person) -> Line:
    """The bot's question for the owner's own text, once the owner sees it."""
    screen = await owner.sees("Reply to this message with the text that I shall send to Cara")
    (question,) = [line for line in screen.answers if "Reply to this message" in line.text]
    return question


async def sent(owner: Person, customer: Person) -> list[str]:
    """Texts that the bot has sent to the customer for the owner."""
    return [one["text"] for one in await owner.business_chat(customer) if one["by_bot"]]


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def erase(here: Deployment, session_id: int) -> None:
    """As an operator does it on the person's page."""
    settings = load_settings(
        database_url=here.house.database_url, redis_url=here.house.redis_url,
        data_dir=here.house.settings["EVERTALK_DATA_DIR"],
    )  # fmt: skip
    app = await open_app(settings, role="web")
    try:
        assert (await app.erasure.erase_everything(session_id, "operator")).finished
    finally:
        await app.close()


async def test_draft_is_sent_when_its_owner_presses_send(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await olga.sees("I am connected to your business account")
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "It leaves at noon.")
    assert shown.text.startswith("Cara wrote:\n\nWhen does the ferry leave?\n\nMy draft:")
    assert await sent(olga, cara) == []
    await olga.tap("Send", message_id=shown.message_id)
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["It leaves at noon."]
    assert await here.house.one(STATES, olga.id) == ["sent"]


async def test_second_press_sends_nothing_more(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    await asyncio.gather(*(olga.tap("Send", message_id=shown.message_id) for _ in range(5)))
    await olga.sees("Sent.")
    data = shown.raw["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    await olga.forge_tap(shown.message_id, data)  # a second device that has not seen it yet
    await here.house.handled()
    assert await sent(olga, cara) == ["It leaves at noon."]


async def test_dropped_draft_is_never_sent_nor_taken_for_said(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    await olga.tap("Drop")
    await olga.sees("Dropped. Nothing was sent.")
    await cara.writes_to_owner(olga, "And the tide, then?")
    await draft(olga, "At six")
    (asked,) = await here.prompts(holding="And the tide, then?")
    assert "When does the ferry leave?" in str(asked["messages"])
    assert "noon" not in str(asked["messages"])
    assert await sent(olga, cara) == []


async def test_owners_own_text_is_sent_in_place_of_the_draft(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    await olga.tap("Change")
    question = await question_for_text(olga)
    await olga.say("At one, since the wind is strong.", reply_to=question.message_id)
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["At one, since the wind is strong."]
    await cara.writes_to_owner(olga, "Thanks! And the next tide?")
    await draft(olga, "At six")
    (asked_again,) = await here.prompts(holding="And the next tide?")
    assert "since the wind is strong" in str(asked_again["messages"])
    assert "It **leaves** at noon" not in str(asked_again["messages"])
    assert await here.prompts(holding='since the wind is strong."') == [], "it is no question to the bot"


async def test_own_text_after_the_press_of_send_is_reported_as_unsent(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    await olga.tap("Change")
    question = await question_for_text(olga)
    await olga.tap("Send", message_id=shown.message_id)
    await olga.say("At one, since the wind is strong.", reply_to=question.message_id)
    await olga.sees("Your text was not sent: another text was approved before it.")
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["It leaves at noon."]


async def test_cancelled_change_keeps_the_draft(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    await olga.tap("Change")
    question = await question_for_text(olga)
    await olga.tap("Cancel")
    await olga.sees("Cancelled.")
    await olga.say("Never mind the tide.", reply_to=question.message_id)
    await olga.sees("At six, in the evening.")  # an ordinary message of the owner to the bot
    assert await sent(olga, cara) == []
    await olga.tap("Send", message_id=shown.message_id)
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["It leaves at noon."]


@pytest.fixture
async def slow_question(here: Deployment) -> None:
    """Delay Telegram's answer to the bot by three seconds after the owner has seen the question."""
    await here.api.fail("sendMessage", match={"contains": "Reply to this message"}, stall_after=3)


@pytest.mark.usefixtures("slow_question")
async def test_change_cancelled_while_its_question_is_sent_stays_cancelled(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    await olga.tap("Change")
    question = await question_for_text(olga)
    await olga.tap("Cancel")
    await olga.sees("Cancelled.")
    await olga.say("Never mind the tide.", reply_to=question.message_id)
    await olga.sees("At six, in the evening.")
    assert await sent(olga, cara) == []


@pytest.mark.usefixtures("slow_question")
async def test_own_text_given_while_its_question_is_sent_is_sent(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    await olga.tap("Change")
    question = await question_for_text(olga)
    await olga.say("At one, since the wind is strong.", reply_to=question.message_id)
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["At one, since the wind is strong."]


async def test_newer_message_outdates_a_draft_and_the_next_takes_both(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    first = await draft(olga, "noon")
    data = first.raw["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    await cara.writes_to_owner(olga, "And the tide?")
    second = await draft(olga, "At six")
    assert "When does the ferry leave?\n\nAnd the tide?" in second.text
    await olga.sees("Outdated: the chat has gone on.")
    await olga.forge_tap(first.message_id, data)
    await here.house.handled()
    assert await sent(olga, cara) == []
    await olga.tap("Send", message_id=second.message_id)
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["At six, in the evening."]


async def test_message_during_an_answer_is_answered_as_if_nothing_was_said(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the museum open?")
    await here.house.until(
        "SELECT count(*) = 1 FROM turns t JOIN addresses a ON a.id = t.address_id"
        " WHERE a.chat = $1 AND t.state = 'claimed'", f"{olga.id}:{cara.id}",
    )  # fmt: skip
    await cara.writes_to_owner(olga, "And the tide of tonight?")
    await draft(olga, "At six")
    (asked,) = await here.prompts(holding="tide of tonight")
    assert "opens at ten" not in str(asked["messages"])
    assert await here.house.one(STATES, olga.id) == ["outdated", "shown"]


async def test_owner_who_writes_first_outdates_the_draft_and_is_remembered(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    await olga.writes_to_customer(cara, "At two today, dear Cara.")
    await olga.sees("Outdated: the chat has gone on.")
    await cara.writes_to_owner(olga, "And the tide after that?")
    await draft(olga, "At six")
    (asked,) = await here.prompts(holding="tide after that")
    assert "At two today, dear Cara." in str(asked["messages"])
    assert "noon" not in str(asked["messages"])
    owners = await here.house.one(
        "SELECT count(*) FROM turns t JOIN addresses a ON a.id = t.address_id WHERE a.chat = $1",
        f"{olga.id}:{cara.id}",
    )
    assert owners == 3, "no turn of its own answers the owner"


async def test_facts_of_a_customer_reach_neither_others_nor_the_owner(here: Deployment) -> None:
    olga, cara, dan = await owner(here), await customer(here), await customer(here, "Dan")
    await cara.writes_to_owner(olga, "My secret word is kingfisher: when does the ferry leave?")
    await draft(olga, "noon")
    await dan.writes_to_owner(olga, "Dan here: when is the tide?")
    await draft(olga, "At six")
    await olga.say("The owner asks: when is the tide?")
    await olga.sees(lambda seen: any(line.text == "At six, in the evening." for line in seen.answers))
    await cara.say("Cara herself asks the bot of the tide.")  # she has no access of her own
    for words in ("Dan here", "The owner asks"):
        (asked,) = await here.prompts(holding=words)
        assert "kingfisher" not in str(asked)
    (of_cara,) = await here.prompts(holding="kingfisher")
    assert "Dan here" not in str(of_cara)
    assert "You write for Olga, to whom Cara sent this message" in str(of_cara["messages"][-1])
    tools = {tool["name"] for tool in of_cara.get("tools", ())}
    assert not tools & {"remind_me", "send_file", "ask_human", "make_picture"}


async def test_command_of_a_customer_is_a_plain_text(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "/memory of the ferry")
    shown = await draft(olga, "noon")
    assert "/memory of the ferry" in shown.text


async def test_removed_connection_closes_drafts_and_sends_nothing(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    data = shown.raw["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    await olga.changes_business(enabled=False)
    await olga.sees("Closed: I am no longer connected to your business account.")
    await olga.sees("The drafts that waited are closed.")
    await olga.forge_tap(shown.message_id, data)
    await here.house.handled()
    assert await sent(olga, cara) == []
    assert await here.house.one(STATES, olga.id) == ["closed"]


async def test_draft_without_the_right_to_reply_says_so(here: Deployment) -> None:
    olga, cara = await owner(here, can_reply=False), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    assert "I may not answer your customers." in shown.text
    await olga.tap("Send", message_id=shown.message_id)
    await here.house.handled()
    assert await sent(olga, cara) == []
    await olga.changes_business(can_reply=True)
    await olga.sees("I am connected to your business account")
    await olga.tap("Send", message_id=shown.message_id)
    await olga.sees("Sent.")
    assert await sent(olga, cara) == ["It leaves at noon."]


async def test_refused_draft_is_reported_to_owner_and_listed_as_problem(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    await here.api.fail(
        "sendMessage", match={"chat": cara.id}, status=400, description="Bad Request: BUSINESS_PEER_INVALID"
    )
    await olga.tap("Send", message_id=shown.message_id)
    await olga.sees("Telegram refused it. Nothing was sent. Bad Request: BUSINESS_PEER_INVALID")
    assert await here.house.one(STATES, olga.id) == ["refused"]
    problem = "SELECT d.error FROM deliveries d JOIN addresses a ON a.id = d.address_id WHERE a.chat = $1"
    assert "BUSINESS_PEER_INVALID" in await here.house.one(problem, f"{olga.id}:{cara.id}")


async def test_lost_reply_leaves_it_to_the_owner_to_send_again(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    await here.api.fail("sendMessage", match={"chat": cara.id}, reset="after")
    await olga.tap("Send", message_id=shown.message_id)
    await olga.sees(has_button("Send again"))
    assert len(await sent(olga, cara)) == 1
    assert await here.house.one(STATES, olga.id) == ["uncertain"]
    await olga.tap("Send again")
    await olga.sees("Sent.")
    assert len(await sent(olga, cara)) == 2, "the owner asked for it"


async def test_message_of_yesterday_gets_an_expired_draft(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?", age=25 * 3_600)
    await here.house.handled()
    await here.house.until("SELECT count(*) = 1 FROM secretary_drafts WHERE owner_id = $1"
                           " AND state = 'expired'", olga.id)  # fmt: skip
    assert await sent(olga, cara) == []


async def test_edited_question_gets_a_new_draft(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    question = await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    await cara.edits_to_owner(olga, question, "When is the tide, I mean?")
    await draft(olga, "At six")
    (asked,) = await here.prompts(holding="the tide, I mean")
    assert "ferry" not in str(asked["messages"])
    assert "noon" not in str(asked["messages"])


async def test_deleted_question_leaves_no_word_behind(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    question = await cara.writes_to_owner(olga, "When does the ferry leave? I am a canary.")
    await draft(olga, "noon")
    await cara.deletes_to_owner(olga, question)
    await olga.sees("Outdated: the chat has gone on.")
    await here.house.handled()
    words = "SELECT string_agg(coalesce(words, '') || coalesce(blocks::text, ''), ' ') FROM entry_rows"
    assert "canary" not in await here.house.one(words)
    assert "canary" not in await here.house.one("SELECT string_agg(body::text, ' ') FROM telegram_updates")


async def test_buttons_speak_the_language_of_the_owner(here: Deployment) -> None:
    olga, cara = await owner(here, language_code="de"), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    screen = await olga.sees("noon")
    (shown,) = [line for line in screen.answers if "noon" in line.text]
    assert [*shown.buttons] == ["Senden", "Ändern", "Verwerfen"]


async def test_button_of_another_owner_decides_nothing(here: Deployment) -> None:
    olga, eve, cara = await owner(here), await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    shown = await draft(olga, "noon")
    data = shown.raw["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    screen = await eve.sees("I am connected")
    await eve.forge_tap(screen.answers[-1].message_id, data)
    await here.house.handled()
    assert await sent(olga, cara) == []
    assert await here.house.one(STATES, olga.id) == ["shown"]


async def test_stranger_who_connects_the_bot_gets_a_refusal_and_no_drafts(here: Deployment) -> None:
    eve = await here.house.person(next(_numbers), allowed=False)
    await eve.connects_business()
    await eve.sees("I may not talk with you here")
    cara = await customer(here)
    await cara.writes_to_owner(eve, "When does the ferry leave?")
    await here.house.handled()
    turns = "SELECT count(*) FROM addresses WHERE chat = $1"
    assert await here.house.one(turns, f"{eve.id}:{cara.id}") == 0


async def test_session_page_names_the_owner_of_a_customers_chat(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    await cara.writes_to_owner(olga, "When does the ferry leave?")
    await draft(olga, "noon")
    public_id = await here.house.one(
        "SELECT s.public_id FROM sessions s JOIN addresses a ON a.session_id = s.id WHERE a.chat = $1",
        f"{olga.id}:{cara.id}",
    )
    pool = await open_pool(here.house.database_url, size=1)
    try:
        session = await Insights(pool).load_session(public_id)
    finally:
        await pool.close()
    assert session is not None
    assert (session["channel"], session["for_owner"]) == ("telegram", "Olga")


async def test_erased_customer_leaves_no_draft_behind(here: Deployment) -> None:
    olga, cara, dan = await owner(here), await customer(here), await customer(here, "Dan")
    await dan.writes_to_owner(olga, "Dan asks of the ferry.")
    await draft(olga, "Dan asks")
    await cara.writes_to_owner(olga, "Does the ferry carry a goldfinch?")
    shown = await draft(olga, "goldfinch")
    session = await here.house.one("SELECT session_id FROM addresses WHERE chat = $1", f"{olga.id}:{cara.id}")
    await erase(here, session)
    left = await here.house.one("SELECT string_agg(body::text, ' ') FROM telegram_updates")
    assert "goldfinch" not in left
    assert "Dan asks of the ferry" in left
    await olga.tap("Send", message_id=shown.message_id)
    await here.house.handled()
    assert await sent(olga, cara) == []
    assert await here.house.one(STATES, olga.id) == ["shown"], "the other customer's draft stays"


async def test_file_is_read_and_a_recording_is_named_to_the_owner(here: Deployment) -> None:
    olga, cara = await owner(here), await customer(here)
    note = {"name": "list.txt", "media_type": "text/plain", "content": encoded(b"three ferry tickets")}
    await cara.writes_to_owner(olga, file=note)
    await draft(olga, "noon")
    (asked,) = await here.prompts(holding="three ferry tickets")
    assert "list.txt" in str(asked["messages"][-1])
    voice = {"name": "voice.oga", "media_type": "audio/ogg", "folder": "voice", "content": encoded(b"ogg")}
    await cara.writes_to_owner(olga, file=voice)
    await olga.sees("I could not read everything that Cara sent.")


async def test_operator_lets_listed_customers_be_answered_without_approval(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    listed = {
        **DRAFTS, "EVERTALK_TELEGRAM_SECRETARY_CHATS": "listed",
        "EVERTALK_TELEGRAM_SECRETARY_LIST": "69001, 69002", "EVERTALK_TELEGRAM_SECRETARY_AUTO": "69002",
    }  # fmt: skip
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=listed) as here:
        await here.api.change_bot(business=True)
        olga = await owner(here)
        cara, dan, eve = [
            await here.house.person(number, allowed=False, first_name=name)
            for number, name in ((69001, "Cara"), (69002, "Dan"), (69003, "Eve"))
        ]
        for one in (cara, dan, eve):
            await one.writes_to_owner(olga, "When does the ferry leave?")
        await draft(olga, "Cara wrote:")
        await here.house.until("SELECT count(*) = 1 FROM secretary_drafts WHERE state = 'sent'")
        assert await sent(olga, dan) == ["It leaves at noon."]
        assert await sent(olga, cara) == []
        await here.house.handled()
        drafts = "SELECT array_agg(chat_id ORDER BY chat_id) FROM secretary_drafts"
        assert await here.house.one(drafts) == [69001, 69002], "of Eve nothing is even stored"


async def test_automatic_answers_wait_for_approval_without_the_right(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    auto = {"EVERTALK_TELEGRAM_SECRETARY": "auto"}
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=auto) as here:
        await here.api.change_bot(business=True)
        olga, cara = await owner(here, can_reply=False), await customer(here)
        await cara.writes_to_owner(olga, "When does the ferry leave?")
        await draft(olga, "I may not answer your customers.")
        await olga.changes_business(can_reply=True)
        await olga.sees("I answer your customers in your name without asking.")
        await cara.writes_to_owner(olga, "And the tide?")
        await here.house.until("SELECT count(*) = 1 FROM secretary_drafts WHERE state = 'sent'")
        assert await sent(olga, cara) == ["At six, in the evening."]


async def test_customers_stop_at_their_own_cap_while_the_owner_goes_on(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    poor = {**DRAFTS, "EVERTALK_CAP_CUSTOMER_PER_DAY_USD": "0.001"}
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=poor) as here:
        await here.api.change_bot(business=True)
        olga, cara = await owner(here), await customer(here)
        await cara.writes_to_owner(olga, "When does the ferry leave?")
        await olga.sees("I could not write a draft.")
        await cara.writes_to_owner(olga, "When does the ferry leave, please?")
        await here.house.until("SELECT count(*) = 2 FROM secretary_drafts WHERE state = 'failed'")
        screen = await olga.screen()
        told = [line for line in screen.answers if "I could not write a draft." in line.text]
        assert len(told) == 1, "one line an hour"
        await olga.say("When does the ferry leave?")
        await olga.sees("It leaves at noon.")


@pytest.mark.parametrize(("settings", "asks"), [
    ({}, False), (DRAFTS, True), ({**DRAFTS, "EVERTALK_TELEGRAM_AUDIENCE": "public"}, False),
])  # fmt: skip
async def test_business_updates_are_subscribed_only_where_drafts_are_on(
    settings: dict[str, str], asks: bool, database_url: str, redis_url: str, tmp_path: Any
) -> None:
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=settings) as here:
        async with asyncio.timeout(60):
            while not (allowed := (await here.api.bot())["allowed_updates"]):
                await asyncio.sleep(0.05)
        assert ("business_message" in allowed) is asks
        assert ("business_connection" in allowed) is asks
