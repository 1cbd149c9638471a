"""Hand-over for operators: who waits, take a conversation or give it back, and write in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired
from urllib.parse import unquote
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.handover.inbox import CannedReply, Macro
from shared.core.identity.handover import (
    CANNED_NAME,
    NOTE_CHARS,
    AnswerRuns,
    Assignment,
    Labels,
    Listed,
    Moved,
    Snooze,
    TakenByOther,
    clean_labels,
)
from shared.core.values.errors import BadInput, EvertalkError, StorageUnavailable
from shared.core.values.files import Attached, clean_name
from shared.core.values.messages import Block
from shared.services.tools.handover import CID_CHARS, HandoverService
from web.dashboard.access import AuthedRequest
from web.dashboard.api import SessionId
from web.parts import PARTS, Parts
from web.rest.files import MOST_AT_ONCE, Attachment, FileName
from web.rest.kinds import DONE, Accepted, FileId, Id, Moment, Success, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter()
RETRY_SECONDS = 2
FILE_CHARS = 4_000
"""Characters of an operator's files that the assistant reads after the hand-over."""
_NO_SESSION = "There is no such conversation."
_SWITCHED_OFF = "Hand-over is switched off: EVERTALK_HANDOVER=on allows it."

Which = Annotated[
    Literal["waiting", "human", "resolved"] | None,
    describe("state of the hand-over; all open ones by default, `resolved` for recently closed ones"),
]
Action = Literal["take", "return", "resolve", "assign", "snooze", "label"]
Cid = Annotated[
    str,
    Field(min_length=1, max_length=CID_CHARS, title=f"an id of your own of at most {CID_CHARS} characters"),
]
Words = Annotated[str, Field(min_length=1, max_length=NOTE_CHARS, pattern=r"\S")]
Desk = TypedDict("Desk", {
    "assignees": list[str], "labels": list[str], "canned": list[CannedReply],
    "macros": list[Macro],
})  # fmt: skip
PrivateNote = TypedDict("PrivateNote", {"id": UUID})
_SAID = ("page", "browser", "language", "timezone", "email")
Contact = TypedDict("Contact", {
    "page": str, "browser": str, "language": str, "timezone": str, "email": str,
    "attributes": Annotated[dict[str, str], describe("attributes that the site has signed for this person")],
})  # fmt: skip
Handovers = TypedDict("Handovers", {"enabled": bool, "handovers": list[Listed]})
HandoverMoved = TypedDict("HandoverMoved", {
    "state": Literal["bot", "waiting", "human"], "changed": bool,
    "name": NotRequired[Annotated[str, Field(description="name of the assigned operator")]],
})  # fmt: skip
MOST_CHOSEN = 100
"""Maximum conversations per call; each has its own transaction."""
ChosenConversation = TypedDict("ChosenConversation", {
    "session": Annotated[UUID, describe("id of the conversation", strict=False)],
    "version": Annotated[int, describe("version of the handover that the caller has read", ge=0)],
})  # fmt: skip
MovedConversation = TypedDict("MovedConversation", {
    "session": UUID, "changed": bool,
    "error": NotRequired[Annotated[str, Field(description="code of the refusal")]],
    "reason": NotRequired[Annotated[str, Field(description="reason of the refusal")]],
})  # fmt: skip
HandoversMoved = TypedDict("HandoversMoved", {"conversations": list[MovedConversation]})


@router.on("GET /handovers", Handovers, role="viewer")
async def list_handovers(authed: AuthedRequest, *, state: Which = None) -> Reply:
    """List hand-overs, longest waiting first."""
    found = await _handovers(authed).list_handovers(state)
    await authed.record_reading("handovers")
    return {"enabled": authed.context.settings.has_handover, "handovers": found}


