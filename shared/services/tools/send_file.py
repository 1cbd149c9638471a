"""Tool that sends the person a file: a text, a table, or the picture of a chart."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shared.core.values.files import PLAIN, clean_name
from shared.core.values.messages import ToolSpec
from shared.ports import ToolContext, ToolFailed, ToolFile, ToolOutput

MOST_CHARS = 200_000
"""Most characters of a text file."""
MOST_LABELS = 60
"""Most labels of a chart, and values of a series."""
MOST_SERIES = 6
"""Most series of a chart."""
MOST_VALUE = 1e15
"""Largest absolute value in a chart."""
_MIMES = {"txt": PLAIN, "md": "text/markdown", "csv": "text/csv", "html": "text/html"}

SEND_FILE = ToolSpec(
    name="send_file",
    description=(
        "Send the person a file they ask for: a text as `content` (.txt, .md, .csv, .html) or numbers as a "
        "`chart` (.png)."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 100},
            "content": {"type": "string", "maxLength": MOST_CHARS},
            "chart": {
                "type": "object",
                "description": "kind (bar or line), title, unit, labels, series of name and values",
                "properties": {
                    "kind": {"enum": ["bar", "line"]},
                    "title": {"type": "string", "maxLength": 100},
                    "unit": {"type": "string", "maxLength": 20},
                    "labels": {
                        "type": "array", "minItems": 1, "maxItems": MOST_LABELS,
                        "items": {"type": "string", "maxLength": 60},
                    },
                    "series": {
                        "type": "array", "minItems": 1, "maxItems": MOST_SERIES,
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string", "maxLength": 60},
                                "values": {
                                    "type": "array", "maxItems": MOST_LABELS,
                                    "items": {"type": ["number", "null"]},
                                },
                            },
                            "required": ["values"],
                            "additionalProperties": False,
                        },
                    },
                },
                "required": ["kind", "labels", "series"],
                "additionalProperties": False,
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)  # fmt: skip
"""Description of the tool `send_file` for the model."""

DrawChart = Callable[[bytes], Awaitable[tuple[dict[str, Any] | None, bytes]]]
"""Function that draws a chart from its JSON; returns facts and PNG bytes, None as facts if it cannot."""


class SendFileTool:
    """Tool that makes a file from a text or a chart, and sends it with the turn's answer.

    A repeated call has no further effect, since the answer announces each file once.
    """

    spec: ToolSpec = SEND_FILE
    idempotent = True
    timeout_seconds = 30.0

    def __init__(self, draw: DrawChart) -> None:
        self._draw = draw

    def subject(self, arguments: Mapping[str, Any]) -> str:
        """Return the file's name, for clients that show it while the tool runs."""
        return clean_name(str(arguments.get("name", "")))

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> ToolOutput:
        if context.address_id is None:
            raise ToolFailed("Files can be sent only in a conversation with a person.")
        name = clean_name(str(arguments["name"]))
        content, chart = arguments.get("content"), arguments.get("chart")
        if (content is None) == (chart is None):
            raise ToolFailed("Give either `content` for a text, or `chart` for a picture.")
        file = await self._draw_chart(name, chart) if chart is not None else _write(name, str(content))
        return ToolOutput(files=(file,))

    async def _draw_chart(self, name: str, chart: Mapping[str, Any]) -> ToolFile:
        _check_numbers(chart)
        head, body = await self._draw(json.dumps(chart).encode())
        if head is None or not body:
            raise ToolFailed("The chart could not be drawn.")
        stem = name.removesuffix(".png")
        width, height = int(head["width"]), int(head["height"])
        return ToolFile(name=f"{stem}.png", mime="image/png", body=body, width=width, height=height)


def _write(name: str, content: str) -> ToolFile:
    mime = _MIMES.get(name.lower().rpartition(".")[2] if "." in name else "")
    if mime is None:
        raise ToolFailed(f"`name` must end with .{', .'.join(_MIMES)}, or with .png for a chart.")
    if not content.strip():
        raise ToolFailed("`content` is empty.")
    if len(content) > MOST_CHARS:
        raise ToolFailed(f"`content` has {len(content):,} characters; {MOST_CHARS:,} is the most.")
    return ToolFile(name=name, mime=mime, body=content.encode("utf-8", "replace"))


def _check_numbers(chart: Mapping[str, Any]) -> None:
    count = len(chart["labels"])
    for one in chart["series"]:
        values = one["values"]
        if len(values) != count:
            raise ToolFailed(f"There are {count} labels, but a series has {len(values)} values.")
        if any(value is not None and not abs(value) <= MOST_VALUE for value in values):
            raise ToolFailed(f"Values must be numbers of at most {MOST_VALUE:g}.")
    if all(value is None for one in chart["series"] for value in one["values"]):
        raise ToolFailed("There is no number in it.")
