"""Overview, the list of conversations, and one conversation's messages and summaries, with undo and restore.

Most answers are one query of `Insights`. `session` has a conversation's context, model calls and comparison
of summaries, and the commands that summarise, flush and export it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, Unpack
from urllib.parse import urlsplit
from uuid import UUID

from aiohttp import web
from pydantic import BeforeValidator
from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.alert_queries import AlertInsights
from shared.adapters.postgres.dashboard.read_models import Insights, SessionQuery
from shared.adapters.postgres.dashboard.read_models_sql import SORTS, STATES
from shared.adapters.postgres.people.operator_auth import SignedIn
from shared.adapters.postgres.turns.uploads import PostgresUploads
from shared.adapters.telemetry.health import redact_reason
from shared.config.settings import Settings
from shared.core.verdicts.breaker import BreakerState
from shared.services.commands.command_service import COMMAND_SECONDS
from web.dashboard.access import AuthedRequest, raise_conflicts
from web.dashboard.alerts import NewAlert, newest_open
from web.dashboard.requests import add_total
from web.ports import CommandRunner
from web.rest.kinds import (
    Before,
    Counted,
    Cursor,
    Cut,
    FileId,
    Limit,
    Search,
    Since,
    Success,
    Total,
    choice,
    describe,
)
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter()


def _place(digits: int) -> Any:
    def read(raw: Any) -> Any:
        turn, _, step = raw.partition(".")
        numbers = (turn + step).isascii() and turn.isdigit() and step.isdigit()
        if not numbers or len(turn) > 18 or len(step) > digits:
            raise ValueError("a place such as 12.3")
        return int(turn), int(step)

    return BeforeValidator(read, json_schema_input_type=str)


_AS_SAID = describe("`before` of the preceding page", json_schema_extra={"maxLength": 40})
Place = Annotated[tuple[int, int] | None, _place(9), _AS_SAID]
LongPlace = Annotated[tuple[int, int] | None, _place(18), _AS_SAID]
SessionId = Annotated[UUID, describe("public id of a conversation")]
SummaryId = Annotated[UUID, describe("public id of a summary")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """Operator who calls, and what this operator may do."""

    name: str
    display_name: str
    picture: str
    role: str
    has_password: bool
    by_provider: bool
    can_run_commands: bool
    can_take: bool
    has_handovers: bool
    can_inspect: bool


ProviderReason = TypedDict("ProviderReason", {"role": str, "reason": str})
ProviderState = TypedDict("ProviderState", {
    "host": str, "state": Literal["open", "refused", "closed"], "calls": int, "failures": int,
    "open_seconds": int, "processes": int, "out_of": int, "out_in": list[str],
    "reasons": list[ProviderReason],
})  # fmt: skip
LearnedModel = TypedDict("LearnedModel", {"host": str, "model": str, "refused": list[str]})
Ratings = TypedDict("Ratings", {"average": float | None, "count": int})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Numbers of the first page, read one after another; `at` is when waiting work and problems were read."""

    providers: list[ProviderState]
    learned: list[LearnedModel]
    active: int
    near_limit: int
    waiting: int
    jobs_dead: int
    jobs_retrying: int
    jobs_due: int
    workers: int
    charged_micro: int
    near_caps: int
    summaries_deferred: int
    handovers_waiting: int
    rating: Ratings
    oldest_waiting: datetime | None
    at: datetime
    turns_day: int
    first_token_p95_ms: float | None
    overhead_turns: int
    overhead_p95_ms: float | None
    spend_micro: int | None
    spend_unknown_calls: int
    calls: int
    cap_micro: int
    alerts: list[NewAlert]
    demo: bool


