"""Questions from chats where the bot is no member: answered once, within nine seconds or by an edit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bootstrap.app import open_app
from shared.config.settings import load_settings
from tests.kit.deployment.processes import CRASHED
from tests.kit.fakes.bot_api import USERNAME, Person
from tests.kit.fakes.bot_api.guests import GUEST_SECONDS
from tests.kit.telegram.deployment import Answers, Deployment, deployment

ANSWERS: Answers = {
    "ferry": {"text": "It **leaves** at noon."},
    "tide": {"latency": 10.0, "text": "At six, in the *evening*."},
    "lighthouse": {"latency": 3.0, "text": "It is white."},
    "endless": {"text": "word " * 2_000},
}
HOLDING = "One moment, I am writing the answer …"
STATES = "SELECT array_agg(state ORDER BY update_id) FROM guest_queries WHERE caller_id = $1"
OPEN = "SELECT count(*) = 0 FROM guest_queries WHERE state IN ('waiting', 'sending', 'shown')"
TURNS = """
SELECT count(*) FROM turns t JOIN addresses a ON a.id = t.address_id
 WHERE a.channel = 'telegram_guest' AND a.chat LIKE '%:' || $1::text
"""


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"answers": ANSWERS}


@pytest.fixture(scope="module", autouse=True)
async def bot_takes_guests(here: Deployment) -> None:
    await here.api.change_bot(guests=True)


async def strangers(here: Deployment, person: Person) -> int:
    """A group of the person in which the bot is no member."""
    return int((await here.api.group("Strangers", person, bots=())).id)


async def ask(person: Person, text: str, **where: Any) -> str:
    return await person.asks_guest(f"@{USERNAME} {text}", **where)


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


async def test_mention_is_answered_in_a_chat_without_the_bot(here: Deployment) -> None:
    ada = await here.person()
    query = await ask(ada, "when does the ferry leave?", chat=await strangers(here, ada))
    seen = await ada.guest_views(query)
    assert seen["views"] == [
        {"text": "It leaves at noon.", "entities": [{"type": "bold", "offset": 3, "length": 6}]}
    ]
    assert seen["seconds"][0] < GUEST_SECONDS
    await here.house.until(OPEN)
    assert await here.house.one(STATES, ada.id) == ["done"]
    states = """SELECT array_agg(d.state) FROM deliveries d JOIN addresses a ON a.id = d.address_id
                 WHERE a.chat LIKE $1"""
    assert await here.house.one(states, f"%:{ada.id}") == ["delivered"]


async def test_slow_answer_replaces_a_line_that_held_its_place(here: Deployment) -> None:
    ada = await here.person()
    query = await ask(ada, "when is the tide?", chat=await strangers(here, ada))
    seen = await ada.guest_views(query, 2)
    assert [view["text"] for view in seen["views"]] == [HOLDING, "At six, in the evening."]
    assert seen["seconds"][0] < GUEST_SECONDS
    await here.house.until(OPEN)


async def test_guest_conversation_knows_nothing_of_the_private_one(here: Deployment) -> None:
    ada, bob = await here.person(), await here.person()
    await ada.say("My secret word is kingfisher, and when does the ferry leave?")
    await ada.sees("It leaves at noon.")
    first = await ask(ada, "is the ferry late today, my friend?", beside=bob.id)
    await ada.guest_views(first)
    # The chat with Bob has Bob's number for Ada, as Bob's own chat with the bot has.
    await bob.say("Is the ferry late, as Bob asks?")
    await bob.sees("It leaves at noon.")
    second = await ask(ada, "and the ferry of tomorrow?", beside=bob.id)
    await ada.guest_views(second)
    (asked,) = await here.prompts(holding="ferry of tomorrow")
    assert "late today, my friend" in str(asked["messages"]), "it is the same guest conversation"
    assert "kingfisher" not in str(asked)
    assert "as Bob asks" not in str(asked)
    assert "You are a guest in this chat" in str(asked["system"])
    assert "in the language of the question" in str(asked["system"])
    assert "You are a guest" not in str(asked["messages"]), "it is told once, in the cached prefix"
    tools = {tool["name"] for tool in asked.get("tools", ())}
    assert not tools & {"remind_me", "send_file", "ask_human", "make_picture"}
    (private,) = await here.prompts(holding="as Bob asks")
    assert "my friend" not in str(private)
    assert "You are a guest" not in str(private)


async def test_two_callers_in_one_chat_have_conversations_of_their_own(here: Deployment) -> None:
    ada, bob = await here.person(), await here.person()
    chat = int((await here.api.group("Both", ada, members=(bob,), bots=())).id)
    await ada.guest_views(await ask(ada, "I am Ada: does the ferry leave?", chat=chat))
    await bob.guest_views(await ask(bob, "does the ferry leave on Bob's day?", chat=chat))
    (asked,) = await here.prompts(holding="on Bob's day")
    assert "I am Ada" not in str(asked)


async def test_long_answer_is_cut_to_one_message(here: Deployment) -> None:
    ada = await here.person()
    seen = await ada.guest_views(await ask(ada, "an endless story", chat=await strangers(here, ada)))
    (view,) = seen["views"]
    assert view["text"].endswith("\n\n…")
    assert 3_000 < len(view["text"]) <= 4_096


async def test_stranger_gets_one_refusal_a_minute_and_no_turn(here: Deployment) -> None:
    eve = await here.person(allowed=False)
    chat = await strangers(here, eve)
    seen = await eve.guest_views(await ask(eve, "when does the ferry leave?", chat=chat))
    assert "I may not talk with you here" in seen["views"][0]["text"]
    second = await ask(eve, "when does the ferry leave?", chat=chat)
    await here.house.handled()
    await here.house.until(OPEN)
    assert (await eve.guest_views(second, 0))["views"] == []
    assert await here.house.one(TURNS, str(eve.id)) == 0


async def test_refused_person_gets_no_answer_at_all(here: Deployment) -> None:
    eve = await here.person(allowed=False)
    await here.house.refuse(eve.id)
    query = await ask(eve, "when does the ferry leave?", chat=await strangers(here, eve))
    await here.house.handled()
    assert (await eve.guest_views(query, 0))["views"] == []
    assert await here.house.one(STATES, eve.id) is None


async def test_expired_question_is_not_asked_again(here: Deployment) -> None:
    ada = await here.person()
    query = await ask(ada, "when does the ferry leave?", chat=await strangers(here, ada), age=90)
    await here.house.handled()
    assert (await ada.guest_views(query, 0))["views"] == []
    assert await here.house.one(TURNS, str(ada.id)) == 0


async def test_late_question_that_telegram_gave_up_ends_as_lost(here: Deployment) -> None:
    ada = await here.person()
    query = await ask(ada, "when does the ferry leave?", chat=await strangers(here, ada), age=30)
    await here.house.handled()
    await here.house.until(
        "SELECT count(*) = 1 FROM guest_queries WHERE caller_id = $1 AND state = 'lost'", ada.id
    )
    assert (await ada.guest_views(query, 0))["views"] == []
    assert "too old" in await here.house.one("SELECT error FROM guest_queries WHERE caller_id = $1", ada.id)


async def test_questions_that_share_a_turn_get_one_answer(here: Deployment) -> None:
    ada = await here.person()
    chat = await strangers(here, ada)
    slow = await ask(ada, "where is the lighthouse?", chat=chat)
    await here.house.until("SELECT count(*) = 1 FROM turns t JOIN addresses a ON a.id = t.address_id"
                           " WHERE a.chat LIKE $1 AND t.state = 'claimed'", f"%:{ada.id}")  # fmt: skip
    earlier = await ask(ada, "and the ferry, when?", chat=chat)
    later = await ask(ada, "the ferry of Sunday, I mean", chat=chat)
    assert [one["text"] for one in (await ada.guest_views(slow))["views"]] == ["It is white."]
    texts = [(await ada.guest_views(query))["views"][0]["text"] for query in (earlier, later)]
    assert texts == ["Answered together with your next question.", "It leaves at noon."]
    await here.house.until(OPEN)


async def test_formatting_that_telegram_refuses_is_left_out(here: Deployment) -> None:
    ada = await here.person()
    await here.api.fail("answerGuestQuery", status=400, description="Bad Request: can't parse entities: no")
    seen = await ada.guest_views(
        await ask(ada, "when does the ferry leave?", chat=await strangers(here, ada))
    )
    assert seen["views"] == [{"text": "It leaves at noon."}]


async def test_forgotten_guest_leaves_no_question_behind(here: Deployment) -> None:
    """The raw update, the query and the contact's words go; the other chats of the same number stay."""
    ada, bob = await here.person(), await here.person()
    await bob.say("Bob asks of the ferry in his own chat.")
    await bob.sees("It leaves at noon.")
    await ada.guest_views(await ask(ada, "does the ferry carry a canary?", beside=bob.id))
    await here.house.until(OPEN)
    bodies = "SELECT string_agg(body::text, ' ') FROM telegram_updates"
    assert "canary" in await here.house.one(bodies)
    session = await here.house.one("SELECT session_id FROM addresses WHERE chat = $1", f"{bob.id}:{ada.id}")
    await erase(here, session)
    left = await here.house.one(bodies)
    assert "canary" not in left
    assert "Bob asks of the ferry" in left
    assert await here.house.one(STATES, ada.id) is None


