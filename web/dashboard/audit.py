"""The audit log for admins: who read and changed what, whether its chain holds, and all of it as a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, Unpack
from uuid import UUID

from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.audit_queries import AuditInsights, AuditQuery
from web.dashboard.access import HEADERS, AuthedRequest
from web.dashboard.requests import add_total
from web.rest.files import send_csv
from web.rest.kinds import Counted, Cut, Digits, Limit, Since, Total, describe
from web.rest.operation import OperationRouter, Reply

router = OperationRouter()
COLUMNS = ("id", "at", "operator", "action", "about", "detail")
"""Columns of the exported CSV, in order."""
Asked = TypedDict("Asked", {
    "operator": Annotated[str, Cut(200, "id or name of the operator")],
    "action": Annotated[str, Cut(200, "action, or a group of actions such as `read`")],
    "about": Annotated[str, Cut(200, "id of the object that was read or changed")],
    "from": Annotated[Since, describe("earliest time, inclusive")],
    "to": Annotated[Since, describe("latest time, exclusive")],
    "before": Annotated[int, Digits(1, 2**62), describe("`before` of the preceding page")], "limit": Limit,
}, total=False)  # fmt: skip
EntryPerson = TypedDict("EntryPerson", {
    "id": UUID, "name": str | None, "kind": str, "anonymous": bool,
})  # fmt: skip
Entry = TypedDict("Entry", {
    "id": int, "at": datetime, "actor": str, "action": str, "about": str,
    "detail": Annotated[dict[str, Any], describe("values of the action, by name")],
    "person": Annotated[EntryPerson | None, describe("current name of the entry's subject")],
})  # fmt: skip
AuditEntries = TypedDict("AuditEntries", {
    "entries": list[Entry], "before": int | None, "actors": list[str], "actions": list[str],
    "total": NotRequired[Total | None],
})  # fmt: skip
EntryPlace = TypedDict("EntryPlace", {"id": int, "at": datetime})
AuditChain = TypedDict("AuditChain", {
    "state": Literal["empty", "intact", "broken"], "entries": int, "through": EntryPlace | None,
    "broken_at": EntryPlace | None,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHandlers:
    """Handlers of the audit log."""

    audit_insights: AuditInsights

    @router.on("GET /audit", AuditEntries, role="admin")
    async def list_audit(
        self, authed: AuthedRequest, *, total: Counted = False, **asked: Unpack[Asked]
    ) -> Reply:
        """List audit entries, newest first."""
        insights, query = self.audit_insights, _query(asked)
        return await add_total(insights.load_page(query), insights.count(query) if total else None)

    @router.on("GET /audit/chain", AuditChain, role="admin")
    async def check_audit(self, authed: AuthedRequest) -> Reply:
        """Verify the hash chain of the audit log."""
        return await self.audit_insights.check_chain()

    @router.on("GET /audit/csv", role="admin", media="text/csv")
    async def export_audit(self, authed: AuthedRequest, **asked: Unpack[Asked]) -> Reply:
        """Export the filtered audit log as CSV."""
        await authed.record("audit.exported")
        rows = _rows(self.audit_insights, _query(asked))
        return await send_csv(authed.request, rows, name="evertalk-audit", columns=COLUMNS, headers=HEADERS)


async def _rows(insights: AuditInsights, query: AuditQuery) -> AsyncIterator[tuple[object, ...]]:
    async for entry in insights.iterate_entries(query):
        detail = json.dumps(entry["detail"], ensure_ascii=False) if entry["detail"] else ""
        yield entry["id"], entry["at"], entry["actor"], entry["action"], entry["about"], detail


def _query(asked: Asked) -> AuditQuery:
    return AuditQuery(
        actor=asked.get("operator", ""), action=asked.get("action", ""), about=asked.get("about", ""),
        since=asked.get("from"), until=asked.get("to"), before=asked.get("before"),
        limit=asked.get("limit", 100),
    )  # fmt: skip
