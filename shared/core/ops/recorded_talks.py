"""Recorded talk as LoCoMo and LongMemEval have it, in messages that one person can send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared.core.ops.evaluation import EvalQuestion, EvalTalk
from shared.core.values.errors import BadInput

MESSAGE_CHARS = 2_400
"""Characters of the record in one message; fewer messages are fewer calls."""
_ADVERSARIAL = 5
"""LoCoMo's category of questions that have no answer in the talk."""
_FIRST = (
    "I will send you a recorded conversation in parts. Read each part and answer with OK only. "
    "Later I will ask you about it.\n\n"
)
_ADVICE = (
    "Give LoCoMo's form (a list of objects with `conversation` and `qa`) or LongMemEval's (a list of objects "
    "with `haystack_sessions`, `question` and `answer`)."
)


class BadTalk(BadInput):
    """A file of recorded talk cannot be used."""

    code = "bad_talk"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The recorded talk cannot be used: {reason}", advice=_ADVICE)


def read_talks(data: Any) -> tuple[EvalTalk, ...]:
    """All talks that have a question with an answer; raises BadTalk."""
    if not isinstance(data, list) or not data:
        raise BadTalk("it holds no list")
    talks = []
    for number, one in enumerate(data, 1):
        try:
            talks.append(_talk(one, number))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BadTalk(f"entry {number} cannot be read ({type(error).__name__}: {error})") from error
    if not (found := tuple(talk for talk in talks if talk.questions and talk.messages)):
        raise BadTalk("no entry has both a conversation and a question with an answer")
    return found


def _talk(one: Mapping[str, Any], number: int) -> EvalTalk:
    if "haystack_sessions" in one:
        name, lines, questions = f"{one.get('question_id', number)}", _long_mem(one), _long_mem_question(one)
    elif "conversation" in one:
        name, lines, questions = f"{one.get('sample_id', number)}", _locomo(one), _locomo_questions(one)
    else:
        raise KeyError("conversation")
    messages = tuple(_packed(lines))
    said = (_FIRST + messages[0], *messages[1:]) if messages else ()
    return EvalTalk(name=name, messages=said, questions=tuple(questions), answer_tokens=10)


def _locomo(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each line with the day it is of."""
    talk = one["conversation"]
    sittings = sorted(int(key[8:]) for key in talk if key.startswith("session_") and key[8:].isdigit())
    for sitting in sittings:
        for line in talk[f"session_{sitting}"]:
            picture = f" [shows a picture: {line['blip_caption']}]" if line.get("blip_caption") else ""
            yield (
                str(talk.get(f"session_{sitting}_date_time", "")),
                f"{line['speaker']}: {line['text']}{picture}",
            )


def _locomo_questions(one: Mapping[str, Any]) -> Iterator[EvalQuestion]:
    for asked in one["qa"]:
        if asked.get("category") != _ADVERSARIAL and str(asked.get("answer", "")).strip():
            yield EvalQuestion(question=str(asked["question"]), answers=(str(asked["answer"]),))


def _long_mem(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    sittings = one["haystack_sessions"]
    days = one.get("haystack_dates") or [""] * len(sittings)
    for day, sitting in zip(days, sittings, strict=True):
        for line in sitting:
            yield str(day), f"{'Me' if line['role'] == 'user' else 'Assistant'}: {line['content']}"


def _long_mem_question(one: Mapping[str, Any]) -> Iterator[EvalQuestion]:
    """Yield questions that the talk can answer; whether an unanswerable one was declined cannot be judged
    by words.
    """
    if not str(one.get("question_id", "")).endswith("_abs"):
        day = f"(It is {one['question_date']}.) " if one.get("question_date") else ""
        yield EvalQuestion(question=f"{day}{one['question']}", answers=(str(one["answer"]),))


def _packed(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield messages of as many lines as fit, under their day; a longer line is a message of its line
    alone.
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
