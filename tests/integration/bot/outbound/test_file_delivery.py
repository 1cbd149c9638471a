"""Files that the assistant made follow its words, each once, through refusals, lost replies and crashes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.ports import ToolFile
from tests.integration.bot.outbound.delivery_driver import Answer, BotProcess
from tests.kit.fakes.bot_api import Person, RunningBotApi

PLAN = ToolFile(name="plan.md", mime="text/markdown", body=b"# Plan")
CHART = ToolFile(name="sales.png", mime="image/png", body=b"\x89PNG picture", width=12, height=7)


async def announced(bot: BotProcess, *files: ToolFile) -> Answer:
    """An answer whose tools have made these files."""
    place = await bot.place()
    answer = await bot.begin(place)
    kept = PostgresAttachments(bot.pool)
    ids = [await kept.store_file(place.session_id, file) for file in files]
    answer.screen = {"attachments": [one.to_payload() for one in await kept.list_attached(ids)]}
    return answer


async def seen(ann: Person) -> list[str]:
    """Words, and names of files; Telegram gives a photo no name."""
    raw = [line.raw for line in (await ann.screen()).answers]
    return [
        one["document"]["file_name"] if "document" in one else "photo" if "photo" in one else one["text"]
        for one in raw
    ]


async def test_files_follow_the_words_in_their_order(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer = await announced(bot, PLAN, CHART)
    await answer.stream("Here are the plan and its chart, as you wished them to be.")
    await answer.end()
    assert await seen(ann) == [answer.said, "plan.md", "photo"]
    assert await bot.states(answer) == ["delivered"] * 3
    assert await bot.recover() == 0
    assert await bot.broken_invariants() == []


async def test_a_crash_before_the_files_sends_each_once(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before = bots()
    answer = await announced(before, PLAN, CHART)
    await answer.say("Here is the plan, which you wanted to have by tonight.")
    await answer.commit()
    await before.die()
    after = bots()
    assert await after.recover() == 1
    assert await after.recover() == 0
    assert await seen(ann) == [answer.said, "plan.md", "photo"]


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_file_of_unknown_fate_is_uncertain_and_not_sent_again(
    how: str, strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer = await announced(bot, PLAN)
    await strict_api.fail("sendDocument", reset=how)
    await answer.end("Here is the plan.")
    assert await bot.states(answer) == ["delivered", "uncertain"]
    assert await bot.recover() == 0
    assert len(await strict_api.calls("sendDocument")) == 1
    assert (await seen(ann)).count("plan.md") == (how == "after")


async def test_a_file_that_is_refused_for_a_while_comes_later(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer = await announced(bot, PLAN)
    await strict_api.fail("sendDocument", status=429, retry_after=1)
    await answer.end("Here is the plan.")
    await bot.recover()
    assert await seen(ann) == ["Here is the plan.", "plan.md"]


async def test_a_file_that_was_forgotten_meanwhile_is_no_reason_to_wait(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer = await announced(bot, PLAN)
    await bot.pool.execute("DELETE FROM attachments")
    await answer.end("Here is the plan.")
    assert await seen(ann) == ["Here is the plan."]
    assert await bot.states(answer) == ["delivered", "delivered"]
