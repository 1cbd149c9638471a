"""What a model is told of the tools that work with its memory."""

from __future__ import annotations

from shared.core.context.memory import DURABILITIES, NOTE_CHARS, NOTE_KINDS
from shared.core.context.notes import SHORT_ID
from shared.core.context.recall_query import RECALL
from shared.core.values.model import ToolSpec

_TEXT = {"type": "string", "maxLength": NOTE_CHARS}
_IMPORTANCE = {
    "type": "integer",
    "minimum": 1,
    "maximum": 9,
    "description": "1 trivia, 5 ordinary, 9 never forget",
}
_EVENT_DATE = {"type": "string", "description": "YYYY-MM-DD, YYYY-MM or YYYY"}
_ID = {"type": "string", "pattern": f"^{SHORT_ID}$"}

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
            "subject": {"type": "string", "description": "Whom or what it is about"},
            "importance": _IMPORTANCE,
            "durability": {
                "type": "string",
                "enum": list(DURABILITIES),
                "description": "ephemeral: of no use after its date",
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
        "Search the notes about the person by a few words; empty for the newest. Gives ids and dates. "
        "What is marked “from a tool” is unconfirmed."
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
    description="Replace a note that has changed; search_memory gives its id.",
    input_schema={
        "type": "object",
        "properties": {"id": _ID, "text": _TEXT, "event_date": _EVENT_DATE},
        "required": ["id", "text"],
        "additionalProperties": False,
    },
)
FORGET_MEMORY = ToolSpec(
    name="forget_memory",
    description=(
        "Put away a note that is wrong or unwanted; search_memory gives its id. For good it is erased by the "
        "person's own /forget."
    ),
    input_schema={
        "type": "object",
        "properties": {"id": _ID},
        "required": ["id"],
        "additionalProperties": False,
    },
)
KEEPING_TOOLS = frozenset(spec.name for spec in (SAVE_MEMORY, UPDATE_MEMORY, FORGET_MEMORY))
"""Those whose success leaves a model nothing to say."""
MEMORY_TOOLS = KEEPING_TOOLS | {SEARCH_MEMORY.name}

FLUSH_TOOLS = MEMORY_TOOLS | {RECALL.name}
"""What is carried out in a ghost turn, too; what recall finds is not the person's word of this turn."""
