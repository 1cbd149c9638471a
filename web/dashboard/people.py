"""People for operators: who there is, a copy of what is kept of somebody, and forgetting them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from shared.adapters.postgres.dashboard.people_queries import PeopleInsights, PeopleQuery
from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery
from shared.adapters.postgres.people.people_directory import PostgresPeopleDirectory
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.core.privacy.erasure import COUNTED
from shared.core.values.errors import OnHold
from shared.runtime.crash_points import build_crash_point
from shared.services.privacy.erasure import ErasureService
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer
from web.dashboard.exports import stream_person, wanted_format
from web.dashboard.requests.etag import Unheard, public_id
from web.dashboard.requests.request_json import read_json

PEOPLE = "/api/v1/people"
PERSON = f"{PEOPLE}/{{id}}"
ERASE_SECONDS = 10.0
"""For so long the page waits for the end; then it shows how far the worker has come."""


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path=PEOPLE, need="viewer", handler=people),
        Route(method="GET", path=PERSON, need="viewer", handler=person),
        Route(method="GET", path=f"{PERSON}/export", need="operator", handler=export),
        Route(method="GET", path=f"{PERSON}/erasure", need="viewer", handler=erasure),
        Route(method="POST", path=f"{PERSON}/erasure", need="admin", handler=erase),
        Route(method="POST", path=f"{PERSON}/hold", need="admin", handler=hold),
    )


async def people(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    limit = query.get("limit", "")
    if limit and not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_LIMIT):
        raise BadQuery(f"limit is a number from 1 to {MAX_LIMIT}")
    wish = PeopleQuery(
        search=query.get("q", "").strip()[:200], channel=query.get("channel", "")[:50],
        kind=query.get("kind", ""), cursor=query.get("cursor", ""), limit=int(limit) if limit else 50,
    )  # fmt: skip
    return answer(await PeopleInsights(visit.desk.pool).people(wish))


async def person(visit: AuthedRequest) -> web.StreamResponse:
    return answer(await _person(visit))


async def export(visit: AuthedRequest) -> web.StreamResponse:
    """`?format=md|json`: everything that is kept of the person, piece by piece."""
    wanted_format(visit)
    session_id, about = await _reached(visit)
    await visit.desk.operators.record(actor=visit.operator.name, action="person.export", about=about)
    return await stream_person(visit, session_id)


async def erasure(visit: AuthedRequest) -> web.StreamResponse:
    """What would go, and how far the newest erasure is."""
    session_id, _ = await _reached(visit)
    preview = await PostgresErasure(visit.desk.pool).load_preview(session_id)
    running = await PeopleInsights(visit.desk.pool).erasure(public_id(visit, "person"))
    counts = {name: preview.counts.get(name, 0) for name in COUNTED}
    return answer({"counts": counts, "erasure": running})


async def erase(visit: AuthedRequest) -> web.StreamResponse:
    """`{"confirm": the person's name or id}`: begun at once; a worker goes on when it takes long."""
    body, shown = await read_json(visit), await _person(visit)
    typed = body.get("confirm")
    if not isinstance(typed, str) or typed.strip() not in {shown["id"], shown["name"]} - {None}:
        raise DashboardRefusal(
            409, "not_confirmed", "That is neither the name nor the id. Nothing was erased."
        )
    session_id, about = await _reached(visit)
    if shown["hold"] is not None:
        raise DashboardRefusal(409, OnHold.code, OnHold.advice)
    await visit.desk.operators.record(actor=visit.operator.name, action="person.erase", about=about)
    forgetting = ErasureService(
        store=PostgresErasure(visit.desk.pool), announcer=visit.desk.announcer or Unheard(),
        crash_point=build_crash_point(visit.desk.settings.crash_point),
    )  # fmt: skip
    report = await forgetting.erase_everything(
        session_id, f"operator:{visit.operator.operator_id}", patience=ERASE_SECONDS
    )
    return answer({"erasure": report.erasure_id, "finished": report.finished, "counts": dict(report.counts)})


async def hold(visit: AuthedRequest) -> web.StreamResponse:
    """`{"on": true}`: from now on nothing of the person goes; false lifts it."""
    on = (await read_json(visit)).get("on")
    if type(on) is not bool:
        raise DashboardRefusal(400, "bad_input", "on is true or false.")
    persons = PostgresPeopleDirectory(visit.desk.pool)
    changed = await persons.hold(public_id(visit, "person"), on=on, by=visit.operator.name)
    if changed is None:
        raise _nobody()
    return answer({"changed": changed})


async def _person(visit: AuthedRequest) -> dict[str, Any]:
    found = await PeopleInsights(visit.desk.pool).person(public_id(visit, "person"))
    if found is None:
        raise _nobody()
    return found


async def _reached(visit: AuthedRequest) -> tuple[int, str]:
    """A conversation through which all of the person is reached, and the id for the audit."""
    wanted = public_id(visit, "person")
    session_id = await PostgresPeopleDirectory(visit.desk.pool).session_of(wanted)
    if session_id is None:
        raise _nobody()
    return session_id, str(wanted)


def _nobody() -> DashboardRefusal:
    return DashboardRefusal(404, "not_found", "There is no such person, or they never had a conversation.")
