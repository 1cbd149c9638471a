"""REST for conversations: opened for a program's people, written to, and read, by whoever may."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from shared.adapters.postgres.turns.history import HistoryPage
from shared.core.identity.identity_claims import clean_name
from shared.core.memory.search import HITS_PER_PAGE, QUERY_CHARS
from shared.core.session.events import Accepted
from shared.core.values.errors import ContextBudgetExceeded, UnknownSession
from web.api.event_wait import EventSubscription, EventWaiter
from web.api.responses import BEARER, check_reads, json_reply, not_while_draining
from web.auth.api_key_auth import API, KEY, NOWHERE, reached_by_key, record
from web.auth.operator_auth import OPERATORS
from web.auth.visitors import Known
from web.chat.message_intake import accept, check_messages, inbound_of
from web.parts import PARTS
from web.protocol import request_fields, wire
from web.security import REQUEST_ID, HttpRefusal, cross_origin_headers, read_json
from web.server.event_stream import HEARTBEAT_SECONDS, EventStream, wants_events

SESSIONS = "/api/v1/sessions"
MESSAGES = f"{SESSIONS}/{{id}}/messages"
EVENTS = f"{SESSIONS}/{{id}}/events"
HISTORY = f"{SESSIONS}/{{id}}/history"
SEARCH = f"{SESSIONS}/{{id}}/search"
MOST_WAIT_SECONDS = 60
STREAM_SECONDS = 600.0
MOST_SHOWN = 200
ID_CHARS = 200


async def open_session(request: web.Request) -> web.StreamResponse:
    """For a key: the conversation of somebody whom the program knows by an id of its own."""
    key = request.get(KEY)
    if key is None:
        raise HttpRefusal(
            401, "key_needed", "This needs a key with the scope messages:write.", headers=BEARER
        )
    body = await read_json(request)
    request_fields.only(body, "external_id", "site", "agent", "name")
    external_id = request_fields.text(body, "external_id", most=ID_CHARS, needed=True)
    assert external_id is not None
    site = request_fields.text(body, "site", most=64) or key.site or "default"
    agent = request_fields.text(body, "agent", most=64)
    name = clean_name(request_fields.text(body, "name", most=ID_CHARS) or "")
    if key.site not in (None, site):
        raise HttpRefusal(403, "not_within_limits", "This key opens conversations on its own site only.")
    await record(request, "sessions.open", about=f"site:{site}")
    opened = await request.app[API].sessions.open(
        external_id, site=site, agent=agent, agent_id=key.agent_id, name=name
    )
    if opened is None:
        raise HttpRefusal(404, "unknown_place", "There is no such site or agent for this key.")
    shown = {"session_id": str(opened.public_id), "site": opened.site, "created": opened.created}
    return await json_reply(request, shown, status=201 if opened.created else 200)


async def post_message(request: web.Request) -> web.StreamResponse:
    """202 as soon as it is stored; with `?wait=` or as events, the answer too."""
    parts = request.app[PARTS]
    not_while_draining(parts)
    known = await _speaker(request)
    wait = request_fields.number(request.query, "wait", most=MOST_WAIT_SECONDS)
    body = await read_json(request)
    request_fields.only(body, "text", "cid", "attachments")
    cid = request_fields.cid(request, body) or secrets.token_hex(16)
    text, files = request_fields.text(body, "text", most=10 * wire.MAX_CHARS) or "", wire.files(body)
    address = None if KEY in request else parts.proxies.client_key(request)
    await check_messages(parts, parts.limits_for(request), known, cid=cid, address=address)
    inbound = await inbound_of(parts, known, text=text, cid=cid, files=files)
    await record(request, "messages.write", about=f"session:{known.row.session_public_id}")
    streamed = wants_events(request)
    if not streamed and not wait:
        return await json_reply(request, _accepted(await accept(parts, inbound)), status=202)
    place = f"rest:{known.row.session_id}"
    if not parts.session_places.take(place, parts.limits_for(request).sockets_per_session):
        raise wire.RateLimited(retry_after_seconds=15.0, what="requests that wait")
    try:
        async with EventSubscription(parts, known) as ear:
            accepted = await accept(parts, inbound)
            following = Following(ear, accepted, known)
            if streamed:
                return await _streamed(request, following)
            return await _waited(request, following, float(wait or 0))
    finally:
        parts.session_places.leave(place)


async def list_messages(request: web.Request) -> web.StreamResponse:
    """For the visitor whose conversation it is, or a key; anybody else is sent to the operators' door."""
    known = await _reader(request)
    if known is None:
        door = request.app[OPERATORS]
        if door.messages is None:
            raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
        return await door.messages(request)
    check_reads(request, request.app[PARTS], known)
    before = request_fields.number(request.query, "before", least=1)
    limit = request_fields.number(request.query, "limit", least=1, most=MOST_SHOWN) or 50
    rows = await request.app[PARTS].events.messages_before(known.row.session_id, before, limit=limit)
    shown = [_shown(known, row) for row in rows]
    earlier = rows[0].event_seq if len(rows) == limit else None
    return await json_reply(request, {"messages": shown, "before": earlier})


