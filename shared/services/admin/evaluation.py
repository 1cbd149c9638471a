"""Evaluation of a deployment's memory: plays a talk into a separate conversation, compacts it, and asks.
Or imports the talk as a person's past, and asks questions of which some have no answer there.
Messages take the same way as a person's. Each is stored under its number, so a run that was interrupted
continues where it stopped: stored answers are read, not asked again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.core.memory.past import PastImport, PastMessage, PastSource
from shared.core.ops.abstention import VERDICTS, Verdict, judge_by_rules
from shared.core.ops.evaluation import (
    RECALL_TOKENS,
    SUMMARY_TOKENS,
    EvalAnswer,
    EvalFigures,
    EvalQuestion,
    EvalTalk,
    is_literal_match,
    part_ends,
)
from shared.core.session.turns import Accepted, Caps, DueJob, Emit, Inbound, JobOrder, ReplyEvent, Spending
from shared.core.values.errors import CapReached, EvertalkError
from shared.core.values.messages import SystemPart, text_message, text_of
from shared.core.values.money import Prices, worst_case_micro
from shared.ports import ChatModel, ModelCard, ModelRequest, TokenCounter
from shared.services.compaction.silent_requests import CompletionTimeouts, OneShotCompletion
from shared.services.turns.spend_tracker import SpendStore, SpendTracker

WAIT_SECONDS = 600.0
"""Seconds to wait for a turn's provider, or for a job."""
LOOK_SECONDS = 0.2
"""Seconds between two looks whether a turn or job has ended."""
TRIES = 3
"""Most messages that are sent for one answer, if turns fail."""
_ANSWER_TOKENS = 1_024
_JUDGE_ABSTENTION = (
    "You judge an answer to a question about an earlier conversation. Reply with one word. "
    "abstained: the answer says that it does not know, or that this was not said, and states nothing else as "
    "the answer. right: it says what the right answer says, in whatever words. invented: it states anything "
    "else as if it was known."
)
_NO_ANSWER = "There is none; the conversation does not tell."
_JUDGE = (
    "You compare an answer with the right one. Reply with one word: yes if the answer says what the right "
    "answer says, in whatever words, else no."
)


class EvaluationStopped(EvertalkError):
    """The run cannot continue now; played messages stay, and the same command continues."""

    sentence = "The run cannot continue now; played messages stay, and the same command continues."
    code = "evaluation_stopped"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice="Run the same command again to go on where it stopped.")


class TurnView(Protocol):
    """Turn of an evaluation as it is stored: its state, error code (None without one) and answer.

    `used_recall` is True if the turn called the tool `recall`.
    """

    @property
    def state(self) -> str: ...
    @property
    def error_code(self) -> str | None: ...
    @property
    def answer(self) -> str: ...
    @property
    def used_recall(self) -> bool: ...


class EvaluationStore(Protocol):
    """Store of an evaluation's turns and figures.

    `load_turn` finds a turn by the key of its message, and returns None if that is not stored.
    `has_waiting_jobs` says whether a job of the session is due or running.
    """

    async def load_turn(self, session_id: int, dedupe_key: str) -> TurnView | None: ...
    async def has_waiting_jobs(self, session_id: int) -> bool: ...
    async def load_figures(self, session_id: int) -> EvalFigures: ...


class EvaluationJobs(Protocol):
    """Store of an evaluation's background jobs.

    `request_job` returns None if an unfinished job has the key; `find_due_job` returns None if no job is due.
    """

    async def request_job(self, session_id: int, order: JobOrder) -> int | None: ...
    async def find_due_job(self, session_id: int) -> DueJob | None: ...


class EvaluationSessions(Protocol):
    """Service that stores an evaluation's messages and answers them, as `SessionService` does."""

    async def accept(self, inbound: Inbound) -> Accepted: ...
    async def answer(self, session_id: int, emit: Emit) -> None: ...


class EvaluationImporter(Protocol):
    """Service that imports messages as an archived conversation; a repeated import adds nothing."""

    async def import_past(
        self, session_id: int, source: PastSource, digest: bytes, messages: Iterable[PastMessage]
    ) -> PastImport: ...


