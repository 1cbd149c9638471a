"""What REST sends and takes about operators, their logins and the audit log, as JSON Schema by name."""

from __future__ import annotations

from web.api.spec.shapes import (
    FLAG,
    ID,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NUMBER,
    TEXT,
    THING,
    TIME,
    Schema,
    form,
    listed,
    maybe,
    ref,
    thing,
    words,
)

_ROLE: Schema = {"type": "string", "enum": ["viewer", "operator", "admin"]}
_MAYBE_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
OPERATOR_SCHEMAS: dict[str, Schema] = {
    "Login": maybe(
        thing(id=ID, at=TIME, seen_at=TIME, expires_at=TIME, how=TEXT, source=TEXT, browser=TEXT),
        this={**FLAG, "description": "the one that asks"},
    ),
    "SecondFactor": thing(on=FLAG, since=_MAYBE_TIME, codes_left=NUMBER),
    "SecondFactorKey": thing(
        key={**TEXT, "description": "to be typed into the app"},
        address={**TEXT, "description": "the same for an app on this device (`otpauth:`)"},
        picture={
            "type": ["object", "null"], "description": "the same for a camera: `size` in modules, SVG `path`",
        },
    ),
    "DisplayName": form("display_name", display_name=words(60)),
    "FactorCode": form("code", code=words(100, least=1)),
    "RecoveryCodes": thing(codes=listed({**TEXT, "description": "opens once; shown this once"})),
    "Logins": thing(logins=listed(ref("Login"))),
    "Operator": thing(
        id=ID, name=TEXT, role=_ROLE, version=NUMBER, locked=FLAG, has_password=FLAG, has_second_factor=FLAG,
        by_provider=FLAG, created_at=TIME, last_login_at=_MAYBE_TIME, link_until=_MAYBE_TIME,
        refused_until=_MAYBE_TIME, logins=listed(ref("Login")),
    ),
    "Operators": thing(operators=listed(ref("Operator")), provider=MAYBE_TEXT),
    "Invitation": form(
        "name", "role", name={**words(64, least=1), "pattern": r"^\w[\w.@+ \-]*$"}, role=_ROLE
    ),
    "Invited": thing(
        id=ID, name=TEXT, link={**TEXT, "description": "logs in once; shown this once"}, expires_at=TIME
    ),
    "OperatorChange": form("version", version={"type": "integer"}, role=_ROLE, locked=FLAG),
    "ChangedOperator": thing(id=ID, name=TEXT, role=_ROLE, locked=FLAG, version=NUMBER),
    "Ended": thing(ended=NUMBER),
    "AuditEntries": thing(
        entries=listed(thing(id=NUMBER, at=TIME, actor=TEXT, action=TEXT, about=TEXT, detail=THING)),
        before=MAYBE_NUMBER, actors=listed(TEXT), actions=listed(TEXT),
    ),
    "AuditChain": thing(
        state={"type": "string", "enum": ["empty", "intact", "broken"]}, entries=NUMBER,
        through={"type": ["object", "null"]}, broken_at={"type": ["object", "null"]},
    ),
}  # fmt: skip
