"""Lanes, with a clock made by hand: what belongs together is one turn, and nothing else waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.telegram.inbound.message_batching import BatchTimeouts, MessageBatch, SenderBuffer
from bot.telegram.inbound.updates import IncomingMessage
from tests.kit.fakes.bot_api.speech import split_paste
from tests.kit.telegram.updates import GROUP, NOON, after, forward, photo, spoken

LONG = "x" * 4096


class Played:
    """A lane with its clock: messages by second, and what came out when."""

    def __init__(self, lane: SenderBuffer | None = None) -> None:
        self.lane = lane or SenderBuffer()
        self.out: list[tuple[float, MessageBatch]] = []

    def at(self, second: float, *messages: IncomingMessage) -> None:
        """What is due before comes out first, exactly when it was due."""
        while (due := self.lane.next_due) is not None and due < after(second):
            self._elapse((due - NOON).total_seconds())
        for message in messages:
            self.lane, out = self.lane.add(message, after(second))
            self.out += [(second, one) for one in out]
        self._elapse(second)

    def end(self) -> list[tuple[float, tuple[int, ...]]]:
        while (due := self.lane.next_due) is not None:
            self._elapse((due - NOON).total_seconds())
        return [(round(second, 3), one.message_ids) for second, one in self.out]

    def _elapse(self, second: float) -> None:
        self.lane, out = self.lane.release_due(after(second))
        self.out += [(second, one) for one in out]


def test_a_usual_message_does_not_wait() -> None:
    played = Played()
    played.at(0, spoken(1, "hi"))
    played.at(1, spoken(2, "there"))
    assert played.end() == [(0, (1,)), (1, (2,))]


def test_two_messages_that_arrive_together_stay_two() -> None:
    played = Played()
    played.at(0, spoken(1, "hi"), spoken(2, "there"))
    assert played.end() == [(0, (1,)), (0, (2,))]


def test_a_long_paste_is_one_turn_with_the_original_text() -> None:
    text = "".join(f"{number:>7}|" for number in range(1625))
    played = Played()
    parts = split_paste(text)
    assert len(parts) == 4
    for number, part in enumerate(parts):
        played.at(number * 0.2, spoken(number, part))
    assert played.end() == [(0.6, (0, 1, 2, 3))]
    (_, gathered), *_ = played.out
    assert gathered.text == text
    assert gathered.update_ids == (1000, 1001, 1002, 1003)


def test_group_paste_addresses_the_bot_when_one_part_does() -> None:
    played = Played()
    played.at(0, spoken(1, LONG, chat=GROUP), spoken(2, "@bot?", chat=GROUP, mentions_bot=True))
    played.end()
    (_, gathered), *_ = played.out
    assert (gathered.first.message_id, gathered.addressed_message.message_id) == (1, 2)


def test_each_long_part_renews_the_wait_until_the_most() -> None:
    played = Played()
    for number in range(12):
        played.at(number * 1.4, spoken(number, LONG))
    assert played.end() == [(8.0, (0, 1, 2, 3, 4, 5)), (16.4, (6, 7, 8, 9, 10, 11))]


def test_a_paste_that_ends_at_the_limit_waits_once() -> None:
    played = Played()
    played.at(0, spoken(1, "x" * 3800))
    played.at(2, spoken(2, "next"))
    assert played.end() == [(1.5, (1,)), (2, (2,))]
    short = Played()
    short.at(0, spoken(1, "x" * 3799))
    assert short.end() == [(0, (1,))]


def test_a_command_amid_a_paste_is_run_at_once_and_not_merged() -> None:
    played = Played()
    played.at(0, spoken(1, LONG))
    played.at(0.1, spoken(2, "/stop"))
    played.at(0.2, spoken(3, "end"))
    assert played.end() == [(0.1, (2,)), (0.2, (1, 3))]


def test_an_album_waits_for_its_last_part_and_is_one_turn() -> None:
    played = Played()
    for number in range(3):
        played.at(number, photo(number, "g", caption="look" if number == 0 else ""))
    assert played.end() == [(3.5, (0, 1, 2))]
    (_, gathered), *_ = played.out
    assert gathered.text == "look"
    assert sum(one.media is not None for one in gathered.messages) == 3


def test_an_album_waits_ten_seconds_at_most_and_late_parts_name_it() -> None:
    played = Played()
    for number in range(10):
        played.at(number * 1.4, photo(number, "g"))
    played.at(40, photo(10, "g"))
    assert played.end() == [(10.0, (0, 1, 2, 3, 4, 5, 6, 7)), (14.1, (8, 9)), (41.5, (10,))]
    assert [one.late_for for _, one in played.out] == [None, 0, 0]


def test_a_word_after_an_album_releases_it_first() -> None:
    played = Played()
    played.at(0, photo(1, "g"), photo(2, "g"))
    played.at(0.5, spoken(3, "what are these?"))
    assert played.end() == [(0.5, (1, 2)), (0.5, (3,))]
    two = Played()
    two.at(0, photo(1, "g"))
    two.at(0.5, photo(2, "h"))
    assert two.end() == [(0.5, (1,)), (2.0, (2,))]


def test_what_follows_a_paste_that_was_cut_names_it_for_five_seconds() -> None:
    played = Played()
    played.at(0, spoken(1, LONG))
    played.at(4, spoken(2, "its end"))
    played.at(5, spoken(3, "and another matter"))
    played.at(20, spoken(4, LONG))
    played.at(26.6, spoken(5, "much later"))
    assert played.end() == [(1.5, (1,)), (4, (2,)), (5, (3,)), (21.5, (4,)), (26.6, (5,))]
    assert [one.late_for for _, one in played.out] == [None, 1, None, None, None]
    whole = Played()
    whole.at(0, spoken(1, LONG), spoken(2, "its end"))
    whole.at(2, spoken(3, "thanks"))
    whole.at(3, photo(4, "g"))
    whole.end()
    assert [one.late_for for _, one in whole.out] == [None, None, None]


def test_forwards_and_their_comment_are_one_turn() -> None:
    played = Played()
    played.at(0, spoken(1, "true?"), forward(2, "a"), forward(3, "b"))
    assert played.end() == [(0.3, (1, 2, 3))]
    behind = Played()
    behind.at(0, forward(1, "a"))
    behind.at(0.2, spoken(2, "true?"))
    assert behind.end() == [(0.5, (1, 2))]


def test_a_forward_right_after_its_comment_names_it() -> None:
    played = Played()
    played.at(0, spoken(1, "true?"))
    played.at(0.1, forward(2, "a"))
    played.at(5, spoken(3, "and?"))
    played.at(6, forward(4, "b"))
    assert played.end() == [(0, (1,)), (0.4, (2,)), (5, (3,)), (6.3, (4,))]
    assert [one.late_for for _, one in played.out] == [None, 1, None, None]


def test_a_comment_can_be_given_time() -> None:
    played = Played(SenderBuffer(timeouts=BatchTimeouts(comment=0.3)))
    played.at(0, spoken(1, "true?"))
    played.at(0.1, forward(2, "a"))
    assert played.end() == [(0.4, (1, 2))]


def test_old_messages_and_what_comes_with_them_are_one_turn() -> None:
    played = Played()
    old = after(-700)
    played.at(
        0,
        spoken(1, "one", sent_at=old),
        spoken(2, "two", sent_at=after(-650)),
        spoken(3, "now", sent_at=after(-1)),
    )
    assert played.end() == [(0.5, (1, 2, 3))]
    (_, gathered), *_ = played.out
    assert gathered.text == "one\ntwo\nnow"


def test_an_old_command_keeps_its_place_among_old_messages() -> None:
    played = Played()
    old = after(-700)
    played.at(0, spoken(1, "one", sent_at=old), spoken(2, "/new", sent_at=old), spoken(3, "two", sent_at=old))
    assert played.end() == [(0, (1,)), (0, (2,)), (0.5, (3,))]


def test_ten_minutes_exactly_is_not_old_yet() -> None:
    played = Played()
    played.at(0, spoken(1, sent_at=after(-600), text="x"))
    assert played.end() == [(0, (1,))]


def test_edit_replaces_a_waiting_message_and_other_edits_pass() -> None:
    played = Played()
    played.at(0, photo(1, "g", caption="lok"))
    played.at(0.5, photo(1, "g", caption="look", is_edited=True, update_id=2000))
    played.at(0.6, spoken(9, "an older one", is_edited=True))
    assert played.end() == [(0.6, (9,)), (1.5, (1,))]
    gathered = played.out[1][1]
    assert gathered.text == "look"
    assert set(gathered.update_ids) == {1001, 2000}
    assert not gathered.first.is_edited


def test_parts_that_come_in_the_wrong_order_are_put_right() -> None:
    played = Played()
    played.at(0, spoken(2, "b" * 4096), spoken(1, "a" * 4096), spoken(3, "c"))
    (_, ids), *_ = played.end()
    assert ids == (1, 2, 3)


def test_two_hundred_parts_become_turns_of_bearable_size() -> None:
    played = Played()
    played.at(0, *(spoken(number, LONG) for number in range(200)))
    sizes = [len(ids) for _, ids in played.end()]
    assert sum(sizes) == 200
    assert max(len(one.text) for _, one in played.out) <= 100_000


def one_message(number: int, draw: Any) -> IncomingMessage:
    kind = draw(st.sampled_from(["plain", "long", "album", "forward", "command", "old"]))
    match kind:
        case "long":
            return spoken(number, LONG)
        case "album":
            return photo(number, draw(st.sampled_from("gh")))
        case "forward":
            return forward(number, "f")
        case "command":
            return spoken(number, "/help")
        case "old":
            return spoken(number, "o", sent_at=after(-10_000))
        case _:
            return spoken(number, "p")


@given(st.data())
def test_whatever_comes_nothing_is_lost_doubled_or_kept_too_long(data: st.DataObject) -> None:
    played = Played()
    second = 0.0
    arrived: dict[int, float] = {}
    for number in range(data.draw(st.integers(1, 15))):
        second += data.draw(st.sampled_from([0.0, 0.1, 0.4, 1.4, 3.0]))
        message = one_message(number, data.draw)
        arrived[number] = second
        played.at(
            second, replace(message, sent_at=message.sent_at if message.sent_at < NOON else after(second))
        )
    out = played.end()
    assert sorted(number for _, ids in out for number in ids) == sorted(arrived)
    assert all(moment - arrived[number] <= 10.001 for moment, ids in out for number in ids)
    usual = [ids for _, ids in out if played_is_words(played, ids)]
    assert usual == sorted(usual)


def played_is_words(played: Played, ids: tuple[int, ...]) -> bool:
    return any(one.message_ids == ids and one.first.command is None for _, one in played.out)
