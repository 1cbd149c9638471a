"""REST for several conversations of one visitor: list, begin, fork and name them."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from shared.adapters.postgres.people.forks import PostgresForks
from shared.adapters.postgres.people.visitors import PostgresVisitors
from shared.core.session.forks import fork_title
from shared.core.session.turns import TITLE_CHARS
from shared.locales import catalogue
from web.api.messages import SessionId
from web.rest.arguments import BadField
from web.rest.calls import Call
from web.rest.kinds import DONE, Cid, IdempotencyKey, Limit, NamedMid, Success, describe, read_cid
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

router = OperationRouter("conversations", visitor=True, refusals=(404,))
_NEXT = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Conversation of a person, for lists."""

    session_id: UUID
    title: Annotated[
        str, describe("title by the person, else of the summary, else the first question; empty if new")
    ]
    named: Annotated[bool, describe("true if the person chose the title")]
    last_active_at: datetime
    unread: Annotated[bool, describe("true if there are messages that the visitor has not seen")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """One page of a person's conversations, the last active first; `next` is null on the last page."""

    conversations: list[Conversation]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """New conversation that was copied from another one."""

    session_id: UUID
    title: str
    draft: Annotated[str, describe("text of the visitor's own message, to be sent again; else empty")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """New conversation, which is empty."""

    session_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHandlers:
    """Handlers of several conversations of one visitor."""

    visitor_store: PostgresVisitors
    forks: PostgresForks

    @router.on("GET /conversations", rate="reads", scope="sessions:read")
    async def list_conversations(
        self,
        call: Call,
        *,
        limit: Limit = 30,
        before: Annotated[
            str | None, describe("`next` of the preceding page", json_schema_extra={"maxLength": 40})
        ] = None,
    ) -> Conversations:
        """List conversations of the visitor, last active first."""
        if before is not None and not _NEXT.fullmatch(before):
            raise BadField("`before` is the `next` of the page before.")
        moment, row = map(int, before.split(".")) if before else (None, None)
        found = await self.visitor_store.list_conversations(
            call.person.row.address_id, moment=moment, row=row, limit=limit + 1
        )
        more = found[limit - 1] if len(found) > limit else None
        return Conversations(
            conversations=[
                Conversation(
                    session_id=one.session_public_id,
                    title=one.title,
                    named=one.named,
                    last_active_at=one.last_active_at,
                    unread=one.unread,
                )
                for one in found[:limit]
            ],
            next=None if more is None else f"{more.moment}.{more.address_id}",
        )

    @router.on("POST /conversations", status=201, rate="commands", refusals=(404, 409))
    async def begin_conversation(self, call: Call) -> Begun:
        """Open another conversation.

        Returns the existing conversation without messages, if there is one.
        Refused unless the site allows several conversations.
        """
        _check_many(call)
        return Begun(session_id=await self.visitor_store.begin_conversation(call.person.row.address_id))

    @router.on(
        "POST /sessions/{id}/messages/{mid}/fork", status=201, rate="commands", strict=True,
        refusals=(404, 409, 503), missing="There is no such message in this conversation.",
    )  # fmt: skip
    async def fork_conversation(
        self,
        call: Call,
        session: SessionId,
        mid: NamedMid,
        *,
        cid: Cid | None = None,
        key: IdempotencyKey = None,
    ) -> Forked:
        """Create a conversation from the beginning of another.

        The new one is a copy up to the message; the original does not change. An answer is copied with its
        question. A message of the visitor is not copied but returned as `draft`, to be sent again in other
        words. The copy has the summaries and pins that were in force at that message; notes and costs stay
        with the original. The same `cid` returns the same copy.
        """
        known = call.person
        _check_many(call)
        word = catalogue("commands", call.language).say("fork_word")
        cid = read_cid(cid, key) or secrets.token_hex(16)
        made = await self.forks.fork(
            call.session_id,
            known.row.address_id,
            seq=mid,
            key=cid,
            title=lambda title: fork_title(title, word),
        )
        return Forked(session_id=UUID(made.session_public_id), title=made.title, draft=made.draft)

    @router.on("PATCH /sessions/{id}", rate="commands", strict=True, body="NewTitle", refusals=(404, 409))
    async def name_conversation(
        self,
        call: Call,
        session: SessionId,
        *,
        title: Annotated[
            str, describe("title; an empty text restores the automatic one"), Field(max_length=TITLE_CHARS)
        ],
    ) -> Success:
        """Set the title of a conversation."""
        await self.visitor_store.name_conversation(call.person.row.address_id, " ".join(title.split()))
        return DONE


def _check_many(call: Call) -> None:
    """Refuse another conversation where a visitor has one, and while this process ends."""
    call.check_draining()
    if call.person.site.config.conversations != "many":
        raise HttpRefusal(409, "one_conversation", "On this site everybody has one conversation.")
