"""What REST sends about alerts, as JSON Schema by name."""

from __future__ import annotations

from web.api.spec.shapes import ID, MAYBE_TEXT, NUMBER, TEXT, THING, Schema, listed, ref, thing

_SEND = thing(
    target=TEXT,
    phase={"type": "string", "enum": ["opened", "ended"]},
    state={"type": "string", "enum": ["due", "sending", "sent", "failed", "uncertain"]},
    error=TEXT,
    advice=TEXT,
    attempt=NUMBER,
    at=TEXT,
)
_ALERT = thing(
    id=ID, kind=TEXT, key=TEXT, title=TEXT, facts=TEXT, advice=TEXT, detail=THING, opened_at=TEXT,
    ended_at=MAYBE_TEXT, seen_at=MAYBE_TEXT, seen_by=TEXT, sends=listed(_SEND),
)  # fmt: skip
_TARGET = thing(
    target=TEXT, name=TEXT, state=MAYBE_TEXT, error=MAYBE_TEXT, advice=TEXT, at=MAYBE_TEXT, sent_at=MAYBE_TEXT
)

ALERTS_SCHEMAS: dict[str, Schema] = {
    "Alert": _ALERT,
    "Alerts": thing(
        open=listed(ref("Alert")),
        past=listed(ref("Alert")),
        next=MAYBE_TEXT,
        unseen=NUMBER,
        targets=listed(_TARGET),
    ),
    "AlertTested": thing(id=ID, targets=listed(TEXT)),
}
