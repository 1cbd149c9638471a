"""`evertalk audit`: asks pip-audit whether a pinned requirement has a known hole."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK = "requirements.lock"
_SECONDS = 300
_HOW = (
    "pip-audit is not installed. It is a program of its own, kept apart from what it looks at:\n"
    "  pipx install pip-audit    (or: uv tool install pip-audit)\n"
    "then ./evertalk audit again. It asks pypi.org, so it needs the network."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """One known hole of one requirement, and the versions without it."""

    package: str
    version: str
    number: str
    mended: tuple[str, ...]

    def __str__(self) -> str:
        way = f"mended in {', '.join(self.mended)}" if self.mended else "no version is without it yet"
        return f"{self.package} {self.version}: {self.number} ({way})"


class NotUnderstood(Exception):
    """What pip-audit said is not what it usually says."""


def run_audit(root: Path, rest: Sequence[str], *, say: Callable[[str], None]) -> int:
    """0 without a known hole, 1 with one, 2 where nobody could be asked; `rest` goes to pip-audit."""
    program = shutil.which("pip-audit")
    if program is None:
        say(_HOW)
        return 2
    command = [program, "--requirement", str(root / LOCK), "--require-hashes", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", *rest]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        asked, holes = read_report(done.stdout)
    except (NotUnderstood, subprocess.TimeoutExpired, OSError) as problem:
        say(f"pip-audit could not tell: {problem}")
        return 2
    for hole in holes:
        say(str(hole))
    say(f"{asked} requirements, {len(holes)} known holes.")
    return int(bool(holes))


def read_report(text: str) -> tuple[int, tuple[Hole, ...]]:
    """How many were asked about, and what is known; raises NotUnderstood."""
    try:
        told = json.loads(text)["dependencies"]
        if not isinstance(told, list) or not told:
            raise ValueError("it names no requirements")
        return len(told), tuple(hole for one in told for hole in _holes(one))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise NotUnderstood(f"its answer is no report ({type(error).__name__})") from error


def _holes(one: Mapping[str, Any]) -> Iterator[Hole]:
    if "skip_reason" in one:
        # Without the advisories of an index pip-audit leaves everything out, and calls that a report.
        raise NotUnderstood(f"{one['name']} was left out ({one['skip_reason']}). Can pypi.org be reached?")
    for hole in one["vulns"]:
        numbers = [str(hole["id"]), *map(str, hole.get("aliases", ()))]
        yield Hole(
            package=str(one["name"]), version=str(one["version"]),
            number=next((number for number in numbers if number.startswith("CVE-")), numbers[0]),
            mended=tuple(map(str, hole.get("fix_versions", ()))),
        )  # fmt: skip
