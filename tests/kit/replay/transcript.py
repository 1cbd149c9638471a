"""Reads a chat as its person sees it at the end: which answers are whole, doubled, partial or misplaced."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shared.adapters.postgres.telegram.deliveries import EndedTurn, PartRow
from tests.kit.replay.chat_evidence import ChatEvidence

_LINK = re.compile(r"\]\([^)\s]*\)")
_NOT_SAID = re.compile(r"[\W_]+")
_TOLD_OTHERWISE = ("refused", "failed", "stopped")
"""States of turns whose text on the screen differs from the text of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLine:
    """A message that is in the chat at the end."""

    message_id: int
    by_bot: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReading:
    """Counts of what a chat shows at the end.

    `strays` are parts of answers whose acknowledgement was lost on purpose, so that the bot cannot delete
    them.
    """

    answered: int
    lost: int
    doubled: int
    out_of_order: int
    uncertain: int
    strays: int
    notices: int


def lines_of(screen: Mapping[str, Any]) -> list[ChatLine]:
    return [
        ChatLine(
            message_id=int(line["message_id"]),
            by_bot=line["by"] == "bot",
            text=str(line.get("text") or line.get("caption") or ""),
        )
        for line in screen["lines"]
        if not line["service"]
    ]


def is_whole(lines: Sequence[ChatLine], answer: EndedTurn, *, since: int) -> bool:
    """Return whether the whole answer is among the messages after the message `since`."""
    evidence = ChatEvidence(session="", questions={}, turns={answer.turn: answer}, entries=0, model="")
    answers = _Answers([line for line in lines if line.message_id > since], evidence, ())
    answers.find()
    return answer.turn in answers.whole


def read(
    lines: Sequence[ChatLine],
    sent: Sequence[int],
    evidence: ChatEvidence,
    *,
    unacknowledged: Collection[int],
    late: Collection[int] = (),
) -> ChatReading:
    """Return the counts for a chat at its end.

    `sent` are the person's messages, `unacknowledged` the bot's messages whose receipt it never learned of.
    Answers of `late` turns came when the person asked again, so newer ones may stand before them.
    """
    answers = _Answers(lines, evidence, unacknowledged)
    answers.find()
    answered = sum(evidence.questions.get(number) in answers.whole for number in sent)
    twice_stored = max(0, evidence.entries - len(set(sent)))
    return ChatReading(
        answered=answered,
        lost=len(sent) - answered,
        doubled=answers.doubled + twice_stored,
        out_of_order=answers.out_of_order(late) + _questions_out_of_order(sent, evidence),
        uncertain=sum(part.state == "uncertain" for turn in evidence.turns.values() for part in turn.parts),
        strays=answers.strays,
        notices=answers.notices,
    )


class _Answers:
    def __init__(
        self, lines: Sequence[ChatLine], evidence: ChatEvidence, unacknowledged: Collection[int]
    ) -> None:
        self._evidence = evidence
        self._unacknowledged = unacknowledged
        self._bots = {line.message_id: line for line in lines if line.by_bot}
        known = {part.remote_id for turn in evidence.turns.values() for part in turn.parts if part.remote_id}
        self._unknown = {number: line for number, line in self._bots.items() if number not in known}
        self.places: dict[int, list[int]] = {}
        """Ids of the messages of each turn, in the order of their parts."""
        self.whole: set[int] = set()
        self.doubled = self.strays = self.notices = 0

    def find(self) -> None:
        for number, turn in sorted(self._evidence.turns.items()):
            self.places[number] = [place for part in turn.parts if (place := self._place(turn, part))]
            if self._is_whole(turn, self.places[number]):
                self.whole.add(number)
        for line in self._unknown.values():
            self._sort_out(line)

    def out_of_order(self, late: Collection[int]) -> int:
        """Return the number of parts and answers before an earlier one, and of answers before their
        question.
        """
        asked: dict[int, int] = {}
        for message, turn in sorted(self._evidence.questions.items()):
            asked.setdefault(turn, message)
        shown = [(turn, places) for turn, places in sorted(self.places.items()) if places]
        inside = sum(later < earlier for _, places in shown for earlier, later in pairwise(places))
        in_time = [places[0] for turn, places in shown if turn not in late]
        between = sum(later < earlier for earlier, later in pairwise(in_time))
        early = sum(places[0] < asked.get(turn, 0) for turn, places in shown)
        return inside + between + early

    def _place(self, turn: EndedTurn, part: PartRow) -> int | None:
        """Return the message id of a part; None if the part is not in the chat.

        A part without acknowledgement is found by its words.
        """
        if part.remote_id is not None:
            return part.remote_id if part.remote_id in self._bots else None
        if part.state != "uncertain":
            return None
        written = _letters(turn.text)
        for number, line in sorted(self._unknown.items()):
            found = _letters(line.text)
            alone = len(turn.parts) == 1
            if found and (found == written if alone else found in written):
                del self._unknown[number]
                return number
        return None

    def _is_whole(self, turn: EndedTurn, places: Sequence[int]) -> bool:
        shown = _letters(" ".join(self._bots[place].text for place in places))
        if turn.state in _TOLD_OTHERWISE:
            return bool(shown)
        written = _letters(turn.text)
        return shown == written if written else bool(places)

    def _sort_out(self, line: ChatLine) -> None:
        """Count a message that no row belongs to: as the double of an answer, a stray part of one, or a
        notice.
        """
        said = _letters(line.text)
        texts = [_letters(turn.text) for turn in self._evidence.turns.values()]
        if not said or not any(said in text for text in texts):
            self.notices += 1
        elif said in texts or line.message_id not in self._unacknowledged:
            self.doubled += 1
        else:
            self.strays += 1


def _letters(markdown: str) -> str:
    """Return only the letters and digits of a text: Telegram shows formatting as entities, and links by their
    names.
    """
    return _NOT_SAID.sub("", _LINK.sub("", markdown)).casefold()


def _questions_out_of_order(sent: Sequence[int], evidence: ChatEvidence) -> int:
    turns = [evidence.questions[number] for number in sent if number in evidence.questions]
    return sum(later < earlier for earlier, later in pairwise(turns))
