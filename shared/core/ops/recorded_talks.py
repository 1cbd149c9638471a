"""Reader of recorded talks in the formats of LoCoMo, LongMemEval and BEAM, as messages that one
person sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.core.ops.evaluation import EvalQuestion, EvalTalk, RecordedLine
from shared.core.values.errors import BadInput

MESSAGE_CHARS = 2_400
"""Most characters of the record per message; longer messages mean fewer model calls."""
_ADVERSARIAL = 5
"""LoCoMo's category of questions that the talk does not answer."""
_FIRST = (
    "I will send you a recorded conversation in parts. Read each part and answer with OK only. "
    "Later I will ask you about it.\n\n"
)
_ADVICE = (
    "Give LoCoMo's form (a list of objects with `conversation` and `qa`), LongMemEval's (a list of objects "
    "with `haystack_sessions`, `question` and `answer`) or BEAM's (an object with `conversations`, each with "
    "`said` and `questions`)."
)
UNANSWERABLE = "abstention"
"""BEAM's category of questions that the talk does not answer."""
_FIRST_DAY = datetime(2024, 1, 1, 9, tzinfo=UTC)
"""Day assumed for the first sitting without a readable day; each further sitting is a day later."""
_DAYS = ("%I:%M %p on %d %B, %Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d", "%d %B, %Y")
"""Formats in which LoCoMo and LongMemEval write the time of a sitting."""


class BadTalk(BadInput):
    """File of recorded talks that cannot be used; `advice` lists the formats."""

    sentence = "A file of recorded talk cannot be used."
    code = "bad_talk"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The recorded talk cannot be used: {reason}", advice=_ADVICE)


def read_talks(data: Any, *, unanswerable: bool = False) -> tuple[EvalTalk, ...]:
    """Return the talks of a file, given as parsed JSON in one of the three formats, that have messages and
    questions.

    Only talks with a question that has an answer count; with `unanswerable`, one without an answer is enough.
    Raises BadTalk if an entry cannot be read or no talk remains.
    """
    listed = data.get("conversations") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not listed:
        raise BadTalk("it holds no list")
    talks = []
    for number, one in enumerate(listed, 1):
        try:
            talks.append(_talk(one, number))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BadTalk(f"entry {number} cannot be read ({type(error).__name__}: {error})") from error
    asked = (talk for talk in talks if talk.questions or (unanswerable and talk.unanswerable))
    if not (found := tuple(talk for talk in asked if talk.messages)):
        raise BadTalk("no entry has both a conversation and a question with an answer")
    return found


def _talk(one: Mapping[str, Any], number: int) -> EvalTalk:
    if "haystack_sessions" in one:
        name, said, asked = f"{one.get('question_id', number)}", _read_long_mem(one), _long_mem_questions(one)
    elif "conversation" in one:
        name, said, asked = f"{one.get('sample_id', number)}", _read_locomo(one), _locomo_questions(one)
    elif "said" in one:
        name, said, asked = f"{one.get('name', number)}", _read_beam(one), _beam_questions(one)
    else:
        raise KeyError("conversation")
    dated, questions = tuple(said), tuple(asked)
    messages = tuple(_pack_lines((day, f"{_speaker(line)}: {line.text}") for day, line in dated))
    return EvalTalk(
        name=name,
        messages=(_FIRST + messages[0], *messages[1:]) if messages else (),
        questions=tuple(asked for asked in questions if asked.answers),
        answer_tokens=10,
        lines=tuple(line for _, line in dated),
        unanswerable=tuple(asked for asked in questions if not asked.answers),
    )


def _speaker(line: RecordedLine) -> str:
    return line.speaker or ("Assistant" if line.is_assistant else "Me")


_Dated = tuple[str, RecordedLine]
"""Day as the record writes it, and a line."""


def _read_locomo(one: Mapping[str, Any]) -> Iterator[_Dated]:
    talk = one["conversation"]
    sittings = sorted(int(key[8:]) for key in talk if key.startswith("session_") and key[8:].isdigit())
    for sitting in sittings:
        day = str(talk.get(f"session_{sitting}_date_time", ""))
        for number, line in enumerate(talk[f"session_{sitting}"]):
            picture = f" [shows a picture: {line['blip_caption']}]" if line.get("blip_caption") else ""
            at = _time(day, sitting) + timedelta(minutes=number)
            yield day, RecordedLine(text=f"{line['text']}{picture}", at=at, speaker=str(line["speaker"]))


def _time(day: str, sitting: int) -> datetime:
    for form in _DAYS:
        try:
            return datetime.strptime(day, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return _FIRST_DAY + timedelta(days=sitting)


def _locomo_questions(one: Mapping[str, Any]) -> Iterator[EvalQuestion]:
    for asked in one["qa"]:
        if asked.get("category") == _ADVERSARIAL:
            yield EvalQuestion(question=str(asked["question"]))
        elif answer := str(asked.get("answer", "")).strip():
            yield EvalQuestion(question=str(asked["question"]), answers=(answer,))


def _read_long_mem(one: Mapping[str, Any]) -> Iterator[_Dated]:
    sittings = one["haystack_sessions"]
    days = one.get("haystack_dates") or [""] * len(sittings)
    for sitting, (day, lines) in enumerate(zip(days, sittings, strict=True)):
        for number, line in enumerate(lines):
            at = _time(str(day), sitting) + timedelta(minutes=number)
            is_assistant = line["role"] != "user"
            yield str(day), RecordedLine(text=str(line["content"]), at=at, is_assistant=is_assistant)


def _long_mem_questions(one: Mapping[str, Any]) -> Iterator[EvalQuestion]:
    day = f"(It is {one['question_date']}.) " if one.get("question_date") else ""
    is_unanswerable = str(one.get("question_id", "")).endswith("_abs")
    answers = () if is_unanswerable else (str(one["answer"]),)
    yield EvalQuestion(question=f"{day}{one['question']}", answers=answers)


def _read_beam(one: Mapping[str, Any]) -> Iterator[_Dated]:
    for line in one["said"]:
        at = datetime.fromisoformat(line["at"])
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        yield (
            f"{at:%Y-%m-%d}",
            RecordedLine(text=str(line["text"]), at=at, is_assistant=line["by"] != "person"),
        )


def _beam_questions(one: Mapping[str, Any]) -> Iterator[EvalQuestion]:
    for asked in one["questions"]:
        answer = str(asked.get("answer", "")).strip()
        if asked.get("category") == UNANSWERABLE:
            yield EvalQuestion(question=str(asked["question"]))
        elif answer:
            yield EvalQuestion(question=str(asked["question"]), answers=(answer,))


def _pack_lines(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield messages of as many lines as fit, each group below its day; a longer line is a
    separate message.
    """
    held, day, size = [""] * 0, None, 0
    for of, line in lines:
        heading = bool(of) and of != day
        if held and size + len(line) > MESSAGE_CHARS:
            yield "\n".join(held)
            held, size, heading = [], 0, bool(of)
        held += [f"[{of}]", line] if heading else [line]
        day, size = of, size + len(line)
    if held:
        yield "\n".join(held)
