"""Checks and their findings, and running checks one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shared.adapters.certificates import find_certificate_fault
from shared.config.settings import Settings

Level = Literal["ok", "warn", "fail", "slight", "serious", "grave"]
"""Level of a finding.

`ok`, `warn` and `fail` are for the doctor, the others for the security review. Grave: a stranger can read,
write or spend. Serious: one more mistake would allow that. Slight: everything else.
"""
_CHECK_SECONDS = 30.0
"""Seconds that one check may take."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check: level, what was found, and advice."""

    level: Level
    what: str
    advice: str = ""
    """Advice what to do; for a security risk, a line for .env or a command as it is typed.

    Empty if nothing is needed.
    """
    why: str = ""

    def __str__(self) -> str:
        width = 9 if self.why else 6
        lines = [f"{self.level:<{width}}{self.what}", self.why, f"→ {self.advice}" if self.advice else ""]
        return f"\n{' ' * width}".join(filter(None, lines))


def risk(level: Level, what: str, why: str, change: str) -> Finding:
    """Return a finding of the security review: level, risk, reason, and what to change."""
    return Finding(level, what, change, why)


grave, serious, slight = partial(risk, "grave"), partial(risk, "serious"), partial(risk, "slight")


def list_together(level: Level, what: str, lines: Iterable[str], advice: str) -> Finding:
    """Return a finding with one line for each of `lines` below `what`."""
    return Finding(level, "\n      ".join([what, *lines]), advice)


@dataclass(frozen=True, slots=True)
class Check:
    """Check that changes nothing.

    `look` gets the settings and the URL of the server to check, empty for none, and returns findings.
    """

    look: Callable[[Settings, str], Awaitable[Iterable[Finding]]]
    what: str = ""
    """Subject of the check, named if the check fails with an error.

    Empty for a check that raises its errors.
    """
    setting: str = "DATABASE_URL"

    async def run(self, settings: Settings, url: str) -> Sequence[Finding]:
        """Run the check and return its findings; with a subject, an error becomes a finding."""
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
    """Run the checks in order, and pass each finding to `say` at once; return the levels that occurred."""
    levels: set[Level] = set()
    for check in checks:
        for finding in await check.run(settings, url):
            say(finding)
            levels.add(finding.level)
    return levels