@router.on(
    "POST /sessions/{id}/handover", HandoverMoved, role="operator", body="HandoverMove", missing=_NO_SESSION
)  # fmt: skip
async def move_handover(
    authed: AuthedRequest,
    session: SessionId,
    *,
    action: Action,
    version: Annotated[
        int,
        describe(
            "version of the handover that the caller has read; required for `assign`, `snooze` and `label`",
            ge=0,
        ),
    ] = 0,
    operator: Annotated[
        str, describe("login name of the operator who receives the conversation", max_length=200)
    ] = "",
    until: Annotated[Moment, describe("end of the snooze; null ends it now")] = None,
    labels: Annotated[
        list[str] | None, describe("complete list of labels; it replaces the current one", max_length=50)
    ] = None,
) -> Reply:
    """Take, assign, snooze, label, resolve or return a conversation.

    Repeating the call has no effect. An admin may also return, resolve and snooze the conversation of another
    operator.
    """
    service, who = _handovers(authed), authed.operator
    if (session_id := await service.find_session(session)) is None:
        return None
    if action == "take" and not authed.context.settings.has_handover:
        raise HttpRefusal(409, "handover_off", _SWITCHED_OFF)
    with _refusing():
        if action == "take":
            moved = await service.take_over(session_id, operator_id=who.operator_id, name=who.name)
        else:
            moved = await _move(authed, session_id, action, version, operator, until, labels or ())
    told: dict[str, Any] = {"state": moved.state, "changed": moved.event_seq > 0}
    return {**told, "name": moved.name} if moved.name else told


async def _move(
    authed: AuthedRequest, session_id: int, action: Action, version: int, operator: str, until: Moment,
    labels: Sequence[str],
) -> Moved:  # fmt: skip
    """Return, resolve, assign, snooze or label a conversation. Raises what `HandoverService` raises."""
    service, who = _handovers(authed), authed.operator
    mine: Any = {"operator_id": who.operator_id, "any_ones": who.has_role("admin")}
    match action:
        case "return" | "resolve":
            return await service.release(session_id, **mine, resolved=action == "resolve")
        case "assign":
            return await service.change(session_id, Assignment(operator=operator), version=version, **mine)
        case "snooze":
            return await service.change(session_id, Snooze(until=until), version=version, **mine)
        case _:
            labelled = Labels(labels=clean_labels(labels))
            return await service.change(session_id, labelled, version=version, **mine)


@router.on("POST /handovers/moves", HandoversMoved, role="operator", body="HandoverMoves")
async def move_handovers(
    authed: AuthedRequest,
    *,
    action: Literal["resolve", "assign", "snooze", "label"],
    conversations: Annotated[
        list[ChosenConversation], describe("conversations to change", min_length=1, max_length=MOST_CHOSEN)
    ],
    operator: Annotated[
        str, describe("login name of the operator who receives the conversations", max_length=200)
    ] = "",
    until: Annotated[Moment, describe("end of the snooze; null ends it now")] = None,
    labels: Annotated[list[str] | None, describe("labels to add; present ones stay", max_length=50)] = None,
) -> Reply:
    """Change several conversations.

    Each conversation has its own transaction. `error` is the code of a refusal, which does not affect the
    others.
    """
    service = _handovers(authed)
    present = {one.session: one.labels for one in await service.list_handovers(None)}
    results = []
    for chosen in {one["session"]: one for one in conversations}.values():
        session, told = chosen["session"], {"session": chosen["session"], "changed": False}
        try:
            if (session_id := await service.find_session(session)) is None:
                results.append(told | {"error": "not_found", "reason": _NO_SESSION})
                continue
            wanted = (*present.get(str(session), ()), *(labels or ()))
            moved = await _move(authed, session_id, action, chosen["version"], operator, until, wanted)
            results.append(told | {"changed": moved.event_seq > 0 or action in ("label", "snooze")})
        except StorageUnavailable:
            raise
        except EvertalkError as error:
            results.append(told | {"error": error.code, "reason": error.advice})
    return {"conversations": results}


