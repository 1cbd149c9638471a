"""Hand-over for operators: who waits, take a conversation or give it back, and write in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal, cast
from urllib.parse import unquote
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.handover.inbox import CannedReply, PostgresInbox
from shared.config.settings import Settings
from shared.core.identity.handover import (
    CANNED_NAME,
    NOTE_CHARS,
    AnswerRuns,
    ListedHandover,
    TakenByOther,
    clean_labels,
)
from shared.core.identity.macros import Macro, check_macro
from shared.core.values.errors import BadInput, EvertalkError, StorageUnavailable
from shared.core.values.files import Attached, clean_name
from shared.core.values.messages import Block
from shared.services.tools.handover import CID_CHARS, HandoverService
from shared.services.tools.handover_actions import (
    MOST_CHOSEN,
    ActingOperator,
    Action,
    HandoverActions,
    HandoverMove,
)
from web.dashboard.access import AuthedRequest
from web.dashboard.api import SessionId
from web.ports import FileUploads
from web.protocol.answers import ABSENT, Absent
from web.rest.files import MOST_AT_ONCE, Attachment, FileName
from web.rest.kinds import DONE, AcceptedMessage, FileId, Id, Moment, Success, describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal
from web.server.client_limiter import ClientLimiter

router = OperationRouter()
RETRY_SECONDS = 2
"""Seconds in `Retry-After` if a conversation cannot be taken because an answer is being written."""
FILE_CHARS = 4_000
"""Maximum characters of an operator's files together that the assistant reads after the hand-over."""
_NO_SESSION = "There is no such conversation."

