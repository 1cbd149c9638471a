"""Notes about a party: what the model may save, when two notes are the same, and the block it always sees."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable

from shared.core.model import ToolSpec
from shared.core.session import Note

NOTE_KINDS = ("profile", "preference", "fact", "decision", "event", "plan", "relation", "instruction")
MAX_NOTE_CHARS = 1_000
CORE_BLOCK_TOKENS = 400

SAVE_MEMORY = ToolSpec(
    name="save_memory",
    description=(
        "Keep one thing about the person, or their plans and agreements, so that it is known in months. "
        "One self-contained sentence per call, with names and full dates instead of “he” or “tomorrow”. "
        "Save nothing twice, nothing secret such as passwords or keys, and nothing that matters only today."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The sentence to keep.", "maxLength": MAX_NOTE_CHARS},
            "kind": {"type": "string", "enum": list(NOTE_KINDS)},
            "subject": {"type": "string", "description": "Whom or what it is about, in a word or two."},
            "importance": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "description": "1 is trivia, 5 is ordinary, 9 must never be forgotten.",
            },
        },
        "required": ["text", "kind"],
        "additionalProperties": False,
    },
)

_WORD = re.compile(r"\w+")
_ALIKE_AT = 0.85


def normalised(text: str) -> str:
    """What two notes have in common when they differ in case, blanks and punctuation only."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def note_hash(text: str) -> bytes:
    return hashlib.sha256((normalised(text) or text.strip()).encode()).digest()


def near_duplicate(a: str, b: str) -> bool:
    """True when nearly all words are shared and no number differs: two cats are not three cats."""
    words_a, words_b = set(normalised(a).split()), set(normalised(b).split())
    if not words_a or not words_b:
        return a.strip() == b.strip()
    differing = words_a ^ words_b
    if differing & _TELLING or any(any(char.isdigit() for char in word) for word in differing):
        return False
    return len(words_a & words_b) / len(words_a | words_b) >= _ALIKE_AT


_TELLING = frozenset(
    {"not", "no", "never", "without", "nicht", "kein", "keine", "nie", "non", "pas", "jamais", "не", "нет"}
    | {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
)
"""Words that turn a sentence into another one however many others are shared."""


def core_block(
    notes: Iterable[Note], count: Callable[[str], int], limit_tokens: int = CORE_BLOCK_TOKENS
) -> str:
    """The weightiest notes as lines, in an order that does not depend on the one they came in.

    Notes that only a tool vouches for are never shown by themselves.
    """
    trusted = (note for note in notes if note.authority != "tool")
    lines: list[str] = []
    left = limit_tokens
    for note in sorted(trusted, key=lambda note: (-note.importance, note.id)):
        line = f"- {' '.join(note.text.split())}"
        cost = count(line) + 1
        if cost <= left:
            lines.append(line)
            left -= cost
    return "\n".join(lines)
