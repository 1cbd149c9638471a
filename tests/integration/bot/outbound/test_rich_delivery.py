"""Native drafts and rich messages, for those who want them; at the first refusal the classic form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bot.telegram.client.calls import ScaledClock
from bot.telegram.markup.entity_text import render
from shared.core.session.turns import ToolRunning
from tests.integration.bot.outbound.delivery_driver import BOT_ID, UNCERTAIN, BotProcess
from tests.kit.fakes.bot_api import Person, RunningBotApi

WORDS = "A draft is shown while it is written, letter by letter. "
LONG = "\n\n".join(f"Paragraph {number}. {'Word after word. ' * 20}".strip() for number in range(20))
TABLE = "Prices:\n\n| fruit | price |\n|---|---|\n| apple | **2** |\n| pear | 3 |\n"


def squeezed(*texts: str) -> str:
    """Without white space, which is lost where an answer is cut."""
    return "".join("".join(texts).split())


async def test_a_native_draft_thinks_grows_and_becomes_one_message(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"drafts"}
    answer = await bot.begin(await bot.place())
    screen = await ann.sees(lambda screen: bool(screen.drafts))
    assert (screen.drafts[0]["text"], screen.drafts[0]["can_stop"]) == ("", True)
    await answer.stream(WORDS * 4, step=20, pause=0.06)
    await answer.end()
    screen = await ann.screen()
    assert screen.texts == [render(WORDS * 4).text]
    assert screen.drafts == []
    assert screen.notifications == 1
    calls = await strict_api.calls("sendMessageDraft")
    assert len({call["params"]["draft_id"] for call in calls}) == 1
    assert len(calls) >= 3
    assert "editMessageText" not in await strict_api.counts()


async def test_a_draft_that_outgrows_one_message_goes_on_in_messages(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"drafts"}
    answer = await bot.begin(await bot.place())
    await answer.stream(LONG, step=60)
    await ann.sees(lambda screen: len(screen.answers) == 2)
    screen = await ann.screen()
    assert screen.drafts == []
    assert squeezed(*screen.texts).startswith(squeezed(LONG)[:3_500])
    drafted = [call["params"].get("text", "") for call in await strict_api.calls("sendMessageDraft")]
    assert all(LONG.startswith(text.rstrip()) for text in drafted), "a draft shows the beginning, always"
    await answer.end()
    assert squeezed(*(await ann.screen()).texts) == squeezed(LONG)
    assert bot.post.get_form_support(BOT_ID).allows("drafts", 42)
    bot.beat()
    second = await bot.begin(await bot.place())
    await ann.sees(lambda screen: bool(screen.drafts))
    await second.end("Short.")


@pytest.mark.parametrize("length", [600, 5_000], ids=["in its draft", "beyond its draft"])
async def test_draft_of_a_dead_process_is_completed_by_the_next(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person, length: int
) -> None:
    before = bots()
    before.wanted = {"drafts"}
    place = await before.place()
    answer = await before.begin(place)
    await answer.stream(LONG[:length], step=60)
    await ann.sees(lambda screen: bool(screen.drafts) if length < 1_000 else len(screen.answers) == 2)
    await before.die()
    after = bots()
    after.wanted = {"drafts"}
    again = await after.claim(place)
    assert again.claim.attempt == 2
    await again.stream(LONG, step=60)
    await ann.sees(lambda screen: len(screen.answers) == 2)
    assert squeezed(*(await ann.screen()).texts).startswith(squeezed(LONG)[:3_500])
    await again.end()
    screen = await ann.screen()
    assert squeezed(*screen.texts) == squeezed(LONG)
    assert screen.drafts == []
    assert len({call["params"]["draft_id"] for call in await strict_api.calls("sendMessageDraft")}) == 1
    assert set(await after.states(again)) == {"delivered"}
    assert await after.broken_invariants() == []


async def test_a_draft_is_kept_alive_while_tools_run(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"drafts"}
    bot.set_up(clock=ScaledClock(speed=50.0))
    await strict_api.set_speed(50.0)
    answer = await bot.begin(await bot.place())
    await answer.say(WORDS)
    await answer.emit(ToolRunning(turn=answer.turn, name="look_up"))
    while len(await strict_api.calls("sendMessageDraft")) < 6:
        await asyncio.sleep(0.02)
    assert not [view for view in await ann.views() if view["kind"] == "draft_gone"]
    await answer.end()
    assert (await ann.screen()).texts == [WORDS.strip()]


async def test_refused_draft_becomes_bubbles_and_is_not_retried(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"drafts"}
    await strict_api.fail("sendMessageDraft", times=-1, status=404)
    place = await bot.place()
    for _ in range(2):
        answer = await bot.begin(place)
        while not await strict_api.calls("sendMessageDraft"):
            await asyncio.sleep(0.01)
        await answer.stream(WORDS * 6)
        assert (await ann.screen()).answers, "shown while it is written"
        await answer.end()
    assert (await ann.screen()).texts == [render(WORDS * 6).text] * 2
    assert len(await strict_api.calls("sendMessageDraft")) == 1
    assert not bot.post.get_form_support(BOT_ID).allows("drafts", 42)
    assert bot.post.get_form_support(BOT_ID).allows("rich", 42)


async def test_draft_refused_in_one_chat_is_used_in_others(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"drafts"}
    bob = await strict_api.person(43, first_name="Bob")
    await bob.say("hello")
    await strict_api.fail(
        "sendMessageDraft", times=-1, match={"chat": 42}, status=400, description="Bad Request: no"
    )
    for person, drafts in ((ann, 1), (bob, 2), (ann, 0)):
        await strict_api.forget_calls()
        answer = await bot.begin(await bot.place(person.id))
        await answer.stream(WORDS * 6, pause=0.02)
        await answer.end()
        assert len(await strict_api.calls("sendMessageDraft", chat=person.id)) >= drafts
        assert (await person.screen()).texts[-1] == render(WORDS * 6).text
    assert not await strict_api.calls("sendMessageDraft"), "the first chat is not asked again"


async def test_a_429_pauses_a_draft_and_closes_nothing(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"drafts"}
    bot.set_up(clock=ScaledClock(speed=20.0))
    await strict_api.fail("sendMessageDraft", status=429, retry_after=3)
    answer = await bot.begin(await bot.place())
    while len(await strict_api.calls("sendMessageDraft")) < 3:
        await answer.say(WORDS)
        await asyncio.sleep(0.03)
    await answer.end()
    assert bot.post.get_form_support(BOT_ID).allows("drafts", 42)
    assert (await ann.screen()).texts == [render(answer.said).text]


async def test_groups_have_no_drafts(strict_api: RunningBotApi, bot: BotProcess, ann: Person) -> None:
    bot.wanted = {"drafts"}
    group = await strict_api.group("Family", ann)
    answer = await bot.begin(await bot.place(group.id))
    await answer.stream(WORDS)
    await answer.end()
    assert (await group.screen()).texts == [WORDS.strip()]
    assert "sendMessageDraft" not in await strict_api.counts()


async def test_a_table_comes_as_a_rich_message(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"rich"}
    bot.buttons = True
    place = await bot.place()
    answer = await bot.begin(place)
    await answer.end(TABLE)
    (call,) = await strict_api.calls("sendRichMessage")
    assert [block["type"] for block in call["params"]["rich_message"]["blocks"]] == ["paragraph", "table"]
    assert await bot.states(answer) == ["delivered"]
    second = await bot.begin(place)
    await second.end("Nothing that a plain message could not say.")
    assert len(await strict_api.calls("sendRichMessage")) == 1


async def test_a_bubble_becomes_a_rich_message(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"rich"}
    answer = await bot.begin(await bot.place())
    await answer.stream(WORDS + "\n\n" + TABLE)
    await answer.end()
    (line,) = (await ann.screen()).answers
    assert "rich_message" in line.raw
    assert len(await strict_api.calls("sendMessage")) == 1
    assert await bot.states(answer) == ["delivered"]


async def test_what_was_shown_in_several_messages_stays_and_becomes_no_rich_message(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"rich"}
    answer = await bot.begin(await bot.place())
    await answer.stream(LONG, step=300, pause=0.03)
    read = (await ann.sees(lambda screen: len(screen.answers) == 2)).texts
    await answer.end(LONG + "\n\n" + TABLE)
    screen = await ann.screen()
    assert screen.texts[0] == read[0]
    assert squeezed(*screen.texts) == squeezed(render(LONG + "\n\n" + TABLE).text)
    assert not [view for view in await ann.views() if view["kind"] == "deleted"]


async def test_refused_rich_message_is_sent_classic_and_never_retried(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"rich"}
    await strict_api.fail("sendRichMessage", times=-1, status=400, description="Bad Request: unsupported")
    place = await bot.place()
    for _ in range(2):
        answer = await bot.begin(place)
        await answer.end(TABLE)
        assert await bot.states(answer) == ["delivered"]
    assert (await ann.screen()).texts == [render(TABLE).text] * 2
    assert len(await strict_api.calls("sendRichMessage")) == 1


async def test_a_refused_rich_edit_leaves_the_classic_answer_in_the_bubble(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"rich"}
    answer = await bot.begin(await bot.place())
    await answer.say(WORDS)
    await strict_api.fail(
        "editMessageText", times=-1, match={"has": "rich_message"}, status=400,
        description="Bad Request: unsupported",
    )  # fmt: skip
    await answer.end(WORDS + "\n\n" + TABLE)
    assert (await ann.screen()).texts == [render(WORDS + "\n\n" + TABLE).text]
    assert not bot.post.get_form_support(BOT_ID).allows("rich", 42)


async def test_a_lost_rich_message_is_uncertain(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.wanted = {"rich"}
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendRichMessage", reset="after")
    await answer.end(TABLE)
    assert await bot.states(answer) == ["uncertain"]
    assert await bot.recover() == 0
    assert (await ann.screen()).texts[1:] == [UNCERTAIN]


async def test_rich_edit_of_a_resumed_delivery_is_one_request(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    """A resumed delivery is tried again each second, so that other sessions do not wait for it."""
    bot.wanted = {"rich"}
    answer = await bot.begin(await bot.place())
    await answer.say(WORDS)
    await answer.commit(WORDS + "\n\n" + TABLE)
    await answer.emit.close()
    await strict_api.fail("editMessageText", times=3, match={"has": "rich_message"}, reset="before")
    await strict_api.forget_calls()
    assert await bot.recover() == 0
    assert len(await strict_api.calls("editMessageText")) == 1
    while not await bot.recover():
        pass
    (line,) = (await ann.screen()).answers
    assert "rich_message" in line.raw
