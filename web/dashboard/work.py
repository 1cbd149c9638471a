"""Jobs and deliveries for operators: what waits, what failed, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.dashboard.job_queries import DeliveryQuery, JobInsights, check_match
from shared.adapters.postgres.dashboard.read_models import MAX_LIMIT, BadQuery
from shared.core.ops.job_views import DeliveryVerb, JobMatch, JobVerb, PartKey, WorkChanged
from shared.services.admin.job_admin import JobAdmin
from web.dashboard.access import AuthedRequest, DashboardRefusal, Handler, Route, answer
from web.dashboard.requests.request_json import read_json

NAMED_AT_MOST = 500
_SHOWN_AT_MOST = 50
_BIG = 2**62


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path="/api/v1/jobs", need="viewer", handler=jobs),
        _post("/api/v1/jobs/retry", partial(change_jobs, "retry")),
        _post("/api/v1/jobs/cancel", partial(change_jobs, "cancel")),
        Route(method="GET", path="/api/v1/deliveries", need="viewer", handler=deliveries),
        _post("/api/v1/deliveries/arrived", partial(change_parts, "arrived")),
        _post("/api/v1/deliveries/send-again", partial(change_parts, "send_again")),
    )


def _post(path: str, handler: Handler) -> Route:
    return Route(method="POST", path=path, need="operator", handler=handler)


async def jobs(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    match = JobMatch(
        state=query.get("state", ""), kind=query.get("kind", ""), session=_session(query.get("session", ""))
    )
    before = _number(query["before"]) if query.get("before") else None
    return answer(await JobInsights(visit.desk.pool).jobs(match, before=before, limit=_limit(query)))


async def deliveries(visit: AuthedRequest) -> web.StreamResponse:
    query = visit.request.query
    asked = DeliveryQuery(
        state=query.get("state", ""),
        session=_session(query.get("session", "")),
        cursor=query.get("cursor", ""),
        limit=_limit(query),
    )
    return answer(await JobInsights(visit.desk.pool).deliveries(asked))


async def change_jobs(verb: JobVerb, visit: AuthedRequest) -> web.StreamResponse:
    """`{"ids": […]}`, or `{"match": {…}, "through": newest}` for all that the page counted."""
    desk, body, who = _desk(visit), await read_json(visit), visit.operator.name
    if "match" in body:
        through = _number(body.get("through"))
        done = await desk.change_matching_jobs(verb, _match(body["match"]), through=through, actor=who)
    else:
        done = await desk.change_jobs(verb, _ids(body.get("ids")), actor=who)
    return answer(_told(done))


async def change_parts(verb: DeliveryVerb, visit: AuthedRequest) -> web.StreamResponse:
    """`{"parts": [{"session", "turn", "part"}]}`; sending again may show a person the same words twice."""
    desk, body = _desk(visit), await read_json(visit)
    done = await desk.change_deliveries(verb, _parts(body.get("parts")), actor=visit.operator.name)
    return answer(_told(done))


def _desk(visit: AuthedRequest) -> JobAdmin:
    if visit.desk.work is None:
        raise DashboardRefusal(503, "not_available", "Nothing can be changed from here just now.")
    return visit.desk.work


def _told(done: WorkChanged) -> dict[str, Any]:
    return {
        "changed": len(done.changed),
        "skipped": len(done.skipped),
        "left": done.more,
        "why": [{"what": one.what, "why": one.why} for one in done.skipped[:_SHOWN_AT_MOST]],
    }


def _match(given: Any) -> JobMatch:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise _bad("match holds state, kind and session, as in the address of the page.")
    unknown = given.keys() - {"state", "kind", "session"}
    if unknown:
        # A filter that is not understood must not become no filter.
        raise _bad("match knows state, kind and session only.")
    match = JobMatch(
        state=given.get("state", ""), kind=given.get("kind", ""), session=_session(given.get("session", ""))
    )
    check_match(match)
    return match


def _ids(given: Any) -> list[int]:
    if not isinstance(given, list) or not 0 < len(given) <= NAMED_AT_MOST:
        raise _bad(f"ids are 1 to {NAMED_AT_MOST} numbers of jobs.")
    return sorted({_number(one) for one in given})


def _parts(given: Any) -> list[PartKey]:
    if not isinstance(given, list) or not 0 < len(given) <= NAMED_AT_MOST:
        raise _bad(f"parts are 1 to {NAMED_AT_MOST} of session, turn and part.")
    found = {}
    for one in given:
        if not isinstance(one, dict) or not isinstance(one.get("session"), str):
            raise _bad("a part has a session, a turn and a part.")
        session = _session(one["session"])
        if not session:
            raise _bad("a part has a session, a turn and a part.")
        key = PartKey(session=session, turn=_number(one.get("turn")), part=_number(one.get("part")))
        found[str(key)] = key
    return list(found.values())


def _number(given: Any) -> int:
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 19:
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < _BIG:
        return given
    raise BadQuery("that is no number of ours")


def _limit(query: Mapping[str, str]) -> int:
    limit = _number(query.get("limit") or "50")
    if not 1 <= limit <= MAX_LIMIT:
        raise BadQuery(f"limit is 1 to {MAX_LIMIT}")
    return limit


def _session(text: str) -> str:
    try:
        return str(UUID(text)) if text else ""
    except ValueError:
        raise BadQuery("session is the id of a conversation") from None


def _bad(words: str) -> DashboardRefusal:
    return DashboardRefusal(400, "bad_input", words[0].upper() + words[1:])
