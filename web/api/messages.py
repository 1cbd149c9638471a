"""REST of messages: opening a conversation for a person of another program, writing, editing and reading."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, cast
from uuid import UUID

from aiohttp import web
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from shared.adapters.postgres.memory.search import PostgresMessageSearch
from shared.adapters.postgres.people.api_sessions import PostgresApiSessions
from shared.adapters.postgres.turns.events import PostgresEvents
from shared.adapters.postgres.turns.history import HistoryPage, PostgresHistory
from shared.adapters.postgres.voice.speech import PostgresSpeech
from shared.core.identity.identity_claims import clean_name
from shared.core.memory.search import HITS_PER_PAGE, QUERY_CHARS, SearchKey
from shared.core.session.turns import Accepted, AnswerEnd
from shared.core.values.errors import ContextBudgetExceeded, StorageUnavailable
from shared.locales import catalogue
from shared.runtime import BackgroundTasks
from shared.services.voice.speaking import SpeakingService
from web.api.event_wait import EventSubscription, EventWaiter
from web.auth.visitors import Known
from web.chat.message_intake import MessageIntake
from web.command_offer import CommandOffer
from web.protocol import wire
from web.protocol.answers import ABSENT, Absent
from web.rest.api_key_auth import API, KEY, NOWHERE, record
from web.rest.arguments import BadField, In
from web.rest.calls import Call, json_reply, unauthorized_error
from web.rest.kinds import (
    AcceptedMessage,
    Cid,
    Digits,
    FileId,
    FoundMessage,
    IdempotencyKey,
    Limit,
    Mid,
    Moment,
    NamedMid,
    describe,
    read_cid,
    show_hit,
)
from web.rest.operation import OperationRouter, Reply
from web.security import REQUEST_ID, HttpRefusal, cross_origin_headers
from web.server.client_limiter import ClientLimiter
from web.server.event_stream import HEARTBEAT_SECONDS, EventStream, wants_events
from web.server.hub import Hub

router = OperationRouter("conversations", visitor=True, scope="sessions:read", rate="reads", refusals=(404,))
STORED_LOOK_SECONDS = 1.0
"""Seconds between looks for a stored answer, once its events have ended."""
STREAM_SECONDS = 600.0
"""Seconds after which the event stream of one message ends, even without an answer."""
ID_CHARS = 200
"""Maximum characters of `external_id` and of the person's name."""
SessionId = Annotated[str, describe("public id of a conversation", json_schema_extra={"format": "uuid"})]
"""Public id in the path, which handlers need not read: `call.session_id` is the same conversation, and the
caller may access it.
"""
ShortText = Annotated[str | None, Field(max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSession:
    """Conversation of an external id; `created` is false if it existed already."""

    session_id: UUID
    site: str
    created: bool


@with_config(ConfigDict(extra="allow"))
class Event(TypedDict):
    """A stored event, in the same form as on the WebSocket; other fields depend on its kind."""

    t: Annotated[str, describe("kind of the event, such as `msg` or `compaction`")]
    event_seq: int
    at: NotRequired[datetime]
    turn: NotRequired[int]
    mid: NotRequired[Annotated[str, describe("id of the message")]]
    role: NotRequired[str]
    text: NotRequired[str]
    cid: NotRequired[Annotated[str, describe("the client's own id of the message")]]
    memory: NotRequired[
        Annotated[bool, describe("true if an answer's request held notes or recalled messages")]
    ]
    stop: NotRequired[
        Annotated[
            AnswerEnd,
            Field(
                description="why an answer ended: by itself (`stop`), at its length limit (`length`), cut by "
                "the provider's filter (`filter`), or stopped by its person (`cancelled`)"
            ),
        ]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(AcceptedMessage):
    """Accepted message, with its answer if that came within the requested wait."""

    answer: Event | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDelta:
    """Piece of an answer that is being written; `off` is its place in the text, in characters."""

    mid: str
    turn: int
    attempt: int
    off: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """End of the event stream of one message.

    `waiting` means that there is no answer yet, or that it cannot be read just now.
    """

    turn: int
    state: Literal["done", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """One page of the messages of a conversation; `before` is the cursor of older ones."""

    messages: list[Event]
    before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Stored events after a number; `head` is the newest number, and `next` the one to continue after."""

    events: list[Event]
    next: int
    head: int
    log_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Stored events around a place; `before` and `after` are null at the ends of the conversation."""

    events: list[Event]
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidBefore:
    """Stored text of a message, the current or an earlier one."""

    mid: str
    role: str
    text: str
    at: datetime
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(SaidBefore):
    """Earlier text of an edited message, with the answers that it got."""

    chars: (
        Annotated[int, describe("full length of a long text, of which only the beginning is here")] | Absent
    ) = ABSENT
    answers: list[SaidBefore]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Deleted message, and the number of the event that reports the deletion."""

    mid: str
    event_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerTexts:
    """Earlier texts of an edited message."""

    versions: list[Version]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessages:
    """One page of messages that match a search; `next` is the cursor of older ones."""

    hits: list[FoundMessage]
    next: str | None


class Following:
    """Accepted message whose answer is awaited, with the events of its conversation."""

    def __init__(self, waiter: EventWaiter, accepted: Accepted, known: Known) -> None:
        self._waiter = waiter
        self.known = known
        self.accepted = accepted
        self.state: Literal["waiting", "done"] = "waiting"
        """`waiting`, then `done` once the turn has ended."""

    @property
    def over(self) -> bool:
        """True if the turn has ended, or no more events come."""
        return self.state == "done" or self._waiter.closed

    async def next(self, seconds: float) -> dict[str, Any] | None:
        """Return the next frame of this turn: a piece of its answer, or a message that answers it.

        None if `seconds` pass, no more frames come, or the next frame is about something else. A final
        message sets `state` to `done`.
        """
        frame = await self._waiter.next_frame(seconds)
        if frame is None or frame.get("turn") != self.accepted.turn:
            return None
        if frame["t"] == "msg" and frame.get("role") != "person":
            if not frame.get("waiting"):
                self.state = "done"
            return frame
        return frame if frame["t"] == "delta" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMessageHandlers:
    """Handlers of messages: writing and reading them, and the events around them."""

    limiter: ClientLimiter
    intake: MessageIntake
    hub: Hub
    events: PostgresEvents
    tasks: BackgroundTasks
    history: PostgresHistory
    commands: CommandOffer
    speaking: SpeakingService | None
    speech: PostgresSpeech
    message_search: PostgresMessageSearch
    api_sessions: PostgresApiSessions

    @router.on(
        "POST /sessions", answers={200: OpenedSession, 201: OpenedSession}, visitor=False,
        scope="messages:write", strict=True, finds_caller=True, rate="", body="NewSession",
    )  # fmt: skip
    async def open_session(
        self,
        call: Call,
        *,
        external_id: Annotated[
            str,
            describe("id of the person in your system; the same id always opens the same conversation"),
            Field(max_length=ID_CHARS, pattern=r"\S", json_schema_extra={"minLength": 1}),
        ],
        site: Annotated[
            ShortText,
            describe("site that provides texts and agent; defaults to the key's site, then to `default`"),
        ] = None,
        agent: Annotated[ShortText, describe("name of the agent that answers a new conversation")] = None,
        name: Annotated[str | None, describe("display name of the person", max_length=ID_CHARS)] = None,
    ) -> Reply:
        """Open a conversation for a person of your system.

        The same `external_id` on the same site returns the same conversation.
        """
        api_key = call.request.get(KEY)
        if api_key is None:
            raise unauthorized_error("This needs a key with the scope messages:write.", code="key_needed")
        site_name = site or api_key.site or "default"
        if api_key.site not in (None, site_name):
            raise HttpRefusal(403, "not_within_limits", "This key opens conversations on its own site only.")
        await record(call.request, "sessions.open", about=f"site:{site_name}")
        opened = await call.request.app[API].sessions.open(
            external_id, site=site_name, agent=agent, agent_id=api_key.agent_id, name=clean_name(name or "")
        )
        if opened is None:
            raise HttpRefusal(404, "unknown_place", "There is no such site or agent for this key.")
        shown = OpenedSession(session_id=opened.public_id, site=opened.site, created=opened.created)
        return await json_reply(call.request, shown, status=201 if opened.created else 200)

    @router.on(
        "POST /sessions/{id}/messages", answers={200: Answered, 202: AcceptedMessage}, rate="",
        scope="messages:write", strict=True, refusals=(404, 409, 413, 422, 503), body="NewMessage",
        events={"accepted": AcceptedMessage, "delta": AnswerDelta, "message": Event, "done": StreamEnd},
    )  # fmt: skip
    async def write_message(
        self,
        call: Call,
        session: SessionId,
        *,
        text: Annotated[
            str | None,
            describe("text of the message; optional if there are files"),
            # Up to ten times the limit gets the 413 of `validate_text`, which names the limit.
            Field(max_length=10 * wire.MAX_CHARS, json_schema_extra={"maxLength": wire.MAX_CHARS}),
        ] = None,
        cid: Cid | None = None,
        attachments: Annotated[
            list[FileId] | None,
            describe("ids of uploaded files, from `POST /uploads`", max_length=wire.MOST_FILES),
        ] = None,
        wait: Annotated[
            int, In("query"), Digits(0, 60), describe("maximum seconds to wait for the answer")
        ] = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> Reply:
        """Send a message, and optionally wait for its answer.

        The message is stored when 202 is returned, and will be answered even if the client disconnects.
        `?wait=` holds the response until the answer is complete; an event stream sends it while it is
        written.
        """
        request, known = call.request, call.person
        call.check_draining()
        if known.row.address_id == NOWHERE:
            raise HttpRefusal(409, "not_on_the_web", "This conversation is reached on another channel only.")
        cid = read_cid(cid, idempotency_key) or secrets.token_hex(16)
        files = tuple(dict.fromkeys(attachments or ()))
        address = None if KEY in request else self.limiter.client_key(request)
        limits = self.limiter.limits_for(request)
        await self.intake.check_rate(limits, known, cid=cid, address=address, chars=len(text or ""))
        inbound = await self.intake.build_inbound(known, text=text or "", cid=cid, files=files)
        about, streamed = f"session:{known.row.session_public_id}", wants_events(request)
        if not streamed and not wait:
            await record(request, "messages.write", about=about)
            return await json_reply(request, _accepted(await self.intake.accept(inbound)), status=202)
        slot = f"rest:{call.session_id}"
        if not self.limiter.session_places.take(slot, limits.sockets_per_session):
            raise wire.RateLimited(retry_after_seconds=15.0, what="requests that wait")
        try:
            await record(request, "messages.write", about=about)
            async with EventSubscription(self.hub, self.events, self.tasks, known) as waiter:
                following = Following(waiter, await self.intake.accept(inbound), known)
                if streamed:
                    return await self._stream(request, following)
                return await self._wait_for_answer(request, following, float(wait))
        finally:
            self.limiter.session_places.leave(slot)

    @router.on(
        "POST /sessions/{id}/messages/{mid}/edit",
        status=202,
        rate="",
        scope="messages:write",
        strict=True,
        refusals=(404, 409, 413, 422, 503),
        missing="There is no such message in this conversation.",
    )
    async def edit_message(
        self,
        call: Call,
        session: SessionId,
        mid: NamedMid,
        *,
        text: Annotated[
            str, Field(max_length=10 * wire.MAX_CHARS, json_schema_extra={"maxLength": wire.MAX_CHARS})
        ],
        cid: Cid | None = None,
        idempotency_key: IdempotencyKey = None,
    ) -> AcceptedMessage:
        """Edit a message, and answer the last again.

        The former text stays in the log, see `former`. From then on the assistant reads the new text. An
        answer that is being written restarts if nothing of it was shown.
        """
        request, known = call.request, call.person
        call.check_draining()
        if known.row.address_id == NOWHERE:
            raise HttpRefusal(409, "not_on_the_web", "This conversation is reached on another channel only.")
        cid = read_cid(cid, idempotency_key) or secrets.token_hex(16)
        address = None if KEY in request else self.limiter.client_key(request)
        limits = self.limiter.limits_for(request)
        await self.intake.check_rate(limits, known, cid=cid, address=address, chars=len(text))
        await record(request, "messages.edit", about=f"session:{known.row.session_public_id}")
        accepted, shown = await self.intake.store_edit(known, seq=mid, text=text, cid=cid)
        self.intake.announce_edit(accepted, shown)
        return _accepted(accepted)

    @router.on(
        "DELETE /sessions/{id}/messages/{mid}", rate="", scope="messages:write",
        refusals=(404, 409, 503), missing="There is no such message in this conversation.",
    )  # fmt: skip
    async def erase_message(self, call: Call, session: SessionId, mid: NamedMid) -> Deleted:
        """Delete a message of the person.

        Erases its text, files and former texts, and notes and passages that were taken from it. Answers stay.
        Deleting it again has no effect.
        """
        request, known = call.request, call.person
        call.check_draining()
        address = None if KEY in request else self.limiter.client_key(request)
        limits = self.limiter.limits_for(request)
        await self.intake.check_rate(limits, known, cid=secrets.token_hex(16), address=address, chars=0)
        await record(request, "messages.delete", about=f"session:{known.row.session_public_id}")
        return Deleted(mid=f"m{mid}", event_seq=await self.intake.delete(known, seq=mid))

    @router.on("GET /sessions/{id}/messages/{mid}", missing="There is no such message in this conversation.")
    async def show_message(self, call: Call, session: SessionId, mid: NamedMid) -> SaidBefore | None:
        """Get the full text of a message.

        Lists and events have only the beginning of a long message, and its length as `chars`.
        """
        found = await self.history.load_message(call.session_id, mid)
        return None if found is None else SaidBefore(**found)

    @router.on(
        "GET /sessions/{id}/messages/{mid}/former", missing="There is no such message in this conversation."
    )
    async def list_former(self, call: Call, session: SessionId, mid: NamedMid) -> FormerTexts | None:
        """List former texts of a message, oldest first.

        Each has the answers that it received.
        """
        versions = await self.history.list_versions(call.session_id, mid)
        return None if versions is None else FormerTexts(versions=list(map(_version, versions)))

    @router.on(
        "POST /sessions/{id}/messages/{mid}/speech", scope="messages:write", rate="commands",
        refusals=(404, 422, 429, 503), media="audio/mpeg", missing="This message cannot be read aloud here.",
    )  # fmt: skip
    async def speak_message(self, call: Call, session: SessionId, mid: NamedMid) -> Reply:
        """Get an answer as speech.

        The recording is made once and stored for a day.
        """
        known = call.person
        await record(call.request, "messages.speak", about=f"session:{known.row.session_public_id}")
        offered = self.commands.list_for(known.audience, site=known.site)
        if self.speaking is None or all(command.name != "voice" for command in offered):
            return None
        turn = await self.speech.find_answered_turn(call.session_id, mid)
        if turn is None:
            return None
        texts = catalogue("commands", call.language)
        body = await self.speaking.speak(call.session_id, turn, form="mp3", texts=texts)
        headers = {"Content-Type": "audio/mpeg", **await cross_origin_headers(call.request)}
        return web.Response(body=body, headers=headers)

    # Operators get `Lines` of `web/dashboard/api.py` at this address.
    @router.on("GET /sessions/{id}/messages")
    async def list_messages(
        self,
        call: Call,
        session: SessionId,
        *,
        limit: Limit = 50,
        before: Annotated[int | None, Digits(1), describe("`before` of the page of newer messages")] = None,
    ) -> Messages:
        """List the newest messages, oldest first.

        Pass `before` of an answer to get the page of older messages; null if there is none.
        """
        rows = await self.events.list_messages_before(call.session_id, before, limit=limit + 1)
        page = rows[-limit:]
        earlier = page[0].event_seq if len(rows) > limit else None
        return Messages(messages=[_event(call.person, row) for row in page], before=earlier)

    @router.on("GET /sessions/{id}/events")
    async def list_events(
        self,
        call: Call,
        session: SessionId,
        *,
        limit: Limit = 100,
        after: Annotated[int, Digits(), describe("number of the last event that the client has")] = 0,
    ) -> Events:
        """List events after a number, for polling.

        Event numbers have no gaps. If `log_epoch` has grown, a backup was restored: start again at 0.
        """
        events = self.events
        head = await events.load_head(call.session_id)
        rows = await events.list_after(call.session_id, after, limit=limit)
        return Events(
            events=[_event(call.person, row) for row in rows],
            next=rows[-1].event_seq if rows else after,
            head=head.event_seq if head else 0,
            log_epoch=head.log_epoch if head else 0,
        )

    @router.on("GET /sessions/{id}/history")
    async def show_history(
        self,
        call: Call,
        session: SessionId,
        *,
        limit: Limit = 50,
        before: Annotated[
            int | None, Digits(1), describe("event number; returns the newest events with a lower number")
        ] = None,
        after: Annotated[
            int | None, Digits(), describe("event number; returns the oldest events with a higher number")
        ] = None,
        since: Annotated[
            Moment, describe("time such as 2026-11-03T00:00:00Z; returns the first events since then")
        ] = None,
        around: Annotated[Mid, describe("`mid` of a message; returns the events from it on")] = None,
    ) -> History:
        """List messages, command results and active summaries, oldest first.

        Select the position by one of `before`, `after`, `since` and `around`; the default is the end. Pass
        `before` of the answer for older events and `after` for newer ones; null if there are none.
        """
        if sum(place is not None for place in (before, after, since, around)) > 1:
            raise BadField("Give one of `before`, `after`, `since` and `around`.")
        history, of = self.history, call.session_id
        summaries = call.person.audience != "public"
        page: HistoryPage | None
        if after is not None:
            page = await history.list_after(of, after, limit=limit, summaries=summaries)
        elif since is not None:
            page = await history.list_since(of, since, limit=limit, summaries=summaries)
        elif around is not None:
            page = await history.list_around(of, around, limit=limit, summaries=summaries)
        else:
            page = await history.list_before(of, before, limit=limit, summaries=summaries)
        if page is None:
            raise HttpRefusal(404, "unknown_message", "There is no such message in this conversation.")
        shown = [_event(call.person, row) for row in page.events]
        return History(events=shown, before=page.before, after=page.after)

    @router.on("GET /sessions/{id}/search")
    async def search_messages(
        self,
        call: Call,
        session: SessionId,
        *,
        limit: Limit = HITS_PER_PAGE,
        q: Annotated[str, describe("text to search for", max_length=QUERY_CHARS, pattern=r"\S")],
        before: Annotated[
            str | None, describe("`next` of the preceding page", json_schema_extra={"maxLength": 60})
        ] = None,
    ) -> FoundMessages:
        """Search messages, newest first.

        Finds messages with all words, including summarised ones.

        An excerpt is a list of text parts; `hit` marks the matching ones. For frequent words a page may have
        few results or none and still have `next`, which searches further back.
        """
        cursor = None if before is None else SearchKey.parse(before)
        if before is not None and cursor is None:
            raise BadField("`before` is the `next` of the page before.")
        linked = call.person.audience != "public"
        found = await self.message_search.search(
            call.session_id, wire.clean(q), before=cursor, limit=limit, linked=linked
        )
        return FoundMessages(
            hits=list(map(show_hit, found.hits)), next=None if found.next is None else str(found.next)
        )

    async def _wait_for_answer(
        self, request: web.Request, following: Following, seconds: float
    ) -> web.StreamResponse:
        """Return the stored message, with its answer if that comes within `seconds`.

        Raises HttpRefusal for an answer that does not fit into the model's window, but nothing for the
        database: an error would hide that the message is stored, and a program would send it again.
        """
        answer: dict[str, Any] | None = None
        if following.accepted.repeated:
            with suppress(StorageUnavailable):
                answer = await self._find_answer(following)
        deadline = asyncio.get_running_loop().time() + seconds
        while not following.over and (left := deadline - asyncio.get_running_loop().time()) > 0:
            frame = await following.next(min(left, HEARTBEAT_SECONDS))
            answer = frame if following.state == "done" else answer
        if answer is None:
            answer = await self._read_stored_answer(following, deadline)
        shown = _accepted(following.accepted)
        if answer is None:
            return await json_reply(request, shown, status=202)
        if answer.get("error") == ContextBudgetExceeded.code:
            told: dict[str, Any] = {"mid": shown.mid, "turn": shown.turn, "event_seq": shown.event_seq}
            told |= {"dup": True} if following.accepted.repeated else {}
            raise HttpRefusal(422, ContextBudgetExceeded.code, answer["text"], advice=answer["text"], **told)
        return await json_reply(
            request,
            Answered(
                mid=shown.mid,
                turn=shown.turn,
                event_seq=shown.event_seq,
                dup=shown.dup,
                answer=cast("Event", answer),
            ),
        )

    async def _stream(self, request: web.Request, following: Following) -> web.StreamResponse:
        """Stream the events of a turn until it ends, the client disconnects or STREAM_SECONDS pass.

        It also ends when no more events come, and at once, as waiting, if the database does not say whether a
        repeated message was answered. A disconnect does not cancel the turn.
        """
        stream = EventStream(
            request, request_id=request[REQUEST_ID], headers=await cross_origin_headers(request)
        )
        await stream.open()
        await stream.send("accepted", _accepted(following.accepted))
        try:
            answer = await self._find_answer(following) if following.accepted.repeated else None
        except StorageUnavailable:
            return await _end_stream(stream, following)
        if answer is not None:
            await stream.send("message", answer)
        await _send_frames(stream, following)
        if following.state != "done" and not stream.gone:
            answer = await self._read_stored_answer(following, asyncio.get_running_loop().time())
            if answer is not None:
                await stream.send("message", answer)
        return await _end_stream(stream, following)

    async def _read_stored_answer(self, following: Following, deadline: float) -> dict[str, Any] | None:
        """Return the stored answer; None if there is none yet, or if the database does not answer.

        If the events ended early, as for a slow reader, it is waited for until `deadline`, a time of the
        loop.
        """
        loop = asyncio.get_running_loop()
        while True:
            with suppress(StorageUnavailable):
                if (answer := await self._find_answer(following)) is not None:
                    return answer
            left = deadline - loop.time()
            if left <= 0 or not following.over:
                return None
            await asyncio.sleep(min(left, STORED_LOOK_SECONDS))

    async def _find_answer(self, following: Following) -> dict[str, Any] | None:
        """Return the stored answer to a message and mark its turn as done; None if there is none.

        Raises StorageUnavailable.
        """
        accepted = following.accepted
        number = await self.api_sessions.find_answer(
            accepted.session_id, accepted.turn, after=accepted.event_seq
        )
        if number is None:
            return None
        rows = await self.events.list_after(accepted.session_id, number - 1, limit=1)
        following.state = "done"
        return dict(_event(following.known, rows[0])) if rows else None


async def _send_frames(stream: EventStream, following: Following) -> None:
    """Send the frames of a turn until it ends, the client disconnects or STREAM_SECONDS pass.

    Sends a heartbeat after HEARTBEAT_SECONDS without a frame.
    """
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


async def _end_stream(stream: EventStream, following: Following) -> web.StreamResponse:
    await stream.send("done", StreamEnd(turn=following.accepted.turn, state=following.state))
    return await stream.end()


def _accepted(accepted: Accepted) -> AcceptedMessage:
    return AcceptedMessage(
        mid=accepted.mid, turn=accepted.turn, event_seq=accepted.event_seq, dup=accepted.repeated or ABSENT
    )


def _version(former: Mapping[str, Any]) -> Version:
    answers = [SaidBefore(**answer) for answer in former["answers"]]
    return Version(**{**former, "answers": answers})


def _event(known: Known, row: Any) -> Event:
    """Return a stored event as its screens get it."""
    frame = wire.durable(row.event_seq, row.kind, row.payload)
    return cast("Event", wire.for_public(frame) if known.audience == "public" else frame)