async def list_events(request: web.Request) -> web.StreamResponse:
    """What happened after a number, oldest first: for those who ask again and again."""
    known = await _reader(request)
    if known is None:
        raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
    check_reads(request, request.app[PARTS], known)
    after = request_fields.number(request.query, "after") or 0
    limit = request_fields.number(request.query, "limit", least=1, most=MOST_SHOWN) or 100
    events = request.app[PARTS].events
    head = await events.head(known.row.session_id)
    rows = await events.after(known.row.session_id, after, limit=limit)
    return await json_reply(
        request,
        {
            "events": [_shown(known, row) for row in rows],
            "next": rows[-1].event_seq if rows else after,
            "head": head.event_seq if head else 0,
            "log_epoch": head.log_epoch if head else 0,
        },
    )


async def show_history(request: web.Request) -> web.StreamResponse:
    """What a screen shows of the conversation, from any place in it; without one, its end."""
    known = await _reader(request)
    if known is None:
        raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
    check_reads(request, request.app[PARTS], known)
    page = await _page(request, known)
    if page is None:
        raise HttpRefusal(404, "unknown_message", "There is no such message in this conversation.")
    shown = [_shown(known, row) for row in page.events]
    return await json_reply(request, {"events": shown, "before": page.before, "after": page.after})


async def search_messages(request: web.Request) -> web.StreamResponse:
    """What was said with these words, newest first; `?before=` is the `next` of the page before."""
    known = await _reader(request)
    if known is None:
        raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
    check_reads(request, request.app[PARTS], known)
    found = await request.app[PARTS].message_search.search(
        known.row.session_id,
        request_fields.text(request.query, "q", most=QUERY_CHARS, needed=True) or "",
        linked=known.audience != "public",
        before=request_fields.search_key(request.query, "before"),
        limit=request_fields.number(request.query, "limit", least=1, most=MOST_SHOWN) or HITS_PER_PAGE,
    )
    hits = [wire.hit_payload(hit) for hit in found.hits]
    return await json_reply(request, {"hits": hits, "next": found.next and str(found.next)})


async def _page(request: web.Request, known: Known) -> HistoryPage | None:
    """Raises BadField, StorageUnavailable."""
    query, history, session_id = request.query, request.app[PARTS].history, known.row.session_id
    if len({"before", "after", "since", "around"} & query.keys()) > 1:
        raise request_fields.BadField("Give one of `before`, `after`, `since` and `around`.")
    limit = request_fields.number(query, "limit", least=1, most=MOST_SHOWN) or 50
    summaries = known.audience != "public"
    if (number := request_fields.number(query, "after")) is not None:
        return await history.after(session_id, number, limit=limit, summaries=summaries)
    if (since := request_fields.moment(query, "since")) is not None:
        return await history.since(session_id, since, limit=limit, summaries=summaries)
    if (seq := request_fields.entry(query, "around")) is not None:
        return await history.around(session_id, seq, limit=limit, summaries=summaries)
    number = request_fields.number(query, "before", least=1)
    return await history.before(session_id, number, limit=limit, summaries=summaries)


