"""Lasting refusals of Telegram: each answer arrives in another form, is explained, or waits for its chat."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.core.ops.job_views import PartKey
from tests.integration.bot.outbound.delivery_driver import REFUSED, Answer, BotProcess
from tests.kit.fakes.bot_api import Person, RunningBotApi

OF_THE_MESSAGE = (
    "can't parse entities: unsupported start tag", "ENTITIES_TOO_LONG", "ENTITY_BOUNDS_INVALID",
    "ENTITY_MENTION_USER_INVALID", "message is too long", "MESSAGE_TOO_LONG", "message text is empty",
    "MESSAGE_EMPTY", "BUTTON_DATA_INVALID", "REPLY_MARKUP_INVALID", "Wrong HTTP URL", "WEBPAGE_URL_INVALID",
    "strings must be encoded in UTF-8", "TEXT_NOT_ALLOWED_HERE",
)  # fmt: skip
CLOSED = (
    (400, "TOPIC_CLOSED"), (400, "not enough rights to send text messages to the chat"),
    (400, "have no rights to send a message"), (400, "CHAT_WRITE_FORBIDDEN"), (400, "CHAT_RESTRICTED"),
    (400, "CHAT_SEND_PLAIN_FORBIDDEN"), (400, "need administrator rights in the channel chat"),
    (400, "CHAT_ADMIN_REQUIRED"), (400, "USER_RESTRICTED"), (400, "USER_BANNED_IN_CHANNEL"),
    (400, "CHAT_GUEST_SEND_FORBIDDEN"), (403, "ALLOW_PAYMENT_REQUIRED_5"),
    (403, "not enough rights to send text messages to the chat"),
)  # fmt: skip
GONE = (
    (403, "bot was blocked by the user"), (403, "bot was kicked from the supergroup chat"),
    (403, "user is deactivated"), (403, "bot can't initiate conversation with a user"),
    (403, "bot is not a member of the channel chat"), (400, "chat not found"), (400, "PEER_ID_INVALID"),
    (400, "CHANNEL_PRIVATE"),
)  # fmt: skip
WORDS = "A **bold** word."
PLAIN = "A bold word."


async def end_refused(
    fake: RunningBotApi, bot: BotProcess, reason: str, *, status: int = 400, texts: int, files: int = 0
) -> Answer:
    """Return an answer whose first messages and files were refused."""
    kind = "Forbidden" if status == 403 else "Bad Request"
    for method, times in (("sendMessage", texts), ("sendDocument", files)):
        if times:
            await fake.fail(method, times=times, status=status, description=f"{kind}: {reason}")
    answer = await bot.begin(await bot.place())
    await answer.end(WORDS)
    return answer


@pytest.mark.row("F50")
@pytest.mark.parametrize("reason", OF_THE_MESSAGE)
async def test_refused_formatting_falls_back_to_plain_text(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, reason: str
) -> None:
    answer = await end_refused(strict_api, bot, reason, texts=1)
    (line,) = (await ann.screen()).answers
    assert (line.text, line.entities) == (PLAIN, [])
    assert await bot.states(answer) == ["delivered"]


@pytest.mark.row("F50")
@pytest.mark.parametrize("reason", OF_THE_MESSAGE)
async def test_refused_text_falls_back_to_a_file(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, reason: str
) -> None:
    answer = await end_refused(strict_api, bot, reason, texts=2)
    (line,) = (await ann.screen()).answers
    assert line.document == "answer.md"
    assert (await ann.screen()).notifications == 1
    assert await bot.states(answer) == ["delivered"]


@pytest.mark.row("F50")
@pytest.mark.parametrize("reason", OF_THE_MESSAGE)
async def test_refused_file_is_explained_in_one_line(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, reason: str
) -> None:
    answer = await end_refused(strict_api, bot, reason, texts=2, files=1)
    assert (await ann.screen()).texts == [REFUSED]
    assert await bot.states(answer) == ["dead"]
    assert await bot.recover() == 0
    later = await bot.begin(await bot.place())
    await later.end("Next.")
    assert (await ann.screen()).texts == [REFUSED, "Next."]
    session = await bot.pool.fetchval("SELECT public_id::text FROM sessions LIMIT 1")
    part = PartKey(session=session, turn=answer.turn, part=0)
    changes = PostgresJobChanges(bot.pool)
    assert (await changes.change_deliveries("send_again", [part], actor="anna")).changed
    assert await bot.recover() == 1
    assert (await ann.screen()).texts == [REFUSED, "Next.", PLAIN]
    assert await bot.broken_invariants() == []


async def test_answer_stays_listed_when_even_the_line_is_refused(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await end_refused(strict_api, bot, "nonsense", texts=3, files=1)
    assert (await ann.screen()).texts == []
    assert await bot.states(answer) == ["dead"]
    error = await bot.pool.fetchval("SELECT error FROM deliveries")
    assert error == "Bad Request: nonsense"


@pytest.mark.row("F50")
@pytest.mark.parametrize(("status", "reason"), CLOSED)
async def test_answer_waits_for_a_chat_that_takes_no_messages(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, status: int, reason: str
) -> None:
    answer = await end_refused(strict_api, bot, reason, status=status, texts=-1)
    assert await bot.states(answer) == ["queued"]
    assert (await bot.place()).will_be_tried
    calls = len(await strict_api.calls())
    assert await bot.recover() == 0
    assert len(await strict_api.calls()) == calls, "a chat that refuses is not asked every second"
    await _next_try(bot)
    assert await bot.recover() == 0
    assert await bot.states(answer) == ["queued"]
    await strict_api.script([])
    await _next_try(bot)
    assert await bot.recover() == 1
    assert (await ann.screen()).texts == [PLAIN]
    assert not (await bot.place()).unreachable
    assert await bot.broken_invariants() == []


@pytest.mark.row("F50")
@pytest.mark.parametrize(("status", "reason"), GONE)
async def test_answer_waits_until_a_lost_chat_is_heard_of(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, status: int, reason: str
) -> None:
    answer = await end_refused(strict_api, bot, reason, status=status, texts=-1)
    assert await bot.states(answer) == ["queued"]
    place = await bot.place()
    assert (place.unreachable, place.will_be_tried) == (True, False)
    await strict_api.script([])
    calls = len(await strict_api.calls())
    assert await bot.recover() == 0
    assert len(await strict_api.calls()) == calls
    await bot.hear_of(place.chat_id)
    assert await bot.recover() == 1
    assert (await ann.screen()).texts == [PLAIN]
    assert await bot.broken_invariants() == []


async def test_chat_that_takes_no_messages_is_tried_for_a_week(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    await end_refused(strict_api, bot, "TOPIC_CLOSED", texts=-1)
    pauses = []
    for days in ("0", "0.01", "1", "8"):
        await bot.pool.execute(
            "UPDATE addresses SET unreachable_since = now() - $1::text::interval, next_try_at = now()",
            f"{days} days",
        )
        await bot.recover()
        pauses.append(
            await bot.pool.fetchval("SELECT extract(epoch FROM next_try_at - now())::int FROM addresses")
        )
    assert pauses[:3] == [pytest.approx(60, abs=5), pytest.approx(432, abs=5), pytest.approx(3600, abs=5)]
    assert pauses[3] is None


async def test_blocked_chat_gets_one_call_and_its_answer_after_unblocking(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.set_up(typing_after=60.0)
    await ann.block()
    await strict_api.forget_calls()
    place = await bot.place()
    answer = await bot.begin(place)
    await answer.stream("It is a long story. " * 20)
    await answer.end()
    assert len(await strict_api.calls(chat=ann.id)) == 1
    await ann.unblock()
    await bot.hear_of(place.chat_id)
    assert await bot.recover() == 1
    assert await bot.states(answer) == ["delivered"]
    assert len((await ann.screen()).texts) == 1


async def _next_try(bot: BotProcess) -> None:
    await bot.pool.execute("UPDATE addresses SET next_try_at = now() WHERE next_try_at IS NOT NULL")
