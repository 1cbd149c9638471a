"""A tool with a long result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.core.values.messages import ToolSpec
from shared.ports import ToolContext, ToolFailed

SECRET = "The code word of chapter seven is MERIDIAN."
LINES = [f"Line {number} of the report says nothing of interest to anybody." for number in range(1, 1_700)]
REPORT = "\n".join([*LINES[:900], SECRET, *LINES[900:]])
READ_REPORT = ToolSpec(
    name="read_report",
    description="Read the report.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
)


@dataclass(frozen=True)
class ReadReport:
    """A tool that has a lot to say."""

    text: str = REPORT
    fails: bool = False
    spec: ToolSpec = READ_REPORT
    idempotent: bool = True
    timeout_seconds: float = 10.0

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        if self.fails:
            raise ToolFailed(self.text)
        return self.text