@router.on("POST /sessions/{id}/replies", Accepted, role="operator", missing=_NO_SESSION)
async def reply(
    authed: AuthedRequest,
    session: SessionId,
    *,
    cid: Cid,
    text: Annotated[str, Field(json_schema_extra={"maxLength": 8_000})],
    files: Annotated[
        list[FileId] | None, describe("ids of files uploaded for this conversation", max_length=MOST_AT_ONCE)
    ] = None,
) -> Reply:
    """Reply to the person as an operator.

    The operator must have taken the conversation. The text is optional if there are files.

    The reply is stored when the operation returns. The same `cid` returns the same message.
    """
    if not cid.isprintable():
        raise HttpRefusal(400, "bad_input", "`cid` is of characters that can be printed.")
    service = _handovers(authed)
    if (session_id := await service.find_session(session)) is None:
        return None
    with _refusing():
        more, attached = await _files(authed, session_id, files or (), cid)
        stored = await service.reply(
            session_id, operator_id=authed.operator.operator_id, cid=cid, text=text, more=more,
            attached=attached,
        )  # fmt: skip
    told = {"mid": stored.mid, "turn": stored.turn, "event_seq": stored.event_seq}
    return {**told, "dup": True} if stored.repeated else told


@router.on(
    "POST /sessions/{id}/uploads", Attachment, role="operator", takes="application/octet-stream",
    refusals=(404, 409, 413, 422, 429), missing=_NO_SESSION,
)  # fmt: skip
async def upload_for_person(authed: AuthedRequest, session: SessionId, *, file_name: FileName = "") -> Reply:
    """Upload a file for a reply.

    The operator must have taken the conversation.
    """
    service, parts, request = _handovers(authed), _parts(authed), authed.request
    if (session_id := await service.find_session(session)) is None:
        return None
    with _refusing():
        await service.check_taken(session_id, operator_id=authed.operator.operator_id)
    name = clean_name(unquote(file_name, errors="replace"))
    address = authed.context.address(request)
    kept = await parts.uploads.receive(request, session_id, name, parts.limits_for(request), address)
    return kept.to_payload()


async def _files(
    authed: AuthedRequest, session_id: int, files: Sequence[str], cid: str
) -> tuple[tuple[Block, ...], tuple[Attached, ...]]:
    if not files:
        return (), ()
    _, more, attached = await _parts(authed).uploads.load_for_message(
        session_id, files, dedupe_key=f"operator:{cid}", most_chars=FILE_CHARS
    )
    return more, attached


def _parts(authed: AuthedRequest) -> Parts:
    parts = authed.request.app.get(PARTS)
    if parts is None:
        raise HttpRefusal(503, "not_available", "Conversations cannot be taken from here just now.")
    return parts


@router.on("GET /desk", Desk, role="viewer")
async def desk_choices(authed: AuthedRequest) -> Reply:
    """List operators, labels, canned replies and macros."""
    inbox = authed.context.stores.inbox
    return {
        "assignees": await inbox.find_assignees(),
        "labels": await inbox.list_labels(),
        "canned": await inbox.list_canned(),
        "macros": await inbox.list_macros(),
    }


@router.on("GET /sessions/{id}/contact", Contact, role="viewer", missing=_NO_SESSION)
async def show_contact(authed: AuthedRequest, session: SessionId) -> Reply:
    """Get what page and site report about the visitor."""
    found = await authed.context.stores.inbox.find_contact(session)
    if found is None:
        return None
    await authed.record_reading("contact", str(session))
    return {**{name: found.get(name) or "" for name in _SAID}, "attributes": found.get("attributes") or {}}