class JudgeLedger(SpendStore, Protocol):
    """Store of the judge's spending: reservations, and the calls booked on a session."""

    async def record_delegated(
        self, session_id: int, *, contact_id: int, turn: int, spent: Sequence[Spending]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlace:
    """Conversation, address and contact in which one talk is played under one preset."""

    session_id: int
    address_id: int
    contact_id: int


class SpendingGuard:
    """Spending limit of a run over all its conversations, in micro-dollars; None is no limit."""

    def __init__(self, cap_micro: int | None, prices: Prices | None) -> None:
        self._cap = cap_micro
        self._prices = prices
        self.spent: dict[int, int] = {}
        """Micro-dollars spent so far, by session id."""

    @property
    def left_micro(self) -> int | None:
        """Micro-dollars that are left; None without a limit."""
        return None if self._cap is None else max(0, self._cap - sum(self.spent.values()))

    def check(self, context_tokens: int, out: int = _ANSWER_TOKENS) -> None:
        """Raise EvaluationStopped if the limit may not hold the next call of `context_tokens` input and `out`
        output tokens.

        Without a limit or known prices it does nothing.
        """
        if self._cap is None or self._prices is None:
            return
        spent = sum(self.spent.values())
        if spent + worst_case_micro(context_tokens, out, self._prices) > self._cap:
            used, cap = spent / 1e6, self._cap / 1e6
            raise EvaluationStopped(
                f"${used:.4f} of ${cap:.2f} are spent, and the next call might cost more than the rest. "
                "Give a larger --cap."
            )


class Evaluation:
    """Player of recorded talks, which asks questions afterwards and collects the answers."""

    def __init__(
        self,
        *,
        store: EvaluationStore,
        jobs: EvaluationJobs,
        sessions: EvaluationSessions,
        run_job: Callable[[int], Awaitable[None]],
        count: Callable[[str], int],
        guard: SpendingGuard,
        progress: Callable[[int, int], None],
    ) -> None:
        """`progress` hears how many of how many messages are answered."""
        self._store = store
        self._jobs = jobs
        self._sessions = sessions
        self._run_job = run_job
        self._count = count
        self._guard = guard
        self._progress = progress

    async def play(self, place: EvaluationPlace, talk: EvalTalk, *, compactions: int) -> list[EvalAnswer]:
        """Play the talk with `compactions` compactions in between, then ask its questions; return their
        answers.

        Messages that an earlier run played are not sent again. A message whose turn fails is tried 3 times;
        its answer is then "". Raises EvaluationStopped if a cap, the model or a job stops the run, and
        EvertalkError.
        """
        ends, whole = part_ends(len(talk.messages), compactions), len(talk.messages) + len(talk.questions)
        await self._note_spending(place)
        for number, words in enumerate(talk.messages, 1):
            await self._say(place, f"say:{number}", words)
            later = f"say:{number + 1}" if number < len(talk.messages) else "ask:1"
            if number in ends and await self._store.load_turn(place.session_id, _key(later)) is None:
                await self._compact(place, ends.index(number) + 1)
            self._progress(number, whole)
        found = []
        for number, asked in enumerate(talk.questions, 1):
            said = await self._say(place, f"ask:{number}", asked.question)
            expected, kept = " / ".join(asked.answers), is_literal_match(said, asked.answers)
            found.append(EvalAnswer(question=asked.question, expected=expected, answer=said, kept=kept))
            self._progress(len(talk.messages) + number, whole)
        return found

    async def ask_about_import(
        self, place: EvaluationPlace, questions: Sequence[EvalQuestion]
    ) -> list[tuple[EvalQuestion, str, bool]]:
        """Ask questions about an imported talk; return each question, its answer, and whether `recall` was
        used.

        The answer is "" if the turn failed 3 times. Questions that an earlier run asked are not asked again.
        Raises EvaluationStopped and EvertalkError.
        """
        await self._note_spending(place)
        found = []
        for number, asked in enumerate(questions, 1):
            turn = await self._turn(place, f"held:{number}", asked.question)
            found.append((asked, turn.answer if turn else "", turn is not None and turn.used_recall))
            self._progress(number, len(questions))
        return found

    async def _say(self, place: EvaluationPlace, name: str, words: str) -> str:
        """Return the answer; empty if the turn failed each time."""
        turn = await self._turn(place, name, words)
        return turn.answer if turn else ""

    async def _turn(self, place: EvaluationPlace, name: str, words: str) -> TurnView | None:
        """Return the answered turn of a message; None if the turn failed each time."""
        for attempt in range(TRIES):
            key = _key(name, attempt)
            known = await self._store.load_turn(place.session_id, key)
            if known is None:
                figures = await self._note_spending(place)
                self._guard.check(figures.context_tokens + self._count(words) + RECALL_TOKENS)
                await self._sessions.accept(
                    Inbound(
                        session_id=place.session_id, address_id=place.address_id, text=words, dedupe_key=key
                    )
                )
            turn = await self._ended(place, key)
            await self._settle(place)
            if turn.state == "answered":
                return turn
            if turn.state == "refused" and known is None:
                raise EvaluationStopped(
                    f"The deployment refused a message ({turn.error_code}): one of its spending caps is "
                    "reached. Raise it, or wait until tomorrow."
                )
        return None

    async def _ended(self, place: EvaluationPlace, key: str) -> TurnView:
        """Answered here, or by whichever process has it."""
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            await self._sessions.answer(place.session_id, _ignore)
            turn = await self._store.load_turn(place.session_id, key)
            if turn is not None and turn.state not in ("open", "claimed"):
                return turn
            await asyncio.sleep(LOOK_SECONDS)
        raise EvaluationStopped(f"The model has not answered for {WAIT_SECONDS / 60:.0f} minutes.")

    async def _compact(self, place: EvaluationPlace, wanted: int) -> None:
        """Compact until `wanted` compactions exist, including those that the preset made."""
        figures = await self._note_spending(place)
        if figures.compactions >= wanted:
            return
        self._guard.check(figures.context_tokens, SUMMARY_TOKENS)
        order = JobOrder(
            kind="compact",
            key=f"compact:{place.session_id}:manual",
            trigger="manual",
            payload={"force": True},
        )
        await self._jobs.request_job(place.session_id, order)
        await self._settle(place)

    async def _settle(self, place: EvaluationPlace) -> None:
        """Run or await every due background job."""
        until = time.monotonic() + WAIT_SECONDS
        while await self._store.has_waiting_jobs(place.session_id):
            if (job := await self._jobs.find_due_job(place.session_id)) is not None:
                await self._run_job(job.id)
            if time.monotonic() > until:
                raise EvaluationStopped("A job in the background does not end; the dashboard shows which.")
            await asyncio.sleep(LOOK_SECONDS / 10)

    async def _note_spending(self, place: EvaluationPlace) -> EvalFigures:
        figures = await self._store.load_figures(place.session_id)
        self._guard.spent[place.session_id] = figures.micro
        return figures


def _key(name: str, attempt: int = 0) -> str:
    return f"eval:{name}:{attempt}"


async def _ignore(event: ReplyEvent) -> None:
    """Answers are read when they are stored."""


class AnswerJudge:
    """Judge of answers: another model, whose calls are booked on the conversation that it judges."""

    def __init__(
        self, model: str, *, models: ChatModel, counter: TokenCounter, ledger: JudgeLedger, caps: Caps
    ) -> None:
        self._name = model
        self._completion = OneShotCompletion(models, counter, bounds=CompletionTimeouts())
        self._ledger = ledger
        self._caps = caps

    async def load_card(self) -> ModelCard:
        """Return the card of the judge's model."""
        return await self._completion.load_card(self._name)

    async def is_right(self, place: EvaluationPlace, answer: EvalAnswer) -> bool:
        """Have the judge compare an answer with the right one; return whether they say the same.

        Raises EvaluationStopped at a spending cap, ModelError.
        """
        said = await self._ask(
            place, _JUDGE, question=answer.question, expected=answer.expected, answer=answer.answer
        )
        return said.startswith("yes")

    async def judge(self, place: EvaluationPlace, question: EvalQuestion, answer: str) -> Verdict:
        """Have the judge read an answer; return whether it abstained, is right or is made up.

        Rules decide if the judge replies anything else. Raises EvaluationStopped at a spending cap,
        ModelError.
        """
        expected = " / ".join(question.answers) or _NO_ANSWER
        said = await self._ask(
            place, _JUDGE_ABSTENTION, question=question.question, expected=expected, answer=answer
        )
        verdict = next((one for one in VERDICTS if said.startswith(one)), None)
        if verdict is None:
            return judge_by_rules(question, answer)
        return "abstained" if verdict == "right" and not question.answers else verdict

    async def _ask(
        self, place: EvaluationPlace, rules: str, *, question: str, expected: str, answer: str
    ) -> str:
        """Return the judge's reply in small letters. Raises EvaluationStopped at a cap, ModelError."""
        tracker = SpendTracker(self._ledger, session_id=place.session_id, job_id=None, caps=self._caps)
        words = "\n\n".join(
            (f"Question: {question}", f"Right answer: {expected}", f"Answer to judge: {answer}")
        )
        request = ModelRequest(
            model=self._name, system=(SystemPart(text=rules),), messages=(text_message("user", words),),
            max_output_tokens=200,
        )  # fmt: skip
        try:
            reply = await self._completion.complete(request, tracker=tracker)
        except CapReached as error:
            raise EvaluationStopped(f"The judge cannot be asked: {error}.") from error
        finally:
            await self._ledger.record_delegated(
                place.session_id, contact_id=place.contact_id, turn=1, spent=tracker.take_spent()
            )
        return text_of(reply.blocks).strip().casefold()


async def import_talk(importer: EvaluationImporter, place: EvaluationPlace, talk: EvalTalk) -> int:
    """Import the lines of a recorded talk as the past of a conversation's person; a repeated import adds
    nothing.

    Returns the internal id of the imported conversation, which is archived.
    """
    told = json.dumps([talk.name, [line.text for line in talk.lines]]).encode()
    messages = (
        PastMessage(text=line.text, at=line.at, is_assistant=line.is_assistant, speaker=line.speaker)
        for line in talk.lines
    )
    held = await importer.import_past(place.session_id, "chatgpt", hashlib.sha256(told).digest(), messages)
    return held.session_id
