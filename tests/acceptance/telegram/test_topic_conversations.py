"""Private chats with topics: `/new` opens a topic, which is a conversation with a title."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.fakes.bot_api import Person
from tests.kit.telegram.deployment import MINE, Answers, Deployment

ANSWERS: Answers = {
    "Njord": {"text": "A fine name for a boat."},
    "harbour": {"text": "It is in the east."},
}
SESSIONS = f"SELECT count(DISTINCT t.session_id) FROM turns t {MINE}"


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"answers": ANSWERS}


@pytest.fixture(scope="module", autouse=True)
async def bot_has_topics(here: Deployment) -> None:
    await here.api.change_bot(topics=True)
    await here.house.restart()


async def begin(here: Deployment) -> Person:
    """A person who has asked in no topic."""
    ada = await here.person()
    await ada.say("Where is the harbour?")
    await ada.sees("It is in the east.")
    return ada


async def names(here: Deployment, person: Person) -> list[Any]:
    """Names that the bot gave to topics of the person's chat, in their order."""
    made = [*await here.api.calls("createForumTopic", chat=person.id)]
    made += await here.api.calls("editForumTopic", chat=person.id)
    return [call["params"]["name"] for call in made if call["status"] == 200]


async def test_new_opens_a_titled_topic_with_a_conversation(here: Deployment) -> None:
    ada = await begin(here)
    await ada.command("new", "Boats  and *bread*")
    screen = await ada.sees("A new conversation begins here.")
    (thread,) = {line.thread for line in screen.answers} - {None}
    await ada.sees("I opened a new conversation: “Boats and *bread*”.")
    assert await names(here, ada) == ["Boats and *bread*"]
    await ada.say("My boat is called Njord.", thread=thread)
    screen = await ada.sees("A fine name for a boat.")
    assert screen.answers[-1].thread == thread
    (asked,) = await here.prompts(holding="called Njord")
    assert "harbour" not in str(asked["messages"])
    assert await here.house.one(SESSIONS, str(ada.id)) == 2


async def test_untitled_topic_is_named_after_its_first_question(here: Deployment) -> None:
    ada = await begin(here)
    await ada.command("new")
    screen = await ada.sees("A new conversation begins here.")
    (thread,) = {line.thread for line in screen.answers} - {None}
    await ada.say("My boat is called Njord.", thread=thread)
    await ada.sees("A fine name for a boat.")
    await here.house.handled()
    await ada.say("And Njord, again?", thread=thread)
    await here.answered(ada.id, 3)
    assert await names(here, ada) == ["New conversation", "My boat is called Njord."]


async def test_topic_takes_over_the_language_of_its_chat(here: Deployment) -> None:
    ada = await here.person(language_code="de")
    await ada.command("new", "Boote")
    await ada.sees("Hier beginnt ein neues Gespräch.")


async def test_new_cuts_the_conversation_where_topics_are_refused(here: Deployment) -> None:
    ada = await begin(here)
    await here.api.fail(
        "createForumTopic", match={"chat": ada.id}, status=400, description="Bad Request: not a forum"
    )
    await ada.command("new", "Boats")
    await here.house.handled()
    await here.house.until(
        "SELECT count(*) = 1 FROM compactions l JOIN addresses a USING (session_id) WHERE a.chat = $1",
        str(ada.id),
    )
    assert await names(here, ada) == []


async def test_lost_reply_opens_no_second_topic(here: Deployment) -> None:
    ada = await begin(here)
    await here.api.fail("createForumTopic", match={"chat": ada.id}, reset="after")
    await ada.command("new", "Boats")
    await ada.sees("That did not work just now.")
    assert len(await here.api.calls("createForumTopic", chat=ada.id)) == 1