@router.on("PUT /canned-replies/{name}", CannedReply, role="operator")
async def save_canned(
    authed: AuthedRequest,
    name: Annotated[str, Field(pattern=rf"^{CANNED_NAME.pattern}$")],
    *,
    body: Words,
    version: Annotated[int, describe("version that the caller has read; 0 creates a new reply", ge=0)] = 0,
) -> Reply:
    """Create or change a canned reply.

    `{{name}}`, `{{operator}}` and `{{site}}` are filled in when it is used.
    """
    with _refusing():
        saved = await authed.context.stores.inbox.save_canned(
            name, body, version=version, by=authed.operator.name
        )
    await authed.record("canned_reply.saved", name)
    return asdict(saved)


@router.on("DELETE /canned-replies/{name}", Success, role="operator")
async def delete_canned(authed: AuthedRequest, name: str) -> Reply:
    """Delete a canned reply."""
    await authed.context.stores.inbox.delete_canned(name)
    await authed.record("canned_reply.deleted", name)
    return DONE


RUNNER = "*"
"""The operator who runs a macro, as its assignee."""
_VARIABLE = re.compile(r"\{\{[^{}]{0,100}\}\}")
MacroName = Annotated[str, Field(pattern=rf"^{CANNED_NAME.pattern}$")]
MacroDone = TypedDict("MacroDone", {
    "state": Literal["bot", "waiting", "human"],
    "name": NotRequired[Annotated[str, Field(description="name of the assigned operator")]],
})  # fmt: skip


@router.on("PUT /macros/{name}", Macro, role="operator", body="MacroChange")
async def save_macro(
    authed: AuthedRequest,
    name: MacroName,
    *,
    labels: Annotated[list[str] | None, describe("labels to add", max_length=50)] = None,
    assignee: Annotated[
        str, describe("login name of an operator; `*` is the one who runs the macro", max_length=200)
    ] = "",
    reply: Annotated[str, describe("reply to the person", max_length=NOTE_CHARS)] = "",
    resolve: bool = False,
    version: Annotated[int, describe("version that the caller has read; 0 creates a macro", ge=0)] = 0,
) -> Reply:
    """Create or change a macro.

    It needs at least one action. A macro that resolves cannot assign another operator.
    `{{name}}`, `{{operator}}` and `{{site}}` in the reply are filled in when it is used.
    """
    with _refusing():
        added = clean_labels(labels or ())
    if not (added or assignee or reply.strip() or resolve):
        raise HttpRefusal(400, "bad_macro", "A macro needs at least one action.")
    if resolve and assignee not in ("", RUNNER):
        raise HttpRefusal(400, "bad_macro", "A macro that resolves cannot assign another operator.")
    with _refusing():
        saved = await authed.context.stores.inbox.save_macro(
            name, labels=added, assignee=assignee, reply=reply.strip(), resolve=resolve, version=version,
            by=authed.operator.name,
        )  # fmt: skip
    await authed.record("macro.saved", name)
    return asdict(saved)


@router.on("DELETE /macros/{name}", Success, role="operator")
async def delete_macro(authed: AuthedRequest, name: MacroName) -> Reply:
    """Delete a macro."""
    await authed.context.stores.inbox.delete_macro(name)
    await authed.record("macro.deleted", name)
    return DONE