Session = TypedDict("Session", {
    "id": UUID, "title": str | None, "person": str | None, "person_id": UUID, "kind": str,
    "anonymous": bool, "agent": str, "channel": str | None, "turns": int,
    "context_tokens": int | None, "context_reserved": int | None, "context_limit": int | None,
    "context_pct": float | None,
    "input_tokens": int | None, "output_tokens": int | None, "cache_read_tokens": int | None,
    "cache_write_tokens": int | None, "cache_hit_pct": float | None,
    "cost_micro": int | None, "cost_unknown_calls": int | None, "compactions": int | None, "state": str,
    "created_at": datetime, "last_active_at": datetime,
})  # fmt: skip
ContextParts = Annotated[
    dict[str, int], describe("tokens by source: system, memory, summary, history, tools")
]
SessionHandover = TypedDict("SessionHandover", {
    "state": str, "asked_by": str, "reason": str, "operator": str, "asked_at": datetime,
    "taken_at": datetime | None, "version": int, "labels": list[str], "snoozed_until": datetime | None,
    "waits_since": datetime | None, "mine": bool,
})  # fmt: skip
NewestCall = TypedDict("NewestCall", {
    "turn": int, "parts": ContextParts | None, "model": str | None, "window": int, "hard": int,
    "budget": int, "at": datetime,
})  # fmt: skip
RunningJob = TypedDict("RunningJob", {"kind": str, "since": datetime | None})
NoteCount = TypedDict("NoteCount", {"kept": int, "newest": str | None})
FlushedNote = TypedDict("FlushedNote", {
    "id": UUID, "kind": str, "text": str, "importance": int, "authority": str, "superseded": bool,
    "forgotten": bool,
})  # fmt: skip
SessionFlush = TypedDict("SessionFlush", {
    "id": UUID, "threshold": str, "from_turn": int, "through_turn": int, "outcome": str, "note_count": int,
    "stray_text": str | None, "error": str | None, "model": str | None, "tokens": int | None,
    "cost_micro": int | None, "at": datetime, "ended_at": datetime | None, "notes": list[FlushedNote],
})  # fmt: skip
PurposeSpend = TypedDict("PurposeSpend", {
    "purpose": str, "model": str, "calls": int, "aborted": int, "input_tokens": int, "output_tokens": int,
    "cache_read_tokens": int, "cache_write_tokens": int, "cost_micro": int | None, "unknown_cost": int,
    "unknown_tokens": int,
})  # fmt: skip


class SessionWhole(Session):
    contact: UUID
    timezone: str | None
    goal: str | None
    mode: str | None
    base_turn: int
    flushed_turn: int
    held: bool
    compaction: Literal["", "off"]
    compact_at: Annotated[int | None, describe("chosen limit in tokens; null: as the agent is configured")]
    answered_turn: int
    view_epoch: int
    newest_seq: int
    handover: SessionHandover | None
    private_notes: Annotated[tuple[int, datetime | None], describe("number of notes, and the newest")]
    site: str | None
    for_owner: Annotated[str | None, describe("owner of the business account whose customer this is")]
    first_channel: list[str] | None
    undone: int
    now: Annotated[NewestCall | None, describe("the newest model call; null before the first")]
    running: RunningJob | None
    notes: NoteCount
    flushes: list[SessionFlush]
    spend: list[PurposeSpend]


Sessions = TypedDict("Sessions", {
    "sessions": list[Session], "next": str | None, "total": NotRequired[Total | None],
})  # fmt: skip

