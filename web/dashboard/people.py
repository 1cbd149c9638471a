"""People for operators: the list, an export of one person's data, and erasure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NotRequired, cast
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.people_queries import KINDS, PeopleInsights, PeopleQuery
from shared.core.privacy.erasure import COUNTED
from shared.core.privacy.export import EXPORTS, MIME
from shared.services.admin.person_service import PersonNotFound, PersonService
from shared.services.privacy.export import DataExporter
from web.dashboard.access import HEADERS, AuthedRequest
from web.dashboard.requests import add_total
from web.rest.files import Format, send_file
from web.rest.kinds import Counted, Cursor, Cut, Limit, Total, choice, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter()
ERASE_SECONDS = 10.0
"""Seconds that a request waits for an erasure; the page then shows the worker's progress."""
_NOBODY = PersonNotFound.advice
PersonId = Annotated[UUID, describe("public id of a person")]

FoundPerson = TypedDict("FoundPerson", {
    "id": UUID, "name": str | None, "kind": str, "anonymous": bool, "sessions": int, "turns": int,
    "notes": int, "channels": list[str], "cost_micro": int | None, "cost_unknown_calls": int,
    "tokens": int | None, "output_tokens": int, "cache_read_tokens": int, "since": datetime,
    "last_active_at": datetime | None,
})  # fmt: skip
PersonPlace = TypedDict("PersonPlace", {
    "channel": str, "account": str, "chat": str | None, "title": str | None, "since": datetime,
    "unreachable_since": datetime | None, "session": UUID | None, "browsers": int, "signed_in": bool,
})  # fmt: skip
PersonConversation = TypedDict("PersonConversation", {
    "id": UUID, "agent": str, "title": str | None, "turns": int, "context_tokens": int | None,
    "context_limit": int | None, "cost_micro": int | None, "cost_unknown_calls": int,
    "created_at": datetime, "last_active_at": datetime | None,
})  # fmt: skip
Hold = TypedDict("Hold", {"since": datetime, "by": str})


class Person(FoundPerson):
    timezone: str | None
    joined: Annotated[int, describe("number of people who were joined to this one")]
    put_away: Annotated[int, describe("number of deleted notes")]
    places: list[PersonPlace]
    conversations: list[PersonConversation]
    hold: Annotated[Hold | None, describe("legal hold; null without one")]


People = TypedDict("People", {
    "people": list[FoundPerson], "next": str | None, "total": NotRequired[Total | None],
})  # fmt: skip
RowCounts = Annotated[dict[str, int], describe("number of rows by kind of data")]
ErasureProgress = TypedDict("ErasureProgress", {
    "id": int, "state": str, "step": int, "steps": int, "counts": RowCounts, "at": datetime,
    "finished_at": datetime | None,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """Rows that an erasure of the person would delete, and the progress of one that was requested."""

    counts: RowCounts
    erasure: ErasureProgress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureBegun:
    """Erasure that was requested; `finished` is false while a worker completes it."""

    erasure: int
    finished: bool
    counts: RowCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Result of placing or lifting a hold; `changed` is false if nothing changed."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleHandlers:
    """Handlers of people: list, export, erasure, hold."""

    people_insights: PeopleInsights
    exporter: DataExporter
    person_service: PersonService

    @router.on("GET /people", People, role="viewer")
    async def list_people(
        self,
        authed: AuthedRequest,
        *,
        q: Annotated[str, Cut(200, "part of a name, of an address or of an id", change=str.strip)] = "",
        channel: Annotated[str, Cut(50, "channel of the person")] = "",
        kind: Annotated[str, choice("person or group", *KINDS)] = "",
        cursor: Cursor = "",
        limit: Limit = 50,
        total: Counted = False,
    ) -> Reply:
        """List people, last seen first."""
        asked = PeopleQuery(search=q, channel=channel, kind=kind, cursor=cursor, limit=limit)
        insights = self.people_insights
        count = insights.count_people(asked) if total else None
        return await add_total(insights.load_people(asked), count)

    @router.on("GET /people/{id}", Person, role="viewer", missing=_NOBODY)
    async def person(self, authed: AuthedRequest, person: PersonId) -> Reply:
        """Get a person with identities, conversations and totals."""
        return await self.people_insights.load_person(person)

    @router.on("GET /people/{id}/export", role="operator", media=EXPORTS, missing=_NOBODY)
    async def export_person(self, authed: AuthedRequest, person: PersonId, *, kind: Format = "json") -> Reply:
        """Export the data of a person as a file."""
        session_id = await self.person_service.begin_export(person, by=authed.operator.name)
        exporting = self.exporter
        return await send_file(
            authed.request,
            exporting.stream(session_id, kind),
            name=exporting.build_file_name(kind),
            kind=MIME[kind],
            headers=HEADERS,
        )

    @router.on("GET /people/{id}/erasure", role="viewer", missing=_NOBODY)
    async def preview_erasure(self, authed: AuthedRequest, person: PersonId) -> Erasure:
        """Get scope and progress of an erasure."""
        preview = await self.person_service.preview_erasure(person)
        running = await self.people_insights.load_erasure(person)
        return Erasure(
            counts={name: preview.counts.get(name, 0) for name in COUNTED},
            erasure=cast("ErasureProgress | None", running),
        )

    @router.on("POST /people/{id}/erasure", role="admin", body="ErasureWish", missing=_NOBODY)
    async def erase_person(
        self,
        authed: AuthedRequest,
        person: PersonId,
        *,
        confirm: Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 300})],
    ) -> ErasureBegun | None:
        """Erase a person permanently.

        `confirm` must be the person's name or id. A worker completes long erasures in the background.
        """
        shown = await self.people_insights.load_person(person)
        if shown is None:
            return None
        if confirm.strip() not in {shown["id"], shown["name"]} - {None}:
            raise HttpRefusal(
                409, "not_confirmed", "That is neither the name nor the id. Nothing was erased."
            )
        who = authed.operator
        report = await self.person_service.erase_person(
            person, by=who.name, actor=f"operator:{who.operator_id}", patience=ERASE_SECONDS
        )
        return ErasureBegun(erasure=report.erasure_id, finished=report.finished, counts=dict(report.counts))

    @router.on(
        "POST /people/{id}/hold", role="admin", body="HoldWish", refusals=(404,), missing=_NOBODY
    )  # fmt: skip
    async def hold_person(self, authed: AuthedRequest, person: PersonId, *, on: bool) -> Held:
        """Place or lift a legal hold."""
        changed = await self.person_service.hold_person(person, on=on, by=authed.operator.name)
        return Held(changed=changed)
