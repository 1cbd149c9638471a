"""Commands over REST, for a visitor, an API key or an operator; each `cid` runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired
from uuid import UUID

import structlog
from aiohttp import web
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from shared.adapters.postgres.people.api_sessions import PostgresApiSessions
from shared.core.commands.arguments import render_arguments
from shared.core.commands.commands import ONLY_IN_PERSON, Command
from shared.core.values.errors import EvertalkError, StorageUnavailable, UnknownSession
from shared.runtime import BackgroundTasks
from shared.services.commands.command_service import COMMAND_SECONDS
from web.auth.visitors import Known, Visitors
from web.chat.command_intake import UnknownCommand, result_payload
from web.command_offer import CommandOffer, audience_of
from web.dashboard.access import DashboardDoor, find_signed_in
from web.protocol import wire
from web.rest.api_key_auth import build_known, find_by_key, record
from web.rest.arguments import Json, Shape
from web.rest.calls import Call, unauthorized_error
from web.rest.kinds import Cid, Error, IdempotencyKey, describe, read_cid
from web.rest.operation import OperationRouter, Reply
from web.security import REQUEST_ID, HttpRefusal, cross_origin_headers, error_body
from web.server.event_stream import HEARTBEAT_SECONDS, EventStream, wants_events
from web.server.hub import Hub, Replies

log = structlog.get_logger(__name__)

KEPT_SECONDS = 60.0
"""Seconds for which a finished run stays available to a client that repeats its request."""
_RESERVED = ("session_id", "cid")
router = OperationRouter("commands")


@with_config(ConfigDict(extra="forbid"))
class CommandCall(TypedDict):
    session_id: UUID
    cid: NotRequired[Cid]
    args: NotRequired[Annotated[str, Field(max_length=2_000)]]


CommandChoice = TypedDict("CommandChoice", {"label": str, "args": str})
CommandResult = TypedDict("CommandResult", {
    "command": str, "success": bool, "result": Annotated[str, describe("result as Markdown")],
    "error": str | None, "event_seq": int | None, "cid": NotRequired[str],
    "choices": NotRequired[list[CommandChoice]],
})  # fmt: skip
Progress = TypedDict("Progress", {"command": str, "message": str, "percent": NotRequired[int]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Caller of a command, and the conversation that it is for."""

    known: Known
    operator: str | None = None
    key: bool = False

    @property
    def audience(self) -> str:
        """Audience whose commands the caller may run; `personal` for an operator."""
        return "personal" if self.operator is not None else self.known.audience

    @property
    def address_id(self) -> int | None:
        """Database id of the caller's channel address; None for an operator, and for a caller without one."""
        return None if self.operator is not None else self.known.row.address_id or None


class Run:
    """Run of one command: its outcome and newest progress, shared by all requests with its `cid`.

    `outcome` completes with the fields of the result, or raises the EvertalkError of a failed run.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.progress: dict[str, Any] | None = None
        """Newest progress report, which replaces the one before; None until the first."""
        self._updated = asyncio.Event()

    async def report_progress(self, message: str, percent: int | None) -> None:
        """Replace `progress` by `{command, message, percent}` and wake waiting requests; None leaves
        `percent` out.
        """
        shown = {"command": self.name, "message": message}
        self.progress = shown if percent is None else {**shown, "percent": percent}
        self._updated.set()

    def end(self, outcome: dict[str, Any] | EvertalkError) -> None:
        """Complete `outcome` with a result or an error, and wake waiting requests."""
        if isinstance(outcome, EvertalkError):
            self.outcome.set_exception(outcome)
            self.outcome.exception()  # marks it as retrieved, as all clients may have left
        else:
            self.outcome.set_result(outcome)
        self._updated.set()

    async def wait_for_update(self, seconds: float) -> bool:
        """Wait up to `seconds` for progress or the end; return False if neither came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._updated.wait()
        except TimeoutError:
            return False
        self._updated.clear()
        return True


