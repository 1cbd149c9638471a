"""Descriptions of the tools that work with memory."""

from __future__ import annotations

from shared.core.context.memory import DURABILITIES, NOTE_CHARS, NOTE_KINDS
from shared.core.context.notes import SHORT_ID
from shared.core.context.recall_query import RECALL
from shared.core.values.messages import ToolSpec

_TEXT = {"type": "string", "maxLength": NOTE_CHARS}
_EVENT_DATE = {"type": "string", "description": "YYYY[-MM[-DD]]"}
_ID = {"type": "string", "pattern": f"^{SHORT_ID}$"}

SAVE_MEMORY = ToolSpec(
    name="save_memory",
    description=(
        "Remember one lasting thing about the person or their plans: a full sentence with names and full "
        "dates. No secrets, nothing twice, nothing that matters only today."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "text": _TEXT,
            "kind": {"type": "string", "enum": list(NOTE_KINDS)},
            "subject": {"type": "string"},
            "importance": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "description": "1 to 9",
            },
            "durability": {"type": "string", "enum": list(DURABILITIES)},
            "event_date": _EVENT_DATE,
        },
        "required": ["text", "kind"],
        "additionalProperties": False,
    },
)
"""Description of the tool that stores a note."""
SEARCH_MEMORY = ToolSpec(
    name="search_memory",
    description=(
        "Search the notes about the person, for their ids and dates; without words, list the newest. "
        "Notes marked “from a tool” are unconfirmed."
    ),
    input_schema={
        "type": "object",
        "properties": {"query": {"type": "string", "maxLength": 300}},
        "required": ["query"],
        "additionalProperties": False,
    },
)
"""Description of the tool that searches notes."""
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
"""Description of the tool that replaces a note."""
FORGET_MEMORY = ToolSpec(
    name="forget_memory",
    description=(
        "Remove a note that is wrong or unwanted; search_memory gives its id. To erase it for good, the "
        "person types /forget."
    ),
    input_schema={
        "type": "object",
        "properties": {"id": _ID},
        "required": ["id"],
        "additionalProperties": False,
    },
)
"""Description of the tool that archives a note."""
KEEPING_TOOLS = frozenset(spec.name for spec in (SAVE_MEMORY, UPDATE_MEMORY, FORGET_MEMORY))
"""Names of memory tools whose success needs no further answer of the model."""
MEMORY_TOOLS = KEEPING_TOOLS | {SEARCH_MEMORY.name}
"""Names of all tools for notes."""

FLUSH_TOOLS = MEMORY_TOOLS | {RECALL.name}
"""Names of the tools of a flush; text found by recall does not count as said by the person in this turn."""
