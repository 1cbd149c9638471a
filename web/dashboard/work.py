"""Jobs and deliveries for operators: what waits, what failed, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NotRequired
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from shared.adapters.postgres.dashboard.job_queries import DeliveryQuery, JobInsights, check_match
from shared.core.ops.job_views import (
    DOUBTS,
    JOB_KINDS,
    JOB_STATES,
    DeliveryVerb,
    JobMatch,
    JobVerb,
    PartKey,
)
from shared.core.ops.job_views import WorkChanged as Done
from shared.services.admin.job_admin import JobAdmin
from web.dashboard.access import AuthedRequest
from web.dashboard.api import JobFailure
from web.dashboard.requests import Seen, add_total, build_stale_refusal, parse_version
from web.rest.kinds import Before, Counted, Cursor, Id, Limit, Total, choice, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter(refusals=(503,))
NAMED_AT_MOST = 500
"""Maximum jobs or deliveries of one request."""
_SHOWN_AT_MOST = 50


def _number(given: Any) -> int:
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 19:
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**62:
        return given
    raise ValueError("a number of ours")


def _conversation(given: Any) -> str:
    try:
        return "" if given == "" else str(UUID(given))
    except (TypeError, ValueError, AttributeError):
        raise ValueError("the id of a conversation") from None


Conversation = Annotated[UUID | None, describe("public id of a conversation")]
JobId = Annotated[int, BeforeValidator(_number), Field(json_schema_extra={"minimum": 1, "maximum": 2**53})]
JobIds = Annotated[list[JobId] | None, Field(min_length=1, max_length=NAMED_AT_MOST)]
Newest = Annotated[int, BeforeValidator(_number, json_schema_input_type=str)] | None


@with_config(ConfigDict(extra="forbid"))
class Match(TypedDict, total=False):
    """Filter of jobs. Unknown fields are refused."""

    state: str
    kind: str
    session: Annotated[str, BeforeValidator(_conversation)]


Part = TypedDict("Part", {
    "session": Id, "turn": Annotated[int, BeforeValidator(_number)],
    "part": Annotated[int, BeforeValidator(_number)],
})  # fmt: skip


Parts = Annotated[list[Part], Field(min_length=1, max_length=NAMED_AT_MOST)]

JobKind = TypedDict("JobKind", {
    "kind": str, "paused": bool, "concurrency": int | None, "version": str, "running": int, "due": int,
    "changed_by": str | None, "changed_at": datetime | None,
})  # fmt: skip
Duty = TypedDict("Duty", {
    "name": str, "seconds": int, "state": str, "worker": int | None, "started_at": datetime | None,
    "succeeded_at": datetime | None, "due_at": datetime, "duration_ms": int | None, "runs": int,
    "failed_runs": int, "failures": int, "error": str | None,
})  # fmt: skip
Changeable = TypedDict("Changeable", {
    "jobs": int, "more": Annotated[bool, describe("true if there are more than were looked at")],
})  # fmt: skip
JobStates = TypedDict("JobStates", {"due": int, "running": int, "done": int, "dead": int})
Job = TypedDict("Job", {
    "id": int, "kind": str, "state": str, "session": UUID, "session_kind": str, "anonymous": bool,
    "person_id": UUID, "person": str | None, "trigger": str, "attempt": int, "faults": int,
    "error": str | None, "cancelled": bool, "failures": list[JobFailure], "due_at": datetime,
    "created_at": datetime, "started_at": datetime | None, "ended_at": datetime | None,
    "reason": Annotated[str | None, describe("why it made no summary, or waits; null for other ends")],
    "duration_ms": float | None, "can_retry": bool, "can_cancel": bool,
})  # fmt: skip
Process = TypedDict("Process", {
    "id": int, "role": str, "pid": int, "beat": datetime, "started_at": datetime,
    "stopped_at": datetime | None, "alive": bool, "job": int | None,
})  # fmt: skip
ConnectedBot = TypedDict("ConnectedBot", {
    "id": int, "username": str, "mode": str, "access": str, "problem": str | None,
    "heard_at": datetime | None, "served_by": int | None, "waiting": int,
})  # fmt: skip
ImportProgress = TypedDict("ImportProgress", {
    "session": UUID, "session_kind": str, "anonymous": bool, "person_id": UUID, "person": str | None,
    "source": Annotated[str, describe("program that made the file")], "messages": int, "at": datetime,
    "summaries": Annotated[str, describe("`off`, `due`, `done`, `capped` or `stopped`")],
    "summarised_percent": Annotated[int, describe("percentage of turns that summaries cover", ge=0, le=100)],
    "cost_micro": Annotated[int, describe("cost of the summaries in micro-dollars", ge=0)],
})  # fmt: skip
Jobs = TypedDict("Jobs", {
    "states": JobStates, "counted_to": int, "failing": int, "dead_lately": int,
    "oldest_due": datetime | None, "newest": str, "retry_all": Changeable, "cancel_all": Changeable,
    "kinds": list[JobKind], "jobs": list[Job], "before": str | None, "workers": list[Process],
    "imports": Annotated[list[ImportProgress], describe("the newest 20 imports")],
    "duties": list[Duty], "bots": list[ConnectedBot], "total": NotRequired[Total | None],
})  # fmt: skip
DeliveryStates = TypedDict("DeliveryStates", {"uncertain": int, "dead": int, "waiting": int})
DoubtedPart = TypedDict("DoubtedPart", {
    "session": UUID, "session_kind": str, "anonymous": bool, "person_id": UUID, "person": str | None,
    "turn": int, "part": int, "parts": int, "state": str, "error": str | None, "attempt": int,
    "bot": str | None, "at": datetime, "unreachable_since": datetime | None, "can_send": bool, "told": bool,
})  # fmt: skip
Deliveries = TypedDict("Deliveries", {
    "states": DeliveryStates, "on_their_way": int, "oldest": datetime | None,
    "deliveries": list[DoubtedPart], "next": str | None, "total": NotRequired[Total | None],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChanged:
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedWork:
    changed: int
    skipped: int
    left: int
    why: list[NotChanged]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkHandlers:
    """Handlers of jobs and deliveries."""

    job_insights: JobInsights
    job_admin: JobAdmin | None

    @router.on("GET /jobs", Jobs, role="viewer", refusals=())
    async def list_jobs(
        self,
        authed: AuthedRequest,
        *,
        state: Annotated[str, choice("state or kind of the jobs", *JOB_STATES)] = "",
        kind: Annotated[str, choice("state or kind of the jobs", *JOB_KINDS)] = "",
        session: Conversation = None,
        before: Before = None,
        limit: Limit = 50,
        total: Counted = False,
    ) -> Reply:
        """List background jobs and processes."""
        match, insights = JobMatch(state=state, kind=kind, session=str(session or "")), self.job_insights
        count = insights.count_jobs(match) if total else None
        return await add_total(insights.load_jobs(match, before=before, limit=limit), count)

    @router.on("GET /deliveries", Deliveries, role="viewer", refusals=())
    async def list_deliveries(
        self,
        authed: AuthedRequest,
        *,
        state: Annotated[str, choice("state of the delivery", *DOUBTS)] = "",
        session: Conversation = None,
        cursor: Cursor = "",
        limit: Limit = 50,
        total: Counted = False,
    ) -> Reply:
        """List deliveries that failed, wait or are uncertain."""
        asked = DeliveryQuery(state=state, session=str(session or ""), cursor=cursor, limit=limit)
        insights = self.job_insights
        count = insights.count_deliveries(asked) if total else None
        return await add_total(insights.load_deliveries(asked), count)

    @router.on(
        "PUT /jobs/kinds/{kind}", Jobs, role="operator", missing="There is no such kind of jobs.",
        refusals=(404, 409, 428),
    )  # fmt: skip
    async def set_job_kind(
        self,
        authed: AuthedRequest,
        kind: Annotated[str, choice("state or kind of the jobs", *JOB_KINDS)],
        *,
        paused: bool,
        concurrency: Annotated[int | None, Field(ge=1, le=100)] = None,
        if_match: Seen = "",
    ) -> Reply:
        """Pause, resume or limit a kind of job.

        The limit is the number of jobs of this kind that all workers together run at once.

        Takes effect with the next job that a worker claims. Running jobs finish; waiting jobs are kept.
        """
        if kind not in JOB_KINDS:
            return None
        seen, yours = parse_version(if_match), {"paused": paused, "concurrency": concurrency}
        changed = await self._job_admin().set_kind(
            kind, paused=paused, concurrency=concurrency, version=seen, actor=authed.operator.name
        )
        page = await self.job_insights.load_jobs(JobMatch(), limit=1)
        if not changed:
            raise build_stale_refusal(
                yours=yours, theirs=next(one for one in page["kinds"] if one["kind"] == kind)
            )
        return page

    @router.on("POST /jobs/retry", role="operator", body="JobsChange")
    async def retry_jobs(
        self, authed: AuthedRequest, *, ids: JobIds = None, match: Match | None = None, through: Newest = None
    ) -> ChangedWork:
        """Retry jobs that failed or wait after an error.

        Select jobs by `ids`, or all that `match` up to the job `through`. Jobs whose state has changed since
        are skipped and listed in the answer.
        """
        return await self._change_jobs(authed, "retry", ids, match, through)

    @router.on("POST /jobs/cancel", role="operator", body="JobsChange")
    async def cancel_jobs(
        self, authed: AuthedRequest, *, ids: JobIds = None, match: Match | None = None, through: Newest = None
    ) -> ChangedWork:
        """Cancel jobs that no worker has claimed.

        Select jobs by `ids`, or all that `match` up to the job `through`. Jobs whose state has changed since
        are skipped and listed in the answer.
        """
        return await self._change_jobs(authed, "cancel", ids, match, through)

    async def _change_jobs(
        self,
        authed: AuthedRequest,
        verb: JobVerb,
        ids: Sequence[int] | None,
        match: Match | None,
        through: int | None,
    ) -> ChangedWork:
        job_admin, who = self._job_admin(), authed.operator.name
        if match is not None:
            if through is None:
                raise HttpRefusal(
                    400, "bad_input", "All that match need `through`, the newest job of the page."
                )
            which = JobMatch(**match)
            check_match(which)
            return _changes(await job_admin.change_matching_jobs(verb, which, through=through, actor=who))
        if ids is None:
            raise HttpRefusal(400, "bad_input", f"`ids` are 1 to {NAMED_AT_MOST} numbers of jobs.")
        return _changes(await job_admin.change_jobs(verb, sorted(set(ids)), actor=who))

    @router.on("POST /deliveries/arrived", role="operator", body="PartsChange")
    async def mark_arrived(self, authed: AuthedRequest, *, parts: Parts) -> ChangedWork:
        """Mark uncertain deliveries as arrived.

        No message is sent.
        """
        return await self._change_parts(authed, "arrived", parts)

    @router.on("POST /deliveries/send-again", role="operator", body="PartsChange")
    async def send_again(self, authed: AuthedRequest, *, parts: Parts) -> ChangedWork:
        """Send failed deliveries again.

        The bot process sends them. A part that had arrived appears twice in the chat.
        """
        return await self._change_parts(authed, "send_again", parts)

    async def _change_parts(
        self, authed: AuthedRequest, verb: DeliveryVerb, parts: Sequence[Part]
    ) -> ChangedWork:
        keys = {
            PartKey(session=str(one["session"]), turn=one["turn"], part=one["part"]): None for one in parts
        }
        return _changes(
            await self._job_admin().change_deliveries(verb, list(keys), actor=authed.operator.name)
        )

    def _job_admin(self) -> JobAdmin:
        if self.job_admin is None:
            raise HttpRefusal(503, "not_available", "Nothing can be changed from here just now.")
        return self.job_admin


def _changes(done: Done) -> ChangedWork:
    return ChangedWork(
        changed=len(done.changed),
        skipped=len(done.skipped),
        left=done.more,
        why=[NotChanged(what=one.what, why=one.why) for one in done.skipped[:_SHOWN_AT_MOST]],
    )