Which = Annotated[
    Literal["waiting", "human", "resolved"] | None,
    describe("state of the hand-over; all open ones by default, `resolved` for recently closed ones"),
]
Cid = Annotated[
    str,
    Field(min_length=1, max_length=CID_CHARS, title=f"an id of your own of at most {CID_CHARS} characters"),
]
Words = Annotated[str, Field(min_length=1, max_length=NOTE_CHARS, pattern=r"\S")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverChoices:
    """Choices for actions on conversations: assignees, labels, canned replies and macros."""

    assignees: tuple[str, ...]
    labels: tuple[str, ...]
    canned: tuple[CannedReply, ...]
    macros: tuple[Macro, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateNote:
    """Note for operators, which the person does not see."""

    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """Facts about a visitor, as their page and site report them."""

    page: str
    browser: str
    language: str
    timezone: str
    email: str
    attributes: Annotated[dict[str, str], describe("attributes that the site has signed for this person")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handovers:
    enabled: bool
    handovers: Sequence[ListedHandover]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverMoved:
    """State of a hand-over after an action."""

    state: Literal["bot", "waiting", "human"]
    changed: bool
    name: Annotated[str, Field(description="name of the assigned operator")] | Absent = ABSENT


ChosenConversation = TypedDict("ChosenConversation", {
    "session": Annotated[UUID, describe("id of the conversation", strict=False)],
    "version": Annotated[int, describe("version of the handover that the caller has read", ge=0)],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedConversation:
    """Outcome of resolve, assign, snooze or label for one of several conversations.

    `error` and `reason` are present only if it was refused. `changed` False without `error` means that the
    conversation was in that state already; `snooze` and `label` count as a change each time.
    """

    session: UUID
    changed: bool
    error: Annotated[str, Field(description="code of the refusal")] | Absent = ABSENT
    reason: Annotated[str, Field(description="reason of the refusal")] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoversMoved:
    conversations: list[MovedConversation]


MacroEnd = Literal["done", "already_resolved", "refused"]
"""Outcome of a macro on one conversation; a move alone can leave it `unchanged`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroOutcome:
    """Outcome of a macro for one of several conversations."""

    session: UUID
    outcome: Annotated[
        MacroEnd,
        Field(description="a conversation that was no longer open is `already_resolved` and unchanged"),
    ]
    error: Annotated[str, Field(description="code of the refusal")] | Absent = ABSENT
    reason: Annotated[str, Field(description="reason of the refusal")] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroRuns:
    conversations: list[MacroOutcome]


MacroName = Annotated[str, Field(pattern=rf"^{CANNED_NAME.pattern}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroDone:
    """State of a conversation after a macro."""

    state: Literal["bot", "waiting", "human"]
    name: Annotated[str, Field(description="name of the assigned operator")] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverHandlers:
    """Handlers of hand-overs: who answers a conversation, and with which replies."""

    settings: Settings
    files: FileUploads | None
    limiter: ClientLimiter | None
    inbox: PostgresInbox
    handovers: HandoverService | None
    actions: HandoverActions | None

    @router.on("GET /handovers", role="viewer")
    async def list_handovers(self, authed: AuthedRequest, *, state: Which = None) -> Handovers:
        """List hand-overs, longest waiting first."""
        found = await self._handovers().list_handovers(state)
        await authed.record_reading("handovers")
        return Handovers(enabled=self.settings.has_handover, handovers=found)

    @router.on("POST /sessions/{id}/handover", role="operator", body="HandoverMove", missing=_NO_SESSION)
    async def move_handover(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        action: Action,
        version: Annotated[
            int,
            describe(
                "version of the handover that the caller has read; required for `assign`, `snooze` and "
                "`label`",
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
    ) -> HandoverMoved | None:
        """Take, assign, snooze, label, resolve or return a conversation.

        Repeating the call has no effect. An admin may also return, resolve and snooze the conversation of
        another operator.
        """
        if (session_id := await self._handovers().find_session(session)) is None:
            return None
        move = HandoverMove(action=action, operator=operator, until=until, labels=tuple(labels or ()))
        with _refusing():
            moved = await self._actions().move(session_id, move, version=version, by=self._acting(authed))
        return HandoverMoved(state=moved.state, changed=moved.event_seq > 0, name=moved.name or ABSENT)

    @router.on("POST /handovers/moves", role="operator", body="HandoverMoves")
    async def move_handovers(
        self,
        authed: AuthedRequest,
        *,
        action: Literal["resolve", "assign", "snooze", "label"],
        conversations: Annotated[
            list[ChosenConversation],
            describe("conversations to change", min_length=1, max_length=MOST_CHOSEN),
        ],
        operator: Annotated[
            str, describe("login name of the operator who receives the conversations", max_length=200)
        ] = "",
        until: Annotated[Moment, describe("end of the snooze; null ends it now")] = None,
        labels: Annotated[
            list[str] | None, describe("labels to add; present ones stay", max_length=50)
        ] = None,
    ) -> HandoversMoved:
        """Change several conversations.

        Each conversation has its own transaction. `error` is the code of a refusal, which does not affect the
        others.
        """
        move = HandoverMove(action=action, operator=operator, until=until, labels=tuple(labels or ()))
        versions = {one["session"]: one["version"] for one in conversations}
        results = await self._actions().move_several(versions, move, by=self._acting(authed))
        return HandoversMoved(
            conversations=[
                MovedConversation(
                    session=one.session,
                    changed=one.outcome == "done",
                    error=one.error or ABSENT,
                    reason=one.reason if one.error else ABSENT,
                )
                for one in results
            ]
        )

    @router.on("POST /sessions/{id}/replies", role="operator", missing=_NO_SESSION)
    async def reply(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        cid: Cid,
        text: Annotated[str, Field(json_schema_extra={"maxLength": 8_000})],
        files: Annotated[
            list[FileId] | None,
            describe("ids of files uploaded for this conversation", max_length=MOST_AT_ONCE),
        ] = None,
    ) -> AcceptedMessage | None:
        """Reply to the person as an operator.

        The operator must have taken the conversation. The text is optional if there are files.

        The reply is stored when the operation returns. The same `cid` returns the same message.
        """
        _check_printable(cid)
        service = self._handovers()
        if (session_id := await service.find_session(session)) is None:
            return None
        with _refusing():
            more, attached = await self._files(session_id, files or (), cid)
            stored = await service.reply(
                session_id, operator_id=authed.operator.operator_id, cid=cid, text=text, more=more,
                attached=attached,
            )  # fmt: skip
        return AcceptedMessage(
            mid=stored.mid, turn=stored.turn, event_seq=stored.event_seq, dup=stored.repeated or ABSENT
        )

    @router.on(
        "POST /sessions/{id}/uploads", role="operator", takes="application/octet-stream",
        refusals=(404, 409, 413, 422, 429), missing=_NO_SESSION,
    )  # fmt: skip
    async def upload_for_person(
        self, authed: AuthedRequest, session: SessionId, *, file_name: FileName = ""
    ) -> Attachment | None:
        """Upload a file for a reply.

        The operator must have taken the conversation.
        """
        service, files, limiter = self._handovers(), self.files, self.limiter
        if files is None or limiter is None:
            raise _not_available()
        if (session_id := await service.find_session(session)) is None:
            return None
        with _refusing():
            await service.check_taken(session_id, operator_id=authed.operator.operator_id)
        name = clean_name(unquote(file_name, errors="replace"))
        request, limits = authed.request, limiter.limits_for(authed.request)
        kept = await files.receive(request, session_id, name, limits, authed.address)
        return Attachment(**kept.to_payload())

    async def _files(
        self, session_id: int, files: Sequence[str], cid: str
    ) -> tuple[tuple[Block, ...], tuple[Attached, ...]]:
        if not files:
            return (), ()
        if self.files is None:
            raise _not_available()
        _, more, attached = await self.files.load_for_message(
            session_id, files, dedupe_key=f"operator:{cid}", most_chars=FILE_CHARS
        )
        return more, attached

    @router.on("GET /handover-choices", role="viewer")
    async def list_choices(self, authed: AuthedRequest) -> HandoverChoices:
        """List operators, labels, canned replies and macros."""
        inbox = self.inbox
        return HandoverChoices(
            assignees=await inbox.find_assignees(),
            labels=await inbox.list_labels(),
            canned=await inbox.list_canned(),
            macros=await inbox.list_macros(),
        )

    @router.on("GET /sessions/{id}/contact", role="viewer", missing=_NO_SESSION)
    async def show_contact(self, authed: AuthedRequest, session: SessionId) -> Contact | None:
        """Get what page and site report about the visitor."""
        found = await self.inbox.find_contact(session)
        if found is None:
            return None
        await authed.record_reading("contact", str(session))
        return Contact(
            page=found.get("page") or "",
            browser=found.get("browser") or "",
            language=found.get("language") or "",
            timezone=found.get("timezone") or "",
            email=found.get("email") or "",
            attributes=found.get("attributes") or {},
        )

    @router.on("PUT /canned-replies/{name}", role="operator")
    async def save_canned(
        self,
        authed: AuthedRequest,
        name: Annotated[str, Field(pattern=rf"^{CANNED_NAME.pattern}$")],
        *,
        body: Words,
        version: Annotated[
            int, describe("version that the caller has read; 0 creates a new reply", ge=0)
        ] = 0,
    ) -> CannedReply:
        """Create or change a canned reply.

        `{{name}}`, `{{operator}}` and `{{site}}` are filled in when it is used.
        """
        with _refusing():
            saved = await self.inbox.save_canned(name, body, version=version, by=authed.operator.name)
        await authed.record("canned_reply.saved", name)
        return saved

    @router.on("DELETE /canned-replies/{name}", role="operator")
    async def delete_canned(self, authed: AuthedRequest, name: str) -> Success:
        """Delete a canned reply."""
        await self.inbox.delete_canned(name)
        await authed.record("canned_reply.deleted", name)
        return DONE

    @router.on("PUT /macros/{name}", role="operator", body="MacroChange")
    async def save_macro(
        self,
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
    ) -> Macro:
        """Create or change a macro.

        It needs at least one action. A macro that resolves cannot assign another operator.
        `{{name}}`, `{{operator}}` and `{{site}}` in the reply are filled in when it is used.
        """
        with _refusing():
            added = clean_labels(labels or ())
            check_macro(labels=added, assignee=assignee, reply=reply.strip(), resolve=resolve)
            saved = await self.inbox.save_macro(
                name, labels=added, assignee=assignee, reply=reply.strip(), resolve=resolve, version=version,
                by=authed.operator.name,
            )  # fmt: skip
        await authed.record("macro.saved", name)
        return saved

    @router.on("DELETE /macros/{name}", role="operator")
    async def delete_macro(self, authed: AuthedRequest, name: MacroName) -> Success:
        """Delete a macro."""
        await self.inbox.delete_macro(name)
        await authed.record("macro.deleted", name)
        return DONE

    @router.on(
        "POST /sessions/{id}/macros/{name}", role="operator",
        missing="There is no such conversation or macro.",
    )  # fmt: skip
    async def run_macro(
        self,
        authed: AuthedRequest,
        session: SessionId,
        name: MacroName,
        *,
        cid: Cid,
        text: Annotated[
            str, describe("reply with its variables filled in; default: the macro's", max_length=8_000)
        ] = "",
    ) -> MacroDone | None:
        """Run a macro on a conversation.

        A reply takes the conversation. The same `cid` sends one reply, so a call that failed can be repeated.
        """
        _check_printable(cid)
        with _refusing():
            moved = await self._actions().run_macro(
                session, name, cid=cid, text=text.strip(), by=self._acting(authed)
            )
        return None if moved is None else MacroDone(state=moved.state, name=moved.name or ABSENT)

    @router.on(
        "POST /macros/{name}/runs", role="operator", body="MacroRun", missing="There is no such macro."
    )
    async def run_macro_on_several(
        self,
        authed: AuthedRequest,
        name: MacroName,
        *,
        cid: Cid,
        sessions: Annotated[
            list[Annotated[UUID, Field(strict=False)]],
            describe("ids of conversations", min_length=1, max_length=MOST_CHOSEN),
        ],
    ) -> MacroRuns | None:
        """Run a macro on several conversations.

        `{{name}}`, `{{operator}}` and `{{site}}` in the reply are filled in for each conversation. A refusal
        does not affect the others. The same `cid` sends one reply per conversation, so the call can be
        repeated.
        """
        _check_printable(cid)
        results = await self._actions().run_macro_on_several(sessions, name, cid=cid, by=self._acting(authed))
        if results is None:
            return None
        return MacroRuns(
            conversations=[
                MacroOutcome(
                    session=one.session,
                    outcome=cast("MacroEnd", one.outcome),
                    error=one.error or ABSENT,
                    reason=one.reason if one.error else ABSENT,
                )
                for one in results
            ]
        )

    @router.on("POST /sessions/{id}/private-notes", role="operator", missing=_NO_SESSION)
    async def add_private_note(
        self, authed: AuthedRequest, session: SessionId, *, cid: Cid, text: Words
    ) -> PrivateNote | None:
        """Add a private note for operators.

        The same `cid` returns the same note.
        """
        note = await self.inbox.add_note(session, operator_id=authed.operator.operator_id, cid=cid, body=text)
        if note is None:
            return None
        await authed.record("private_note.saved", str(session))
        return PrivateNote(id=note)

    @router.on(
        "DELETE /sessions/{id}/private-notes/{note}", role="operator",
        missing="There is no such note.",
    )  # fmt: skip
    async def delete_private_note(
        self, authed: AuthedRequest, session: SessionId, note: Id
    ) -> Success | None:
        """Delete a private note.

        Operators delete their own notes; admins delete any.
        """
        who = authed.operator
        gone = await self.inbox.delete_note(
            session, note, operator_id=who.operator_id, any_ones=who.has_role("admin")
        )
        if not gone:
            return None
        await authed.record("private_note.deleted", str(session))
        return DONE

    @router.on("POST /sessions/{id}/typing", role="operator", missing=_NO_SESSION)
    async def say_typing(self, authed: AuthedRequest, session: SessionId) -> Success | None:
        """Show the person a typing indicator.

        Lasts a few seconds. The operator must have taken the conversation.
        """
        service = self._handovers()
        if (session_id := await service.find_session(session)) is None:
            return None
        with _refusing():
            await service.say_typing(session_id, operator_id=authed.operator.operator_id)
        return DONE

    def _handovers(self) -> HandoverService:
        if self.handovers is None:
            raise _not_available()
        return self.handovers

    def _actions(self) -> HandoverActions:
        if self.actions is None:
            raise _not_available()
        return self.actions

    def _acting(self, authed: AuthedRequest) -> ActingOperator:
        who = authed.operator
        return ActingOperator(
            operator_id=who.operator_id,
            login=who.name,
            shown_name=who.display_name,
            is_admin=who.has_role("admin"),
            may_take=self.settings.has_handover,
        )


def _not_available() -> HttpRefusal:
    return HttpRefusal(503, "not_available", "Conversations cannot be taken from here just now.")


def _check_printable(cid: str) -> None:
    if not cid.isprintable():
        raise HttpRefusal(400, "bad_input", "`cid` consists of printable characters.")


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
