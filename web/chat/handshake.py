"""Admits a client to its conversation and sends the welcome frame with the current state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from shared.adapters.postgres.turns.events import PostgresEvents
from shared.config.sites import build_public_config
from shared.core.values.errors import BadInput, StorageUnavailable
from web.auth.visitors import Known, NobodyYet, Site, UnknownToken, describe
from web.chat.screen_actions import STEP_SECONDS
from web.chat.socket_session import Closed, build_retry_close
from web.command_offer import CommandOffer, build_command_entry
from web.ports import FileUploads, TurnService
from web.protocol import wire
from web.server.client_limiter import ClientLimiter
from web.server.hub import Hub, Subscriber, Transport
from web.server.rate_limits import ClientLimits
from web.server.send_queue import SendQueue

log = structlog.get_logger(__name__)

BACKLOG = 500
"""Maximum missed events that a client gets when it resumes; with more, it starts from the newest messages."""
HISTORY = 50
"""Number of newest messages for a client that cannot resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenOffers:
    """Offers in a welcome frame: commands, the model, and which files may be sent."""

    commands: CommandOffer
    uploads: FileUploads

    def build(self, site: Site, audience: str, locale: str) -> dict[str, Any]:
        """Return `{audience, commands, model, files}`: what the welcome offers to a site's visitors."""
        model, offered = self.commands.model, self.commands.list_for(audience, site=site)
        return {
            "audience": audience,
            "commands": [build_command_entry(one, locale) for one in offered],
            "model": {"name": "" if audience == "public" else model.name, "offline": model.offline},
            "files": self.uploads.describe_limits(site, audience),
        }


class TooManySockets(BadInput):
    """Session or client address that has its maximum number of open connections."""

    sentence = "This conversation is open in too many places."
    code = "too_many_sockets"
    advice = "Close some of the other tabs, then reload this one."
    retry_after_seconds = 15.0


class Handshake:
    """Admission of one client to its conversation, and its place among the clients there.

    Call `leave` after every `take`, even a failed one. `name` is the client's id among requests without a
    socket; empty for a WebSocket.
    """

    def __init__(
        self,
        known: Known,
        send_queue: SendQueue,
        *,
        hub: Hub,
        sessions: TurnService,
        events: PostgresEvents,
        limiter: ClientLimiter,
        offers: ScreenOffers,
        name: str = "",
        transport: Transport = "websocket",
    ) -> None:
        self._hub = hub
        self._sessions = sessions
        self._events = events
        self._places = limiter.session_places
        self._offers = offers
        self._known = known
        self._public = known.audience == "public"
        self._subscriber: Subscriber | None = None
        self._send_queue = send_queue
        self._name = name
        self._transport = transport

    async def take(self, hello: wire.Hello, limits: ClientLimits) -> None:
        """Join the conversation, and send the welcome with missed events, for which `hello` names the last
        seen.

        Raises Closed if the conversation is open in too many places, is unknown, or cannot be loaded.
        """
        row = self._known.row
        if not self._places.take(str(row.session_id), limits.sockets_per_session):
            raise Closed(wire.CLOSE_RATE, "too many sockets", error=TooManySockets())
        subscriber = self._subscriber = Subscriber(
            self._send_queue, public=self._public, address_id=row.address_id, name=self._name,
            admitted_by=self._known.admitted_by, transport=self._transport,
        )  # fmt: skip
        await self._hub.join(row.session_id, subscriber)
        await self._send_welcome(subscriber, hello)

    async def leave(self) -> None:
        """Leave the conversation; no effect if `take` has not joined it."""
        if self._subscriber is not None:
            session_id = self._known.row.session_id
            self._places.leave(str(session_id))
            await asyncio.shield(self._hub.leave(session_id, self._subscriber))

    async def _send_welcome(self, subscriber: Subscriber, hello: wire.Hello) -> None:
        """Send the welcome; events that occur meanwhile are held back and sent after it. Raises Closed."""
        known = self._known
        session_id = known.row.session_id
        try:
            async with asyncio.timeout(STEP_SECONDS):
                head = await self._events.load_head(session_id)
                if head is None:
                    raise Closed(wire.CLOSE_TOKEN, "unknown session", error=UnknownToken())
                seen = hello.last_seq if hello.session in ("", str(known.row.session_public_id)) else 0
                resumed, events = await self._load_backlog(session_id, seen, head.event_seq)
                state = dict(await self._events.load_running(session_id))
                read = await self._events.load_read_mark(known.row.address_id)
                measured = None
                pinned: tuple[str, ...] = ()
                if known.audience == "personal":
                    measured = await self._sessions.measure_context(session_id)
                    pinned = await self._events.list_pinned(session_id)
        except (StorageUnavailable, TimeoutError) as error:
            raise build_retry_close(error) from None
        public = self._public
        frame = wire.welcome(
            session=str(known.row.session_public_id),
            token=known.token,
            log_epoch=head.log_epoch,
            head=head.event_seq,
            resumed=resumed,
            events=_strip_hidden(events) if public else events,
            imports=known.may_import,
            **self._offers.build(known.site, known.audience, hello.locale),
            pinned=pinned,
            ctx=None if measured is None else wire.ctx(measured),
            state=self._load_state(session_id, state, public=public),
            read=read,
            site=known.build_site_config(hello.locale),
            identified=known.row.place[-12:] if known.row.identified else "",
        )
        subscriber.begin(wire.encode(frame), head.event_seq)
        self._hub.mark_welcomed(session_id, head.event_seq)
        log.debug("visitor_greeted", **describe(known), resumed=resumed)

    async def _load_backlog(
        self, session_id: int, last_seq: int, head: int
    ) -> tuple[bool, Sequence[Mapping[str, Any]]]:
        """Return True and the events that the client missed.

        If it cannot resume, False and the newest messages.
        """
        if 0 < last_seq <= head and head - last_seq <= BACKLOG:
            rows = await self._events.list_after(session_id, last_seq, limit=BACKLOG)
            resumed = True
        else:
            rows = await self._events.list_newest(session_id, messages=HISTORY, limit=BACKLOG)
            resumed = False
        shown = [row for row in rows if row.event_seq <= head]
        return resumed, [wire.durable(row.event_seq, row.kind, row.payload) for row in shown]

    def _load_state(self, session_id: int, stored: dict[str, Any], *, public: bool) -> dict[str, Any]:
        """Return the stored state of the conversation with the text of the running answer, which only memory
        has.
        """
        draft = self._hub.draft(session_id)
        run = stored.get("run")
        if draft is not None and (run is None or run.get("turn") == draft.turn):
            stored["run"] = {**(run or {}), **draft.state()}
        stored.setdefault("queued", [])
        if public:
            stored.pop("compaction", None)
        return {name: value for name, value in stored.items() if value is not None}


OpenPlace = Callable[..., Handshake]
"""Callable that creates the handshake of a client; its services are already bound."""


def build_newcomer_welcome(offers: ScreenOffers, nobody: NobodyYet, locale: str) -> wire.Frame:
    """Return the welcome for a visitor who has no conversation yet."""
    return wire.welcome(
        session="", token=None, log_epoch=None, head=0, resumed=False, events=(), pinned=(), ctx=None,
        state={}, site=build_public_config(nobody.site.config, locale),
        **offers.build(nobody.site, nobody.audience, locale),
    )  # fmt: skip


def _strip_hidden(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events as a visitor of a public site may see them, without hidden ones."""
    return [shown for event in events if (shown := wire.for_public(event))["t"] != "hidden"]