async def test_caller_above_the_hourly_number_gets_one_notice(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    few = {"EVERTALK_TELEGRAM_GUEST_QUESTIONS": "1"}
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=few) as here:
        await here.api.change_bot(guests=True)
        ada = await here.person()
        chat = await strangers(here, ada)
        await ada.guest_views(await ask(ada, "when does the ferry leave?", chat=chat))
        second = await ask(ada, "when does the ferry leave?", chat=chat)
        assert "a lot within an hour" in (await ada.guest_views(second))["views"][0]["text"]
        assert await here.house.one(TURNS, str(ada.id)) == 1


async def test_guests_stop_at_their_own_cap_while_the_owner_goes_on(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    poor = {"EVERTALK_CAP_GUESTS_PER_DAY_USD": "0.001"}
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=poor) as here:
        await here.api.change_bot(guests=True)
        ada = await here.person()
        query = await ask(ada, "when does the ferry leave?", chat=await strangers(here, ada))
        (view,) = (await ada.guest_views(query))["views"]
        assert "noon" not in view["text"]
        assert "$" not in view["text"], "a stranger learns no figures"
        scopes = "SELECT array_agg(scope) FROM spend_days WHERE scope LIKE 'network:%'"
        assert await here.house.one(scopes) in (None, ["network:guests"])
        await ada.say("When does the ferry leave?")
        await ada.sees("It leaves at noon.")


