"""Who may go out when: windows, priorities and waits, with a clock made of numbers."""

from __future__ import annotations

from bot.telegram.client.call_queue import CallQueue, Priority, QueuedCall, Rate, RateLimits

ANN, GROUP = 42, -5
EDIT, FINAL, TYPING = Priority.EDIT, Priority.FINAL, Priority.TYPING


def ticket(chat: int | None = ANN, priority: Priority = FINAL, **more: object) -> QueuedCall:
    return QueuedCall(chat_id=chat, priority=priority, **more)  # type: ignore[arg-type]


def add(queue: CallQueue, *tickets: QueuedCall) -> None:
    for each in tickets:
        assert queue.add(each)


def test_the_most_important_call_goes_first_and_equals_in_their_order() -> None:
    queue = CallQueue(RateLimits(overall=Rate(most=1, seconds=1.0)))
    typing, edit, first, second = ticket(1, TYPING), ticket(2, EDIT), ticket(3), ticket(4)
    add(queue, typing, edit, first, second)
    assert [queue.due(float(now)) for now in range(4)] == [[first], [second], [edit], [typing]]


def test_the_answer_to_a_button_waits_for_no_window() -> None:
    queue = CallQueue(RateLimits(overall=Rate(most=1, seconds=1.0)))
    first, pressed = ticket(), ticket(None, Priority.CALLBACK)
    add(queue, first)
    assert queue.due(0.0) == [first]
    add(queue, pressed)
    assert queue.due(0.0) == [pressed]


def test_a_private_chat_takes_three_in_three_seconds() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(ticket() for _ in range(5)))
    assert len(queue.due(0.0)) == 3
    assert queue.next_at() == 3.2
    assert len(queue.due(3.2)) == 2


def test_a_call_counts_from_its_answer_on() -> None:
    queue = CallQueue(RateLimits())
    calls = [ticket() for _ in range(3)]
    add(queue, *calls, ticket())
    assert queue.due(0.0) == calls
    for each in calls:
        queue.finished(each, 2.0)
    assert queue.due(3.2) == []
    assert len(queue.due(5.2)) == 1


def test_edits_of_unfinished_answers_leave_room_for_the_final() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(ticket(priority=EDIT) for _ in range(3)))
    assert len(queue.due(0.0)) == 2
    final = ticket()
    add(queue, final)
    assert queue.due(0.0) == [final]


def test_tidying_stands_behind_all_others_and_needs_a_quiet_chat() -> None:
    queue = CallQueue(RateLimits())
    tidying = [ticket(priority=Priority.TIDYING) for _ in range(3)]
    add(queue, *tidying)
    assert queue.due(0.0) == tidying[:1]
    edit, final, another = ticket(priority=EDIT), ticket(), ticket()
    add(queue, edit, final)
    assert queue.due(0.1) == [final]
    assert queue.due(3.2) == [edit]
    assert queue.due(6.3) == []
    add(queue, another)
    assert queue.due(6.3) == [another]
    assert queue.due(9.6) == tidying[1:2]


def test_a_group_never_gets_more_than_twenty_in_a_minute() -> None:
    queue = CallQueue(RateLimits())
    moments: list[float] = []
    for tenth in range(3_000):
        now = tenth / 10
        if len(queue) < 3:
            add(queue, ticket(GROUP))
        moments += [now for _ in queue.due(now)]
    assert len(moments) >= 80
    assert all(later - earlier >= 60 for earlier, later in zip(moments, moments[20:], strict=False))


def test_all_chats_together_get_twenty_five_in_a_second() -> None:
    queue = CallQueue(RateLimits())
    add(queue, *(ticket(chat) for chat in range(1, 61)))
    assert [len(queue.due(now)) for now in (0.0, 0.5, 1.0, 2.0)] == [25, 0, 25, 10]


def test_a_chat_that_said_later_waits_as_a_whole_and_others_do_not() -> None:
    queue = CallQueue(RateLimits())
    queue.hold(ANN, 30.0)
    final, typing, other = ticket(), ticket(priority=TYPING, counts=False), ticket(7)
    add(queue, final, typing, other)
    assert queue.due(0.0) == [other]
    assert queue.next_at() == 30.0
    assert queue.due(30.0) == [final, typing]


def test_who_cannot_go_in_time_is_told_at_once() -> None:
    queue = CallQueue(RateLimits())
    patient, hasty = ticket(deadline=60.0), ticket(deadline=5.0)
    add(queue, patient, hasty)
    queue.hold(ANN, 30.0)
    assert queue.due(0.0) == []
    assert queue.expired(0.0) == [hasty]
    assert queue.due(30.0) == [patient]


def test_one_message_is_edited_by_one_call_at_a_time() -> None:
    queue = CallQueue(RateLimits())
    first, second = (ticket(priority=EDIT, message=(ANN, 5)) for _ in range(2))
    add(queue, first, second)
    assert queue.due(0.0) == [first]
    assert queue.next_at() is None
    queue.finished(first, 0.1)
    assert queue.due(0.1) == [second]


def test_the_queue_is_bounded() -> None:
    queue = CallQueue(RateLimits(waiting=2))
    add(queue, ticket(), ticket())
    assert not queue.add(ticket())


def test_chats_at_rest_are_forgotten() -> None:
    queue = CallQueue(RateLimits(overall=Rate(most=10_000, seconds=0.1)))
    for chat in range(1, 3_000):
        add(queue, ticket(chat))
        queue.due(float(chat))
    assert len(queue._chats) < 1_100
