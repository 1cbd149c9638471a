"""What the page of one session is sent, as JSON Schema by name."""

from __future__ import annotations

from web.api.spec.shapes import (
    FLAG,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NUMBER,
    TEXT,
    THING,
    Schema,
    listed,
    maybe,
    thing,
    words,
)

_THINGS = listed(THING)
_MAYBE_THING: Schema = {"type": ["object", "null"]}

SESSION_SCHEMAS: dict[str, Schema] = {
    "WindowNow": thing(
        used=MAYBE_NUMBER, limit=NUMBER, free=MAYBE_NUMBER, window=NUMBER, hard=NUMBER, reserve=NUMBER,
        preset=TEXT, numbers=THING, overrides=_THINGS,
    ),
    "Replay": maybe(
        thing(
            turn=NUMBER, call=NUMBER, calls=NUMBER, newest=MAYBE_NUMBER,
            gone={**MAYBE_TEXT, "description": "why there is nothing to see"}, pieces=_THINGS,
        ),
        body={**THING, "description": "as the provider was sent it"},
    ),
    "Estimate": maybe(
        thing(
            possible=FLAG, reason=TEXT, reads=NUMBER, before=NUMBER, after=NUMBER, cost_micro=MAYBE_NUMBER,
            flush=_MAYBE_THING,
        ),
        from_turn=NUMBER, through_turn=NUMBER,
    ),
    "CompactNow": {**THING, "properties": {"focus": words(300), "force": FLAG}},
    "FlushNow": THING,
    "SummaryDiff": thing(
        lines=_THINGS, items=_THINGS, kept=NUMBER, unsaid=_THINGS, pins=_THINGS, notes=_THINGS
    ),
}  # fmt: skip
