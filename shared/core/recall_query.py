"""What is asked of the past: the words of a question, and which part of the past may answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from shared.core.searching import PLAIN, dictionary_of, words_of

QUESTION_WORDS = 32
"""A pasted page asks no more than this many words can."""
_SMALL_TALK = frozenset(
    "hello hi hey hallo hola ciao thanks thank danke merci ok okay yes no ja nein please bitte bye".split()
)
_QUESTION = re.compile(r"[^.!?。！？\n]*[?？]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    session_id: int
    base_turn: int
    """Turns up to this one are hidden; what comes after is live and never recalled by itself."""
    words: tuple[str, ...]
    dictionary: str = PLAIN
    """Whose small words do not count."""
    turn: int | None = None
    """The turn that asks: what became searchable after its claim is not seen, so that a retry sees the same."""
    automatic: bool = True
    """Unasked: nothing from before the newest `/new` or separator, no pins, nothing that tools said."""
    known_notes: tuple[int, ...] = ()
    """Notes that the model sees anyway."""
    after: datetime | None = None
    before: datetime | None = None
    from_seq: int | None = None
    through_seq: int | None = None


def question_words(text: str) -> tuple[str, ...]:
    """Different words, those of its questions first; empty for a greeting."""
    asked = " ".join(_QUESTION.findall(text))
    words = dict.fromkeys([*words_of(asked), *words_of(text)])
    return tuple([word for word in words if word not in _SMALL_TALK][:QUESTION_WORDS])


def question_dictionary(text: str) -> str:
    return dictionary_of(text, least=1)
