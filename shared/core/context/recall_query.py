"""Query of hidden messages, and the tool by which a model sends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from shared.core.context.question import QUESTION_WORDS
from shared.core.session.artifacts import READER
from shared.core.values.messages import ToolSpec
from shared.core.values.searching import PLAIN

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
                "description": "art_… or msg_…",
                "maxLength": 40,
            },
            "offset": {"type": "integer", "minimum": 0},
        },
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    session_id: int
    base_turn: int | None
    """Turns up to this one are hidden; what comes after is live and never recalled. None: as it is now."""
    words: tuple[str, ...]
    asked: int = QUESTION_WORDS
    """Number of the first words, which are of its questions; the others stand beside them."""
    asks: bool = True
    """False: nothing is searched for without rare words."""
    dictionary: str = PLAIN
    """Dictionary whose stop words do not count."""
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
    spoken_of: tuple[datetime, datetime] | None = None
    """The time that the message speaks of: its passages are candidates, too."""
    cited: tuple[int, ...] = ()
    """Messages of the session that fitting facts cite: their passages are candidates, too."""
    encoder: str = ""
    vector: bytes = b""
    """Packed vector of the message, by the model `encoder`; empty without one."""
    zone: tzinfo = UTC
    """Timezone of the person, for the days of results."""
