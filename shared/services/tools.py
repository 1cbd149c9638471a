"""The tools a model may call, and how a call becomes a result whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from shared.core.memory_tools import FLUSH_TOOLS
from shared.core.messages import ToolResult, ToolUse
from shared.core.spill import OPEN_ARTIFACT
from shared.core.turns import StepOutcome
from shared.ports import Tool, ToolContext, ToolFailed, ToolSpec

log = structlog.get_logger(__name__)

OUTPUT_CHARS = 1_000_000
"""What is longer is cut here; what is long and shorter is spilled, see `core/spill.py`."""


class Toolbox:
    """The tools of one agent, run with a timeout, an output cap and no exception that escapes."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Artifacts can be opened only where a tool can make one: memory alone says little."""
        names = set(self._tools)
        if not names - FLUSH_TOOLS - {OPEN_ARTIFACT.name}:
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
