"""Answers come whole and once: live, through faults, and after a process has died."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from structlog.testing import capture_logs

from bot.telegram.client.calls import RateLimits, ScaledClock
from bot.telegram.markup.entity_text import LIVE_UNITS, MAX_PARTS, render
from bot.telegram.outbound.delivery import AnswerDelivery
from bot.telegram.outbound.draft_streaming import PRIVATE_PACING, EditPacing
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.core.session.turns import Inbound, Organizing, Outcome, RunEnded, RunStarted, Stored, ToolRunning
from shared.core.values.errors import StorageUnavailable
from shared.core.values.messages import Text
from shared.ports import ToolFile
from tests.integration.bot.outbound.delivery_driver import (
    BOT_ID,
    FAST,
    UNCERTAIN,
    BotProcess,
    die_while_sending,
)
from tests.integration.bot.outbound.long_answers import LONG, WORDS, away
from tests.kit.fakes.bot_api import Person, RunningBotApi

ANSWER = WORDS * 12


def seen(markdown: str) -> str:
    return render(markdown).text


async def shown(ann: Person) -> list[str]:
    return (await ann.screen()).texts


async def called(fake: RunningBotApi) -> list[str]:
    return [call["method"] for call in await fake.calls()]


async def test_a_private_answer_is_one_message_that_grows(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.stream(ANSWER, pause=0.04)
    await answer.end()
    assert await shown(ann) == [seen(ANSWER)]
    calls = await strict_api.counts()
    assert calls["sendMessage"] == 1
    assert calls["editMessageText"] >= 3
    assert (await ann.screen()).notifications == 1
    views = [view["text"] for view in await ann.views() if view["kind"] in ("sent", "edited")]
    for earlier, later in itertools.pairwise(views):
        assert len(later) > len(earlier) - 5
        assert later.startswith(earlier[:-8])
    assert await bot.states(answer) == ["delivered"]
    assert await bot.broken_invariants() == []


async def test_edits_keep_their_distance(strict_api: RunningBotApi, bot: BotProcess, ann: Person) -> None:
    await strict_api.set_speed(30.0)
    await strict_api.set_limits(on=True)
    bot.set_up(clock=ScaledClock(speed=30.0), rhythm=EditPacing(), limits=RateLimits())
    answer = await bot.begin(await bot.place())
    await answer.stream(ANSWER, pause=0.02)
    await answer.end()
    calls = [call for call in await strict_api.calls(chat=42) if call["method"] != "sendChatAction"]
    gaps = [30.0 * (later["at"] - earlier["at"]) for earlier, later in itertools.pairwise(calls[:-1])]
    assert len(gaps) >= 3
    assert min(gaps) >= 1.5 * 0.9
    assert all(call["status"] != 429 for call in calls)
    assert await shown(ann) == [seen(ANSWER)]


async def test_group_gets_the_whole_answer_within_twenty_messages_a_minute(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    speed = 30.0
    await strict_api.set_speed(speed)
    await strict_api.set_limits(on=True)
    bot.set_up(clock=ScaledClock(speed=speed), rhythm=EditPacing(edit_seconds=3.5), limits=RateLimits())
    group = await strict_api.group("Family", ann)
    question = await ann.say("@evertalk_test_bot hello", chat=group.id)
    answer = await bot.begin(await bot.place(group.id), question=question.message_id)
    await answer.stream(LONG[:3_000], step=60, pause=0.06)
    await answer.end()
    calls = await strict_api.calls(chat=group.id)
    counted = [call for call in calls if call["method"] in ("sendMessage", "editMessageText")]
    assert len(counted) >= 15
    assert all(call["status"] != 429 for call in counted), "no limit was ever touched"
    assert (await group.screen()).texts == [seen(LONG[:3_000])]
    assert counted[0]["params"]["reply_parameters"] == {
        "message_id": question.message_id,
        "allow_sending_without_reply": True,
    }


async def test_a_short_answer_is_sent_once_and_never_edited(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.say("Yes.")
    await answer.end()
    assert await shown(ann) == ["Yes."]
    assert "editMessageText" not in await strict_api.counts()
    assert await bot.states(answer) == ["delivered"]


async def test_long_answer_continues_in_further_messages_without_jumps(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    text = LONG + "\n\n" + LONG[:3_000]
    await answer.stream(text, step=300, pause=0.03)
    bubbles = (await ann.sees(lambda screen: len(screen.answers) >= 2)).answers
    await answer.end()
    lines = (await ann.screen()).answers
    assert [line.message_id for line in lines][: len(bubbles)] == [line.message_id for line in bubbles]
    assert "".join("".join(await shown(ann)).split()) == "".join(seen(text).split())
    assert all(len(line.text) <= LIVE_UNITS for line in lines)
    assert lines[0].text == bubbles[0].text
    assert (await ann.screen()).notifications == 1
    assert set(await bot.states(answer)) == {"delivered"}


@pytest.mark.parametrize("live", [True, False])
async def test_answer_over_five_parts_continues_in_a_file(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, *, live: bool
) -> None:
    answer = await bot.begin(await bot.place())
    text = "\n\n".join([LONG] * 4)
    read: list[str] = []
    if live:
        await answer.stream(text, step=1_500, pause=0.02)
        read = (await ann.sees(lambda screen: len(screen.answers) == MAX_PARTS)).texts
    await answer.end(text)
    *bubbles, last = (await ann.screen()).answers
    assert [line.text for line in bubbles[: len(read[:-1])]] == read[:-1]
    assert not [view for view in await ann.views() if view["kind"] == "deleted"]
    assert "".join(seen(text).split()).startswith("".join("".join(line.text for line in bubbles).split()))
    assert len(bubbles) == MAX_PARTS
    assert (last.document, last.text) == ("answer.md", "The whole answer")
    (call,) = await strict_api.calls("sendDocument")
    assert list(call["files"].values()) == [len(text.encode())]
    assert await bot.states(answer) == ["delivered"] * (MAX_PARTS + 1)
    assert (await ann.screen()).notifications == 1


@pytest.mark.parametrize("state", ["stopped", "refused"])
async def test_notice_brings_the_file_that_its_turn_has_made(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, state: Literal["stopped", "refused"]
) -> None:
    answer = await bot.begin(await bot.place())
    files = PostgresAttachments(bot.pool)
    plan = ToolFile(name="plan.txt", mime="text/plain", body=b"Go by boat.")
    made = await files.store_file(answer.claim.session_id, plan)
    (file,) = await files.list_attached([made])
    outcome = Outcome(
        state=state, blocks=None, tokens=0,
        screen={"text": "No answer.", "attachments": [file.to_payload()]},
    )  # fmt: skip
    stored = await bot.turns.record_answer(answer.claim, outcome)
    await answer.emit(Stored(event_seq=stored.event_seq, kind="msg", payload=stored.payload, ends=state))
    await answer.emit(RunEnded(turn=answer.turn, state=state))
    await answer.emit.close()
    notice, sent = (await ann.screen()).answers
    assert notice.text
    assert sent.document == "plan.txt"
    assert await bot.states(answer) == ["delivered"] * 2


@pytest.mark.row("F50")
async def test_final_message_with_retry_after_is_sent_once_afterwards(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.set_up(clock=ScaledClock(speed=50.0))
    answer = await bot.begin(await bot.place())
    await answer.say("It is so.")
    await strict_api.fail("sendMessage", times=2, status=429, retry_after=5)
    await answer.end()
    assert await shown(ann) == ["It is so."]
    assert [call["status"] for call in await strict_api.calls("sendMessage")] == [429, 429, 200]
    assert await bot.states(answer) == ["delivered"]


async def test_final_edit_with_retry_after_is_sent_after_it(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.set_up(clock=ScaledClock(speed=50.0))
    answer = await bot.begin(await bot.place())
    await answer.say(WORDS)
    await strict_api.fail("editMessageText", times=3, status=429, retry_after=2)
    await answer.stream(ANSWER[len(WORDS) :])
    await answer.end()
    assert await shown(ann) == [seen(ANSWER)]
    assert (await strict_api.counts())["sendMessage"] == 1


async def test_a_wait_that_is_too_long_is_left_to_the_next_process(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before = bots()
    before.set_up(patience=0.1)
    answer = await before.begin(await before.place())
    await answer.say("It is so.")
    await strict_api.fail("sendMessage", status=429, retry_after=30)
    await answer.end()
    assert await shown(ann) == []
    assert await before.states(answer) == ["queued"]
    assert await before.recover() == 0, "the chat is not asked while it is told to wait"
    assert len(await strict_api.calls("sendMessage")) == 1
    await before.die()
    after = bots()
    await strict_api.fail("sendMessage", status=429, retry_after=1)
    assert await after.recover() == 0
    after.set_up()
    assert await after.recover() == 1
    assert await after.recover() == 0
    assert await shown(ann) == ["It is so."]


@pytest.mark.row("F50")
async def test_a_lost_acknowledgement_leaves_the_text_once_and_the_part_uncertain(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", reset="after")
    await answer.end("The one and only.")
    assert await shown(ann) == ["The one and only.", UNCERTAIN]
    assert await bot.states(answer) == ["uncertain"]
    assert await bot.recover() == 0
    assert await bots().recover() == 0
    await bot.tell()
    assert await shown(ann) == ["The one and only.", UNCERTAIN]


def uncertain(logs: list[Any]) -> list[Any]:
    return [one for one in logs if one["event"] == "draft_message_delivery_unknown"]


async def test_a_lost_first_bubble_never_costs_the_answer(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", reset="before")
    with capture_logs() as logs:
        await answer.stream(ANSWER)
    assert len(await strict_api.calls("sendMessage")) == 1, "one that may be there is not sent again"
    assert len(uncertain(logs)) == 1
    await answer.end()
    assert await shown(ann) == [seen(ANSWER)]
    assert await bot.states(answer) == ["delivered"]


async def test_a_lost_bubble_that_said_it_all_is_not_said_again(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", reset="after")
    await answer.say("A whole answer in the first bubble.")
    await answer.end()
    assert await shown(ann) == ["A whole answer in the first bubble.", UNCERTAIN]
    assert await bot.states(answer) == ["uncertain"]


async def test_answer_finished_during_telegram_outage_is_sent_once_afterwards(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.stream(ANSWER[:300])
    await strict_api.refuse_connections()
    await answer.stream(ANSWER[300:])
    await answer.end()
    assert await bot.recover() == 0
    await strict_api.accept_connections()
    assert await bot.recover() == 1
    assert await bot.recover() == 0
    assert await shown(ann) == [seen(ANSWER)]
    assert (await strict_api.counts())["sendMessage"] == 1


async def test_later_answers_wait_for_an_earlier_one_that_could_not_be_sent(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    place = await bot.place()
    first = await bot.begin(place)
    await strict_api.refuse_connections()
    await first.end("The first answer.")
    second = await bot.begin(place)
    await second.end("The second answer.")
    assert await bot.states(second) == ["queued"]
    await strict_api.accept_connections()
    third = await bot.begin(place)
    await third.end("The third answer.")
    assert await bot.recover() == 0
    assert await shown(ann) == ["The first answer.", "The second answer.", "The third answer."]


async def test_unannounced_answer_is_sent_first_though_its_lookup_failed(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replies of Postgres are lost: that of a commit, and what is left from before the next turn."""

    async def lost(*_: object, **__: object) -> list[int]:
        raise StorageUnavailable("the line broke")

    place = await bot.place()
    await (await bot.begin(place)).end("The first answer.")
    second = await bot.begin(place)
    await second.commit("The second answer.")
    await second.emit.close()
    with monkeypatch.context() as away:
        away.setattr(bot.deliveries, "list_unfinished_before", lost)
        third = await bot.begin(place)
        await third.stream(ANSWER[:300])
        stored = await third.commit()
        await third.emit(stored)
        assert await shown(ann) == ["The first answer."], "nobody knows what comes before it"
    await third.emit(stored)
    await third.emit.close()
    assert await shown(ann) == ["The first answer.", "The second answer.", seen(ANSWER[:300])]
    assert await bot.broken_invariants() == []


