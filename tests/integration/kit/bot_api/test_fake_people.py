"""What people do, and which bots hear of it in what form."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiogram import Bot

from tests.integration.kit.bot_api.conftest import Json, RawCall, aiogram_bot
from tests.kit.fakes.bot_api import NotSeen, Person, Refused, RunningBotApi, local_bot_api
from tests.kit.fakes.bot_api.shapes import units

OTHER = "700002:FAKE-token-of-another-bot"


async def heard(call: RawCall, **params: Any) -> list[Json]:
    _, answer = await call("getUpdates", **params)
    return [update.get("message", update) for update in answer["result"]]


async def test_a_long_paste_arrives_in_parts_that_join_to_the_text(
    bot_api: RunningBotApi, call: RawCall
) -> None:
    ann = await bot_api.person(42)
    text = "".join(f"{number}😀," for number in range(2_000))
    sent = await ann.paste(text)
    messages = await heard(call)
    assert [message["message_id"] for message in messages] == [one.message_id for one in sent]
    assert "".join(message["text"] for message in messages) == text
    assert all(units(message["text"]) <= 4_096 for message in messages)
    with pytest.raises(Refused, match="paste it"):
        await ann.say(text)


async def test_commands_mentions_and_links_are_found_in_utf16(bot_api: RunningBotApi, call: RawCall) -> None:
    ann = await bot_api.person(42)
    await ann.say("😀 /help@evertalk_test_bot @someone https://example.org/a and 1/2")
    (message,) = await heard(call)
    assert [(one["type"], one["offset"], one["length"]) for one in message["entities"]] == [
        ("bot_command", 3, 23),
        ("mention", 27, 8),
        ("url", 36, 21),
    ]


async def test_a_forward_follows_its_comment(bot_api: RunningBotApi, call: RawCall) -> None:
    ann = await bot_api.person(42)
    await ann.forward("their words", comment="what does it mean?", from_name="Bob")
    comment, forwarded = await heard(call)
    assert comment["text"] == "what does it mean?"
    assert forwarded["forward_origin"]["sender_user_name"] == "Bob"


async def test_album_parts_share_a_group_and_arrive_one_by_one(
    bot_api: RunningBotApi, aiobot: Bot, call: RawCall
) -> None:
    ann = await bot_api.person(42)
    await ann.album(3, gap=0.02, caption="holiday")
    updates = await aiobot.get_updates(timeout=1)
    messages = [update.message for update in updates if update.message]
    assert len({message.media_group_id for message in messages}) == 1
    assert [message.caption for message in messages] == ["holiday", None, None]


async def test_replies_quotes_edits_voices_and_other_content(
    bot_api: RunningBotApi, aiobot: Bot, ann: Person
) -> None:
    sent = await aiobot.send_message(42, "The answer is 42.")
    reply = await ann.say("why?", reply_to=sent.message_id, quote="42")
    await ann.edit(reply.message_id, "why exactly?")
    await ann.send_voice()
    await ann.send_photo(caption="see")
    await ann.send_content({"location": {"latitude": 1.0, "longitude": 2.0}})
    await ann.pin(sent.message_id)
    updates = (await aiobot.get_updates(timeout=1))[1:]
    first, edited, voice, photo, place, pin = updates
    assert first.message is not None
    assert first.message.quote is not None
    assert (first.message.quote.text, first.message.quote.position) == ("42", 14)
    assert edited.edited_message is not None
    assert edited.edited_message.text == "why exactly?"
    assert voice.message is not None
    assert voice.message.voice is not None
    assert photo.message is not None
    assert photo.message.photo
    assert place.message is not None
    assert place.message.location is not None
    assert pin.message is not None
    assert pin.message.pinned_message is not None
    assert pin.message.pinned_message.message_id == sent.message_id
    assert (await ann.screen()).pinned == [sent.message_id]


async def test_in_groups_a_private_bot_hears_only_what_is_meant_for_it(
    bot_api: RunningBotApi, aiobot: Bot, call: RawCall, ann: Person
) -> None:
    await aiobot.get_updates(offset=-1)
    bob = await bot_api.person(43)
    group = await bot_api.group("Team", ann, members=(bob,))
    said = await aiobot.send_message(group.id, "I am here")
    silent = await ann.say("just us", chat=group.id)
    assert list(silent.updates) == []
    await bob.say("/help", chat=group.id)
    await bob.say("/help@somebody_else", chat=group.id)
    await bob.say("hey @Evertalk_Test_Bot", chat=group.id)
    await ann.say("you?", chat=group.id, reply_to=said.message_id)
    texts = [message["text"] for message in await heard(call, offset=2) if "text" in message]
    assert texts == ["hello", "/help", "hey @Evertalk_Test_Bot", "you?"]
    await bot_api.change_bot(privacy=False)
    assert list((await ann.say("now?", chat=group.id)).updates) == [aiobot.id]
    await group.leave(bob)
    with pytest.raises(Refused, match="no member"):
        await bob.say("still here?", chat=group.id)
    await group.join(bob)
    await bob.say("back", chat=group.id)


async def test_two_bots_have_their_own_chats_updates_and_files(bot_api: RunningBotApi, ann: Person) -> None:
    number = await bot_api.add_bot(OTHER, username="other_bot")
    same = await bot_api.person(42, bot=number)
    await same.say("hello other")
    other = aiogram_bot(bot_api, OTHER)
    (update,) = await other.get_updates(timeout=1)
    assert update.message is not None
    assert update.message.text == "hello other"
    await other.send_message(42, "hello from the other")
    assert (await same.screen()).texts == ["hello from the other"]
    assert (await ann.screen()).texts == []
    assert [call["bot"] for call in await bot_api.calls("sendMessage")] == [number]
    await other.session.close()


async def test_waiting_for_what_never_comes_shows_the_screen(aiobot: Bot, ann: Person) -> None:
    await aiobot.send_message(42, "something else")
    with pytest.raises(NotSeen, match="bot: something else"):
        await ann.sees("the answer", within=0.2)
    waiting = asyncio.create_task(ann.sees("the answer"))
    await asyncio.sleep(0.05)
    await aiobot.send_message(42, "here is the answer")
    assert (await waiting).texts[-1] == "here is the answer"


async def test_who_is_deactivated_or_blocks_cannot_be_reached_or_write(call: RawCall, ann: Person) -> None:
    await ann.block()
    with pytest.raises(Refused, match="blocked"):
        await ann.say("hello")
    await ann.unblock()
    await ann.deactivate()
    status, answer = await call("sendMessage", chat_id=42, text="hi")
    assert (status, answer["description"]) == (403, "Forbidden: user is deactivated")


async def test_many_updates_are_no_burden(bot_api: RunningBotApi, call: RawCall) -> None:
    people = [await bot_api.person(100 + number) for number in range(20)]
    wishes = [{"person": person.id, "text": f"{number}"} for number in range(50) for person in people]
    await bot_api.act("say_many", {"all": wishes})
    seen: dict[int, list[str]] = {person.id: [] for person in people}
    offset = 0
    for _ in range(11):
        _, answer = await call("getUpdates", offset=offset)
        for update in answer["result"]:
            offset = update["update_id"] + 1
            seen[update["message"]["from"]["id"]].append(update["message"]["text"])
        if sum(map(len, seen.values())) == len(wishes):
            break
    assert all(texts == [str(number) for number in range(50)] for texts in seen.values())


async def test_the_same_fake_runs_inside_a_test() -> None:
    async with local_bot_api() as own:
        ann = await own.person(1)
        await ann.say("hi")
        assert (await own.bot())["pending"] == 1
        assert own.server.world.person(1).first_name == "Person 1"
