"""An operator settles an answer in doubt by its row alone: the bot's process does the sending."""

from __future__ import annotations

from collections.abc import Callable

from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.core.ops.job_views import PartKey
from tests.integration.bot.outbound.delivery_driver import Answer, BotProcess
from tests.kit.fakes.bot_api import Person, RunningBotApi


async def in_doubt(fake: RunningBotApi, bot: BotProcess) -> tuple[Answer, PartKey]:
    """It did arrive, and nobody knows; the talk went on since."""
    place = await bot.place()
    answer = await bot.begin(place)
    await fake.fail("sendMessage", reset="after")
    await answer.end("The one in doubt.")
    assert await bot.states(answer) == ["uncertain"]
    later = await bot.begin(place)
    await later.end("What came later.")
    session = await bot.pool.fetchval("SELECT public_id::text FROM sessions LIMIT 1")
    return answer, PartKey(session=session, turn=answer.turn, part=0)


async def test_resent_part_arrives_once_and_in_order(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer, part = await in_doubt(strict_api, bot)
    changes = PostgresJobChanges(bot.pool)
    assert (await changes.change_deliveries("send_again", [part], actor="anna")).changed
    assert await bot.broken_invariants() == []
    assert await bot.recover() == 1
    assert await bot.recover() == 0
    await bot.tell()
    assert (await ann.screen()).texts == ["The one in doubt.", "What came later.", "The one in doubt."]
    assert await bot.states(answer) == ["delivered"]
    assert await bot.broken_invariants() == []


async def test_a_part_that_an_operator_saw_is_never_sent(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer, part = await in_doubt(strict_api, bot)
    assert (await PostgresJobChanges(bot.pool).change_deliveries("arrived", [part], actor="anna")).changed
    assert await bot.recover() == 0
    assert await bots().recover() == 0
    await bot.tell()
    assert (await ann.screen()).texts == ["The one in doubt.", "What came later."]
    assert await bot.states(answer) == ["delivered"]
    assert await bot.broken_invariants() == []
