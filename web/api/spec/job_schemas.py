"""The shapes of what is read and changed about jobs and deliveries."""

from __future__ import annotations

from web.api.spec.shapes import MAYBE_TEXT, NUMBER, TEXT, THING, Schema, listed, thing

_THINGS = listed(THING)
_JOB_ID = {"type": "integer", "minimum": 1, "maximum": 2**53}

WORK_SCHEMAS: dict[str, Schema] = {
    "Jobs": thing(
        states=THING, counted_to=NUMBER, failing=NUMBER, newest=TEXT, retry_all=THING, cancel_all=THING,
        jobs=_THINGS, before=MAYBE_TEXT, workers=_THINGS, bots=_THINGS,
    ),
    "JobsChange": {
        "type": "object",
        "properties": {
            "ids": {"type": "array", "items": _JOB_ID, "minItems": 1, "maxItems": 500},
            "match": {
                "type": "object",
                "properties": {"state": TEXT, "kind": TEXT, "session": TEXT},
                "additionalProperties": False,
            },
            "through": TEXT,
        },
    },
    "Deliveries": thing(
        states=THING, on_their_way=NUMBER, deliveries=_THINGS, next=MAYBE_TEXT
    ),
    "PartsChange": thing(
        parts={
            "type": "array",
            "items": thing(session=TEXT, turn=NUMBER, part=NUMBER),
            "minItems": 1,
            "maxItems": 500,
        }
    ),
    "WorkChanged": thing(changed=NUMBER, skipped=NUMBER, left=NUMBER, why=_THINGS),
}  # fmt: skip
