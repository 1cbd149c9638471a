"""The tools a model may call, and how a call becomes a result whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import structlog

from shared.core.faults import holds_injection
from shared.core.memory import SAVE_MEMORY, note_hash
from shared.core.messages import ToolResult, ToolUse
from shared.core.secrets_filter import redact
from shared.core.spill import OPEN_ARTIFACT
from shared.core.turns import StepOutcome
from shared.core.upkeep import NewNote
from shared.ports import Tool, ToolContext, ToolFailed, ToolSpec

log = structlog.get_logger(__name__)

OUTPUT_CHARS = 1_000_000
"""What is longer is cut here; what is long and shorter is spilled, see `core/spill.py`."""
MEMORY_TOOLS = frozenset({SAVE_MEMORY.name})
SAVES_PER_TURN = 3
NOTE_CHARS = 600
_KINDS = frozenset(SAVE_MEMORY.input_schema["properties"]["kind"]["enum"])


class NoteStore(Protocol):
    async def save_note(
        self,
        note: NewNote,
        *,
        party_id: int,
        scope: str,
        session_id: int,
        from_turn: int | None = None,
        through_turn: int | None = None,
        flush_id: int | None = None,
    ) -> bool: ...


class SaveMemory:
    """Keeps one note about the person; the same note twice is one note."""

    spec: ToolSpec = SAVE_MEMORY
    idempotent = True
    timeout_seconds = 10.0

    def __init__(self, notes: NoteStore) -> None:
        self._notes = notes

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        note = _note_from(arguments)
        saved = await self._notes.save_note(
            note,
            party_id=context.party_id,
            scope=context.scope,
            session_id=context.session_id,
            from_turn=context.turn,
            through_turn=context.through_turn or context.turn,
            flush_id=context.flush_id,
        )
        return "Saved." if saved else "This is known already."


def _note_from(arguments: Mapping[str, Any]) -> NewNote:
    text = str(arguments.get("text", "")).strip()
    if not text:
        raise ToolFailed("`text` is empty: say what to remember in one sentence.")
    if len(text) > NOTE_CHARS:
        raise ToolFailed(
            f"`text` has {len(text)} characters; {NOTE_CHARS} is the most. Save one fact per call."
        )
    text = redact(text)
    if holds_injection(text):
        raise ToolFailed("`text` reads as words to a model, not as something to know. It is not kept.")
    kind = str(arguments.get("kind", "fact"))
    importance = arguments.get("importance", 5)
    return NewNote(
        kind=kind if kind in _KINDS else "fact",
        text=text,
        subject=str(arguments.get("subject", ""))[:120],
        importance=min(9, max(1, importance)) if isinstance(importance, int) else 5,
        hash=note_hash(text),
    )


class Toolbox:
    """The tools of one agent, run with a timeout, an output cap and no exception that escapes."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Artifacts can be opened only where a tool can make one: memory alone says little."""
        names = set(self._tools)
        if not names - MEMORY_TOOLS - {OPEN_ARTIFACT.name}:
            names -= {OPEN_ARTIFACT.name}
        return tuple(self._tools[name].spec for name in sorted(names))

    def only(self, names: frozenset[str]) -> Toolbox:
        return Toolbox([tool for name, tool in self._tools.items() if name in names])

    def is_idempotent(self, name: str) -> bool:
        tool = self._tools.get(name)
        return tool is None or tool.idempotent

    async def run(self, call: ToolUse, *, context: ToolContext) -> tuple[ToolResult, StepOutcome]:
        tool = self._tools.get(call.name)
        if tool is None:
            return _failed(call, f"There is no tool called {call.name!r}."), "failed"
        try:
            async with asyncio.timeout(tool.timeout_seconds):
                text = await tool.run(call.input, context=context)
        except ToolFailed as error:
            return _failed(call, _capped(str(error))), "failed"
        except TimeoutError:
            return _failed(call, f"{call.name} took longer than {tool.timeout_seconds:g} seconds."), "failed"
        except Exception:
            log.exception("tool_failed", tool=call.name, session_id=context.session_id, turn=context.turn)
            return _failed(call, f"{call.name} failed."), "failed"
        return ToolResult(tool_use_id=call.id, text=_capped(text)), "done"


def _capped(text: str) -> str:
    """No longer than we keep, and nothing in it that Postgres cannot hold."""
    text = text.replace("\x00", "\ufffd").encode(errors="replace").decode()
    if len(text) <= OUTPUT_CHARS:
        return text
    half = OUTPUT_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _failed(call: ToolUse, text: str) -> ToolResult:
    return ToolResult(tool_use_id=call.id, text=text, is_error=True)
