"""REST for several conversations of one visitor, where the site allows it: a list, a new one, a name."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from shared.core.session.turns import TITLE_CHARS
from web.api.messages import SessionId
from web.rest.arguments import BadField
from web.rest.calls import Call
from web.rest.kinds import Limit, Success, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter("conversations", visitor=True, refusals=(404,))
Conversation = TypedDict("Conversation", {
    "session_id": UUID,
    "title": Annotated[
        str, describe("title by the person, else of the summary, else the first question; empty if new")
    ],
    "named": Annotated[bool, describe("true if the person chose the title")], "last_active_at": datetime,
    "unread": Annotated[bool, describe("true if there are messages that the visitor has not seen")],
})  # fmt: skip
Conversations = TypedDict("Conversations", {"conversations": list[Conversation], "next": str | None})
Begun = TypedDict("Begun", {"session_id": UUID})
_NEXT = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")


@router.on("GET /conversations", Conversations, rate="reads", scope="sessions:read")
async def list_conversations(
    call: Call,
    *,
    limit: Limit = 30,
    before: Annotated[
        str | None, describe("`next` of the preceding page", json_schema_extra={"maxLength": 40})
    ] = None,
) -> Reply:
    """List conversations of the visitor, last active first."""
    if before is not None and not _NEXT.fullmatch(before):
        raise BadField("`before` is the `next` of the page before.")
    moment, row = map(int, before.split(".")) if before else (None, None)
    found = await call.parts.stores.visitors.list_conversations(
        call.person.row.address_id, moment=moment, row=row, limit=limit + 1
    )
    more = found[limit - 1] if len(found) > limit else None
    return {
        "conversations": [
            {
                "session_id": one.session_public_id, "title": one.title, "named": one.named,
                "last_active_at": one.last_active_at, "unread": one.unread,
            }
            for one in found[:limit]
        ],
        "next": None if more is None else f"{more.moment}.{more.address_id}",
    }  # fmt: skip


@router.on("POST /conversations", Begun, status=201, rate="commands", refusals=(404, 409))
async def begin_conversation(call: Call) -> Reply:
    """Open another conversation.

    Returns the existing conversation without messages, if there is one.
    Refused unless the site allows several conversations.
    """
    call.check_draining()
    if call.person.site.config.conversations != "many":
        raise HttpRefusal(409, "one_conversation", "On this site everybody has one conversation.")
    return {"session_id": await call.parts.stores.visitors.begin_conversation(call.person.row.address_id)}


@router.on(
    "PATCH /sessions/{id}", Success, rate="commands", strict=True, body="NewTitle", refusals=(404, 409)
)
async def name_conversation(
    call: Call,
    session: SessionId,
    *,
    title: Annotated[
        str, describe("title; an empty text restores the automatic one"), Field(max_length=TITLE_CHARS)
    ],
) -> Reply:
    """Set the title of a conversation."""
    await call.parts.stores.visitors.name_conversation(call.person.row.address_id, " ".join(title.split()))
    return {"success": True}
