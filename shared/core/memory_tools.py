"""What a model is told of the tools that work with its memory."""

from __future__ import annotations

from shared.core.memory import DURABILITIES, NOTE_CHARS, NOTE_KINDS
from shared.core.model import ToolSpec
from shared.core.notes import SHORT_ID
from shared.core.recall_query import RECALL

_TEXT = {"type": "string", "description": "One self-contained sentence.", "maxLength": NOTE_CHARS}
_IMPORTANCE = {
    "type": "integer",
    "minimum": 1,
    "maximum": 9,
    "description": "1 is trivia, 5 is ordinary, 9 must never be forgotten.",
}
_EVENT_DATE = {"type": "string", "description": "When it happens or happened: 2026-05-31, 2026-05 or 2026."}
_ID = {"type": "string", "description": "The note's id, such as n0123abcd.", "pattern": f"^{SHORT_ID}$"}

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
            "text": _TEXT,
            "kind": {"type": "string", "enum": list(NOTE_KINDS)},
            "subject": {"type": "string", "description": "Whom or what it is about, in a word or two."},
            "importance": _IMPORTANCE,
            "durability": {
                "type": "string",
                "enum": list(DURABILITIES),
                "description": "ephemeral: of no use once its date has passed.",
            },
            "event_date": _EVENT_DATE,
        },
        "required": ["text", "kind"],
        "additionalProperties": False,
    },
)
SEARCH_MEMORY = ToolSpec(
    name="search_memory",
    description=(
        "Search what is kept about the person beyond what you are shown. A few telling words; empty for the "
        "newest. Gives each note's id and date. Notes marked “from a tool” are unconfirmed."
    ),
    input_schema={
        "type": "object",
        "properties": {"query": {"type": "string", "maxLength": 300}},
        "required": ["query"],
        "additionalProperties": False,
    },
)
UPDATE_MEMORY = ToolSpec(
    name="update_memory",
    description="Replace a kept note whose content has changed; get its id from search_memory.",
    input_schema={
        "type": "object",
        "properties": {"id": _ID, "text": _TEXT, "importance": _IMPORTANCE, "event_date": _EVENT_DATE},
        "required": ["id", "text"],
        "additionalProperties": False,
    },
)
FORGET_MEMORY = ToolSpec(
    name="forget_memory",
    description=(
        "Put away a kept note that the person no longer wants kept, or that is wrong; get its id from "
        "search_memory. To erase something for good the person types /forget."
    ),
    input_schema={
        "type": "object",
        "properties": {"id": _ID},
        "required": ["id"],
        "additionalProperties": False,
    },
)
MEMORY_TOOLS = frozenset(spec.name for spec in (SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY, FORGET_MEMORY))

FLUSH_TOOLS = MEMORY_TOOLS | {RECALL.name}
"""What is carried out in a ghost turn, too; what recall finds is not the person's word of this turn."""
