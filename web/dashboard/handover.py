"""Hand-over for operators: who waits, take a conversation or give it back, and write in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from shared.core.identity.handover import AnswerRuns, Listed, TakenByOther
from shared.core.values.errors import BadInput, EvertalkError, StorageUnavailable
from shared.services.tools.handover import CID_CHARS, HandoverService
from web.dashboard.access import AuthedRequest
from web.dashboard.api import SessionId
from web.rest.kinds import DONE, Accepted, Success, told
from web.rest.operation import Reply, Room
from web.security import HttpRefusal

room = Room()
RETRY_SECONDS = 2
_NO_SESSION = "There is no such conversation."

Which = Annotated[Literal["waiting", "human"] | None, told("one of the two")]
Handovers = TypedDict("Handovers", {"enabled": bool, "handovers": list[Listed]})
HandoverMoved = TypedDict("HandoverMoved", {
    "state": Literal["bot", "waiting", "human"], "changed": bool,
    "name": NotRequired[Annotated[str, Field(description="who has it")]],
})  # fmt: skip


@room.on("GET /handovers", Handovers, role="viewer")
async def list_handovers(visit: AuthedRequest, *, state: Which = None) -> Reply:
    """Conversations that a human was asked for, or has; the longest first."""
    found = await _desk(visit).list_handovers(state)
    await visit.record_reading("handovers")
    return {"enabled": visit.desk.settings.has_handover, "handovers": found}


@room.on(
    "POST /sessions/{id}/handover", HandoverMoved, role="operator", body="HandoverMove", missing=_NO_SESSION
)  # fmt: skip
async def move_handover(
    visit: AuthedRequest, session: SessionId, *, action: Literal["take", "return"]
) -> Reply:
    """Take a conversation, or give it back to the assistant.

    What is so already stays so. An admin may return what another operator has.
    """
    desk, who = _desk(visit), visit.operator
    if (session_id := await desk.find_session(session)) is None:
        return None
    if action == "take" and not visit.desk.settings.has_handover:
        words = "Hand-over is switched off: EVERTALK_HANDOVER=on allows it."
        raise HttpRefusal(409, "handover_off", words)
    with _refusing():
        if action == "take":
            moved = await desk.take_over(session_id, operator_id=who.operator_id, name=who.name)
        else:
            moved = await desk.release(session_id, operator_id=who.operator_id, any_ones=who.may("admin"))
    told: dict[str, Any] = {"state": moved.state, "changed": moved.event_seq > 0}
    return {**told, "name": moved.name} if moved.name else told


@room.on("POST /sessions/{id}/replies", Accepted, role="operator", missing=_NO_SESSION)
async def reply(
    visit: AuthedRequest,
    session: SessionId,
    *,
    cid: Annotated[
        str,
        Field(
            min_length=1, max_length=CID_CHARS, title=f"an id of your own of at most {CID_CHARS} characters"
        ),
    ],
    text: Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 8_000, "pattern": r"\S"})],
) -> Reply:
    """Write to the person, in a conversation that was taken.

    Stored when this answers, and on its way; the same `cid` again is the same message.
    """
    if not cid.isprintable():
        raise HttpRefusal(400, "bad_input", "`cid` is of characters that can be printed.")
    desk = _desk(visit)
    if (session_id := await desk.find_session(session)) is None:
        return None
    with _refusing():
        stored = await desk.reply(session_id, operator_id=visit.operator.operator_id, cid=cid, text=text)
    told = {"mid": stored.mid, "turn": stored.turn, "event_seq": stored.event_seq}
    return {**told, "dup": True} if stored.repeated else told


@room.on("POST /sessions/{id}/typing", Success, role="operator", missing=_NO_SESSION)
async def say_typing(visit: AuthedRequest, session: SessionId) -> Reply:
    """Show the person for some seconds that a reply is being written, in a conversation that was taken."""
    desk = _desk(visit)
    if (session_id := await desk.find_session(session)) is None:
        return None
    with _refusing():
        await desk.say_typing(session_id, operator_id=visit.operator.operator_id)
    return DONE


def _desk(visit: AuthedRequest) -> HandoverService:
    if visit.desk.handovers is None:
        raise HttpRefusal(503, "not_available", "Conversations cannot be taken from here just now.")
    return visit.desk.handovers


@contextmanager
def _refusing() -> Iterator[None]:
    """With who has it, where somebody else does."""
    try:
        yield
    except StorageUnavailable:
        raise
    except EvertalkError as error:
        status = 400 if isinstance(error, BadInput) else 409
        details = {"operator": error.name} if isinstance(error, TakenByOther) else {}
        headers = {"Retry-After": str(RETRY_SECONDS)} if isinstance(error, AnswerRuns) else {}
        raise HttpRefusal(status, error.code, error.advice, headers=headers, **details) from error
