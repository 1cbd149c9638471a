"""An answer that may not have arrived: its person is told at once, and one press brings it, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bot.telegram.inbound.updates import QuotedMessage
from bot.telegram.markup.entity_text import MAX_PARTS
from bot.telegram.outbound.buttons import ButtonPress
from bot.telegram.outbound.uncertain_notices import UncertainNotices
from shared.adapters.postgres.dashboard.job_changes import PostgresJobChanges
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.uncertain_notices import MOST_TRIES, QUICK_TRIES, PressOutcome
from shared.core.ops.job_views import PartKey
from shared.core.values.errors import StorageUnavailable
from tests.integration.bot.outbound.delivery_driver import (
    BOT_ID,
    UNCERTAIN,
    Answer,
    BotProcess,
    die_while_sending,
)
from tests.integration.bot.outbound.long_answers import LONG, away
from tests.kit.fakes.bot_api import Line, Person, RunningBotApi

HURRY = "UPDATE uncertain_notices SET due_at = now() WHERE due_at < 'infinity'"
PARAGRAPHS = "\n\n".join(f"Paragraph {number}: {'One word follows another. ' * 25}" for number in range(20))
NOTICES = "SELECT state, round, tries FROM uncertain_notices"


async def notices(ann: Person) -> list[Line]:
    return [line for line in (await ann.screen()).answers if line.text == UNCERTAIN]


async def texts(ann: Person) -> list[str]:
    return (await ann.screen()).texts


def press_of(line: Line) -> ButtonPress:
    """What the button of a notice says."""
    (row,) = line.raw["reply_markup"]["inline_keyboard"]
    return ButtonPress.unpack(row[0]["callback_data"])


async def press(bot: BotProcess, place: ChatRow, line: Line, *, accessible: bool = True) -> PressOutcome:
    """As `Pressing` does it."""
    button = press_of(line)
    found = await bot.delivery.uncertain.handle_press(
        place, button.subject, round_number=int(button.word),
        message_id=line.message_id if accessible else None,
    )  # fmt: skip
    if found.what == "brought":
        bot.delivery.deliver_soon(found.session_id, found.turn)
        await bot.tasks.rest()
    return found


async def lost(fake: RunningBotApi, bot: BotProcess, words: str, *, how: str = "before") -> Answer:
    answer = await bot.begin(await bot.place())
    await fake.fail("sendMessage", reset=how)
    await answer.end(words)
    assert await bot.states(answer) == ["uncertain"]
    return answer


async def state(bot: BotProcess) -> tuple[str, int, int]:
    row = await bot.pool.fetchrow(NOTICES)
    assert row is not None
    return row["state"], row["round"], row["tries"]


@pytest.mark.row("F50")
async def test_lost_answer_replaces_its_notice_when_the_button_is_pressed(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.buttons = True
    answer = await lost(strict_api, bot, "The one and only.")
    (notice,) = await notices(ann)
    later = await bot.begin(await bot.place())
    await later.end("What came later.")
    assert (await press(bot, await bot.place(), notice)).what == "brought"
    screen = await ann.screen()
    assert screen.texts == ["The one and only.", "What came later."]
    assert screen.answers[0].message_id == notice.message_id
    assert "Bring the answer" not in screen.answers[0].buttons
    assert await bot.states(answer) == ["delivered"]
    assert await state(bot) == ("over", 1, 1)
    assert await bot.broken_invariants() == []


async def test_pressed_twice_at_once_by_two_processes_it_comes_once(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    one, other = bots(), bots()
    await lost(strict_api, one, "The one and only.")
    (notice,) = await notices(ann)
    place = await one.place()
    found = await asyncio.gather(press(one, place, notice), press(other, place, notice))
    assert sorted(one.what for one in found) == ["before", "brought"]
    assert (await press(one, place, notice)).what == "before"
    assert await other.recover() == await one.recover() == 0
    assert await texts(ann) == ["The one and only."]


async def test_a_press_survives_the_process_that_heard_it(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before = bots()
    await lost(strict_api, before, "The one and only.")
    (notice,) = await notices(ann)
    button = press_of(notice)
    await before.delivery.uncertain.handle_press(
        await before.place(), button.subject, round_number=1, message_id=notice.message_id
    )
    await before.die()
    after = bots()
    assert await after.recover() == 1
    assert await texts(ann) == ["The one and only."]
    assert await after.broken_invariants() == []


async def test_an_edit_that_breaks_off_is_repeated_and_nothing_is_doubled(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    await lost(strict_api, bot, "The one and only.")
    (notice,) = await notices(ann)
    await strict_api.fail("editMessageText", times=3, reset="after")
    await press(bot, await bot.place(), notice)
    while not await bot.recover():
        pass
    assert await texts(ann) == ["The one and only."]
    assert await state(bot) == ("over", 1, 1)


async def test_what_is_in_the_middle_of_an_answer_comes_in_the_middle(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.commit(PARAGRAPHS)
    await answer.emit.close()
    await strict_api.fail("sendMessage", times=1, match={"contains": "Paragraph 9:"}, reset="before")
    assert await bot.recover() == 1
    assert "uncertain" in await bot.states(answer)
    (notice,) = await notices(ann)
    await press(bot, await bot.place(), notice)
    assert "\n\n".join(await texts(ann)).count("Paragraph") == PARAGRAPHS.count("Paragraph")
    places = [row.remote_id or 0 for row in await bot.rows(answer)]
    assert places == sorted(places)
    assert set(await bot.states(answer)) == {"delivered"}


async def test_several_lost_parts_share_one_notice_and_all_arrive(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.commit(PARAGRAPHS)
    await answer.emit.close()
    await strict_api.fail("sendMessage", match={"contains": "Paragraph 0:"}, reset="before")
    await strict_api.fail("sendMessage", match={"contains": "Paragraph 19"}, reset="before")
    assert await bot.recover() == 1
    assert (await bot.states(answer)).count("uncertain") == 2
    (notice,) = await notices(ann)
    await press(bot, await bot.place(), notice)
    assert "\n\n".join(await texts(ann)).count("Paragraph") == PARAGRAPHS.count("Paragraph")
    assert await notices(ann) == []
    assert await bot.broken_invariants() == []


async def test_a_lost_file_comes_for_its_notice(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendDocument", reset="before")
    await answer.end(LONG * 4)
    assert await bot.states(answer) == ["delivered"] * MAX_PARTS + ["uncertain"]
    (notice,) = await notices(ann)
    await press(bot, await bot.place(), notice)
    lines = (await ann.screen()).answers
    assert [line.document for line in lines] == [None] * MAX_PARTS + ["answer.md"]
    assert await bot.states(answer) == ["delivered"] * (MAX_PARTS + 1)
    assert await bot.broken_invariants() == []


async def test_uncertain_notice_is_repeated_up_to_a_limit(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", times=MOST_TRIES + 1, reset="before")
    await answer.end("The one and only.")
    for tries in range(1, MOST_TRIES + 1):
        assert await state(bot) == ("due", 1, tries)
        pause = await bot.pool.fetchval("SELECT extract(epoch FROM due_at - now()) FROM uncertain_notices")
        longest = 2 * 2 ** (min(tries, QUICK_TRIES) - 1) * 8 ** max(tries - QUICK_TRIES, 0)
        assert pause == float("inf") if tries == MOST_TRIES else 0 < pause <= longest
        await bot.tell()
        assert await state(bot) == ("due", 1, tries), "not before its time"
        await bot.pool.execute(HURRY)
        await bot.tell()
    assert len(await strict_api.calls("sendMessage")) == MOST_TRIES + 1
    assert await texts(ann) == []
    assert await bot.broken_invariants() == []


async def test_a_notice_of_unknown_fate_is_as_good_as_its_second(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    """Both are there: one becomes the answer, and the other goes."""
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", reset="before")
    await strict_api.fail("sendMessage", times=1, match={"contains": UNCERTAIN}, reset="after")
    await answer.end("The one and only.")
    await bot.pool.execute(HURRY)
    await bot.tell()
    first, second = await notices(ann)
    assert await state(bot) == ("shown", 1, 2)
    place = await bot.place()
    assert (await press(bot, place, first)).what == "brought"
    assert await texts(ann) == ["The one and only."]
    assert (await press(bot, place, first)).what == "before"
    assert (await press(bot, place, second)).what == "before"
    assert await texts(ann) == ["The one and only."]


async def test_notice_in_flight_when_its_sender_died_is_repeated(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bots()
    with monkeypatch.context() as dying:
        dying.setattr(UncertainNotices, "_record_outcome", away)
        await lost(strict_api, before, "The one and only.")
    assert await state(before) == ("sending", 1, 1)
    await before.die()
    after = bots()
    assert await after.post.notices.recover_interrupted([BOT_ID]) == 1
    await after.pool.execute(HURRY)
    await after.tell()
    first, second = await notices(ann)
    await press(after, await after.place(), second)
    await press(after, await after.place(), first)
    assert await texts(ann) == ["The one and only."]


@pytest.mark.parametrize("live", [True, False])
async def test_successor_reports_uncertain_parts_before_later_answers(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person, *, live: bool
) -> None:
    await die_while_sending(bots(), strict_api, ann, "The one and only.")
    after = bots()
    assert await after.deliveries.recover_interrupted([BOT_ID]) == 1
    later = await after.begin(await after.place())
    if live:
        await later.stream("What came ")
        await later.end("What came later.")
    else:
        await later.commit("What came later.")
        again = bots()
        assert await again.recover() == 1
    assert await texts(ann) == ["The one and only.", UNCERTAIN, "What came later."]


async def test_what_became_of_a_notice_is_stored_when_postgres_is_back(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(bot.post.notices, "mark_shown", away)
        await lost(strict_api, bot, "The one and only.")
    assert await state(bot) == ("sending", 1, 1)
    await bot.tell()
    assert await state(bot) == ("shown", 1, 1)
    assert len(await notices(ann)) == 1


@pytest.mark.parametrize("pressed", [False, True])
async def test_a_notice_stays_though_the_reply_that_it_is_stored_was_lost(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch, *, pressed: bool
) -> None:
    """It is stored twice then; meanwhile it may have become the answer."""
    stored = bot.post.notices.mark_shown

    async def reply_lost(*told: Any, **more: Any) -> bool:
        await stored(*told, **more)
        raise StorageUnavailable("the line broke")

    with monkeypatch.context() as patch:
        patch.setattr(bot.post.notices, "mark_shown", reply_lost)
        await lost(strict_api, bot, "The one and only.")
    assert await state(bot) == ("shown", 1, 1)
    (notice,) = await notices(ann)
    if pressed:
        await press(bot, await bot.place(), notice)
    await bot.tell()
    assert await texts(ann) == ["The one and only." if pressed else UNCERTAIN]


async def test_a_notice_stays_when_the_next_round_comes_while_it_is_stored(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = bot.post.notices.mark_shown

    async def slow(*told: Any, **more: Any) -> bool:
        await bot.delivery.uncertain.send_due([BOT_ID])
        return await stored(*told, **more)

    monkeypatch.setattr(bot.post.notices, "mark_shown", slow)
    await lost(strict_api, bot, "The one and only.")
    assert await texts(ann) == [UNCERTAIN]
    assert await state(bot) == ("shown", 1, 1)


async def test_uncertain_part_is_reported_as_soon_as_known(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", reset="before")
    with monkeypatch.context() as patch:
        patch.setattr(bot.deliveries, "give_up", away)
        await answer.end("The one and only.")
    assert await bot.states(answer) == ["sending"]
    assert await bot.recover() == 1
    await bot.tell()
    assert len(await notices(ann)) == 1


@pytest.mark.parametrize("chosen", [False, True])
async def test_who_quotes_an_answer_has_it(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, *, chosen: bool
) -> None:
    answer = await lost(strict_api, bot, "The **one** and only.", how="after")
    shown = (await ann.screen()).answers[0]
    assert shown.text == "The one and only."
    quoted = QuotedMessage(author="bot", by_bot=True, text="one and" if chosen else shown.text, chosen=chosen)
    await bot.delivery.uncertain.handle_quote(await bot.place(), shown.message_id, quoted)
    await bot.tell()
    assert await texts(ann) == ["The one and only."]
    assert [row.remote_id for row in await bot.rows(answer)] == [shown.message_id]
    assert await state(bot) == ("over", 1, 1)
    assert await bot.broken_invariants() == []


async def test_who_quotes_something_else_has_not(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await lost(strict_api, bot, "The one and only.")
    (notice,) = await notices(ann)
    known = await bot.begin(await bot.place())
    await known.end("The one and only.")
    (told, later) = (await ann.screen()).answers
    for line in (told, later):
        quoted = QuotedMessage(author="bot", by_bot=True, text=line.text)
        await bot.delivery.uncertain.handle_quote(await bot.place(), line.message_id, quoted)
    assert await bot.states(answer) == ["uncertain"]
    await bot.tell()
    assert [line.message_id for line in await notices(ann)] == [notice.message_id]


async def test_who_presses_a_button_under_an_answer_has_it(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.buttons = True
    answer = await lost(strict_api, bot, "The one and only.", how="after")
    shown = (await ann.screen()).answers[0]
    await bot.delivery.uncertain.handle_answer_press(await bot.place(), answer.turn, shown.message_id)
    await bot.tell()
    assert await texts(ann) == ["The one and only."]
    assert await bot.states(answer) == ["delivered"]


@pytest.mark.parametrize("old", [False, True])
async def test_when_an_operator_saw_it_the_notice_goes(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, *, old: bool
) -> None:
    answer = await lost(strict_api, bot, "The one and only.", how="after")
    if old:
        await strict_api.fail(
            "deleteMessage", status=400, description="Bad Request: message can't be deleted"
        )
    await changed(bot, "arrived", answer)
    await bot.tell()
    assert await texts(ann) == ["The one and only.", *(["It has arrived."] if old else [])]
    assert await state(bot) == ("over", 1, 1)


async def test_answer_lost_again_gets_a_new_notice_and_button(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await lost(strict_api, bot, "The one and only.")
    (first,) = await notices(ann)
    await strict_api.fail("sendMessage", times=1, match={"contains": "The one and only."}, reset="before")
    place = await bot.place()
    await press(bot, place, first, accessible=False)
    assert await bot.states(answer) == ["uncertain"]
    assert await state(bot) == ("shown", 2, 1)
    assert (await press(bot, place, first)).what == "before", "of the round before"
    (second,) = await notices(ann)
    await press(bot, place, second)
    assert await texts(ann) == ["The one and only."]
    assert await bot.broken_invariants() == []


async def test_a_forged_press_brings_nothing(strict_api: RunningBotApi, bot: BotProcess, ann: Person) -> None:
    answer = await lost(strict_api, bot, "The one and only.")
    (notice,) = await notices(ann)
    button = press_of(notice)
    elsewhere = await bot.place(43)
    for place, number, round_number in (
        (elsewhere, button.subject, 1),
        (await bot.place(), button.subject + 1, 1),
        (await bot.place(), button.subject, 2),
    ):
        found = await bot.delivery.uncertain.handle_press(
            place, number, round_number=round_number, message_id=None
        )
        assert found.what != "brought"
    assert await bot.states(answer) == ["uncertain"]


async def test_a_press_while_postgres_is_away_is_heard_again(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update stays in the inbox until this returns."""
    await lost(strict_api, bot, "The one and only.")
    (notice,) = await notices(ann)
    with monkeypatch.context() as patch:
        patch.setattr(bot.post.notices, "press", away)
        with pytest.raises(StorageUnavailable):
            await press(bot, await bot.place(), notice)
    await press(bot, await bot.place(), notice)
    assert await texts(ann) == ["The one and only."]


async def test_person_who_blocked_the_bot_is_notified_after_return(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", reset="before")
    await strict_api.fail("sendMessage", status=403, description="Forbidden: bot was blocked by the user")
    await answer.end("The one and only.")
    await bot.pool.execute(HURRY)
    await bot.tell()
    assert await notices(ann) == []
    await bot.hear_of(42)
    await bot.tell()
    assert len(await notices(ann)) == 1


async def changed(bot: BotProcess, verb: Any, answer: Answer) -> Sequence[str]:
    session = await bot.pool.fetchval("SELECT public_id::text FROM sessions LIMIT 1")
    part = PartKey(session=session, turn=answer.turn, part=0)
    return (await PostgresJobChanges(bot.pool).change_deliveries(verb, [part], actor="anna")).changed
