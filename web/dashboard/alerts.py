"""Alerts for operators: what is open and over, whom it went to, a test, and that somebody has seen one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired
from urllib.parse import urlsplit
from uuid import UUID

from typing_extensions import TypedDict

from shared.config.settings import Settings
from shared.core.ops.alerts import KINDS, advice_of, facts
from shared.core.ops.alerts import Alert as StoredAlert
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import with_total
from web.rest.kinds import DONE, Counted, Cursor, Limit, Success, Thing, Total, told
from web.rest.operation import Reply, Room
from web.security import HttpRefusal

room = Room()

Send = TypedDict("Send", {
    "target": str, "phase": Literal["opened", "ended"],
    "state": Literal["due", "sending", "sent", "failed", "uncertain"], "error": str, "advice": str,
    "attempt": int, "at": str,
})  # fmt: skip
Alert = TypedDict("Alert", {
    "id": UUID, "kind": str, "key": str, "title": str, "facts": str, "advice": str, "detail": Thing,
    "opened_at": str, "ended_at": str | None, "seen_at": str | None, "seen_by": str, "sends": list[Send],
})  # fmt: skip
Target = TypedDict("Target", {
    "target": str, "name": str, "state": str | None, "error": str | None, "advice": str, "at": str | None,
    "sent_at": str | None,
})  # fmt: skip
Alerts = TypedDict("Alerts", {
    "open": list[Alert], "past": list[Alert], "next": str | None, "unseen": int, "targets": list[Target],
    "total": NotRequired[Annotated[Total | None, told("of the past ones")]],
})  # fmt: skip
AlertTested = TypedDict("AlertTested", {"id": UUID, "targets": list[str]})


@room.on("GET /alerts", Alerts, role="viewer")
async def list_alerts(
    visit: AuthedRequest, *, cursor: Cursor = "", limit: Limit = 50, total: Counted = False
) -> Reply:
    """What needs an operator, what did, and whether it reached everybody it should."""
    settings = visit.desk.settings
    read = visit.desk.admin.alerts
    found = read.page(settings.alert_targets, cursor=cursor, limit=limit)
    page = dict(await with_total(found, total and read.count_past()))
    for one in (*page["open"], *page["past"]):
        one |= _words(one)
        for send in one["sends"]:
            send["advice"] = advice_of(send["error"])
    for target in page["targets"]:
        target |= {"name": _name(target["target"], settings), "advice": advice_of(target["error"] or "")}
    return page | {"can_test": visit.operator.may("admin"), "can_see": visit.operator.may("operator")}


async def newest_open(visit: AuthedRequest) -> list[dict[str, Any]]:
    """For the overview: what is wrong, since when."""
    found = await visit.desk.admin.alerts.newest_open()
    return [
        {"text": words["title"], "facts": words["facts"], "at": one["opened_at"]}
        | {name: one[name] for name in ("kind", "detail")}
        for one in found
        for words in [_words(one)]
    ]


@room.on("POST /alerts/test", AlertTested, role="admin", refusals=(409,))
async def test_alerts(visit: AuthedRequest) -> Reply:
    """Send a test to everybody whom alerts go to."""
    targets = visit.desk.settings.alert_targets
    if not targets:
        advice = "Alerts go to nobody yet: set EVERTALK_ALERT_TELEGRAM_CHATS, _WEBHOOK_URL or _SMTP_URL."
        raise HttpRefusal(409, "no_targets", advice)
    made = await visit.desk.stores.alerts.test(targets, by=visit.operator.name)
    await visit.record("alert.test", f"alert:{made}", targets=len(targets))
    return {"id": made, "targets": targets}


@room.on(
    "POST /alerts/{id}/seen", Success, role="operator", refusals=(404,), missing="There is no such alert."
)
async def see_alert(visit: AuthedRequest, alert: Annotated[UUID, told("the id of an alert")]) -> Reply:
    """Say that an alert was seen: it is counted no more."""
    changed = await visit.desk.stores.alerts.seen(alert, by=visit.operator.name)
    if changed:
        await visit.record("alert.seen", f"alert:{alert}")
    return None if changed is None else DONE


def _words(one: dict[str, Any]) -> dict[str, str]:
    alert = StoredAlert(
        public_id=one["id"], kind=one["kind"], key=one["key"], detail=one["detail"],
        opened_at=datetime.fromisoformat(one["opened_at"]),
    )  # fmt: skip
    title, advice = KINDS[alert.kind]
    return {"title": title, "facts": facts(alert), "advice": advice}


def _name(target: str, settings: Settings) -> str:
    """For people; of an address only its host, for the rest may be a secret."""
    if target == "webhook" and settings.alert_webhook_url is not None:
        return f"Webhook at {urlsplit(settings.alert_webhook_url.get_secret_value()).hostname}"
    if target == "email":
        return f"Mail to {', '.join(settings.alert_email_to)}"
    return f"Telegram chat {target.partition(':')[2]}"
