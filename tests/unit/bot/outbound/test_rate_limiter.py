"""Who may go out when: windows, priorities and waits, with a clock made of numbers."""

from __future__ import annotations

from bot.telegram.client.calls import CallQueue, Priority, QueuedCall, Rate, RateLimits

ANN, GROUP = 42, -5
EDIT, FINAL, TYPING = Priority.EDIT, Priority.FINAL, Priority.TYPING


def queued_call(chat: int | None = ANN, priority: Priority = FINAL, **more: object) -> QueuedCall:
    return QueuedCall(chat_id=chat, priority=priority, **more)  # type: ignore[arg-type]


def add(queue: CallQueue, *tickets: QueuedCall) -> None:
    for each in tickets:
        assert queue.add(each)


def test_the_most_important_call_goes_first_and_equals_in_their_order() -> None:
    queue = CallQueue(RateLimits(overall=Rate(limit=1, seconds=1.0)))
    typing, edit, first, second = queued_call(1, TYPING), queued_call(2, EDIT), queued_call(3), queued_call(4)
    add(queue, typing, edit, first, second)
    assert [queue.take_due(float(now)) for now in range(4)] == [[first], [second], [edit], [typing]]


def test_the_answer_to_a_button_waits_for_no_window() -> None:
    queue = CallQueue(RateLimits(overall=Rate(limit=1, seconds=1.0)))
    first, pressed = queued_call(), queued_call(None, Priority.CALLBACK)
    add(queue, first)
    assert queue.take_due(0.0) == [first]
    add(queue, pressed)
    assert queue.take_due(0.0) == [pressed]


def test_a_private_chat_takes_three_in_three_seconds() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(queued_call() for _ in range(5)))
    assert len(queue.take_due(0.0)) == 3
    assert queue.get_next_time() == 3.2
    assert len(queue.take_due(3.2)) == 2


def test_a_call_counts_from_its_answer_on() -> None:
    queue = CallQueue(RateLimits())
    calls = [queued_call() for _ in range(3)]
    add(queue, *calls, queued_call())
    assert queue.take_due(0.0) == calls
    for each in calls:
        queue.finish(each, 2.0)
    assert queue.take_due(3.2) == []
    assert len(queue.take_due(5.2)) == 1


def test_edits_of_unfinished_answers_leave_room_for_the_final() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(queued_call(priority=EDIT) for _ in range(3)))
    assert len(queue.take_due(0.0)) == 2
    final = queued_call()
    add(queue, final)
    assert queue.take_due(0.0) == [final]


def test_tidying_stands_behind_all_others_and_needs_a_quiet_chat() -> None:
    queue = CallQueue(RateLimits())
    tidying = [queued_call(priority=Priority.CLEANUP) for _ in range(3)]
    add(queue, *tidying)
    assert queue.take_due(0.0) == tidying[:1]
    edit, final, another = queued_call(priority=EDIT), queued_call(), queued_call()
    add(queue, edit, final)
    assert queue.take_due(0.1) == [final]
    assert queue.take_due(3.2) == [edit]
    assert queue.take_due(6.3) == []
    add(queue, another)
    assert queue.take_due(6.3) == [another]
    assert queue.take_due(9.6) == tidying[1:2]


def test_a_group_never_gets_more_than_twenty_in_a_minute() -> None:
    queue = CallQueue(RateLimits())
    moments: list[float] = []
    for tenth in range(3_000):
        now = tenth / 10
        if len(queue) < 3:
            add(queue, queued_call(GROUP))
        moments += [now for _ in queue.take_due(now)]
    assert len(moments) >= 80
    assert all(later - earlier >= 60 for earlier, later in zip(moments, moments[20:], strict=False))


def test_all_chats_together_get_twenty_eight_in_a_second() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(queued_call(chat) for chat in range(1, 61)))
    assert [len(queue.take_due(now)) for now in (0.0, 0.5, 1.1, 2.2)] == [28, 0, 28, 4]


