"""Evaluation of abstention: whether the model admits that the past contains no answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from shared.core.ops.evaluation import (
    EvalFigures,
    EvalQuestion,
    EvalTalk,
    content_words,
    is_literal_match,
)

Verdict = Literal["abstained", "right", "invented"]
"""Verdicts on an answer: it admits not to know, contains a right answer, or makes something up."""
VERDICTS: tuple[Verdict, ...] = ("abstained", "right", "invented")
"""All verdicts, in the order of reports."""
LONG_ANSWER_WORDS = 6
"""Words from which a right answer is matched by a share of its words instead of all."""
LONG_ANSWER_SHARE = 0.6
"""Share of a long right answer's words that an answer must have."""
JUDGED_CHARS = 20_000
"""Most characters of an answer that are judged."""

_KNOW = r"(?:\w+ )?(?:know|recall|remember|find|see|tell|have)\b"
_ADMISSIONS_BY_LANGUAGE = {
    "en": (
        rf"\b(?:(?:do|did|could|can) ?not|(?:don|didn|couldn|can)['’]t|unable to|not able to) {_KNOW}",
        r"\b(?:no|not any) (?:information|record|mention|memory|details?)\b",
        r"\b(?:not|never|haven['’]t) (?:been )?(?:mentioned|told|said)\b",
        r"\b(?:nothing (?:about|on|in)|not (?:sure|certain|aware))\b",
    ),
    "de": (
        r"\bweiß (?:\w+ ){0,3}nicht\b",
        r"\b(?:keine (?:informationen|angaben|erinnerung)|nichts (?:dazu|darüber|davon|gefunden))\b",
    ),
    "fr": (r"\b(?:sais|trouve|souviens) pas\b", r"\baucune (?:information|trace)\b"),
    "es": (r"\bno (?:lo )?(?:sé|recuerdo|encuentro)\b", r"\bninguna información\b"),
    "it": (r"\bnon (?:lo )?(?:so|ricordo|trovo)\b", r"\bnessuna informazione\b"),
    "pt": (r"\bnão (?:sei|lembro|encontro|encontrei)\b", r"\bnenhuma informação\b"),
    "nl": (r"\bweet (?:\w+ ){0,2}niet\b", r"\bgeen informatie\b"),
    "ru": (r"\bне (?:знаю|помню|наш[её]л|нашла)\b", r"\bнет (?:информации|сведений)\b"),
    "uk": (r"\bне (?:знаю|пам['’]ятаю|знайшов|знайшла)\b",),
    "pl": (r"\bnie (?:wiem|pamiętam|znalazłem|znalazłam)\b",),
    "tr": (r"\b(?:bilmiyorum|hatırlamıyorum|bulamadım)\b",),
    "id": (r"\btidak (?:tahu|ingat|menemukan)\b",),
    "vi": (r"\bkhông (?:biết|nhớ|tìm thấy)\b",),
    "zh": (
        r"不知道|不清楚|不记得|不記得",
        r"没有(?:找到|提到|说过|相关|记录|任何)|沒有(?:找到|提到|說過|相關|記錄|任何)",
    ),
    "ja": (r"(?:わか|分か|知)りません|見つかりません",),
    "ko": (r"모르|모릅니다|찾을 수 없",),
    "ar": (r"لا (?:أعرف|أعلم|أتذكر)|لم أجد",),
    "fa": (r"نمی‌?دانم|پیدا نکردم",),
    "he": (r"לא (?:יודע|זוכר|מצאתי)",),
    "hi": (r"नहीं (?:पता|जानत|मिला)|याद नहीं",),
}
"""Patterns of sentences which admit that something is not known, by language."""
_ADMISSION = re.compile(
    "|".join(pattern for patterns in _ADMISSIONS_BY_LANGUAGE.values() for pattern in patterns), re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """Answer of the model to a question, with the verdict on it."""

    question: EvalQuestion
    answer: str
    verdict: Verdict
    used_recall: bool
    """True if the model called its tool `recall` for this answer."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer for a JSON report; `expected` holds all right answers, joined by slashes."""
        return {
            "question": self.question.question, "expected": " / ".join(self.question.answers),
            "elsewhere": self.question.elsewhere, "answer": self.answer, "verdict": self.verdict,
            "used_recall": self.used_recall,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionRow:
    """Judged answers of one data set under one preset, and the figures of their model calls."""

    data: str
    preset: str
    answers: tuple[JudgedAnswer, ...]
    figures: EvalFigures

    def count(self, verdict: Verdict, *, answerable: bool) -> int:
        """Return the number of answers with this verdict, to answerable or to unanswerable questions only."""
        return sum(one.verdict == verdict for one in self._select_answers(answerable=answerable))

    def count_asked(self, *, answerable: bool) -> int:
        """Return the number of questions that can be answered, or that cannot."""
        return len(self._select_answers(answerable=answerable))

    @property
    def unsearched(self) -> int:
        """Number of abstentions before which the model did not use `recall`."""
        return sum(one.verdict == "abstained" and not one.used_recall for one in self.answers)

    @property
    def dollars(self) -> float | None:
        """Cost of all calls in dollars; None if the price of a call is unknown."""
        return None if self.figures.unpriced_calls else self.figures.micro / 1e6

    def _select_answers(self, *, answerable: bool) -> list[JudgedAnswer]:
        return [one for one in self.answers if bool(one.question.answers) is answerable]

    def as_json(self) -> dict[str, Any]:
        """Return the row for a JSON report, with counts, costs in dollars, seconds and all answers."""
        figures = asdict(self.figures)
        return {
            "data": self.data, "preset": self.preset,
            **{
                name: {
                    "asked": self.count_asked(answerable=answerable),
                    **{one: self.count(one, answerable=answerable) for one in VERDICTS},
                }
                for name, answerable in (("unanswerable", False), ("answerable", True))
            },
            "abstained_without_recall": self.unsearched,
            **{name: figures[name] for name in ("fresh", "cached", "written", "out")},
            "dollars": self.dollars, "seconds": round(self.figures.seconds, 1),
            "answers": [one.as_json() for one in self.answers],
        }  # fmt: skip


def judge_by_rules(question: EvalQuestion, answer: str) -> Verdict:
    """Return the verdict on an answer by its words, without a model; only the first 20,000 characters are
    judged.

    `right` if it contains one of the right answers, even beside an admission; else `abstained` if it admits
    not to know or is blank; else `invented`.
    """
    answer = answer[:JUDGED_CHARS]
    if any(_is_said(answer, expected) for expected in question.answers):
        return "right"
    return "abstained" if not answer.strip() or _ADMISSION.search(answer) else "invented"


def _is_said(answer: str, expected: str) -> bool:
    wanted = set(content_words(expected))
    if len(wanted) < LONG_ANSWER_WORDS:
        return is_literal_match(answer, (expected,)) or (not expected.isascii() and expected in answer)
    return len(wanted & set(content_words(answer))) >= LONG_ANSWER_SHARE * len(wanted)


def with_abstention(talks: Sequence[EvalTalk], *, unanswerable: int, answerable: int) -> tuple[EvalTalk, ...]:
    """Return the talks with at most `answerable` of their questions and `unanswerable` unanswerable ones
    each.

    About half of the unanswerable questions come from the talk's own list; the others were asked about
    another talk. The same talks always get the same questions.
    """
    return tuple(
        replace(
            talk.limit(messages=None, questions=answerable),
            unanswerable=tuple(_unanswerable(talks, at, unanswerable)),
        )
        for at, talk in enumerate(talks)
    )


def _unanswerable(talks: Sequence[EvalTalk], at: int, number: int) -> Iterator[EvalQuestion]:
    own = talks[at].unanswerable[: number if len(talks) < 2 else (number + 1) // 2]
    yield from own
    others = [talk for talk in (*talks[at + 1 :], *talks[:at]) if talk.questions]
    for more in range(number - len(own) if others else 0):
        other, round_ = others[more % len(others)], more // len(others)
        chosen = other.questions[(at + round_) % len(other.questions)]
        yield EvalQuestion(question=chosen.question, elsewhere=True)


_HEADS = (
    "data", "preset", "unanswerable", "abstained", "invented", "answerable", "right", "abstained", "invented",
    "no recall", "dollars", "seconds",
)  # fmt: skip


def render_abstention(rows: Sequence[AbstentionRow]) -> str:
    """Return a text table with a headline and a line for each row; it has no newline at its end."""
    cells = [_HEADS, *map(_cells, rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(_HEADS))]
    return "\n".join(
        "  ".join(cell.rjust(width) if at > 1 else cell.ljust(width) for at, (cell, width) in enumerate(pair))
        for pair in (tuple(zip(line, widths, strict=True)) for line in cells)
    )


def _cells(row: AbstentionRow) -> tuple[str, ...]:
    invented = row.count("invented", answerable=False)
    return (
        row.data, row.preset,
        str(row.count_asked(answerable=False)), str(row.count("abstained", answerable=False)), str(invented),
        str(row.count_asked(answerable=True)),
        *(str(row.count(verdict, answerable=True)) for verdict in ("right", "abstained", "invented")),
        str(row.unsearched), "unknown" if row.dollars is None else f"{row.dollars:.4f}",
        f"{row.figures.seconds:.0f}",
    )  # fmt: skip
