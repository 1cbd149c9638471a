"""What commands do, the same on every channel: each answers with words, and changes the log only by links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared.core.commands import Audience, BadArguments, Channel, Command, commands_for, compact_arguments
from shared.core.exchange import ContextMeasured
from shared.core.turns import JobOrder
from shared.core.upkeep import LinkStored, Refused, SessionState
from shared.ports import Announcer, Doorbell
from shared.services.conversation import Conversation

COMPACT_SECONDS = 180.0
_LOOK_SECONDS = 0.1
_HELLO = "Hello! Write to me about anything; I remember what we talk about. `/help` shows what else I can do."
_NOTHING = {
    "busy": "The conversation kept changing; please try again in a moment.",
}

Progress = Callable[[str, int | None], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    command: str
    success: bool
    result: str
    """Markdown for a person."""
    error: str | None = None
    event_seq: int | None = None


class UnknownCommand(Exception):
    """No command has this name, or not for this caller."""


class CommandStore(Protocol):
    async def state(self, session_id: int) -> SessionState: ...
    async def ask(self, session_id: int, order: JobOrder) -> int | None: ...
    async def job_outcome(self, job_id: int) -> tuple[str, Mapping[str, Any]]: ...
    async def waiting_job(self, session_id: int, key: str) -> int | None: ...
    async def undo(
        self, session_id: int, *, limit_tokens: int, fixed_tokens: int
    ) -> LinkStored | Refused: ...
    async def restore(self, session_id: int, *, fixed_tokens: int) -> LinkStored | Refused: ...
    async def begin_anew(self, session_id: int, *, fixed_tokens: int) -> LinkStored | Refused: ...
    async def separate(self, session_id: int, *, fixed_tokens: int) -> LinkStored | Refused: ...
    async def due_job(self, session_id: int) -> int | None: ...
    async def record_command(self, session_id: int, payload: Mapping[str, Any]) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    session_id: int
    args: str
    offered: Sequence[Command]
    progress: Progress


class Commands:
    """`public` widgets offer fewer; what is not offered is unknown."""

    def __init__(
        self,
        *,
        store: CommandStore,
        conversation: Conversation,
        announcer: Announcer,
        doorbell: Doorbell,
        model_name: str,
    ) -> None:
        self._store = store
        self._conversation = conversation
        self._announcer = announcer
        self._doorbell = doorbell
        self._model_name = model_name
        self._doers: dict[str, Callable[[_Call], Awaitable[tuple[bool, str]]]] = {
            "help": self._help,
            "start": self._start,
            "new": self._new,
            "separator": self._separator,
            "stop": self._stop,
            "compact": self._compact,
            "undo": self._undo,
            "restore": self._restore,
            "status": self._status,
            "context": self._context,
        }

    def offered(self, *, channel: Channel, audience: Audience) -> tuple[Command, ...]:
        """What a person can give there; a channel may carry out more by itself than this service does."""
        table = commands_for(channel=channel, audience=audience)
        return tuple(command for command in table if command.name in self._doers or channel == "telegram")

    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str = "",
        cid: str | None = None,
        progress: Progress | None = None,
        channel: Channel = "web",
        audience: Audience = "personal",
    ) -> CommandResult:
        """Do it and store the result for all screens of the session; raises UnknownCommand."""
        doer = self._doers.get(name)
        if doer is None:
            raise UnknownCommand(name)
        call = _Call(
            session_id=session_id,
            args=args.strip(),
            offered=self.offered(channel=channel, audience=audience),
            progress=progress or _no_progress,
        )
        try:
            success, words = await doer(call)
        except BadArguments as error:
            success, words = False, str(error)
        payload = {"cid": cid, "command": name, "success": success, "result": words}
        if not success:
            payload["error"] = words
        event_seq = await self._store.record_command(session_id, payload)
        await self._announcer.announce(session_id, {"event_seq": event_seq})
        return CommandResult(
            command=name, success=success, result=words, error=None if success else words, event_seq=event_seq
        )

    async def _help(self, call: _Call) -> tuple[bool, str]:
        lines = []
        for command in call.offered:
            shown = f"/{command.name} {command.args}".rstrip()
            lines.append(f"- `{shown}` {command.description}")
        return True, "\n".join(lines)

    async def _start(self, _call: _Call) -> tuple[bool, str]:
        return True, _HELLO

    async def _stop(self, call: _Call) -> tuple[bool, str]:
        stopped = await self._conversation.stop(call.session_id)
        return True, "Stopped." if stopped else "Nothing is being written at the moment."

    async def _new(self, call: _Call) -> tuple[bool, str]:
        state = await self._store.state(call.session_id)
        done = await self._store.begin_anew(call.session_id, fixed_tokens=state.fixed_tokens)
        if isinstance(done, Refused):
            return False, done.advice
        await self._told(call, done)
        await self._ring_late_flush(call)
        return True, "We begin anew. What I remember about you stays; the messages above stay readable."

    async def _separator(self, call: _Call) -> tuple[bool, str]:
        state = await self._store.state(call.session_id)
        done = await self._store.separate(call.session_id, fixed_tokens=state.fixed_tokens)
        if isinstance(done, Refused):
            return False, done.advice
        await self._told(call, done)
        await self._ring_late_flush(call)
        return True, "Nothing above this line is sent to the assistant any more; it stays readable."

    async def _ring_late_flush(self, call: _Call) -> None:
        job_id = await self._store.due_job(call.session_id)
        if job_id is not None:
            await self._doorbell.ring(job_id, 0)

    async def _undo(self, call: _Call) -> tuple[bool, str]:
        state = await self._store.state(call.session_id)
        done = await self._store.undo(
            call.session_id, limit_tokens=await self._hard(state), fixed_tokens=state.fixed_tokens
        )
        if isinstance(done, Refused):
            return False, done.advice
        await self._told(call, done)
        return True, f"The originals are back: the context holds {_k(done.tokens_after)} tokens again."

    async def _restore(self, call: _Call) -> tuple[bool, str]:
        state = await self._store.state(call.session_id)
        done = await self._store.restore(call.session_id, fixed_tokens=state.fixed_tokens)
        if isinstance(done, Refused):
            return False, done.advice
        await self._told(call, done)
        return (
            True,
            f"The summary is in use again: {_k(done.tokens_before)} → {_k(done.tokens_after)} tokens.",
        )

    async def _compact(self, call: _Call) -> tuple[bool, str]:
        wish = compact_arguments(call.args)
        key = f"compact:{call.session_id}:manual"
        order = JobOrder(
            kind="compact", key=key, trigger="manual", payload={"force": wish.force, "focus": wish.focus}
        )
        job_id = await self._store.ask(call.session_id, order)
        if job_id is None:
            job_id = await self._store.waiting_job(call.session_id, key)
        if job_id is None:
            return False, "It was being done already; please look again."
        await self._doorbell.ring(job_id, 0)
        await call.progress("Organizing conversation…", 0)
        return await self._wait_for(job_id)

    async def _wait_for(self, job_id: int) -> tuple[bool, str]:
        try:
            async with asyncio.timeout(COMPACT_SECONDS):
                while True:
                    state, outcome = await self._store.job_outcome(job_id)
                    if state in ("done", "dead"):
                        return _told_outcome(state, outcome)
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return True, "This takes a while; it goes on in the background and will show up here."

    async def _status(self, call: _Call) -> tuple[bool, str]:
        state = await self._store.state(call.session_id)
        measured = await self._conversation.gauge(call.session_id)
        lines = [
            f"- Model: {state.agent_config.get('model') or self._model_name}",
            f"- Turns: {state.answered_turn}, of which {state.view.base_turn} are summarised",
            f"- Summaries so far: {state.view.cycle}",
            f"- Context: {_gauge_line(measured)}",
        ]
        return True, "\n".join(lines)

    async def _context(self, call: _Call) -> tuple[bool, str]:
        measured = await self._conversation.gauge(call.session_id)
        if measured is None:
            return True, "Nothing was sent to the model yet, so the context is empty."
        filled = round(min(100.0, measured.percent) / 5)
        bar = "█" * filled + "░" * (20 - filled)
        parts = "\n".join(f"- {name}: ~{tokens:,}" for name, tokens in measured.parts.items() if tokens)
        return True, f"`{bar}` {_gauge_line(measured)}\n\n{parts}"

    async def _hard(self, state: SessionState) -> int:
        return await self._conversation.hard_limit(state)

    async def _told(self, call: _Call, stored: LinkStored) -> None:
        await self._announcer.announce(call.session_id, {"event_seq": stored.event_seq})


async def _no_progress(_message: str, _percent: int | None) -> None:
    return None


def _told_outcome(state: str, outcome: Mapping[str, Any]) -> tuple[bool, str]:
    if state == "dead":
        return False, str(outcome.get("advice") or "It did not work; nothing was changed.")
    if "nothing" in outcome:
        reason = str(outcome["nothing"])
        return True, f"Nothing to summarise: {_NOTHING.get(reason) or outcome.get('detail') or reason}"
    before, after = outcome["before"], outcome["after"]
    gain = "." if after < before else ": they were so short that nothing was saved."
    turns = "1 turn" if outcome["turns"] == 1 else f"{outcome['turns']} turns"
    return True, f"Summarised {turns}, {_k(before)} → {_k(after)} tokens{gain} `/undo` brings them back."


def _gauge_line(measured: ContextMeasured | None) -> str:
    if measured is None:
        return "–"
    return f"{measured.percent:.0f} % · ~{_k(measured.used)}/{_k(measured.limit)}"


def _k(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)
