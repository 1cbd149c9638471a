"""Calls that Telegram does not answer or puts off: nothing of that is told as a refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kit.fakes.bot_api import USERNAME, Group, Person
from tests.kit.telegram.deployment import MINE, Answers, Deployment

ANSWERS: Answers = {"our boat": {"text": "Njord is a fine name."}}
STICKER = {
    "file_id": "s1", "file_unique_id": "u1", "type": "regular", "width": 512, "height": 512,
    "is_animated": False, "is_video": False, "emoji": "👍",
}  # fmt: skip


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"answers": ANSWERS}


async def crew(here: Deployment) -> tuple[Person, Group, int]:
    """Return an administrator, their group, and a message of theirs that can be pinned."""
    ada = await here.person()
    group = await here.api.group("Crew", ada)
    await here.house.let_in(group.id)
    said = await ada.say(f"@{USERNAME} our boat is Njord.", chat=group.id)
    await ada.sees("Njord is a fine name", chat=group.id)
    return ada, group, said.message_id


async def test_administrator_runs_a_command_when_lookup_was_rate_limited(here: Deployment) -> None:
    ada, group, message = await crew(here)
    await here.api.fail("getChatMember", match={"chat": group.id}, status=429, retry_after=2)
    await ada.command("pin", chat=group.id, reply_to=message)
    await here.house.until(f"SELECT count(*) = 1 FROM pins t {MINE}", str(group.id))
    screen = await ada.screen(chat=group.id)
    assert not [text for text in screen.texts if "administrators" in text]


async def test_command_asks_to_try_again_when_telegram_names_no_role(here: Deployment) -> None:
    ada, group, message = await crew(here)
    await here.api.fail("getChatMember", times=-1, match={"chat": group.id}, status=502, html=True)
    await ada.command("pin", chat=group.id, reply_to=message)
    screen = await ada.sees("did not work just now", chat=group.id, within=60)
    assert not [text for text in screen.texts if "administrators" in text]
    assert await here.house.one(f"SELECT count(*) FROM pins t {MINE}", str(group.id)) == 0


async def test_sticker_gets_its_reaction_after_a_rate_limit(here: Deployment) -> None:
    ada = await here.person()
    await here.api.fail("setMessageReaction", match={"chat": ada.id}, status=429, retry_after=7)
    await ada.send_content({"sticker": STICKER})
    async with asyncio.timeout(60):
        while 200 not in [one["status"] for one in await here.api.calls("setMessageReaction", chat=ada.id)]:
            await asyncio.sleep(0.1)
    assert not await here.api.calls("sendMessage", chat=ada.id)


async def test_sticker_without_an_answered_reaction_is_not_explained(here: Deployment) -> None:
    ada = await here.person()
    await here.api.fail("setMessageReaction", times=3, match={"chat": ada.id}, status=500)
    await ada.send_content({"sticker": STICKER})
    async with asyncio.timeout(60):
        while len(await here.api.calls("setMessageReaction", chat=ada.id)) < 3:
            await asyncio.sleep(0.1)
    await here.house.handled()
    await ada.command("help")
    await ada.sees("/help")
    assert len(await here.api.calls("sendMessage", chat=ada.id)) == 1


async def test_sticker_is_explained_where_reactions_are_refused(here: Deployment) -> None:
    ada = await here.person()
    refusal = "Bad Request: REACTION_INVALID"
    await here.api.fail("setMessageReaction", match={"chat": ada.id}, status=400, description=refusal)
    await ada.send_content({"sticker": STICKER})
    await ada.sees(lambda screen: len(screen.answers) == 1)


async def test_refused_group_is_left_after_a_rate_limit(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("My first words to our boat.")
    await ada.sees("Njord is a fine name")
    group = await here.api.group("Strangers", ada)
    await here.house.until("SELECT count(*) = 1 FROM telegram_access WHERE chat_id = $1", group.id)
    await here.api.fail("leaveChat", match={"chat": group.id}, status=429, retry_after=2)
    await here.house.refuse(group.id)
    async with asyncio.timeout(60):
        while 200 not in [one["status"] for one in await here.api.calls("leaveChat", chat=group.id)]:
            await asyncio.sleep(0.1)
    sent = [one["params"]["text"] for one in await here.api.calls("sendMessage", chat=group.id)]
    assert len([text for text in sent if "leave" in text]) <= 1, "the group reads its farewell once"


async def test_question_of_a_blocked_chat_is_answered_after_unblocking(here: Deployment) -> None:
    ada = await here.person()
    await here.provider.script(
        [
            {
                "match": {"kind": "chat", "contains": "slow boat"},
                "action": {"latency": 3.0, "text": "It floats."},
            }
        ]
    )
    await ada.say("Tell me of the slow boat.")
    await here.house.until(f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'claimed'", str(ada.id))
    await ada.block()
    await here.answered(ada.id, 1)
    await asyncio.sleep(2)
    assert not [line for line in (await ada.screen()).answers if "floats" in line.text]
    await ada.unblock()
    await ada.sees("It floats.")
    refused = [one for one in await here.api.calls(chat=ada.id) if one["status"] == 403]
    assert len(refused) <= 2, "the call under way and one more"