@pytest.mark.parametrize("live", [True, False])
async def test_answer_of_process_that_died_after_commit_is_sent_once(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person, *, live: bool
) -> None:
    before = bots()
    answer = await before.begin(await before.place())
    if live:
        await answer.stream(ANSWER[:300])
    await answer.commit(ANSWER)
    await before.die()
    after = bots()
    assert await after.deliveries.recover_interrupted([BOT_ID]) == 0
    assert await after.recover() == 1
    assert await shown(ann) == [seen(ANSWER)]
    assert (await strict_api.counts())["sendMessage"] == 1
    assert await after.states(answer) == ["delivered"]
    assert await after.broken_invariants() == []


async def test_a_process_that_died_between_sending_and_knowing_sends_nothing_twice(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    answer = await die_while_sending(bots(), strict_api, ann, "Once.")
    after = bots()
    assert await after.deliveries.recover_interrupted([BOT_ID]) == 1
    assert await after.recover() == 0
    assert await after.states(answer) == ["uncertain"]
    assert await shown(ann) == ["Once."]


async def test_unrecorded_sent_part_is_recorded_later_without_resending(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await bot.begin(await bot.place())
    with monkeypatch.context() as patch:
        patch.setattr(bot.deliveries, "mark_delivered", away)
        await answer.end("Once.")
    assert await bot.states(answer) == ["sending"]
    assert await bot.recover() == 1
    assert await bot.states(answer) == ["delivered"]
    assert await shown(ann) == ["Once."]


async def test_a_bubble_that_could_not_be_noted_is_taken_back(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot.set_up(clock=ScaledClock(speed=20.0))
    answer = await bot.begin(await bot.place())
    with monkeypatch.context() as patch:
        patch.setattr(bot.deliveries, "record_bubble", away)
        with capture_logs() as logs:
            await answer.say(WORDS)
    assert await shown(ann) == []
    assert uncertain(logs) == []
    await answer.end()
    assert await shown(ann) == [seen(WORDS)]


async def test_bubble_stays_while_storage_is_away_for_a_moment(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await bot.begin(await bot.place())
    record, refusals = bot.deliveries.record_bubble, 3

    async def record_later(*place: int, **row: int) -> bool:
        nonlocal refusals
        if refusals:
            refusals -= 1
            await away()
        return await record(*place, **row)

    monkeypatch.setattr(bot.deliveries, "record_bubble", record_later)
    await answer.say(WORDS)
    (line,) = (await ann.screen()).answers
    await answer.say(WORDS)
    await answer.end()
    assert [view for view in await ann.views() if view["kind"] == "deleted"] == []
    assert [(one.message_id, one.text) for one in (await ann.screen()).answers] == [
        (line.message_id, seen(WORDS * 2))
    ]


async def test_part_that_was_neither_recorded_nor_deleted_is_reported(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot.set_up(clock=ScaledClock(speed=20.0))
    answer = await bot.begin(await bot.place())
    await strict_api.fail("deleteMessage", status=400, description="Bad Request: message can't be deleted")
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(bot.deliveries, "record_bubble", away)
        await answer.say(WORDS)
    assert len(await shown(ann)) == 1
    assert [one["reason"].startswith("not deleted") for one in uncertain(logs)] == [True]


async def test_two_who_bring_the_same_answer_bring_it_once(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    bot = bots()
    answer = await bot.begin(await bot.place())
    await answer.stream(LONG[:3_000])
    await answer.commit(LONG)
    others = [bots() for _ in range(3)]
    await asyncio.gather(*(other.recover() for other in others))
    await others[0].recover()
    assert "".join("".join(await shown(ann)).split()) == "".join(seen(LONG).split())
    assert set(await bot.states(answer)) == {"delivered"}


async def test_a_process_that_died_in_the_middle_of_the_parts_is_continued(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before = bots()
    before.set_up(patience=0.1)
    answer = await before.begin(await before.place())
    await strict_api.fail("sendMessage", match={"nth": 2}, status=429, retry_after=9)
    await answer.end(LONG)
    assert await before.states(answer) == ["delivered", "queued"]
    await before.die()
    assert await bots().recover() == 1
    assert "".join("".join(await shown(ann)).split()) == "".join(seen(LONG).split())


async def test_a_new_attempt_of_another_process_edits_the_bubble_that_is_there(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before = bots()
    place = await before.place()
    answer = await before.begin(place)
    await answer.stream("This attempt will never come to its end, alas. ")
    await before.die()
    after = bots()
    again = await after.claim(place)
    assert (again.turn, again.claim.attempt) == (answer.turn, 2)
    before_takeover = await shown(ann)
    await again.stream(ANSWER)
    assert await shown(ann) == before_takeover, "a bubble of unknown length never shrinks"
    await again.end(ANSWER)
    assert await shown(ann) == [seen(ANSWER)]
    assert (await strict_api.counts())["sendMessage"] == 1


async def test_the_bubble_of_a_turn_that_was_taken_away_is_deleted(
    strict_api: RunningBotApi, bots: Callable[[], BotProcess], ann: Person
) -> None:
    before, after = bots(), bots()
    place = await before.place()
    answer = await before.begin(place)
    assert before._worker_id is not None
    await before.workers.stop(before._worker_id)
    again = await after.claim(place)
    await answer.stream(ANSWER)
    assert await shown(ann) == []
    await again.end("From the living.")
    await answer.emit.close()
    assert await shown(ann) == ["From the living."]


@pytest.mark.row("F50")
async def test_a_bubble_that_the_person_deleted_comes_back_as_the_answer(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.stream(ANSWER[:200])
    (line,) = (await ann.screen()).answers
    await ann.delete(line.message_id)
    await answer.stream(ANSWER[200:])
    await answer.end()
    assert await shown(ann) == [seen(ANSWER)]
    assert await bot.states(answer) == ["delivered"]


@pytest.mark.parametrize("first_is_deleted", [False, True])
async def test_messages_that_become_no_answer_are_deleted_when_telegram_is_back(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person, *, first_is_deleted: bool
) -> None:
    bot.buttons = True
    answer = await bot.begin(await bot.place())
    await answer.stream(LONG, step=300, pause=0.03)
    first, second = (await ann.sees(lambda screen: len(screen.answers) == 2)).answers
    if first_is_deleted:
        await ann.delete(first.message_id)
    await strict_api.fail(
        "editMessageText", times=-1, status=400, description="Bad Request: message can't be edited"
    )
    lost = second if first_is_deleted else first
    if first_is_deleted:
        await strict_api.fail("deleteMessage", latency=0.0)  # it is refused, since the message is gone
    await strict_api.fail("deleteMessage", times=3, reset="before")
    await answer.end(LONG)
    assert lost.message_id in [line.message_id for line in (await ann.screen()).answers]
    assert (await bot.rows(answer))[-1].remote_id == second.message_id, "the message is still known"
    assert await bot.recover() == 1
    lines = (await ann.screen()).answers
    assert "".join("".join(line.text for line in lines).split()) == "".join(seen(LONG).split())
    assert [line.buttons for line in lines] == [[], ["Regenerate"]]
    assert await bot.broken_invariants() == []


@pytest.mark.row("F50")
async def test_a_blocked_chat_is_left_alone(strict_api: RunningBotApi, bot: BotProcess, ann: Person) -> None:
    place = await bot.place()
    answer = await bot.begin(place)
    await answer.stream(ANSWER[:200])
    await ann.block()
    await answer.end(ANSWER)
    assert await bot.states(answer) == ["sent"], "it waits for the chat"
    stored = await bot.places.find_chat(place.address_id)
    assert stored is not None
    assert stored.unreachable
    calls = len(await strict_api.calls())
    assert await bot.recover() == 0
    assert len(await strict_api.calls()) == calls


async def test_an_answer_follows_a_group_that_became_a_supergroup(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    group = await strict_api.group("Family", ann, kind="group")
    place = await bot.place(group.id)
    answer = await bot.begin(place)
    await answer.stream(ANSWER[:200])
    bigger = await group.migrate()
    await answer.end(ANSWER)
    assert (await bigger.screen()).texts == [seen(ANSWER)]
    assert await bot.states(answer) == ["delivered"]
    stored = await bot.places.find_chat(place.address_id)
    assert stored is not None
    assert stored.chat_id == bigger.id


@pytest.mark.control("S18")
@pytest.mark.row("F50")
async def test_refused_formatting_arrives_as_plain_text(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await strict_api.fail("sendMessage", status=400)
    await answer.end("A **bold** word.")
    (line,) = (await ann.screen()).answers
    assert (line.text, line.entities) == ("A bold word.", [])
    assert await bot.states(answer) == ["delivered"]


async def test_a_stopped_answer_keeps_its_text_and_says_so(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.stream("```python\nprint('this block is never closed")
    await answer.end(state="stopped")
    assert await shown(ann) == ["print('this block is never closed\n\n[stopped]"]
    second = await bot.begin(await bot.place())
    await second.end("Next.")
    assert (await shown(ann))[-1] == "Next."


async def test_trouble_is_one_line_and_not_repeated_within_a_minute(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    place = await bot.place()
    for _ in range(3):
        answer = await bot.begin(place)
        await answer.end("please try again later.", state="failed")
        assert await bot.states(answer) == ["delivered"]
    assert await shown(ann) == ["Sorry: please try again later."]
    bubble = await bot.begin(place)
    await bubble.stream(WORDS)
    await bubble.end("please try again later.", state="failed")
    assert await shown(ann) == ["Sorry: please try again later."] * 2, "no draft stays behind"


async def test_a_turn_that_waits_says_so_once(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    payload = {"role": "notice", "text": "it takes longer.", "error": "busy", "waiting": True}
    for _ in range(2):
        await answer.emit(Stored(event_seq=9, kind="msg", payload=payload))
        await answer.emit(RunEnded(turn=answer.turn, state="waiting"))
        await answer.emit(RunStarted(turn=answer.turn, attempt=2, epoch=answer.claim.epoch))
    await answer.say(ANSWER, attempt=2)
    await answer.end()
    assert await shown(ann) == ["Sorry: it takes longer.", seen(ANSWER)]
    assert await bot.states(answer) == ["delivered"]


async def test_a_tool_at_work_is_one_line_in_the_bubble(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.emit(ToolRunning(turn=answer.turn, name="save_memory"))
    assert await shown(ann) == []
    await answer.emit(ToolRunning(turn=answer.turn, name="look_up"))
    assert await shown(ann) == ["(look_up …)"]
    await answer.stream(ANSWER)
    await answer.end()
    assert await shown(ann) == [seen(ANSWER)]
    assert (await strict_api.counts())["sendMessage"] == 1


async def test_awaited_summary_is_one_line_in_the_bubble(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    answer = await bot.begin(await bot.place())
    await answer.emit(Organizing(turn=answer.turn, job_id=7))
    assert await shown(ann) == ["(organizing …)"]
    await answer.stream(ANSWER)
    await answer.end()
    assert await shown(ann) == [seen(ANSWER)]


async def test_buttons_are_under_the_last_part_of_each_answer(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.buttons = True
    place = await bot.place()
    first = await bot.begin(place)
    await first.stream(LONG, step=400, pause=0.03)
    assert [line.buttons for line in (await ann.screen()).answers][-1] == ["Stop"]
    await first.end()
    lines = (await ann.screen()).answers
    above: list[list[str]] = [[]] * (len(lines) - 1)
    assert [line.buttons for line in lines] == [*above, ["Regenerate"]]
    bot.beat()
    second = await bot.begin(place)
    await second.end("Short.")
    expected = [*above, ["Regenerate"], ["Regenerate"]]
    await ann.sees(lambda screen: [line.buttons for line in screen.answers] == expected)


async def test_long_answer_is_as_many_messages_as_the_setting_allows(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.post = replace(bot.post, most_messages=30)
    bot.delivery = AnswerDelivery(bot.post, tasks=bot.tasks)
    answer = await bot.begin(await bot.place())
    await answer.end(WORDS * 700)
    lines = (await ann.screen()).answers
    assert len(lines) > MAX_PARTS
    assert [line.document for line in lines] == [None] * len(lines)
    assert "".join("".join(line.text for line in lines).split()) == "".join(seen(WORDS * 700).split())


async def test_an_answer_that_is_there_at_once_is_one_call(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    """Neither typing, nor a bubble with an edit, nor a call that takes the buttons above away."""
    bot.buttons = True
    bot.set_up(rhythm=EditPacing(settle_seconds=60.0), typing_after=60.0)
    place = await bot.place()
    answers = [await bot.begin(place)]
    await answers[0].say("The first: ", WORDS)
    await answers[0].end()
    answers.append(await bot.begin(place))
    await answers[1].say("The second: ", WORDS)
    await answers[1].end()
    await bot.tasks.rest()
    assert await called(strict_api) == ["sendMessage", "sendMessage"]
    assert [await bot.states(each) for each in answers] == [["delivered"]] * 2


async def test_an_answer_that_takes_its_time_is_shown_meanwhile(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.set_up(rhythm=PRIVATE_PACING, typing_after=0.0)
    answer = await bot.begin(await bot.place())
    await answer.say(ANSWER)
    await asyncio.sleep(PRIVATE_PACING.settle_seconds)
    await answer.say("And more.")
    assert await shown(ann) == [seen(f"{ANSWER}And more.")]
    await answer.say(" Done.")
    await answer.end()
    assert await shown(ann) == [seen(f"{ANSWER}And more. Done.")]
    assert "sendChatAction" in await called(strict_api)


async def test_answers_stay_in_their_topics(strict_api: RunningBotApi, bot: BotProcess, ann: Person) -> None:
    bot.set_up(typing_after=0.0)
    group = await strict_api.group("Forum", ann, forum=True)
    one, two = await group.create_topic("One"), await group.create_topic("Two")
    for thread in (one, two, 0):
        answer = await bot.begin(await bot.place(group.id, thread=thread))
        await answer.stream(f"In topic {thread}: " + WORDS)
        await answer.end()
    lines = (await group.screen()).answers
    assert [line.thread for line in lines] == [one, two, None]
    typing = await strict_api.calls("sendChatAction")
    assert [call["params"].get("message_thread_id") for call in typing] == [one, two, None]
    await group.delete_topic(two)
    answer = await bot.begin(await bot.place(group.id, thread=two))
    await answer.end("After all.")
    assert [line.thread for line in (await group.screen()).answers][-1] is None


async def test_topics_of_a_private_chat_are_places_of_their_own(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    await strict_api.change_bot(topics=True)
    topic = await ann.create_topic("Plans")
    answer = await bot.begin(await bot.place(thread=topic))
    await answer.stream(ANSWER)
    await answer.end()
    (line,) = (await ann.screen()).answers
    assert (line.thread, line.text) == (topic, seen(ANSWER))


async def test_typing_continues_through_silence_and_429_and_ends_with_answer(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    bot.set_up(clock=ScaledClock(speed=20.0), rhythm=FAST)
    await strict_api.fail("sendChatAction", status=429, retry_after=6)
    await strict_api.fail("sendChatAction", reset="before")
    answer = await bot.begin(await bot.place())
    while len(await strict_api.calls("sendChatAction")) < 5:
        await asyncio.sleep(0.02)
    await answer.end("Here it is, after a long silence.")
    calls = [call["method"] for call in await strict_api.calls(chat=42)]
    assert calls[0] == "sendChatAction"
    assert calls[-1] == "sendMessage"
    assert not (await ann.screen()).is_typing


async def test_what_was_shown_before_a_human_answered_is_taken_back(
    strict_api: RunningBotApi, bot: BotProcess, ann: Person
) -> None:
    place = await bot.place()
    first = await bot.begin(place)
    await first.stream(ANSWER[:300])
    await bot.turns.postpone(first.claim, seconds=600.0, fault=True, notice=None)
    await first.emit.close()
    await bot.turns.accept(
        Inbound(session_id=place.session_id, address_id=place.address_id, text="Anybody?", dedupe_key="tg:x"),
        channel="telegram",
        tokens=2,
    )
    operator = await bot.pool.fetchval(
        "INSERT INTO operators (name, display_name, role) VALUES ('anna.k', 'Anna', 'operator') RETURNING id"
    )
    humans = PostgresHandovers(bot.pool)
    await humans.take_over(place.session_id, operator_id=operator, name="Anna")
    await humans.record_reply(
        place.session_id, operator_id=operator, cid="r1", blocks=(Text(text="Here I am."),), tokens=3
    )
    await bot.recover()
    assert await shown(ann) == ["👤 Anna\n\nHere I am."]
    assert await bot.states(first) == ["delivered"]
    assert await bot.recover() == 0
    assert await bot.broken_invariants() == []
