"""Reading of answers aloud, within the caps; each is made and paid once, by its length."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

import structlog

from shared.core.session.turns import Caps, Spending
from shared.core.values.errors import EvertalkError, ModelError
from shared.core.values.recordings import SpeechFormat
from shared.core.values.speech import speech_micro, spoken_text
from shared.locales import Catalogue
from shared.ports import Speaker
from shared.runtime import CrashPoint
from shared.services.turns.spend_tracker import SpendStore

AT_ONCE = 4
"""Most spoken answers made at the same time in a process, since each is kept in memory."""

log = structlog.get_logger(__name__)


class NotSpoken(EvertalkError):
    """The service that speaks did not do it."""

    sentence = "The service that speaks did not do it."
    code = "not_spoken"
    advice = "I could not read this aloud just now."


class NothingToSpeak(EvertalkError):
    """The answer is unknown, or has no speakable text."""

    sentence = "The answer is unknown, or has no speakable text."
    code = "nothing_to_speak"
    advice = "There is nothing to read aloud here."


class EndedAnswer(Protocol):
    """Answer of an ended turn: the turn's state, such as `answered` or `failed`, and the text."""

    @property
    def state(self) -> str: ...
    @property
    def text(self) -> str: ...


class EndedAnswerStore(Protocol):
    """Store of ended turns; returns None if the turn still runs or does not exist."""

    async def load_ended_turn(self, session_id: int, turn: int) -> EndedAnswer | None: ...


class SpokenStore(Protocol):
    """Store of recordings of spoken answers, and of their cost.

    `load_spoken` returns None if there is none yet, and then prepares the row for `record_spoken`, which
    settles the reservation. None as `body` stores only the cost.
    """

    async def load_spoken(self, session_id: int, turn: int, form: SpeechFormat) -> bytes | None: ...
    async def record_spoken(
        self,
        session_id: int,
        turn: int,
        form: SpeechFormat,
        *,
        body: bytes | None,
        spent: Spending,
        reservation_id: int | None,
    ) -> None: ...


class SpeakingService:
    """Maker of spoken answers; each is made and paid once, and stored."""

    def __init__(
        self,
        *,
        speaker: Speaker,
        store: SpokenStore,
        answers: EndedAnswerStore,
        spend: SpendStore,
        caps: Caps,
        micro_per_1000_chars: int | None,
        crash_point: CrashPoint,
    ) -> None:
        """Set up the service; `micro_per_1000_chars` is None for an unknown price, which the ledger then
        records.
        """
        self._speaker = speaker
        self._store = store
        self._answers = answers
        self._spend = spend
        self._caps = caps
        self._price = micro_per_1000_chars
        self._crash_point = crash_point
        self._places = asyncio.Semaphore(AT_ONCE)
        self._locks: WeakValueDictionary[tuple[int, int, str], asyncio.Lock] = WeakValueDictionary()

    async def speak(self, session_id: int, turn: int, *, form: SpeechFormat, texts: Catalogue) -> bytes:
        """Return the answer of a turn as audio in the format `form`; make and store it if none is stored.

        `texts` has the words that replace what cannot be spoken, such as code. Raises NothingToSpeak if the
        turn has no answer with speakable text, NotSpoken if the service fails, CapReached, CapHeld and
        StorageUnavailable.
        """
        key = session_id, turn, form
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock, self._places:
            answer = await self._answers.load_ended_turn(session_id, turn)
            if answer is None or answer.state not in ("answered", "stopped"):
                raise NothingToSpeak
            words = spoken_text(answer.text, lambda what: texts.say(f"speech_{what}"))
            if not words:
                raise NothingToSpeak
            made = await self._store.load_spoken(session_id, turn, form)
            return made or await self._make(session_id, turn, form, words)

    async def _make(self, session_id: int, turn: int, form: SpeechFormat, words: str) -> bytes:
        micro = speech_micro(words, self._price)
        reservation_id = await self._spend.reserve(session_id, micro, caps=self._caps) if micro else None
        record = partial(self._store.record_spoken, session_id, turn, form, reservation_id=reservation_id)
        try:
            body = await self._speaker.speak(words, form=form, session=session_id)
        except ModelError as error:
            log.warning("speech_failed", session_id=session_id, code=error.code, reason=str(error))
            if error.aborted:
                await record(body=None, spent=self._spending(micro, aborted=True))
            elif reservation_id is not None:
                await self._spend.release_reservation(reservation_id)
            raise NotSpoken(str(error)) from error
        self._crash_point("after_speech")
        await record(body=body, spent=self._spending(micro))
        return body

    def _spending(self, micro: int | None, *, aborted: bool = False) -> Spending:
        return Spending(
            model=self._speaker.model,
            known=not aborted,
            cost_micro=micro,
            aborted=aborted,
        )