@router.on(
    "POST /sessions/{id}/macros/{name}", MacroDone, role="operator",
    missing="There is no such conversation or macro.",
)  # fmt: skip
async def run_macro(
    authed: AuthedRequest,
    session: SessionId,
    name: MacroName,
    *,
    cid: Cid,
    text: Annotated[
        str, describe("reply with its variables filled in; default: the macro's", max_length=8_000)
    ] = "",
) -> Reply:
    """Run a macro on a conversation.

    A reply takes the conversation. The same `cid` sends one reply, so a call that failed can be repeated.
    """
    service, inbox, who = _handovers(authed), authed.context.stores.inbox, authed.operator
    session_id, macro = await service.find_session(session), await inbox.find_macro(name)
    if session_id is None or macro is None:
        return None
    if not cid.isprintable():
        raise HttpRefusal(400, "bad_input", "`cid` is of characters that can be printed.")
    words = text.strip() or macro.reply
    if macro.reply and _VARIABLE.search(words):
        raise HttpRefusal(400, "unfilled", "The reply has a variable that is not filled in.")
    moved = Moved(session_id=session_id, state="bot")
    with _refusing():
        there = await inbox.find_open(session_id)
        is_sent = bool(macro.reply) and await inbox.has_reply(session_id, cid)
        if is_sent and there is None:
            return {"state": "bot"}
        begins = there is None and (macro.labels or macro.assignee)
        if not is_sent and (macro.reply or macro.assignee == RUNNER or begins):
            if not authed.context.settings.has_handover:
                raise HttpRefusal(409, "handover_off", _SWITCHED_OFF)
            moved = await service.take_over(session_id, operator_id=who.operator_id, name=who.name)
            there = await inbox.find_open(session_id)
        if macro.labels and there is not None:
            wanted = (*there[1], *macro.labels)
            moved = await _move(authed, session_id, "label", there[0], "", None, wanted)
        if macro.reply:
            await service.reply(session_id, operator_id=who.operator_id, cid=cid, text=words)
        if macro.assignee not in ("", RUNNER) and (there := await inbox.find_open(session_id)) is not None:
            moved = await _move(authed, session_id, "assign", there[0], macro.assignee, None, ())
        if macro.resolve:
            moved = await _move(authed, session_id, "resolve", 0, "", None, ())
    await authed.record("macro.run", str(session), macro=name)
    return {"state": moved.state} | ({"name": moved.name} if moved.name else {})


@router.on("POST /sessions/{id}/private-notes", PrivateNote, role="operator", missing=_NO_SESSION)
async def add_private_note(authed: AuthedRequest, session: SessionId, *, cid: Cid, text: Words) -> Reply:
    """Add a private note for operators.

    The same `cid` returns the same note.
    """
    note = await authed.context.stores.inbox.add_note(
        session, operator_id=authed.operator.operator_id, cid=cid, body=text
    )
    if note is None:
        return None
    await authed.record("private_note.saved", str(session))
    return {"id": note}


@router.on(
    "DELETE /sessions/{id}/private-notes/{note}", Success, role="operator",
    missing="There is no such note.",
)  # fmt: skip
async def delete_private_note(authed: AuthedRequest, session: SessionId, note: Id) -> Reply:
    """Delete a private note.

    Operators delete their own notes; admins delete any.
    """
    who = authed.operator
    gone = await authed.context.stores.inbox.delete_note(
        session, note, operator_id=who.operator_id, any_ones=who.has_role("admin")
    )
    if not gone:
        return None
    await authed.record("private_note.deleted", str(session))
    return DONE


@router.on("POST /sessions/{id}/typing", Success, role="operator", missing=_NO_SESSION)
async def say_typing(authed: AuthedRequest, session: SessionId) -> Reply:
    """Show the person a typing indicator.

    Lasts a few seconds. The operator must have taken the conversation.
    """
    service = _handovers(authed)
    if (session_id := await service.find_session(session)) is None:
        return None
    with _refusing():
        await service.say_typing(session_id, operator_id=authed.operator.operator_id)
    return DONE


def _handovers(authed: AuthedRequest) -> HandoverService:
    if authed.context.handovers is None:
        raise HttpRefusal(503, "not_available", "Conversations cannot be taken from here just now.")
    return authed.context.handovers


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors into HTTP refusals; a conversation taken by another operator names the operator."""
    try:
        yield
    except StorageUnavailable:
        raise
    except EvertalkError as error:
        status = 400 if isinstance(error, BadInput) else 409
        details = {"operator": error.name} if isinstance(error, TakenByOther) else {}
        headers = {"Retry-After": str(RETRY_SECONDS)} if isinstance(error, AnswerRuns) else {}
        raise HttpRefusal(status, error.code, error.advice, headers=headers, **details) from error
