"""Checks and findings, and running checks one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shared.adapters.certificates import find_certificate_fault
from shared.config.settings import Settings

Level = Literal["ok", "warn", "fail", "slight", "serious", "grave"]
"""Level of a finding. Grave: a stranger can read, write or spend. Serious: one more mistake allows it."""
_CHECK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    advice: str = ""
    """For a risk, a line for .env or a command, as it is to be typed."""
    why: str = ""

    def __str__(self) -> str:
        width = 9 if self.why else 6
        lines = [f"{self.level:<{width}}{self.what}", self.why, f"→ {self.advice}" if self.advice else ""]
        return f"\n{' ' * width}".join(filter(None, lines))


def risk(level: Level, what: str, why: str, change: str) -> Finding:
    return Finding(level, what, change, why)


grave, serious, slight = partial(risk, "grave"), partial(risk, "serious"), partial(risk, "slight")


def list_together(level: Level, what: str, lines: Iterable[str], advice: str) -> Finding:
    return Finding(level, "\n      ".join([what, *lines]), advice)


@dataclass(frozen=True, slots=True)
class Check:
    """`look` gets the settings and the address of the server that it asks, if any; it changes nothing."""

    look: Callable[[Settings, str], Awaitable[Iterable[Finding]]]
    what: str = ""
    """Named where the check cannot be made, together with the setting that may be wrong."""
    setting: str = "DATABASE_URL"

    async def run(self, settings: Settings, url: str) -> Sequence[Finding]:
        if not self.what:
            return tuple(await self.look(settings, url))
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return tuple(await self.look(settings, url))
        except Exception as error:  # noqa: BLE001 - whatever it is, the doctor reports it and goes on
            fault = find_certificate_fault(error)
            if fault is not None:
                return [Finding("fail", f"{self.what}: {fault.reason}", f"{fault.advice} ({self.setting})")]
            advice = f"Check {self.setting}, and that the server runs."
            return [Finding("fail", f"{self.what}: {str(error) or type(error).__name__}", advice)]


async def run_checks(
    checks: Iterable[Check], settings: Settings, url: str = "", *, say: Callable[[Finding], None]
) -> set[Level]:
    """Run the checks and report each finding to `say` as it comes; return the levels that occurred."""
    levels: set[Level] = set()
    for check in checks:
        for finding in await check.run(settings, url):
            say(finding)
            levels.add(finding.level)
    return levels
