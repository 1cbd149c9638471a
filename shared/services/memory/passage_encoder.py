"""Background encoder that gives passages and notes their vectors, within a time budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from shared.core.memory.vectors import EncodedPassage, UnencodedPassages
from shared.core.values.errors import EncoderEnded, ModelError
from shared.ports import Encoder

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 4.0
"""Seconds that one sweep may encode. It runs every ten seconds, so old messages take less than half a
core.
"""
PASSAGES_AT_ONCE = 256
"""Most passages of a session that are loaded before the next session's turn."""
NOTES_AT_ONCE = 64
"""Most notes that one sweep encodes."""
TEXTS_AT_ONCE = 8
"""Texts per request; a person's question waits for the request in progress."""
ENDS = 2
"""Times that the encoder's process may end at a text before the text is left without a vector."""


class PassageVectorStore(Protocol):
    """Store of passages and notes that lack vectors, and of their vectors.

    `load_unencoded` returns passages of the first listed session after the id `after`, None if no later one
    is listed. `delist` removes a session without such passages. `list_other_encoders` lists sessions and
    notes with vectors of another model, and returns how many it added. Storing skips texts that have changed.
    All raise StorageUnavailable.
    """

    async def load_unencoded(self, encoder: str, *, after: int, limit: int) -> UnencodedPassages | None: ...
    async def delist(self, passages: UnencodedPassages) -> None: ...
    async def store(self, session_id: int, encoder: str, encoded: Sequence[EncodedPassage]) -> int: ...
    async def load_unencoded_notes(self, limit: int) -> Sequence[tuple[int, str]]: ...
    async def store_notes(self, encoder: str, encoded: Sequence[EncodedPassage]) -> int: ...
    async def list_other_encoders(self, encoder: str) -> int: ...


class PassageEncoder:
    """Encoder of notes and of listed sessions' passages, session after session, so that a long one delays no
    other.
    """

    def __init__(
        self, store: PassageVectorStore, encoder: Encoder, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._clock = clock
        self._known = ""
        """Name of the model for which sessions encoded by other models are listed already."""
        self._after = 0
        self._ended: Counter[tuple[int | None, int]] = Counter()
        """Number of encoder failures by session id (None for notes) and number of the text."""

    async def sweep(self) -> None:
        """Encode notes and passages and store their vectors, until none is left or `SWEEP_SECONDS` have
        passed.

        A failing encoder ends the sweep and is only logged. After a change of the model, all texts are listed
        again. Raises StorageUnavailable.
        """
        until = self._clock() + SWEEP_SECONDS
        try:
            name = (await self._encoder.encode(())).encoder
            if name != self._known:
                while await self._store.list_other_encoders(name):
                    pass
                self._known = name
            await self._encode_notes(name, until)
            while self._clock() < until and await self._encode_next(name, until):
                pass
        except ModelError as error:
            log.info("passage_encoding_failed", reason=str(error))

    async def _encode_notes(self, name: str, until: float) -> None:
        """Encode the notes without a vector; a note that makes the encoder fail does not stop the sweep."""
        try:
            await self._encode_all(name, None, await self._store.load_unencoded_notes(NOTES_AT_ONCE), until)
        except EncoderEnded as error:
            log.info("note_encoding_failed", reason=str(error))

    async def _encode_next(self, name: str, until: float) -> bool:
        """Encode passages of the next listed session, or go back to the first after the last; return False if
        none is listed.
        """
        found = await self._store.load_unencoded(name, after=self._after, limit=PASSAGES_AT_ONCE)
        if found is None and self._after:
            self._after = 0
            return True
        if found is None:
            return False
        if not found.texts:
            await self._store.delist(found)
        self._after = found.session_id
        await self._encode_all(name, found.session_id, found.texts, until)
        return True

    async def _encode_all(
        self, name: str, session_id: int | None, texts: Sequence[tuple[int, str]], until: float
    ) -> None:
        while texts and self._clock() < until:
            first = 1 if self._has_crashed_at(session_id, texts[:TEXTS_AT_ONCE]) else TEXTS_AT_ONCE
            await self._encode(name, session_id, texts[:first])
            texts = texts[first:]

    def _has_crashed_at(self, session_id: int | None, texts: Sequence[tuple[int, str]]) -> bool:
        return any(self._ended[session_id, number] for number, _ in texts)

    async def _encode(self, name: str, session_id: int | None, texts: Sequence[tuple[int, str]]) -> None:
        """Encode texts of a session, or notes if it is None, and store their vectors. Raises ModelError."""
        if len(texts) == 1 and self._ended[session_id, texts[0][0]] >= ENDS:
            number, text = texts[0]
            log.warning("encoder_crashed", session_id=session_id, number=number)
            await self._keep(session_id, name, [EncodedPassage(number=number, text=text, vector=None)])
            del self._ended[session_id, number]
            return
        try:
            encoded = await self._encoder.encode([text for _, text in texts])
        except EncoderEnded:
            self._ended.update((session_id, number) for number, _ in texts)
            raise
        made = [
            EncodedPassage(number=number, text=text, vector=vector)
            for (number, text), vector in zip(texts, encoded.vectors, strict=True)
        ]
        await self._keep(session_id, encoded.encoder, made)
        for number, _ in texts:
            self._ended.pop((session_id, number), None)

    async def _keep(self, session_id: int | None, encoder: str, made: Sequence[EncodedPassage]) -> None:
        if session_id is None:
            await self._store.store_notes(encoder, made)
        else:
            await self._store.store(session_id, encoder, made)
