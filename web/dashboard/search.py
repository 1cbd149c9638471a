"""Search in what people said, in all conversations or in one: it is to read, and is audited like reading."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiohttp import web

from shared.adapters.postgres.dashboard.read_models import BadQuery
from shared.core.memory.search import QUERY_CHARS, MessageHit, SearchKey
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer
from web.protocol.wire import hit_payload

SEARCH = "/api/v1/search"


def routes() -> tuple[Route, ...]:
    return (Route(method="GET", path=SEARCH, need="viewer", handler=search),)


async def search(visit: AuthedRequest) -> web.StreamResponse:
    """`?q=` and perhaps `?session=`; `?cursor=` is the `next` of the page before."""
    query = visit.request.query
    words = query.get("q", "").strip()
    if not words or len(words) > QUERY_CHARS:
        raise BadQuery(f"q is what to search for, in at most {QUERY_CHARS} characters")
    raw = query.get("cursor", "")
    key = SearchKey.parse(raw) if raw else None
    if raw and key is None:
        raise BadQuery("cursor is the `next` of the page before")
    if session := query.get("session", ""):
        found, key = await _within(visit, session, words, key)
    else:
        everywhere, key = await visit.desk.stores.message_search.search_all(words, before=key)
        found = [_session(one.session, one.hits, **one.person) for one in everywhere]
    read = [one["id"] for one in found if one["hits"]]
    await visit.desk.admin.operators.record(
        actor=visit.operator.name, action="read.search", about=session, detail={"sessions": read}
    )
    return answer({"sessions": found, "next": key and str(key)})


async def _within(
    visit: AuthedRequest, session: str, words: str, key: SearchKey | None
) -> tuple[list[dict[str, Any]], SearchKey | None]:
    try:
        session_id = await visit.desk.admin.sessions.session_id(UUID(session))
    except ValueError:
        session_id = None
    if session_id is None:
        raise DashboardRefusal(404, "not_found", "There is no such conversation.")
    page = await visit.desk.stores.message_search.search(session_id, words, linked=False, before=key)
    return [_session(session, page.hits)], page.next


def _session(session: str, hits: tuple[MessageHit, ...], **person: Any) -> dict[str, Any]:
    return {"id": session, **person, "hits": [hit_payload(hit) for hit in hits]}
