"""What is asked of the past: the words of a question, and which part of the past may answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from shared.core.session.artifacts import READER
from shared.core.values.model import ToolSpec
from shared.core.values.searching import PLAIN, dictionary_of, words_of

QUESTION_WORDS = 32
"""A pasted page asks no more than this many words can."""
RECALLS_PER_TURN = 3
RESULT_TOKENS = 2_000
RECALL = ToolSpec(
    name=READER,
    description=(
        "Look up earlier messages, notes and files that you cannot see, or read on in a long text shown in "
        "part, from `offset` or where `query` stands."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "maxLength": 500},
            "after": {"type": "string", "description": "YYYY-MM-DD"},
            "before": {"type": "string", "description": "YYYY-MM-DD"},
            "seq_range": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1},
                "minItems": 2,
                "maxItems": 2,
                "description": "message numbers",
            },
            "artifact": {
                "type": "string",
                "description": "art_… id of a long text",
                "maxLength": 40,
            },
            "offset": {"type": "integer", "minimum": 0},
        },
        "additionalProperties": False,
    },
)
_SMALL_TALK = "hello hi hey hallo hola ciao thanks thank danke merci ok okay yes no ja nein please bitte bye"
_ASKING = {
    "english": "who what when where which why how does did was were has have would could the is my",
    "german": "wer was wann wo welche welcher welches warum wie hat habe hast ist wurde der das ich mein",
    "french": "qui que quoi quand où quel quelle pourquoi comment est le les ai avons mon ma",
    "spanish": "quién qué cuándo dónde cuál cómo por el los es está mi",
    "italian": "chi che cosa quando dove quale perché come il gli è ho mio",
    "portuguese": "quem que quando onde qual como porque os é está foi meu",
    "dutch": "wie wat wanneer waar welke waarom hoe het een is heeft mijn",
    "russian": "кто что когда где какой какая почему как это мой моя я",
}
_QUESTION = re.compile(r"[^.!?。！？\n]*[?？]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    session_id: int
    base_turn: int | None
    """Turns up to this one are hidden; what comes after is live and never recalled. None: as it is now."""
    words: tuple[str, ...]
    dictionary: str = PLAIN
    """Whose small words do not count."""
    turn: int | None = None
    """The turn that asks: what became searchable after its claim is not seen, so a retry sees the same."""
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
    small_talk = _SMALL_TALK.split()
    words = dict.fromkeys([*words_of(asked), *words_of(text)])
    return tuple([word for word in words if word not in small_talk][:QUESTION_WORDS])


def question_dictionary(text: str) -> str:
    """The language a question is asked in; its small words are few, so that how it asks decides."""
    words = set(words_of(text))
    asking = {name: len(words & set(asked.split())) for name, asked in _ASKING.items()}
    best = max(asking, key=asking.__getitem__)
    if asking[best] > sorted(asking.values())[-2]:
        return best
    return dictionary_of(text, least=1)