@dataclass(frozen=True, slots=True)
class Runs:
    """Command runs of this process by session number and `cid`; a repeated request follows the same run."""

    by_cid: dict[tuple[int, str], Run] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRunHandlers:
    """Handler that runs commands over REST; `runs` has those of this process."""

    visitors: Visitors
    dashboard_door: DashboardDoor
    api_sessions: PostgresApiSessions
    commands: CommandOffer
    runs: Runs
    tasks: BackgroundTasks
    replies: Replies
    hub: Hub

    @router.on(
        "POST /commands/{name:[a-z][a-z0-9_]*}", CommandResult, visitor=True, scope="commands:run",
        role="operator", finds_caller=True, refusals=(404, 409, 503),
        events={"progress": Progress, "result": CommandResult, "error": Error},
    )  # fmt: skip
    async def run_command(
        self,
        call: Call,
        name: Annotated[str, describe("name of a command, without the slash")],
        *,
        body: Annotated[Json, Shape(CommandCall)],
        key: IdempotencyKey = None,
    ) -> Reply:
        """Run a command in a conversation.

        Pass arguments by name next to `session_id`, or as typed text in `args`. An event stream reports
        progress and ends with `result` or `error`. The command continues if the client disconnects.
        """
        request = call.request
        call.check_draining()
        asker = await self._find_asker(call, body.get("session_id"))
        command = self._find_command(name, asker)
        cid = read_cid(body.get("cid"), key)
        given = {key: value for key, value in body.items() if key not in _RESERVED}
        words = wire.clean(render_arguments(name, command.arguments, given))
        replace(call, known=asker.known).check_rate("commands")
        known_run = await self._find_repeat(asker, name, cid)
        if isinstance(known_run, dict):
            return await _respond(request, Run(name), known_run)
        if known_run is None:
            await self._record(call, asker, name)
            known_run = self._begin(call, asker, name, words, cid)
        if wants_events(request):
            return await _stream(request, known_run)
        async with asyncio.timeout(COMMAND_SECONDS + 5):
            return await asyncio.shield(known_run.outcome)

    async def _find_asker(self, call: Call, session_id: Any) -> Asker:
        """Return the caller: a key or a visitor with its own session, or an operator with any.

        Raises UnknownSession, or HttpRefusal for a caller without a valid token, key or login.
        """
        request, named = call.request, session_id if isinstance(session_id, str) else None
        if (known := await find_by_key(request, named)) is not None:
            return Asker(known=known, key=True)
        visitor = await self.visitors.find_caller(request)
        own = None if visitor is None or not named else await self.visitors.open(visitor, named)
        if own is not None:
            return Asker(known=own)
        operator = None if "Authorization" in request.headers else await self._find_operator(call)
        if operator is not None:
            return Asker(known=await self._load_any_session(call, session_id), operator=operator)
        if visitor is not None:
            raise UnknownSession("not this visitor's session")
        raise unauthorized_error("A visitor's token, a key or a login is needed.")

    async def _find_operator(self, call: Call) -> str | None:
        who = await find_signed_in(call.request, self.dashboard_door)
        if who is not None and not who.has_role("operator"):
            raise HttpRefusal(403, "role_needed", f"This needs the role operator; you are {who.role}.")
        return who.name if who is not None else None

    async def _load_any_session(self, call: Call, session_id: Any) -> Known:
        if not isinstance(session_id, str) or not _is_id(session_id):
            raise UnknownSession("not an id", advice="Name the conversation by `session_id`.")
        reached = await self.api_sessions.find(UUID(session_id))
        if reached is None:
            raise UnknownSession("no such session", advice="There is no such conversation.")
        return await build_known(call.request, reached)

    def _find_command(self, name: str, asker: Asker) -> Command:
        if name in ONLY_IN_PERSON and (asker.key or asker.operator is not None):
            raise HttpRefusal(403, "only_in_person", "Only the person whose conversation it is may do that.")
        for command in self.commands.list_for(asker.audience, site=asker.known.site):
            if command.name == name:
                return command
        raise HttpRefusal(404, "unknown_command", UnknownCommand.advice)

    async def _find_repeat(self, asker: Asker, name: str, cid: str | None) -> Run | dict[str, Any] | None:
        """Return the run or the stored result of an earlier request with this `cid`; None for a new request.

        Raises HttpRefusal 409 if the `cid` was used for another command.
        """
        if cid is None:
            return None
        session_id = asker.known.row.session_id
        done = await self.api_sessions.find_command_result(session_id, cid)
        # Look in memory after the database: a run that ended meanwhile stays there for 60 seconds.
        found = self.runs.by_cid.get((session_id, cid))
        command = found.name if found is not None else (done or {}).get("command", name)
        if command != name:
            raise HttpRefusal(409, "cid_used", f"This cid was used for /{command}. Take a new one.")
        return found if found is not None else None if done is None else {"error": None, **done}

    async def _record(self, call: Call, asker: Asker, name: str) -> None:
        about = f"session:{asker.known.row.session_public_id}"
        await record(call.request, "commands.run", about=about, command=name)
        if asker.operator is not None:
            operators = self.dashboard_door.operators
            await operators.record(actor=asker.operator, action=f"command.{name}", about=about)

    def _begin(self, call: Call, asker: Asker, name: str, words: str, cid: str | None) -> Run:
        """Start the command in a background task, which continues if the client disconnects; return its run.

        If the `cid` has a run already, that one is returned and nothing is started.
        """
        runs, run, session_id = self.runs.by_cid, Run(name), asker.known.row.session_id
        if cid is not None:
            if (already := runs.get((session_id, cid))) is not None:
                return already
            runs[session_id, cid] = run

        async def work() -> None:
            kept = 0.0
            try:
                run.end(await self._run(asker, run, words, cid, call.language))
                kept = KEPT_SECONDS
            except EvertalkError as error:
                run.end(error)
            except TimeoutError:
                run.end(StorageUnavailable("command took too long"))
            finally:
                if not run.outcome.done():
                    run.end(StorageUnavailable("the server restarts"))
                if cid is not None:
                    asyncio.get_running_loop().call_later(kept, runs.pop, (session_id, cid), None)

        self.tasks.start(work())
        return run

    async def _run(self, asker: Asker, run: Run, words: str, cid: str | None, tongue: str) -> dict[str, Any]:
        session_id = asker.known.row.session_id
        async with asyncio.timeout(COMMAND_SECONDS):
            outcome = await self.commands.runner.run(
                session_id=session_id, address_id=asker.address_id, name=run.name, args=words, cid=cid,
                progress=run.report_progress, audience=audience_of(_audience(asker)), language=tongue,
            )  # fmt: skip
        if run.name == "retry" and outcome.success:
            self.replies.answer(session_id)
        payload = result_payload(cid, outcome)
        if outcome.event_seq:
            self.hub.publish_locally(session_id, outcome.event_seq, "command.result", payload)
        return {"error": None, **payload, "event_seq": outcome.event_seq}


