"""Query for hidden messages, notes and files, and the tool by which a model sends one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from shared.core.context.question import QUESTION_WORDS
from shared.core.session.artifacts import READER
from shared.core.values.messages import ToolSpec
from shared.core.values.searching import PLAIN

RECALLS_PER_TURN = 3
"""Most calls of the tool in one turn."""
RESULT_TOKENS = 2_000
"""Most tokens of the result of a call."""
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
                "description": "art_… or msg_…",
                "maxLength": 40,
            },
            "offset": {"type": "integer", "minimum": 0},
        },
        "additionalProperties": False,
    },
)
"""Description of the tool with which a model looks up what a request does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """Query of recall, made from a message or from a call of the tool.

    `after` and `before` bound the time of passages, `from_seq` and `through_seq` the numbers of messages;
    None sets no bound. Words are in lower case.
    """

    session_id: int
    base_turn: int | None
    """Last hidden turn; later turns are live and never recalled. None takes the session's present value."""
    words: tuple[str, ...]
    asked: int = QUESTION_WORDS
    """Number of leading words that come from questions; the others come from statements next to them."""
    asks: bool = True
    """False for a message without a question; it is searched for only if it has rare words."""
    dictionary: str = PLAIN
    """Dictionary whose stop words are ignored."""
    turn: int | None = None
    """Number of the asking turn, which ignores what became searchable after its claim; None
    ignores nothing.
    """
    automatic: bool = True
    """True for recall at each turn: without messages before the newest `/new` or separator, pins and tool
    results.

    False for a call of the tool, which searches these, too.
    """
    known_notes: tuple[int, ...] = ()
    """Ids of notes that the request shows in any case, and that are not searched."""
    after: datetime | None = None
    before: datetime | None = None
    from_seq: int | None = None
    through_seq: int | None = None
    spoken_of: tuple[datetime, datetime] | None = None
    """Time span that the message names; its passages become candidates."""
    cited: tuple[int, ...] = ()
    """`seq` of messages that fitting facts cite; their passages become candidates."""
    encoder: str = ""
    """Name of the model that made `vector`; empty without an encoder."""
    vector: bytes = b""
    """Packed vector of the message, made by the model `encoder`; empty without an encoder."""
    zone: tzinfo = UTC
    """Time zone of the person, for the dates of results."""
