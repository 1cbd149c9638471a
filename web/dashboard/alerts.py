"""Alerts for operators: what is open and over, whom it went to, a test, and that somebody has seen one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery
from shared.config.settings import Settings
from shared.core.ops.alerts import KINDS, Alert, advice_of, facts
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path="/api/v1/alerts", need="viewer", handler=alerts),
        Route(method="POST", path="/api/v1/alerts/test", need="admin", handler=send_test),
        Route(method="POST", path="/api/v1/alerts/{id}/seen", need="operator", handler=seen),
    )


async def alerts(visit: AuthedRequest) -> web.StreamResponse:
    """`GET /api/v1/alerts?cursor=…&limit=…`: all that is open, and a page of what is over."""
    query, settings = visit.request.query, visit.desk.settings
    page = await visit.desk.admin.alerts.page(
        settings.alert_targets, cursor=query.get("cursor", "")[:500], limit=_limit(query.get("limit", ""))
    )
    for one in (*page["open"], *page["past"]):
        one |= _words(one)
        for send in one["sends"]:
            send["advice"] = advice_of(send["error"])
    for target in page["targets"]:
        target |= {"name": _name(target["target"], settings), "advice": advice_of(target["error"] or "")}
    return answer(page | {"can_test": visit.operator.may("admin"), "can_see": visit.operator.may("operator")})


async def newest_open(visit: AuthedRequest) -> list[dict[str, str]]:
    """For the overview: what is wrong, since when."""
    found = await visit.desk.admin.alerts.newest_open()
    return [
        {"text": _words(one)["title"], "facts": _words(one)["facts"], "at": one["opened_at"]} for one in found
    ]


async def send_test(visit: AuthedRequest) -> web.StreamResponse:
    """A message to every target; what became of it is on the page a moment later."""
    targets = visit.desk.settings.alert_targets
    if not targets:
        advice = "Alerts go to nobody yet: set EVERTALK_ALERT_TELEGRAM_CHATS, _WEBHOOK_URL or _SMTP_URL."
        raise DashboardRefusal(409, "no_targets", advice)
    made = await visit.desk.stores.alerts.test(targets, by=visit.operator.name)
    await visit.desk.admin.operators.record(
        actor=visit.operator.name,
        action="alert.test",
        about=f"alert:{made}",
        detail={"targets": len(targets)},
    )
    return answer({"id": str(made), "targets": list(targets)})


async def seen(visit: AuthedRequest) -> web.StreamResponse:
    """What was seen already stays so."""
    try:
        public_id = UUID(visit.request.match_info["id"])
    except ValueError:
        raise DashboardRefusal(404, "not_found", "There is no such alert.") from None
    changed = await visit.desk.stores.alerts.seen(public_id, by=visit.operator.name)
    if changed is None:
        raise DashboardRefusal(404, "not_found", "There is no such alert.")
    if changed:
        await visit.desk.admin.operators.record(
            actor=visit.operator.name, action="alert.seen", about=f"alert:{public_id}"
        )
    return answer({"success": True})


def _words(one: dict[str, Any]) -> dict[str, str]:
    alert = Alert(
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


def _limit(text: str) -> int:
    if not text:
        return 50
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:6]) <= MAX_LIMIT:
        raise BadQuery(f"limit is a number up to {MAX_LIMIT}")
    return int(text)
