"""Tool `current_time`: the present time in the person's time zone or another."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from shared.core.values.local_time import moment_text
from shared.ports import Clock, ToolContext, ToolFailed, ToolSpec

CURRENT_TIME = ToolSpec(
    name="current_time",
    description="The time now, to the second or in another time zone.",
    input_schema={
        "type": "object",
        "properties": {"timezone": {"type": "string", "maxLength": 64, "description": "IANA name"}},
        "additionalProperties": False,
    },
)
"""Description of the tool `current_time` for the model."""


class CurrentTimeTool:
    """Tool `current_time`, which returns the time in the requested time zone, else in the person's."""

    spec = CURRENT_TIME
    idempotent = True
    timeout_seconds = 5.0
    output_chars = 500

    def __init__(self, clock: Clock, *, home: str = "UTC") -> None:
        """Set up the tool; `home` is the deployment's time zone, for people whose time zone is unknown."""
        self._clock = clock
        self._home = home

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        asked = str(arguments.get("timezone") or "").strip()
        name = asked or context.timezone or self._home
        zone = _zone(name)
        if zone is None and not asked:
            # The zone that a browser reported may be invalid; then the deployment's zone is used.
            name, zone = self._home, _zone(self._home)
        if zone is None:
            raise ToolFailed(_unknown(name))
        return moment_text(self._clock.now().astimezone(zone), name)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return None


def _unknown(name: str) -> str:
    ending = name.rpartition("/")[2].strip().replace(" ", "_").casefold()
    zones = sorted(available_timezones())
    same = [zone for zone in zones if zone.rpartition("/")[2].casefold() == ending]
    near = same or difflib.get_close_matches(name, zones, n=3)
    hint = f" Did you mean {', '.join(near[:3])}?" if near else " Names look like Europe/Berlin."
    return f"There is no time zone called {name[:64]!r}.{hint}"
