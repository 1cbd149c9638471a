"""Alerts for operators: open and past ones, their recipients, a test alert, and marking one as seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.alert_queries import AlertInsights
from shared.adapters.postgres.dashboard.alerts import PostgresAlerts
from shared.config.settings import Settings
from shared.core.ops.alerts import KINDS, advice_of, facts
from shared.core.ops.alerts import Alert as StoredAlert
from shared.services.admin.alert_service import AlertService
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import add_total
from web.protocol.answers import ABSENT, Absent
from web.rest.kinds import DONE, Counted, Cursor, Limit, Success, Total, describe
from web.rest.operation import OperationRouter

router = OperationRouter()

Send = TypedDict("Send", {
    "target": str, "phase": Literal["opened", "ended"],
    "state": Literal["due", "sending", "sent", "failed", "uncertain"], "error": str, "advice": str,
    "attempt": int, "at": datetime,
})  # fmt: skip
AlertDetail = Annotated[dict[str, Any], describe("values of the alert, by name")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAlert:
    """Open alert, for the overview."""

    text: str
    facts: str
    at: datetime
    kind: str
    detail: AlertDetail


Alert = TypedDict("Alert", {
    "id": UUID, "kind": str, "key": str, "title": str, "facts": str, "advice": str, "detail": AlertDetail,
    "opened_at": datetime, "ended_at": datetime | None, "seen_at": datetime | None, "seen_by": str,
    "sends": list[Send],
})  # fmt: skip
Target = TypedDict("Target", {
    "target": str, "name": str, "state": str | None, "error": str | None, "advice": str,
    "attempt": int | None, "at": datetime | None, "sent_at": datetime | None,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    open: list[Alert]
    past: list[Alert]
    next: str | None
    unseen: int
    targets: list[Target]
    can_test: bool
    can_see: bool
    total: Annotated[Total | None, describe("number of past alerts")] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTested:
    """Test alert, and the targets that it was sent to."""

    id: UUID
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertHandlers:
    """Handlers of alerts."""

    settings: Settings
    alert_insights: AlertInsights
    alerts: PostgresAlerts
    alert_service: AlertService

    @router.on("GET /alerts", role="viewer")
    async def list_alerts(
        self, authed: AuthedRequest, *, cursor: Cursor = "", limit: Limit = 50, total: Counted = False
    ) -> Alerts:
        """List open and past alerts with their delivery."""
        settings = self.settings
        insights = self.alert_insights
        found = insights.load_page(settings.alert_targets, cursor=cursor, limit=limit)
        page = dict(await add_total(found, insights.count_past() if total else None))
        for one in (*page["open"], *page["past"]):
            one |= _words(one)
            for send in one["sends"]:
                send["advice"] = advice_of(send["error"])
        for target in page["targets"]:
            target |= {"name": _name(target["target"], settings), "advice": advice_of(target["error"] or "")}
        who = authed.operator
        return Alerts(**page, can_test=who.has_role("admin"), can_see=who.has_role("operator"))

    @router.on("POST /alerts/test", role="admin", refusals=(409,))
    async def test_alerts(self, authed: AuthedRequest) -> AlertTested:
        """Send a test alert to every recipient."""
        targets = self.settings.alert_targets
        made = await self.alert_service.send_test(targets, by=authed.operator.name)
        return AlertTested(id=made, targets=targets)

    @router.on("POST /alerts/{id}/seen", role="operator", refusals=(404,), missing="There is no such alert.")
    async def see_alert(
        self, authed: AuthedRequest, alert: Annotated[UUID, describe("id of an alert")]
    ) -> Success | None:
        """Mark an alert as seen.

        A seen alert is no longer counted as open.
        """
        changed = await self.alerts.mark_seen(alert, by=authed.operator.name)
        if changed:
            await authed.record("alert.seen", f"alert:{alert}")
        return None if changed is None else DONE


async def newest_open(insights: AlertInsights) -> list[NewAlert]:
    """Return the newest open alerts for the overview, with their texts and start times."""
    found = [(one, _words(one)) for one in await insights.list_newest_open()]
    return [
        NewAlert(
            text=words["title"],
            facts=words["facts"],
            at=one["opened_at"],
            kind=one["kind"],
            detail=one["detail"],
        )
        for one, words in found
    ]


def _words(one: dict[str, Any]) -> dict[str, str]:
    alert = StoredAlert(
        public_id=one["id"], kind=one["kind"], key=one["key"], detail=one["detail"],
        opened_at=datetime.fromisoformat(one["opened_at"]),
    )  # fmt: skip
    title, advice = KINDS[alert.kind]
    return {"title": title, "facts": facts(alert), "advice": advice}


def _name(target: str, settings: Settings) -> str:
    """Return an alert target's name for people; of a webhook only the host, as the path may be secret."""
    if target == "webhook" and settings.alert_webhook_url is not None:
        return f"Webhook at {urlsplit(settings.alert_webhook_url.get_secret_value()).hostname}"
    if target == "email":
        return f"Mail to {', '.join(settings.alert_email_to)}"
    return f"Telegram chat {target.partition(':')[2]}"
