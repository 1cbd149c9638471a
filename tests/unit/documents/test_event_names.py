"""Names of log events can be understood without the code: a subject, and what happened to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("bot", "shared", "web", "worker")
LEVELS = ("debug", "info", "warning", "error", "exception")
VAGUE = re.compile(
    r"(^|_)(told|said|heard|unheard|silent|away|alone|words|took|taken|kept|beats?|stands|hung|screens?_sent)(_|$)"
)
"""Words that name neither the part that failed nor the failure."""


def list_event_names() -> Iterator[tuple[str, str]]:
    """Yield place and name of each event that is logged under a literal name."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                    continue
                owner = ast.unparse(node.func.value)
                if node.func.attr not in LEVELS or not owner.endswith("log"):
                    continue
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", part.value


def test_log_events_name_subject_and_outcome() -> None:
    names = list(list_event_names())
    assert len(names) > 200
    assert [f"{place} {name}" for place, name in names if VAGUE.search(name)] == []


def test_vague_event_names_are_recognised() -> None:
    assert all(map(VAGUE.search, ("storage_away", "file_took_too_long", "mcp_server_said", "beats_missed")))
    assert not any(map(VAGUE.search, ("storage_unavailable", "heartbeat_failed", "page_fetch_failed")))
