"""A conversation played over Telegram with mishaps on purpose, and how the chat at its end is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.adapters.postgres.telegram.deliveries import DeliveryState, EndedTurn, PartRow
from shared.config.settings import load_settings
from tests.acceptance.replay.recordings import recording
from tests.kit.replay import main
from tests.kit.replay.chat_evidence import ChatEvidence
from tests.kit.replay.report import as_table
from tests.kit.replay.transcript import ChatLine, ChatReading, is_whole, read
from tests.kit.replay.verdict import judge_chat, total


def turn(
    number: int,
    text: str,
    *places: int | None,
    state: str = "answered",
    part_state: DeliveryState = "delivered",
) -> EndedTurn:
    parts = tuple(
        PartRow(part=part, state=part_state if place is None else "delivered", remote_id=place, attempt=1)
        for part, place in enumerate(places)
    )
    return EndedTurn(
        session_id=1, turn=number, address_id=1, state=state, text=text, error_code="", parts=parts
    )


def said(number: int, text: str = "?") -> ChatLine:
    return ChatLine(message_id=number, by_bot=False, text=text)


def shown(number: int, text: str) -> ChatLine:
    return ChatLine(message_id=number, by_bot=True, text=text)


def reading(
    lines: list[ChatLine],
    questions: dict[int, int],
    *turns: EndedTurn,
    cut: tuple[int, ...] = (),
    late: tuple[int, ...] = (),
    entries: int = 0,
) -> ChatReading:
    sent = [line.message_id for line in lines if not line.by_bot]
    evidence = ChatEvidence(
        session="s",
        questions=questions,
        turns={each.turn: each for each in turns},
        entries=entries or len(questions),
        model="",
    )
    return read(lines, sent, evidence, unacknowledged=cut, late=late)


def numbers(found: ChatReading) -> tuple[int, int, int, int]:
    return found.answered, found.lost, found.doubled, found.out_of_order


def test_an_answer_is_whole_when_its_words_are_in_the_chat() -> None:
    lines = [
        said(1),
        shown(2, "Yes, bold and a link."),
        said(3),
        said(4),
        shown(5, "First"),
        shown(6, "second."),
    ]
    turns = (turn(1, "Yes, **bold** and a [link](https://x.org).", 2), turn(2, "First\n\nsecond.", 5, 6))
    found = reading(lines, {1: 1, 3: 2, 4: 2}, *turns)
    assert numbers(found) == (3, 0, 0, 0)


def test_half_an_answer_is_a_lost_one() -> None:
    found = reading([said(1), shown(2, "Only the")], {1: 1}, turn(1, "Only the beginning.", 2))
    assert numbers(found) == (0, 1, 0, 0)


def test_a_message_that_was_never_stored_is_lost() -> None:
    assert numbers(reading([said(1)], {})) == (0, 1, 0, 0)


def test_an_answer_that_is_there_twice_is_a_double() -> None:
    lines = [said(1), shown(2, "All of it."), shown(3, "All of it.")]
    assert reading(lines, {1: 1}, turn(1, "All of it.", 2)).doubled == 1
    assert reading(lines, {1: 1}, turn(1, "All of it.", 2), cut=(3,)).doubled == 1


def test_a_message_that_was_stored_twice_is_a_double() -> None:
    lines = [said(1), shown(2, "Yes.")]
    assert reading(lines, {1: 1}, turn(1, "Yes.", 2), entries=2).doubled == 1


def test_half_a_bubble_is_a_stray_only_if_its_acknowledgement_was_lost() -> None:
    lines = [said(1), shown(2, "All of"), shown(3, "All of it.")]
    excused = reading(lines, {1: 1}, turn(1, "All of it.", 3), cut=(2,))
    assert (excused.strays, excused.doubled, excused.answered) == (1, 0, 1)
    assert reading(lines, {1: 1}, turn(1, "All of it.", 3)).doubled == 1


def test_an_uncertain_part_is_looked_for_by_its_words() -> None:
    ended = turn(1, "It may be here.", None, part_state="uncertain")
    there = reading([said(1), shown(2, "It may be here.")], {1: 1}, ended)
    assert (there.answered, there.lost, there.uncertain, there.doubled) == (1, 0, 1, 0)
    gone = reading([said(1)], {1: 1}, ended)
    assert (gone.answered, gone.lost, gone.uncertain) == (0, 1, 1)


def test_replay_sees_whether_a_possibly_missing_answer_arrived() -> None:
    """The same words above the question are another answer's."""
    ended = turn(2, "Yes.", None, part_state="uncertain")
    before = [said(1), shown(2, "Yes."), said(3)]
    assert not is_whole([*before, shown(4, "It may be missing.")], ended, since=3)
    assert is_whole([*before, shown(4, "Yes."), shown(5, "It may be missing.")], ended, since=3)
    half = turn(2, "First\n\nsecond.", 4, None, part_state="uncertain")
    assert not is_whole([*before, shown(4, "First"), shown(5, "It may be missing.")], half, since=3)