def _is_id(value: str) -> bool:
    try:
        UUID(value)
    except ValueError:
        return False
    return True


def _audience(asker: Asker) -> str:
    return "personal" if asker.operator is not None else asker.known.row.audience


async def _respond(request: web.Request, run: Run, outcome: Mapping[str, Any]) -> Reply:
    if not wants_events(request):
        return outcome
    run.end(dict(outcome))
    return await _stream(request, run)


async def _stream(request: web.Request, run: Run) -> web.StreamResponse:
    """Send a run as an event stream: `progress` events, then one `result` or `error` event."""
    stream = EventStream(request, request_id=request[REQUEST_ID], headers=await cross_origin_headers(request))
    await stream.open()
    shown: dict[str, Any] | None = None
    loop = asyncio.get_running_loop()
    quiet_since, deadline = loop.time(), loop.time() + COMMAND_SECONDS + 5
    while not run.outcome.done() and not stream.gone and loop.time() < deadline:
        await run.wait_for_update(1.0)
        if run.progress is not None and run.progress is not shown:
            shown, quiet_since = run.progress, loop.time()
            await stream.send("progress", shown)
        elif loop.time() - quiet_since >= HEARTBEAT_SECONDS:
            quiet_since = loop.time()
            await stream.beat()
    if run.outcome.done():
        await _send_end(request, stream, run, shown)
    return await stream.end()


async def _send_end(
    request: web.Request, stream: EventStream, run: Run, shown: dict[str, Any] | None
) -> None:
    if run.progress is not None and run.progress is not shown:
        await stream.send("progress", run.progress)
    error = run.outcome.exception()
    if isinstance(error, EvertalkError):
        await stream.send("error", error_body(request, error))
    else:
        await stream.send("result", run.outcome.result())