def test_calls_of_all_chats_count_from_their_answers_on() -> None:
    """They may have come to Telegram as late as that."""
    queue = CallQueue(RateLimits())
    calls = [queued_call(chat) for chat in range(1, 29)]
    add(queue, *calls, queued_call(60))
    assert queue.take_due(0.0) == calls
    for each in calls:
        queue.finish(each, 0.7)
    assert queue.take_due(1.7) == []
    assert len(queue.take_due(1.9)) == 1


def test_typing_of_many_chats_leaves_room_for_their_answers() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(queued_call(chat, TYPING, counts=False) for chat in range(1, 51)))
    assert len(queue.take_due(0.0)) == 5
    answers = [queued_call(chat) for chat in range(1, 51)]
    add(queue, *answers)
    assert queue.take_due(0.1) == answers[:23]
    assert queue.take_due(1.1) == answers[23:28]
    assert queue.take_due(1.3) == answers[28:]


def test_typing_goes_where_answers_under_way_still_have_room() -> None:
    queue = CallQueue(RateLimits())
    queue.expected = 21
    add(queue, *(queued_call(chat, TYPING, counts=False) for chat in range(1, 6)))
    assert len(queue.take_due(0.0)) == 2
    queue.expected = 10
    assert len(queue.take_due(0.1)) == 3


def test_edits_of_many_chats_leave_room_for_finals() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(queued_call(chat, EDIT) for chat in range(1, 51)))
    assert len(queue.take_due(0.0)) == 23
    finals = [queued_call(chat) for chat in range(51, 56)]
    add(queue, *finals)
    assert queue.take_due(0.1) == finals


def test_chat_with_retry_after_waits_whole_and_others_do_not() -> None:
    queue = CallQueue(RateLimits())
    queue.hold(ANN, 30.0)
    final, typing, other = queued_call(), queued_call(priority=TYPING, counts=False), queued_call(7)
    add(queue, final, typing, other)
    assert queue.take_due(0.0) == [other]
    assert queue.get_next_time() == 30.0
    assert queue.take_due(30.0) == [final, typing]


def test_send_that_cannot_be_in_time_is_refused_at_once() -> None:
    queue = CallQueue(RateLimits())
    patient, hasty = queued_call(deadline=60.0), queued_call(deadline=5.0)
    add(queue, patient, hasty)
    queue.hold(ANN, 30.0)
    assert queue.take_due(0.0) == []
    assert queue.take_expired(0.0) == [hasty]
    assert queue.take_due(30.0) == [patient]


def test_one_message_is_edited_by_one_call_at_a_time() -> None:
    queue = CallQueue(RateLimits())
    first, second = (queued_call(priority=EDIT, message=(ANN, 5)) for _ in range(2))
    add(queue, first, second)
    assert queue.take_due(0.0) == [first]
    assert queue.get_next_time() is None
    queue.finish(first, 0.1)
    assert queue.take_due(0.1) == [second]


def test_the_queue_is_bounded() -> None:
    queue = CallQueue(RateLimits(waiting=2))
    add(queue, queued_call(), queued_call())
    assert not queue.add(queued_call())


def test_chats_at_rest_are_forgotten() -> None:
    queue = CallQueue(RateLimits(overall=Rate(limit=10_000, seconds=0.1)))
    for chat in range(1, 3_000):
        add(queue, queued_call(chat))
        queue.take_due(float(chat))
    assert len(queue._chats) < 1_100


def test_profile_calls_leave_room_for_typing_in_several_chats() -> None:
    """A first start makes a hundred of them; typing that is not sent at once is not sent at all."""
    queue = CallQueue(RateLimits())
    add(queue, *(queued_call(None, Priority.CLEANUP, counts=False) for _ in range(40)))
    assert len(queue.take_due(0.0)) == 18
    typing = [queued_call(chat, TYPING, counts=False) for chat in range(1, 6)]
    add(queue, *typing)
    assert queue.take_due(0.1) == typing
