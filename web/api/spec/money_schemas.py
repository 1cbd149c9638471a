"""What costs and savings answer, as JSON Schema by name."""

from __future__ import annotations

from web.api.spec.shapes import MAYBE_NUMBER, MAYBE_TEXT, NUMBER, SHARE, TEXT, THING, Schema, listed, thing

_DAY: Schema = {"type": "string", "format": "date"}
_SUMS = {
    "calls": NUMBER, "input_tokens": MAYBE_NUMBER, "output_tokens": MAYBE_NUMBER,
    "cache_read_tokens": MAYBE_NUMBER, "cache_write_tokens": MAYBE_NUMBER, "cost_micro": MAYBE_NUMBER,
    "unknown_calls": NUMBER, "cache_hit_pct": SHARE,
}  # fmt: skip
_SAVING = thing(tokens=NUMBER, micro=MAYBE_NUMBER, unpriced_tokens=NUMBER)
MONEY_SCHEMAS: dict[str, Schema] = {
    "Costs": {
        "type": "object",
        "properties": {
            "group": TEXT, "from": _DAY, "to": _DAY, "timezone": TEXT,
            "total": thing(**_SUMS), "groups": NUMBER,
            "rows": listed(thing(key=MAYBE_TEXT, label=MAYBE_TEXT, **_SUMS)),
            "days": listed(thing(day=_DAY, calls=NUMBER, cost_micro=MAYBE_NUMBER, unknown_calls=NUMBER)),
            "prices": listed(THING),
        },
        "required": ["group", "from", "to", "timezone", "total", "groups", "rows", "days", "prices"],
    },
    "Savings": {
        "type": "object",
        "properties": {
            "from": _DAY, "to": _DAY, "caching": _SAVING, "summaries": _SAVING, "summarised_turns": NUMBER,
            "summaries_paid_micro": MAYBE_NUMBER, "uncounted_calls": NUMBER,
        },
        "required": ["from", "to", "caching", "summaries", "summarised_turns", "uncounted_calls"],
    },
}  # fmt: skip