@pytest.mark.parametrize(("audience", "setting", "asks"), [
    ("public", "", False), ("public", "anyone", True), ("personal", "", True), ("personal", "off", False),
])  # fmt: skip
async def test_guests_are_answered_as_audience_and_setting_say(
    audience: str, setting: str, asks: bool, database_url: str, redis_url: str, tmp_path: Any
) -> None:
    settings = {"EVERTALK_TELEGRAM_AUDIENCE": audience}
    if setting:
        settings["EVERTALK_TELEGRAM_GUESTS"] = setting
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=settings) as here:
        await here.api.change_bot(guests=True)
        await here.house.restart()
        async with asyncio.timeout(60):
            while not (allowed := (await here.api.bot())["allowed_updates"]):
                await asyncio.sleep(0.05)
        assert ("guest_message" in allowed) is asks
        if setting == "anyone":
            eve = await here.person(allowed=False)
            query = await ask(eve, "when does the ferry leave?", chat=await strangers(here, eve))
            assert (await eve.guest_views(query))["views"][0]["text"] == "It leaves at noon."


@pytest.mark.parametrize(("point", "views"), [
    ("telegram_before_guest", []),
    ("telegram_after_guest", ["It leaves at noon."]),
    ("after_accept", ["It leaves at noon."]),
    ("after_answer", ["It leaves at noon."]),
])  # fmt: skip
async def test_answer_is_not_sent_twice_after_a_crash(
    point: str, views: list[str], database_url: str, redis_url: str, tmp_path: Any
) -> None:
    """Before the call nobody can know whether Telegram has it: the answer is kept, and not sent again."""
    async with deployment(ANSWERS, database_url, redis_url, tmp_path) as here:
        await here.api.change_bot(guests=True)
        ada = await here.person()
        await here.house.restart(EVERTALK_CRASH_POINT=point)
        query = await ask(ada, "when does the ferry leave?", chat=await strangers(here, ada))
        assert await here.house.bot.ended() == CRASHED
        await here.house.start()
        await here.house.handled()
        await here.house.until(OPEN)
        seen = [view["text"] for view in (await ada.guest_views(query, len(views)))["views"]]
        # A machine that is slow to start the bot lets it say first that the answer is being written.
        assert [text for text in seen if text != HOLDING] == views
        assert await here.house.one(TURNS, str(ada.id)) == 1


async def test_five_hundred_questions_earn_no_rate_limit(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    """Fifteen a second from fifty people in as many chats, under Telegram's enforced limits."""
    lots = {"EVERTALK_TELEGRAM_GUEST_QUESTIONS": "1000", "EVERTALK_CAP_GUESTS_PER_DAY_USD": "1000"}
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=lots) as here:
        await here.api.change_bot(guests=True)
        await here.api.set_limits()
        people = [await here.person() for _ in range(50)]
        chats = [[await strangers(here, one) for _ in range(2)] for one in people]
        queries: list[tuple[Person, str]] = []
        for number in range(500):
            one = people[number % 50]
            queries.append(
                (one, await ask(one, "when does the ferry leave?", chat=chats[number % 50][number % 2]))
            )
            await asyncio.sleep(1 / 15)
        await here.house.handled()
        await here.house.until(OPEN, seconds=120)
        seen = [await one.guest_views(query) for one, query in queries]
        texts = [[view["text"] for view in each["views"]] for each in seen]
        assert sum(each[-1] == "It leaves at noon." for each in texts) == 500
        assert all(len(each) <= 2 for each in texts), "one answer each"
        assert max(each["seconds"][0] for each in seen) < GUEST_SECONDS
        assert [call["method"] for call in await here.api.calls() if call["status"] == 429] == []
