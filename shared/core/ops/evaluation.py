"""Evaluation with planted facts: talks and questions, matching of answers, cost, and its estimate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from shared.core.session.budget import ContextBudget
from shared.core.values.money import Prices, Usage, cost_micro


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQuestion:
    """Question with its right answers; it is unanswerable if there are none."""

    question: str
    answers: tuple[str, ...] = ()
    elsewhere: bool = False
    """True for a question about another talk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLine:
    """Line of a recorded talk; `speaker` is empty for the person and for the assistant, else a name."""

    text: str
    at: datetime
    is_assistant: bool = False
    speaker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTalk:
    """Messages that a person sends in order, and questions to ask after the last."""

    name: str
    messages: tuple[str, ...]
    questions: tuple[EvalQuestion, ...]
    answer_tokens: int = 150
    """Typical tokens of an answer; used for the estimate only."""
    lines: tuple[RecordedLine, ...] = ()
    """Lines from which the messages were made; empty if the talk was not recorded."""
    unanswerable: tuple[EvalQuestion, ...] = ()
    """Questions of the record that the talk does not answer."""

    def limit(self, *, messages: int | None, questions: int | None) -> EvalTalk:
        """Return the talk with its first `messages` messages and `questions` questions spread evenly over the
        list.

        None sets no limit; 0 questions is read as no limit, too.
        """
        said = self.messages[:messages]
        step = max(1.0, len(self.questions) / (questions or max(1, len(self.questions))))
        chosen = [self.questions[int(at * step)] for at in range(int(len(self.questions) / step + 1e-9))]
        return replace(self, messages=said, questions=tuple(chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFigures:
    """Totals of one conversation's model calls.

    Tokens are `fresh` (plain input), `cached` (read from the cache), `written` (to the cache) and `out`;
    `micro` is in micro-dollars, without the `unpriced_calls`. `context_tokens` is the size of the last
    context.
    """

    compactions: int = 0
    fresh: int = 0
    cached: int = 0
    written: int = 0
    out: int = 0
    micro: int = 0
    unpriced_calls: int = 0
    seconds: float = 0.0
    context_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalAnswer:
    """Answer of the model to one question, with the expected one; `kept` says that they match literally."""

    question: str
    expected: str
    answer: str
    kept: bool
    judged: bool | None = None
    """Verdict of a judging model; None if none was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """Answers and cost of one preset over all talks of an evaluation."""

    preset: str
    answers: tuple[EvalAnswer, ...]
    figures: EvalFigures

    @property
    def kept(self) -> int:
        """Number of answers that match the expected one."""
        return sum(answer.kept for answer in self.answers)

    @property
    def judged(self) -> int | None:
        """Number of answers that the judging model called right; None if it judged none."""
        verdicts = [answer.judged for answer in self.answers if answer.judged is not None]
        return sum(verdicts) if verdicts else None

    @property
    def dollars(self) -> float | None:
        """Cost in dollars; None if the price of any call is unknown."""
        return None if self.figures.unpriced_calls else self.figures.micro / 1e6

    def as_json(self) -> dict[str, Any]:
        """Return the row for a JSON report, with costs in dollars, seconds and all answers."""
        figures = asdict(self.figures)
        return {
            "preset": self.preset, "asked": len(self.answers), "kept": self.kept, "judged": self.judged,
            **{name: figures[name] for name in ("compactions", "fresh", "cached", "written", "out")},
            "dollars": self.dollars, "seconds": round(self.figures.seconds, 1),
            "answers": [asdict(answer) for answer in self.answers],
        }  # fmt: skip


def total_figures(all_figures: Sequence[EvalFigures]) -> EvalFigures:
    """Return the figures of several conversations, each added up."""
    names = EvalFigures.__dataclass_fields__
    return EvalFigures(**{name: sum(getattr(one, name) for one in all_figures) for name in names})


_WORD = re.compile(r"\w+(?:[.:'’-]\w+)*")
_THOUSANDS = re.compile(r"(?<=\d)[,\u00a0\u202f'’ ](?=\d{3}(?!\d))")
_SMALL = frozenset(("a", "an", "the", "of", "in", "on", "at", "to", "and", "is", "was", "for"))


def is_literal_match(said: str, answers: Sequence[str]) -> bool:
    """Return whether a text contains every word of at least one of the answers, in any order.

    Case, function words and separators of thousands do not count. False without answers.
    """
    words = set(content_words(said))
    return any(wanted <= words for wanted in map(set, map(content_words, answers)) if wanted)


def content_words(text: str) -> list[str]:
    """Return the words of a text in lower case, in order, without English function words.

    A text of function words only gives all of them.
    """
    found = _WORD.findall(_THOUSANDS.sub("", text.casefold()))
    return [word for word in found if word not in _SMALL] or found


RECALL_TOKENS, QUESTION_TOKENS, SUMMARY_TOKENS = 1_200, 30, 1_500
"""Assumed tokens of a recall, of a question, and of a summary with its notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalEstimate:
    """Estimated cost of an evaluation in micro-dollars, None if a price is unknown, and its number of
    calls.
    """

    likely: int | None
    """Micro-dollars if the provider caches every prefix until the next call."""
    most: int | None
    """Micro-dollars if the provider caches nothing."""
    calls: int

    def __add__(self, other: EvalEstimate) -> EvalEstimate:
        return EvalEstimate(
            likely=_sum(self.likely, other.likely),
            most=_sum(self.most, other.most),
            calls=self.calls + other.calls,
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def estimate_talk(
    talk: EvalTalk,
    budget: ContextBudget,
    prices: Prices | None,
    *,
    compactions: int,
    count: Callable[[str], float],
) -> EvalEstimate:
    """Return the estimated cost of one talk under one preset; tool rounds are not included.

    Summaries are priced like calls of the chat model. `compactions` is the number of planned summaries,
    `count` estimates the tokens of a text. `prices` None means unknown: then only the number of calls is
    estimated.
    """
    calls = tuple(_calls(talk, budget, compactions, count))
    likely = [cost_micro(usage, prices) for usage in calls]
    most = [cost_micro(_without_caching(usage), prices) for usage in calls]
    return EvalEstimate(
        likely=None if prices is None else sum(filter(None, likely)),
        most=None if prices is None else sum(filter(None, most)),
        calls=len(calls),
    )


def _calls(
    talk: EvalTalk, budget: ContextBudget, compactions: int, count: Callable[[str], float]
) -> Iterator[Usage]:
    held, new = budget.fixed, 0
    ends = part_ends(len(talk.messages), compactions)
    for number, words in enumerate(talk.messages, 1):
        new += round(count(words))
        yield _usage(held, new, talk.answer_tokens)
        held, new = held + new, talk.answer_tokens
        if number in ends or held > budget.limit:
            yield _usage(held, new, SUMMARY_TOKENS)
            held, new = min(held, budget.fixed + SUMMARY_TOKENS), 0
    for _ in talk.questions:
        yield _usage(held, new + QUESTION_TOKENS + RECALL_TOKENS, QUESTION_TOKENS)
        held, new = held + new + QUESTION_TOKENS, QUESTION_TOKENS


def part_ends(messages: int, parts: int) -> tuple[int, ...]:
    """Return the numbers, from 1, of the messages after which a summary is made, so that parts are about
    equal.

    The last message is always one of them; empty for 0 parts.
    """
    return tuple(sorted({round(messages * part / parts) for part in range(1, parts + 1)} - {0}))


def _usage(read: int, written: int, out: int) -> Usage:
    return Usage(cache_read_tokens=read, cache_write_tokens=written, output_tokens=out)


def _without_caching(usage: Usage) -> Usage:
    return Usage(
        cache_write_tokens=usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