StoredBlock = Annotated[dict[str, Any], describe("text, image, tool call or tool result; `type` says which")]
LineFile = TypedDict("LineFile", {
    "number": int, "id": str, "name": str, "mime": str, "size": int, "kept": bool,
})  # fmt: skip
LineFeedback = TypedDict("LineFeedback", {"opinion": str, "words": str | None})
Line = TypedDict("Line", {
    "seq": int, "turn": int, "step": int, "author": str, "blocks": list[StoredBlock], "tokens": int | None,
    "at": datetime, "pinned": bool, "pruned": str | None, "hidden": bool, "replaced": bool, "edited": bool,
    "name": str | None, "files": list[LineFile] | None, "feedback": LineFeedback | None,
    "turn_state": str, "error_code": str | None, "stop": str | None,
})  # fmt: skip
Divider = TypedDict("Divider", {
    "id": UUID, "kind": str, "from_turn": int, "through_turn": int, "trigger": str,
    "tokens_before": int | None, "tokens_after": int | None, "at": datetime,
})  # fmt: skip
LineHandover = TypedDict("LineHandover", {
    "id": int, "asked_by": str, "reason": str, "operator": str, "asked_at": datetime,
    "taken_at": datetime | None, "ended_at": datetime | None, "ended_by": str | None, "rating": int | None,
})  # fmt: skip
LineNote = TypedDict("LineNote", {
    "id": UUID, "operator": str, "body": str, "at": datetime, "can_remove": bool,
})  # fmt: skip
Lines = TypedDict("Lines", {
    "messages": list[Line], "before": str | None, "dividers": list[Divider],
    "handovers": list[LineHandover], "private_notes": list[LineNote],
})  # fmt: skip
OriginalLines = TypedDict("OriginalLines", {
    "messages": list[Line], "before": str | None, "session": UUID,
})  # fmt: skip
Compaction = TypedDict("Compaction", {
    "id": UUID, "kind": str, "active": bool, "trigger": str, "from_turn": int, "through_turn": int,
    "summary": str | None, "tokens": int | None, "tokens_before": int | None, "tokens_after": int | None,
    "saved_pct": float | None, "model": str | None, "duration_ms": int | None, "cost_micro": int | None,
    "audit": Annotated[dict[str, Any] | None, describe("scores of the summary, by name")],
    "contract": Annotated[dict[str, Any] | None, describe("limits that the summary was made for, by name")],
    "focus": str | None, "at": datetime, "undone_at": datetime | None,
    "stale": Annotated[bool, describe("true if a message that it covers was edited since")], "can_undo": bool,
    "undo_reason": str | None, "can_restore": bool, "restore_reason": str | None,
})  # fmt: skip
JobFailure = Annotated[dict[str, Any], describe("failed attempt: number, model, step, error code and scores")]
FailedCompaction = TypedDict("FailedCompaction", {
    "id": int, "trigger": str, "attempt": int, "error": str | None, "failures": list[JobFailure],
    "state": str, "at": datetime,
})  # fmt: skip
Compactions = TypedDict("Compactions", {
    "compactions": list[Compaction], "before": str | None, "failed": list[FailedCompaction],
    "total": int | None,
})  # fmt: skip
AuditedCall = TypedDict("AuditedCall", {
    "turn": int, "at": datetime, "model": str | None, "window": int, "budget": int, "hard": int,
    "before": int | None, "after_summary": int | None, "after_prune": int | None, "reported": int | None,
    "context": int | None, "summary": bool, "prune": bool, "overflow": bool,
})  # fmt: skip
ContextAudit = TypedDict("ContextAudit", {"calls": list[AuditedCall], "before": str | None})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOffer:
    """Features of this process for operators; the role of each permits some of them."""

    runs_commands: bool
    hands_over: bool
    takes_over: bool
    """True if the settings let operators take conversations."""
    inspects: bool


