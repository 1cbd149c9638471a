"""Whose clock counts: what is stored, leased and due is told by Postgres alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BY_ITS_OWN_CLOCK = {
    "shared/adapters/alerts/webhook.py": "the time that a signature is made for somebody else",
    "shared/adapters/alerts/compaction_hook.py": "the time that a signature is made for somebody else",
    "shared/adapters/alerts/web_push.py": "until when a push service believes our signature",
    "shared/adapters/models/catalog.py": "which day's price list holds",
    "shared/adapters/models/error_mapping.py": "a date that the provider names to wait for",
    "shared/adapters/oidc.py": "the age of what another server has signed",
    "shared/supervision/liveness.py": "how old the mark of the process beside it is",
    "shared/bootstrap/foundation.py": "what the model is told of the time of day",
    "shared/services/admin/outage_alerts.py": "when an outage began, while no database can say the time",
    "shared/cli/backup.py": "the date of a copy, and which copies are old",
    "shared/diagnostics/server_checks.py": "how far this clock is from Postgres'",
    "shared/diagnostics/local_checks.py": "how old the newest copy is",
    "shared/cli/model_discovery.py": "whether prices are old",
    "shared/cli/pairing.py": "how a code is shown, not whether it is good",
    "shared/cli/restore.py": "the name under which the state of before is kept",
    "shared/diagnostics/security_files.py": "how old the newest copy is",
    "shared/cli/upgrade.py": "which copy is the newest",
    "bot/telegram/runtime/bot_runner.py": "the time of day at the start; from there on seconds are counted",
    "web/server/shared_rate_limits.py": "the window that a caller's tries are counted in, over all processes",
    "web/dashboard/series.py": "which day or hour a page ends with",
    "web/dashboard/pairing.py": "how a code is shown, not whether it is good",
    "web/auth/site_tokens.py": "the age of what a site's own server has signed",
    "web/auth/visitors.py": "the age of what a site's own server has signed",
}
"""Who reads the wall clock of the process, and what for; none of it decides who holds or does something."""
_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("date", "today"),
}


def readers(*rooms: str) -> Iterator[str]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            if any(map(_reads_the_clock, ast.walk(ast.parse(path.read_text())))):
                yield path.relative_to(ROOT).as_posix()


def _reads_the_clock(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in _CALLS
    )


@pytest.mark.row("F21")
def test_no_statement_and_no_service_reads_the_clock_of_its_process() -> None:
    found = set(readers("shared/adapters/postgres", "shared/services", "shared/core", "worker"))
    # Its alerts are sent while there is no database whose clock could count.
    assert found == {"shared/services/admin/outage_alerts.py"}


def test_each_reader_of_a_local_clock_has_a_documented_reason() -> None:
    assert set(readers("shared", "bot", "web", "worker")) == set(BY_ITS_OWN_CLOCK)
