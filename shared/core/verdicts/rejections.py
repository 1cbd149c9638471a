"""Requests that a model's server refused for good or answered uselessly, kept for ten minutes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.core.values.errors import (
    ModelAnswerUnusable,
    ModelBusy,
    ModelError,
    ModelRejectedRequest,
    ModelUnavailable,
)
from shared.core.values.messages import Message, ToolResult, text_of
from shared.core.values.secrets_filter import redact
from shared.core.verdicts.evidence import Clock

KEPT_SECONDS = 600.0
"""Seconds after which a rejection is forgotten; an answer in the same session removes it at once."""
WAITED_SECONDS = 540.0
"""Seconds of a busy or failing server after which that counts as a rejection, shortly before the
turn ends.
"""
_MOST_WAITING_SECONDS = 3_600.0
MOST_CHARS = 200
"""Most characters of a server's wording that operators see."""
_MOST_KEPT = 20
_RUN_OF_WORDS = 3
"""Words in a row that a sentence may not share with the conversation, since it may quote a person."""
_QUOTED = re.compile(r"'[^']*+'|\"[^\"]*+\"|“[^“”]*+”|`[^`]*+`")
_SENTENCE = re.compile(r"(?<=[.!?;:])\s++")
_WORD = re.compile(r"\w++")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Newest rejection by one model, as operators see it; `code` is that of the error."""

    provider: str
    model: str
    session: int
    """Internal id of the session; 0 for a request outside of sessions."""
    code: str
    wording: str
    count: int
    """Number of rejections in the last ten minutes."""
    sessions: tuple[int, ...] = ()
    """Internal ids of the sessions that met a rejection in this time, newest first."""


@dataclass(frozen=True, slots=True)
class _KeptRejection:
    at: float
    session: int
    code: str
    wording: str


class Rejections:
    """Rejections of requests by one model at one provider, in the memory of this process."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[_KeptRejection] = deque(maxlen=_MOST_KEPT)
        self._waiting: dict[int, float] = {}
        """Clock time when the provider first could not answer, by session id."""

    def record(self, error: ModelError, *, session: int, messages: Iterable[Message]) -> None:
        """Record a rejection of one request of a session; errors that do not reject it are ignored.

        Rejections are ModelRejectedRequest, ModelAnswerUnusable, and a server that has been busy or failing
        for nine minutes. `messages` are those of the request, so that the stored wording repeats nothing of
        them.
        """
        is_final = isinstance(error, ModelRejectedRequest | ModelAnswerUnusable)
        if is_final or self._has_waited(error, session):
            wording = shrink_wording(str(error), messages)
            self._kept.append(_KeptRejection(self._clock(), max(0, session), error.code, wording))

    def _has_waited(self, error: ModelError, session: int) -> bool:
        """Return whether a session has met a busy or failing server for nine minutes."""
        if not error.answered or not isinstance(error, ModelBusy | ModelUnavailable) or session <= 0:
            return False
        now = self._clock()
        self._waiting = {one: at for one, at in self._waiting.items() if now - at < _MOST_WAITING_SECONDS}
        return now - self._waiting.setdefault(session, now) >= WAITED_SECONDS

    def clear(self, session: int) -> None:
        """Delete the rejections of a session, after the model has answered it."""
        if self._kept:
            kept = (one for one in self._kept if one.session != session)
            self._kept = deque(kept, maxlen=_MOST_KEPT)
        self._waiting.pop(session, None)

    def find_newest(self, *, provider: str, model: str) -> Rejection | None:
        """Return the newest rejection of the last ten minutes; None if there is none.

        `provider` and `model` are copied into it.
        """
        oldest = self._clock() - KEPT_SECONDS
        recent = [one for one in self._kept if one.at > oldest]
        if not recent:
            return None
        newest = recent[-1]
        return Rejection(
            provider=provider, model=model, session=newest.session, code=newest.code, wording=newest.wording,
            count=len(recent),
            sessions=tuple(dict.fromkeys(one.session for one in reversed(recent) if one.session)),
        )  # fmt: skip


def shrink_wording(text: str, messages: Iterable[Message]) -> str:
    """Return a server's wording without secrets, quotations and sentences that repeat the conversation.

    It is on one line and has at most 200 characters; a sentence repeats it if three words in a row are the
    same.
    """
    plain = _QUOTED.sub("…", redact(text))
    said = {run for message in messages for run in _runs(_text_of(message))}
    kept = [part for part in _SENTENCE.split(plain) if said.isdisjoint(_runs(part))]
    return " ".join(" ".join(kept).split())[:MOST_CHARS]


def _text_of(message: Message) -> str:
    results = (block.text for block in message.blocks if isinstance(block, ToolResult))
    return "\n".join((text_of(message.blocks), *results))


def _runs(text: str) -> Iterable[Sequence[str]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return (tuple(words[at : at + _RUN_OF_WORDS]) for at in range(len(words) - _RUN_OF_WORDS + 1))