Filters = TypedDict("Filters", {
    "q": Search,
    "channel": Annotated[str, Cut(50, "channel of the newest message")],
    "state": Annotated[str, choice("state of the conversation", *STATES)],
    "agent": Annotated[str, Cut(200, "name of the agent")],
    "site": Annotated[str, Cut(200, "name of the site")],
    "min_pct": Annotated[float, describe("minimum fill of the context, percent", ge=0, allow_inf_nan=False)],
    "from": Annotated[Since, describe("earliest activity, inclusive")],
    "to": Annotated[Since, describe("latest activity, exclusive")],
    "sort": Annotated[
        str,
        choice("sort column; a leading minus sorts descending", *SORTS, *(f"-{column}" for column in SORTS)),
    ],
}, total=False)  # fmt: skip
"""Filters of the list of conversations, on the page and in the CSV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewHandlers:
    """Handlers of the overview, of the list of conversations, and of one conversation's entries and
    summaries.

    `demo` is true if the built-in demo answers. `breakers` returns the circuit breakers of this process by
    provider URL; None without model calls.
    """

    offer: ProcessOffer
    settings: Settings
    demo: bool
    insights: Insights
    alert_insights: AlertInsights
    breakers: Callable[[], Mapping[str, BreakerState]] | None
    uploads: PostgresUploads
    commands: CommandRunner | None

    @router.on("GET /me", role="viewer")
    async def me(self, authed: AuthedRequest) -> Me:
        """Get the current operator."""
        return build_me(authed.operator, self.offer)

    @router.on("GET /overview", role="viewer")
    async def overview(self, authed: AuthedRequest) -> Overview:
        """Get today's costs and open problems."""
        settings = self.settings
        page = await self.insights.load_overview()
        own = self._own_breakers()
        for provider in page["providers"]:
            provider["reasons"] = [_in_full(one, own.get(provider["host"])) for one in provider["reasons"]]
        return Overview(
            **page,
            cap_micro=int(settings.cap_total_per_day_usd * 1_000_000),
            alerts=await newest_open(self.alert_insights),
            demo=self.demo,
        )

    def _own_breakers(self) -> dict[str, BreakerState]:
        """Return the states of the circuit breakers by provider host; their reasons are stored nowhere."""
        breakers = self.breakers
        found = {} if breakers is None else breakers()
        return {urlsplit(url).hostname or "provider": state for url, state in found.items()}

    @router.on("GET /sessions", Sessions, role="viewer")
    async def list_sessions(
        self,
        authed: AuthedRequest,
        *,
        cursor: Cursor = "",
        limit: Limit = 50,
        total: Counted = False,
        **filters: Unpack[Filters],
    ) -> Reply:
        """List conversations."""
        insights, query = self.insights, session_query(filters, cursor=cursor, limit=limit)
        count = insights.count_sessions(query) if total else None
        return await add_total(insights.load_sessions(query), count)

    @router.on("GET /sessions/{id}", SessionWhole, role="viewer")
    async def session(self, authed: AuthedRequest, session: SessionId) -> Reply:
        """Get a conversation with its context and costs."""
        found = await self.insights.load_session(session)
        if found is None:
            return None
        if (held := found["handover"]) is not None:
            held["mine"] = held.pop("operator_id") == authed.operator.operator_id
        return await _read(authed, "session", found, about=session)

    @router.on("GET /sessions/{id}/compactions", Compactions, role="viewer")
    async def list_compactions(
        self, authed: AuthedRequest, session: SessionId, *, before: Before = None, limit: Limit = 50
    ) -> Reply:
        """List summaries, newest first.

        Each says whether it can be undone.
        """
        found = await self.insights.load_compactions(session, before=before, limit=limit)
        return await _read(authed, "compactions", found, about=session)

    @router.on("GET /sessions/{id}/context", ContextAudit, role="viewer")
    async def context_audit(
        self, authed: AuthedRequest, session: SessionId, *, before: LongPlace = None, limit: Limit = 50
    ) -> Reply:
        """List model calls with their context."""
        return await self.insights.load_context_audit(session, before=before, limit=limit)

    @router.on("GET /sessions/{id}/messages", Lines, role="viewer")
    async def list_lines(
        self, authed: AuthedRequest, session: SessionId, *, before: Place = None, limit: Limit = 100
    ) -> Reply:
        """List all entries, by turn and step."""
        found = await self.insights.load_messages(session, before=before, limit=limit)
        who = authed.operator
        for note in found["private_notes"] if found else ():
            own = note.pop("operator_id") == who.operator_id
            note["can_remove"] = who.has_role("admin") or (own and who.has_role("operator"))
        return await _read(authed, "messages", found, about=session)

    @router.on("GET /compactions/{id}/messages", OriginalLines, role="viewer")
    async def list_original_lines(
        self, authed: AuthedRequest, summary: SummaryId, *, before: Place = None, limit: Limit = 100
    ) -> Reply:
        """List all entries that a summary replaces."""
        found = await self.insights.load_originals(summary, before=before, limit=limit)
        return await _read(authed, "originals", found, about=summary)

    @router.on("GET /attachments/{id}", role="viewer", group="files", media="*/*")
    async def attachment(self, authed: AuthedRequest, file: FileId) -> Reply:
        """Download a file of a conversation."""
        found = await self.uploads.load_for_operator(file)
        if found is None:
            return None
        await authed.record_reading("attachment", UUID(file).hex)
        return web.Response(body=found.body, headers=found.headers())

    @router.on("POST /compactions/{id}/undo", role="operator")
    async def undo_compaction(self, authed: AuthedRequest, summary: SummaryId) -> Success | None:
        """Undo a summary.

        Answers 409 with the reason if it cannot be undone.
        """
        return await self._change(authed, summary, command="undo", allowed="can_undo", reason="undo_reason")

    @router.on("POST /compactions/{id}/restore", role="operator")
    async def restore_compaction(self, authed: AuthedRequest, summary: SummaryId) -> Success | None:
        """Restore an undone summary.

        Answers 409 with the reason if it cannot be restored.
        """
        return await self._change(
            authed, summary, command="restore", allowed="can_restore", reason="restore_reason"
        )

    async def _change(
        self, authed: AuthedRequest, compaction: UUID, *, command: str, allowed: str, reason: str
    ) -> Success | None:
        """Run a command on a summary, if its page offers that; None if there is no such summary.

        The check comes first, since the command acts on the newest summary only. Raises HttpRefusal: 409 with
        the reason if the command is not possible, 503 without a command runner.
        """
        found = await self.insights.load_compaction(compaction)
        if found is None:
            return None
        session_id, verdict = found
        if self.commands is not None and not verdict.get(allowed):
            words = str(verdict.get(reason) or "This is not possible any more.")
            raise HttpRefusal(409, f"cannot_{command}", words)
        return await run_command(
            self.commands,
            authed,
            session_id,
            command,
            action=f"compaction.{command}",
            about=f"compaction:{compaction}",
        )