def test_answers_that_change_places_are_out_of_order() -> None:
    lines = [said(1), said(2), shown(3, "Two."), shown(4, "One.")]
    assert reading(lines, {1: 1, 2: 2}, turn(1, "One.", 4), turn(2, "Two.", 3)).out_of_order == 1
    assert reading(lines, {1: 2, 2: 1}, turn(1, "Two.", 3), turn(2, "One.", 4)).out_of_order == 1


def test_an_answer_that_was_asked_for_again_may_come_behind_newer_ones() -> None:
    lines = [
        said(1, "one"),
        said(2, "two"),
        said(3, "three"),
        shown(4, "Two."),
        shown(5, "One."),
        shown(6, "3"),
    ]
    turns = (turn(1, "One.", 5), turn(2, "Two.", 4), turn(3, "3", 6))
    questions = {1: 1, 2: 2, 3: 3}
    assert reading(lines, questions, *turns).out_of_order == 1
    assert reading(lines, questions, *turns, late=(1,)).out_of_order == 0
    assert reading(lines, questions, *turns, late=(3,)).out_of_order == 1


def test_other_words_of_the_bot_are_notices() -> None:
    lines = [said(1), shown(2, "Yes."), shown(3, "Earlier messages were summarised.")]
    found = reading(lines, {1: 1}, turn(1, "Yes.", 2))
    assert (found.notices, *numbers(found)) == (1, 1, 0, 0, 0)


def test_refused_turn_counts_as_answered_when_a_notice_was_sent() -> None:
    found = reading([said(1), shown(2, "Not today.")], {1: 1}, turn(1, "cap reached", 2, state="refused"))
    assert numbers(found) == (1, 0, 0, 0)


def test_the_table_has_columns_of_telegrams_own() -> None:
    found = reading([said(1), shown(2, "Yes.")], {1: 1}, turn(1, "Yes.", 2))
    verdict = judge_chat("one", "s", sent=1, stored=1, reading=found, evidence=None, restarts=2)
    facts = {"system": "a system", "model": "m", "seconds": 1, "checked_by": "screen", "jobs_left": 0,
             "restarts": 2, "pressed": 4,
             "faults": {"429 sendMessage": 3, "reset after sendMessage": 0}}  # fmt: skip
    table = as_table([verdict], facts)
    assert "uncertain  strays" in table
    assert "2 restarts of the bot in the middle of an answer, 3 × 429 sendMessage." in table
    assert "4 answers were missing, and came when the button was pressed" in table
    assert total([verdict]).uncertain == 0


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_talk_survives_429s_resets_and_two_restarts_of_the_bot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recording(tmp_path, messages=9))
    settings = load_settings(data_dir=tmp_path / "data")
    code = main([path, "--channel", "telegram", "--limit", "7", "--json"], settings)
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    assert (found["sent"], found["acknowledged"], found["answered"]) == (7, 7, 7)
    assert (found["lost"], found["doubled"], found["out_of_order"], found["violations"]) == (0, 0, 0, 0)
    assert found["restarts"] == 2
    assert found["pressed"] == 0, "the lost reply was settled without the person"
    used = found["faults"]
    assert used["429 sendMessage"] >= 2
    assert used["reset after sendMessage"] == 1
    assert found["checked_by"] == "screen and database"
