"""What an operator may switch on: marks in groups, posts of channels, and questions from other chats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kit.fakes.bot_api import USERNAME, Person
from tests.kit.telegram.deployment import MINE, Answers, Deployment

ANSWERS: Answers = {
    "ferry": {"latency": 2.0, "text": "It leaves at noon."},
    "harbour": {"text": "It is in the east."},
    "in bold": {"text": "**Yes**, it does."},
    "for ever": {"latency": 12.0, "text": "Now I know."},
}
EYES = [{"type": "emoji", "emoji": "👀"}]


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {
        "answers": ANSWERS,
        "settings": {f"EVERTALK_TELEGRAM_{name}": "true" for name in ("REACTIONS", "CHANNELS", "INLINE")},
    }


async def changes(person: Person, chat: int, kind: str) -> list[dict[str, Any]]:
    """What came and went on the screen, in its order; of reactions only the bot's."""
    found = await person.views(chat=chat)
    return [one for one in found if one["kind"] == kind and one.get("by") != "person"]


async def test_a_mark_stands_on_a_groups_question_while_the_bot_works(here: Deployment) -> None:
    ada = await here.person()
    family = await here.api.group("Family", ada)
    await ada.sees(lambda screen: len(screen.answers) == 1, chat=family.id)
    await here.house.let_in(family.id)
    await ada.sees("Mention me", chat=family.id)
    await ada.say(f"@{USERNAME} when does the ferry leave?", chat=family.id)
    await ada.sees("It leaves at noon.", chat=family.id)
    async with asyncio.timeout(60):
        while len(marks := await changes(ada, family.id, "reaction")) < 2:
            await asyncio.sleep(0.05)
    assert [one["reaction"] for one in marks] == [EYES, []]
    (answered,) = (one for one in await changes(ada, family.id, "sent") if "noon" in str(one))
    assert marks[0]["number"] < answered["number"] < marks[1]["number"]
    await ada.say("And when does the ferry leave?")
    await ada.sees("It leaves at noon.")
    assert not await here.api.calls("setMessageReaction", chat=ada.id), "in private it is clear"


async def test_channel_posts_to_the_bot_are_answered_in_allowed_channels(here: Deployment) -> None:
    ada = await here.person()
    news = await here.api.group("News", ada, kind="channel", admin=True)
    await here.house.until("SELECT count(*) = 1 FROM telegram_access WHERE chat_id = $1", news.id)
    await ada.say(f"@{USERNAME} where is the harbour?", chat=news.id)
    await here.house.handled()
    await here.house.let_in(news.id)
    await ada.say("Nobody asks about the harbour here.", chat=news.id)
    await ada.say(f"@{USERNAME} where is the harbour, please?", chat=news.id)
    screen = await ada.sees("It is in the east.", chat=news.id)
    assert screen.texts == ["It is in the east."], "no code, no greeting, and nobody else is answered"
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(news.id)) == 1
    words = f"SELECT blocks->0->>'text' FROM entries t {MINE} AND t.author = 'person'"
    assert (await here.house.one(words, str(news.id))).startswith("News: ")


async def test_a_question_from_another_chat_is_a_turn_of_ones_own(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("Where is the harbour?")
    await ada.sees("It is in the east.")
    half, whole = await ada.asks_inline("does it"), await ada.asks_inline("does it float, in bold?")
    offered = await ada.offered(whole)
    assert offered is not None
    (article,) = offered["results"]
    assert (offered["cache_time"], offered["is_personal"]) == (0, True)
    assert article["title"] == "Yes, it does."
    assert article["input_message_content"] == {
        "message_text": "Yes, it does.", "entities": [{"type": "bold", "offset": 0, "length": 3}],
        "link_preview_options": {"is_disabled": True},
    }  # fmt: skip
    screen = await ada.sees("Yes, it does.")
    assert [line.text for line in screen.answers[-2:]] == ["🔎 does it float, in bold?", "Yes, it does."]
    assert await ada.offered(half, within=0.5) is None, "nobody had stopped to type"
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 2
    asked = (await here.prompts(holding="in bold"))[-1]["messages"]
    assert "in three sentences at most" in str(asked[-1])
    assert "harbour" in str(asked), "it is the same conversation"


async def test_reader_without_write_access_gets_a_button_and_private_answer(
    here: Deployment,
) -> None:
    eve = await here.person(allowed=False)
    offered = await eve.offered(await eve.asks_inline("where is the harbour?"))
    assert offered is not None
    assert (offered["results"], offered["button"]["text"]) == ([], "Write to me in a chat of our own first")
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(eve.id)) == 0
    ada = await here.person()
    await ada.say("Where is the harbour?")
    await ada.sees("It is in the east.")
    offered = await ada.offered(await ada.asks_inline("does that last for ever?"))
    assert offered is not None
    assert (offered["results"], offered["button"]["text"]) == ([], "The answer comes in our chat")
    await ada.sees("Now I know.")
