"""One session: what fills its window now, what the model saw, and what a summary would do or did.

Operators also summarise, flush and export it here. The list of sessions, their messages and their summaries
are in `api`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.session_queries import SessionInsights
from shared.core.compaction.summary_diff import DiffLine, ItemChange, compare, says
from shared.core.overflow.request_trace import Piece
from shared.core.privacy.export import EXPORTS, MIME
from shared.core.session.ledger import ledger_from_json
from shared.core.session.turns import ContextMeasured
from shared.core.values.messages import block_from_json, text_of
from shared.services.admin.context_inspector import (
    CompactionEstimate,
    ContextInspector,
    ContextSnapshot,
    ReplayedCall,
)
from shared.services.privacy.export import DataExporter
from web.dashboard.access import HEADERS, AuthedRequest, raise_conflicts
from web.dashboard.api import ContextParts, SessionId, SummaryId, run_command
from web.ports import CommandRunner
from web.protocol.answers import ABSENT, Absent
from web.rest.arguments import Json, Shape
from web.rest.files import Format, send_file
from web.rest.kinds import Digits, Success, choice, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter(refusals=(404, 409, 503))
BODY_BYTES = 16 * 1024
"""Maximum bytes of a body."""
_TAKES_LONG = (404, 409, 413, 503)
GONE = {
    "erased": "Parts of this request were erased, so it cannot be shown any more.",
    "refused": "The turn was refused before anything was sent.",
    "none": "No call of the model is on record for this turn.",
}
"""Reason for people why a request cannot be shown, by `ReplayedCall.gone`."""
DIFFERS = {
    "fitted": "A later call of this turn was shortened; this earlier one is shown as it would fit now.",
    "tools": "The turn's last call had no tools; the tools of this earlier call are not recorded.",
    "pictures": "Pictures were sent as files; their descriptions are shown here.",
}
"""Sentence for people on how a shown request differs from the one that was sent, by `ReplayedCall.differs`.
"""


class FlushNow(TypedDict):
    """Body without fields."""


TimelinePoint = TypedDict("TimelinePoint", {
    "turn": int, "at": datetime, "context": int | None, "reported": int | None, "budget": int, "hard": int,
    "parts": ContextParts | None, "calls": int, "summary": bool, "prune": bool, "overflow": bool,
})  # fmt: skip
TimelineSummary = TypedDict("TimelineSummary", {
    "id": UUID, "kind": str, "at": datetime, "before": int | None, "after": int | None, "undone": bool,
    "through_turn": int, "turn": int,
})  # fmt: skip
TimelineFlush = TypedDict("TimelineFlush", {
    "id": UUID, "at": datetime, "outcome": str, "notes": int, "turn": int,
})  # fmt: skip
Timeline = TypedDict("Timeline", {
    "turns": int, "sampled": bool, "limit": int | None, "summaries": int, "points": list[TimelinePoint],
    "compactions": list[TimelineSummary], "flushes": list[TimelineFlush],
})  # fmt: skip
PolicyNumbers = Annotated[
    dict[str, Any], describe("values of the context policy, by name; docs/context.md describes them")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverriddenSetting:
    """Setting whose value in force differs from the preset's."""

    name: str
    preset: Annotated[Any, describe("value of the preset")]
    effective: Annotated[Any, describe("value in force")]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSummary:
    """Estimate of the next automatic summary, or the reason for none."""

    turns: Annotated[int, describe("estimated messages until then; 0 if it is due")]
    soon: bool
    withheld: Annotated[
        str, describe("`off`, `manual`, `held`, `thrashing`, `nothing`, `hook`; empty if it comes")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNow:
    """Context of a session's next request, with its limits, in tokens."""

    used: int | None
    reserved: int
    limit: int
    pct: float | None
    status: str | None
    parts: ContextParts | None
    free: int | None
    beyond: int
    answer: int
    reserve: int
    next: Annotated[NextSummary | None, describe("the next automatic summary; null before the first turn")]
    window: int
    hard: int
    flush_at: int
    compact_at: int | None
    fixed: int
    unsent: int
    memory: str
    model: str
    model_window: int | None
    preset: str
    numbers: PolicyNumbers
    overrides: list[OverriddenSetting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Request of an earlier model call, built again from stored data."""

    turn: int
    call: int
    calls: int
    newest: int | None
    gone: Annotated[str | None, Field(description="reason why the request is not available")]
    same: bool
    differs: Annotated[str | None, describe("difference from what was sent")]
    model: str | None
    pieces: tuple[Piece, ...]
    body: Annotated[dict[str, Any], Field(description="request body that the provider received")] | Absent = (
        ABSENT
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsaidItem:
    """Item of a summary's ledger, such as a fact or a promise, that still holds but is not in the summary's
    text.
    """

    id: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPin:
    """Pinned message, and whether the summary mentions it."""

    seq: int
    turn: int
    text: str
    said: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryNote:
    """Note, and whether the summary mentions it."""

    text: str
    said: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryComparison:
    """Difference between a summary and the one before."""

    id: UUID
    former: UUID | None
    lines: tuple[DiffLine, ...]
    items: tuple[ItemChange, ...]
    kept: int
    unsaid: list[UnsaidItem]
    pins: list[SummaryPin]
    notes: list[SummaryNote]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHandlers:
    """Handlers of one conversation: its context, its calls, its summaries."""

    session_insights: SessionInsights
    exporter: DataExporter
    commands: CommandRunner | None
    context_inspector: ContextInspector | None

    @router.on("GET /sessions/{id}/timeline", Timeline, role="viewer")
    async def timeline(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        max_points: Annotated[int, Digits(1, 2000), describe("maximum number of points")] = 500,
        from_turn: Annotated[int, Digits(1, 2**53), describe("number of the first turn")] = 1,
    ) -> Reply:
        """List the fill of the context by turn."""
        return await self.session_insights.load_timeline(session, max_points=max_points, from_turn=from_turn)

    @router.on("GET /sessions/{id}/now", role="viewer")
    async def window_now(self, authed: AuthedRequest, session: SessionId) -> WindowNow | None:
        """Get the current context and its limits."""
        session_id = await self.session_insights.find_session_id(session)
        if session_id is None:
            return None
        with raise_conflicts():
            return _now(await self._inspecting().load_snapshot(session_id))

    @router.on("GET /sessions/{id}/replay", role="viewer")
    async def replay(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        turn: Annotated[int | None, Digits(1), describe("number of the turn; the newest by default")] = None,
        call: Annotated[
            int | None, Digits(1), describe("number of the call within the turn; the last by default")
        ] = None,
        sent: Annotated[str, choice("`1` adds the request as it was sent", "1")] = "",
    ) -> Replay | None:
        """Get the request of a model call."""
        session_id = await self.session_insights.find_session_id(session)
        if session_id is None:
            return None
        inspecting = self._inspecting()
        newest = await self.session_insights.find_newest_turn(session_id)
        turn = turn or newest or 0
        found = await inspecting.replay_call(session_id, turn, call) if turn else None
        body: dict[str, Any] | Absent = ABSENT
        if found is not None and found.request is not None and sent == "1":
            body = dict(await inspecting.build_body(found.request))
        await authed.record("read.replay", str(session), turn=turn)
        found = found or ReplayedCall(turn=turn, call=0, calls=0, gone="none", same=False)
        return _replay(found, newest=newest, body=body)

    @router.on("GET /sessions/{id}/export", role="viewer", media=EXPORTS)
    async def export_session(
        self, authed: AuthedRequest, session: SessionId, *, kind: Format = "json"
    ) -> Reply:
        """Export a conversation and its notes as a file."""
        session_id = await self.session_insights.find_session_id(session)
        if session_id is None:
            return None
        await authed.record("read.export", str(session), format=kind)
        exporting = self.exporter
        return await send_file(
            authed.request,
            exporting.stream(session_id, kind, alone=True),
            name=exporting.build_file_name(kind, of=str(session)[:8]),
            kind=MIME[kind],
            headers=HEADERS,
        )

    @router.on("GET /sessions/{id}/estimate", CompactionEstimate, role="operator")
    async def estimate(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        do: Annotated[Literal["compact", "flush"], describe("summary or flush")] = "compact",
        force: Annotated[str, choice("`1` estimates a forced summary, also without a gain", "1")] = "",
    ) -> Reply:
        """Estimate a summary or a flush.

        Returns tokens read, tokens saved and cost. No model is called.
        """
        session_id, inspecting = await self.session_insights.find_session_id(session), self._inspecting()
        if session_id is None:
            return None
        with raise_conflicts():
            if do == "flush":
                return asdict(await inspecting.estimate_flush(session_id))
            return asdict(await inspecting.estimate_compaction(session_id, force=force == "1"))

    @router.on(
        "POST /sessions/{id}/compact", role="operator", body="CompactNow", most_bytes=BODY_BYTES,
        refusals=_TAKES_LONG,
    )  # fmt: skip
    async def compact_now(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        focus: Annotated[str | None, Field(max_length=300, title="words of at most 300 characters")] = "",
        force: bool | None = False,
    ) -> Success | None:
        """Summarise older messages now.

        The answer comes when the summary is stored.
        """
        args = f"{' '.join((focus or '').split())}{' --force' if force else ''}".strip()
        return await self._run(authed, session, "compact", args)

    @router.on(
        "POST /sessions/{id}/compaction", role="operator", body="CompactionChoice",
        most_bytes=BODY_BYTES,
    )  # fmt: skip
    async def choose_compaction(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        automatic: Annotated[bool | None, describe("whether size alone brings a summary")] = None,
        limit: Annotated[
            int | None,
            Field(ge=0, le=10_000_000),
            describe("tokens, up to the hard limit; 0: the agent's own"),
        ] = None,
    ) -> Success | None:
        """Set how a conversation is summarised.

        Returns the sentence that the person would read. A number beyond the hard limit is refused with the
        largest one, and then nothing is changed. With both fields, the limit is set first, and kept if the
        other change fails; the sentence is that of the other change.
        """
        wishes = [] if automatic is None else ["on" if automatic else "off"]
        wishes += [] if limit is None else [f"at {limit or 'default'}"]
        if not wishes:
            raise HttpRefusal(400, "bad_input", "Send `automatic`, `limit` or both.")
        done: Success | None = None
        for wish in reversed(wishes):
            done = await self._run(authed, session, "compact", wish, action="session.compaction")
        return done

    @router.on(
        "POST /sessions/{id}/flush", role="operator", most_bytes=BODY_BYTES, refusals=_TAKES_LONG
    )  # fmt: skip
    async def flush_now(
        self,
        authed: AuthedRequest,
        session: SessionId,
        *,
        # The page sends an empty object; with a parameter, its form and size are checked.
        body: Annotated[Json | None, Shape(FlushNow)] = None,
    ) -> Success | None:
        """Save new facts to memory now.

        The answer comes when the flush is done.
        """
        return await self._run(authed, session, "flush")

    async def _run(
        self, authed: AuthedRequest, session: UUID, name: str, args: str = "", *, action: str = ""
    ) -> Success | None:
        session_id = await self.session_insights.find_session_id(session)
        if session_id is None:
            return None
        action = action or f"session.{name}"
        return await run_command(
            self.commands, authed, session_id, name, args, action=action, about=str(session)
        )

    @router.on("GET /compactions/{id}/diff", role="viewer")
    async def diff_summary(self, authed: AuthedRequest, summary: SummaryId) -> SummaryComparison | None:
        """Compare a summary with the preceding one."""
        found = await self.session_insights.load_diff(summary)
        if found is None:
            return None
        await authed.record_reading("diff", str(summary))
        former = found["former"] or {"summary": "", "ledger": {}, "id": None}
        ledger, text = ledger_from_json(found["ledger"]), found["summary"]
        compared = compare(ledger_from_json(former["ledger"]), former["summary"], ledger, text)
        return SummaryComparison(
            id=found["id"],
            former=former["id"],
            lines=compared.lines,
            items=compared.items,
            kept=compared.kept,
            unsaid=[UnsaidItem(id=item.id, kind=item.kind, text=item.text) for item in compared.unsaid],
            pins=[_pin(pin, text) for pin in found["pins"]],
            notes=[SummaryNote(text=note, said=says(text, note)) for note in found["notes"]],
        )

    def _inspecting(self) -> ContextInspector:
        if self.context_inspector is None:
            raise HttpRefusal(503, "not_available", "This cannot be inspected from here just now.")
        return self.context_inspector


def _pin(pin: Mapping[str, Any], summary: str) -> SummaryPin:
    words = text_of(tuple(block_from_json(block) for block in pin["blocks"]))
    return SummaryPin(seq=pin["seq"], turn=pin["turn"], text=words, said=says(summary, words))


def _next(gauge: ContextMeasured) -> NextSummary:
    return NextSummary(turns=gauge.summary_turns, soon=gauge.summary_soon, withheld=gauge.summary_withheld)


def _now(found: ContextSnapshot) -> WindowNow:
    budget, gauge = found.budget, found.gauge
    used = gauge.used if gauge else None
    limit = gauge.limit if gauge else budget.gauge_of
    return WindowNow(
        used=used,
        reserved=gauge.reserved if gauge else 0,
        limit=limit,
        pct=gauge.percent if gauge else None,
        status=gauge.status if gauge else None,
        parts=dict(gauge.parts) if gauge else None,
        free=max(0, limit - used) if used is not None else None,
        beyond=max(0, budget.window - budget.limit - budget.out),
        answer=budget.out,
        reserve=budget.reserve,
        next=_next(gauge) if gauge else None,
        window=budget.window,
        hard=budget.hard,
        flush_at=budget.flush_at,
        compact_at=budget.compact_at,
        fixed=budget.fixed,
        unsent=found.unsent,
        memory=found.memory,
        model=found.card.name,
        model_window=found.card.window if found.card.window_known else None,
        preset=found.preset,
        numbers=dict(found.policy),
        overrides=[
            OverriddenSetting(name=one.name, preset=one.preset, effective=one.effective, by=one.by)
            for one in found.overrides
        ],
    )


def _replay(found: ReplayedCall, *, newest: int | None, body: dict[str, Any] | Absent) -> Replay:
    return Replay(
        turn=found.turn,
        call=found.call,
        calls=found.calls,
        newest=newest,
        gone=GONE.get(found.gone) if found.gone else None,
        same=found.same and not found.gone,
        differs=DIFFERS.get(found.differs),
        model=found.model or None,
        pieces=found.pieces,
        body=body,
    )
