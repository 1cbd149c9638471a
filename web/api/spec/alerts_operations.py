"""The operations about alerts: what needs an operator, whom it went to, and a test."""

from __future__ import annotations

from web.api.spec.operation import CURSOR, LIMIT, Operation, done, in_path, seen
from web.api.spec.shapes import ID

FOR_ALERTS: tuple[Operation, ...] = (
    seen(
        "/alerts", "listAlerts",
        "What needs an operator, what did, and whether it reached everybody it should.", "Alerts",
        CURSOR, LIMIT,
    ),
    done(
        "POST", "/alerts/test", "testAlerts", "Send a test to everybody whom alerts go to.", "AlertTested",
        role="admin", refusals=(409,),
    ),
    done(
        "POST", "/alerts/{id}/seen", "seeAlert", "Say that an alert was seen: it is counted no more.",
        "Success", in_path("id", "the id of an alert", ID), refusals=(404,),
    ),
)  # fmt: skip