class Following:
    """One accepted message until its turn has ended."""

    def __init__(self, ear: EventWaiter, accepted: Accepted, known: Known) -> None:
        self._ear = ear
        self.known = known
        self.accepted = accepted
        self.state = "waiting"
        """`done` once the turn has ended."""

    @property
    def over(self) -> bool:
        return self.state == "done" or self._ear.closed

    async def next(self, seconds: float) -> dict[str, Any] | None:
        """The next frame about this turn: a piece of its answer, or a message; None when nothing came."""
        frame = await self._ear.next(seconds)
        if frame is None or frame.get("turn") != self.accepted.turn:
            return None
        if frame["t"] == "msg" and frame.get("role") != "person":
            if not frame.get("waiting"):
                self.state = "done"
            return frame
        return frame if frame["t"] == "delta" else None


async def _waited(request: web.Request, following: Following, seconds: float) -> web.StreamResponse:
    answer = await _known_answer(request, following)
    deadline = asyncio.get_running_loop().time() + seconds
    while not following.over and (left := deadline - asyncio.get_running_loop().time()) > 0:
        frame = await following.next(min(left, HEARTBEAT_SECONDS))
        answer = frame if following.state == "done" else answer
    shown = _accepted(following.accepted)
    if answer is None:
        return await json_reply(request, shown, status=202)
    if answer.get("error") == ContextBudgetExceeded.code:
        raise HttpRefusal(422, ContextBudgetExceeded.code, answer["text"], advice=answer["text"], **shown)
    return await json_reply(request, {**shown, "answer": answer})


async def _streamed(request: web.Request, following: Following) -> web.StreamResponse:
    """The reader may hang up: the turn is not theirs to end."""
    stream = EventStream(request, request_id=request[REQUEST_ID], headers=await cross_origin_headers(request))
    answer = await _known_answer(request, following)
    await stream.open()
    await stream.send("accepted", _accepted(following.accepted))
    if answer is not None:
        await stream.send("message", answer)
    deadline = asyncio.get_running_loop().time() + STREAM_SECONDS
    quiet_since = asyncio.get_running_loop().time()
    while not following.over and not stream.gone and asyncio.get_running_loop().time() < deadline:
        frame = await following.next(1.0)
        now = asyncio.get_running_loop().time()
        if frame is not None:
            await stream.send("delta" if frame["t"] == "delta" else "message", frame)
            quiet_since = now
        elif now - quiet_since >= HEARTBEAT_SECONDS:
            await stream.beat()
            quiet_since = now
    await stream.send("done", {"turn": following.accepted.turn, "state": following.state})
    return await stream.end()


async def _known_answer(request: web.Request, following: Following) -> dict[str, Any] | None:
    """The answer to a repeated message may have come long ago."""
    accepted = following.accepted
    if not accepted.repeated:
        return None
    number = await request.app[API].sessions.answer_of(
        accepted.session_id, accepted.turn, after=accepted.event_seq
    )
    if number is None:
        return None
    rows = await request.app[PARTS].events.after(accepted.session_id, number - 1, limit=1)
    following.state = "done"
    return dict(_shown(following.known, rows[0])) if rows else None


async def _speaker(request: web.Request) -> Known:
    known = await _reader(request)
    if known is None:
        raise HttpRefusal(401, "unauthorized", "A visitor's token or a key is needed.", headers=BEARER)
    if known.row.address_id == NOWHERE:
        raise HttpRefusal(409, "not_on_the_web", "This conversation is reached on another channel only.")
    return known


async def _reader(request: web.Request) -> Known | None:
    """The session of the address, for its visitor or a key; None for anybody else. Raises UnknownSession."""
    asked = request.match_info["id"]
    if (known := await reached_by_key(request, asked)) is not None:
        return known
    visitor = await request.app[PARTS].visitors.caller(request)
    if visitor is not None and asked == str(visitor.row.session_public_id):
        return visitor
    if visitor is not None and "Authorization" in request.headers:
        raise UnknownSession("not this visitor's session")
    return None


def _accepted(accepted: Accepted) -> dict[str, Any]:
    shown = {"mid": accepted.mid, "turn": accepted.turn, "event_seq": accepted.event_seq}
    return {**shown, "dup": True} if accepted.repeated else shown


def _shown(known: Known, row: Any) -> Mapping[str, Any]:
    frame = wire.durable(row.event_seq, row.kind, row.payload)
    return wire.for_public(frame) if known.audience == "public" else frame