def build_me(who: SignedIn, offer: ProcessOffer) -> Me:
    """Return what the operator's browser knows about them, which the shell of each page holds too."""
    acts = who.has_role("operator")
    return Me(
        name=who.name,
        display_name=who.display_name,
        picture=who.picture,
        role=who.role,
        has_password=who.has_password,
        by_provider=who.by_provider,
        can_run_commands=acts and offer.runs_commands,
        can_take=acts and offer.hands_over and offer.takes_over,
        has_handovers=offer.hands_over,
        can_inspect=offer.inspects,
    )


def _in_full(one: Mapping[str, Any], state: BreakerState | None) -> Mapping[str, Any]:
    """Return the row of this process with the full error text that it has in memory."""
    if state is None or one["role"] != "web" or one["reason"] != redact_reason(state):
        return one
    return {**one, "reason": state.reason}


def session_query(filters: Filters, *, cursor: str = "", limit: int = 50) -> SessionQuery:
    """Return the query of the list of conversations for the filters of a request; sorted by newest activity
    by default.
    """
    return SessionQuery(
        search=filters.get("q", ""), channel=filters.get("channel", ""), state=filters.get("state", ""),
        agent=filters.get("agent", ""), site=filters.get("site", ""), min_pct=filters.get("min_pct"),
        since=filters.get("from"), until=filters.get("to"), sort=filters.get("sort", "-active"),
        cursor=cursor, limit=limit,
    )  # fmt: skip


async def _read(authed: AuthedRequest, what: str, found: dict[str, Any] | None, *, about: UUID) -> Reply:
    """Return what was found, after the audit log has the reading.

    `about` is the parsed id: its spelling in the address is the caller's.
    """
    if found is not None:
        await authed.record_reading(what, str(about))
    return found


async def run_command(
    commands: CommandRunner | None,
    authed: AuthedRequest,
    session_id: int,
    name: str,
    args: str = "",
    *,
    action: str,
    about: str,
) -> Success:
    """Run a command for an operator, with `action` and `about` in the audit log.

    Raises StorageUnavailable, and HttpRefusal: 409 if the command failed, 503 without a command runner or
    after `COMMAND_SECONDS`.
    """
    if commands is None:
        raise HttpRefusal(503, "not_available", "Commands cannot be run from here just now.")
    await authed.record(action, about)
    limit = asyncio.timeout(COMMAND_SECONDS)
    try:
        with raise_conflicts():
            async with limit:
                outcome = await commands.run(
                    session_id=session_id, address_id=None, name=name, args=args, cid=None, progress=None
                )
    except TimeoutError:
        if not limit.expired():
            raise
        raise HttpRefusal(503, "timeout", "That took too long. Please try again.") from None
    if not outcome.success:
        raise HttpRefusal(409, f"cannot_{name}", str(outcome.error or "It was not possible."))
    return Success(success=True, result=str(outcome.result or ""))
