"""Processes that hung or crashed, and the piece of work that each was busy with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

MAX_PROCESS_FAULTS = 2
"""Crashes that a piece of work may cause before it is given up; a second one rules out a coincidence."""
RETRY_SECONDS = 10.0
"""Seconds before work that crashed a process is retried, so that other work comes first."""
REASON = "it stopped a process"
"""Reason stored for work that is given up because it crashed processes."""
PLACE_CHARS = 2_000
"""Most characters of the stack frames that are kept."""
CAUSE_CHARS = 100
"""Most characters of a fault's cause."""
_MAX_BYTES = 64 * 1024
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_CODE = re.compile(r"[^a-z0-9_]+")

WorkKind: TypeAlias = Literal["turn", "message", "job", "update", "delivery", "index", "knowledge", "other"]
ID_COUNTS: Mapping[WorkKind, int] = {
    "turn": 3, "message": 2, "job": 2, "update": 2, "delivery": 2, "index": 1, "knowledge": 1, "other": 0,
}  # fmt: skip
"""Number of ids after each kind of work: a turn has session, number and epoch; a message has
session and key.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFault:
    """Report on a process that hung or crashed, with the work that it was doing."""

    id: str
    """UUID of the fault, so that it is recorded once."""
    role: str
    cause: str
    """Cause: `stood_still`, `loop_stood_still`, `out_of_memory`, or `crashed_` with the name of
    the signal.
    """
    place: str
    """Innermost stack frames, as file, line and function, without text of people."""
    kind: WorkKind
    ids: tuple[str, ...]

    @property
    def work(self) -> str:
        """Key of the work, such as `turn 7 3`, without ids that change with each attempt."""
        ids = self.ids[:2] if self.kind == "turn" else self.ids[:1] if self.kind == "job" else self.ids
        return " ".join((self.kind, *ids))


def digest_key(key: str) -> str:
    """Return 32 hexadecimal digits of a SHA-256 over a client's message key, as an id of fixed length."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def parse_fault(content: bytes) -> ProcessFault:
    """Return the fault that a watchdog wrote as JSON; work of an unknown kind becomes `other`.

    Raises ValueError for content that is no such JSON, has no UUID, or more than 64 KiB.
    """
    if len(content) > _MAX_BYTES:
        raise ValueError("too long")
    raw: Any = json.loads(content)
    if not isinstance(raw, dict):
        raise ValueError("not an object")
    kind, ids = _parse_work(str(raw.get("work", "")))
    return ProcessFault(
        id=_parse_id(raw.get("id")),
        role=str(raw.get("role", ""))[:20],
        cause=_NO_CODE.sub("_", str(raw.get("cause", "")))[:CAUSE_CHARS],
        place=_clean(raw.get("place"), PLACE_CHARS),
        kind=kind,
        ids=ids,
    )


def _parse_work(work: str) -> tuple[WorkKind, tuple[str, ...]]:
    """Return kind and ids of a piece of work; `other` without ids if this version does not know it."""
    name, *ids = work.split() or [""]
    for kind, number in ID_COUNTS.items():
        if name == kind and len(ids) == number and all(map(_is_id, ids)):
            return kind, tuple(ids)
    return "other", ()


def _is_id(text: str) -> bool:
    return len(text) <= 64 and text.lstrip("-").isalnum() and text.isascii()


def _clean(text: object, limit: int) -> str:
    return "".join(char for char in str(text or "") if char.isprintable() or char == "\n")[:limit]


def _parse_id(raw: object) -> str:
    if not isinstance(raw, str) or not _UUID.fullmatch(raw):
        raise ValueError("no id")
    return raw
