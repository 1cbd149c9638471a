"""What operators read: every command in the documents can be typed, and every alert has its line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.__main__ import EXTRAS, VERB_NAMES
from shared.cli.agent import read_agent_arguments
from shared.cli.alert import read_alert_arguments
from shared.cli.backup import read_backup_arguments
from shared.cli.command import read_command_arguments
from shared.cli.database import read_database_arguments
from shared.cli.eval import read_eval_arguments
from shared.cli.key import read_key_arguments
from shared.cli.operator import read_operator_arguments
from shared.cli.pairing import read_pairing_arguments as read_pairing_arguments
from shared.cli.past.arguments import read_import_arguments as read_import_arguments
from shared.cli.person import read_person_arguments as read_person_arguments
from shared.cli.restore import read_restore_arguments
from shared.cli.service import read_service_arguments
from shared.cli.site import read_site_arguments
from shared.cli.stored_settings import read_settings_arguments
from shared.cli.upgrade import read_upgrade_arguments
from shared.config.settings import ENV_FILE_NAME, list_secret_file_names, list_setting_names
from shared.core.ops.alerts import KINDS
from shared.diagnostics.security_review import read_doctor_arguments

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]
READERS: dict[str, Callable[[Sequence[str]], Any]] = {
    "agent": read_agent_arguments, "alert": read_alert_arguments, "backup": read_backup_arguments,
    "command": read_command_arguments, "database": read_database_arguments,
    "doctor": read_doctor_arguments, "eval": read_eval_arguments, "key": read_key_arguments,
    "operator": read_operator_arguments,
    "import": read_import_arguments,
    "pairing": read_pairing_arguments, "person": read_person_arguments, "restore": read_restore_arguments,
    "service": read_service_arguments, "settings": read_settings_arguments, "site": read_site_arguments,
    "upgrade": read_upgrade_arguments,
}  # fmt: skip
OTHERS = {
    "install": {*EXTRAS},
    "demo": {"telegram"},
    "test": {
        "",
        "faults",
        "chaos",
        "local-model",
        "unit",
        "--changed",
        "--control",
        "--hunt",
        "--night",
        "--strict",
    },
}
"""What may stand behind verbs that read their arguments later; of `test` a path may, too."""
LIST = "docs/commands.md"
"""Has placeholders for names; `test_documents` compares it."""
AN_ID = "11111111-2222-4333-8444-555555555555"
"""Stands for every ID in the text."""


def commands() -> list[str]:
    found = set()
    for page in PAGES:
        if page == LIST:
            continue
        text = (ROOT / page).read_text().replace("\\\n", " ")
        found |= set(re.findall(r"`\./evertalk ([^`\n]+)`", text))
        found |= {
            re.split(r"\s# ", line)[0].strip()
            for line in re.findall(r"^(?:sudo.*?)?\./evertalk (.+)$", text, re.MULTILINE)
        }
        found |= set(re.findall(r"python -m shared (.+)$", text, re.MULTILINE))
    return sorted(found)


def test_the_pages_name_commands_at_all() -> None:
    assert {"doctor", "up", "backup", "restore", "upgrade", "service"} <= {
        line.split()[0] for line in commands()
    }


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_pages_can_be_typed(line: str) -> None:
    verb, *rest = shlex.split(line.partition(" | ")[0])
    assert verb in VERB_NAMES
    if verb in READERS:
        READERS[verb]([AN_ID if word == "ID" else word for word in rest])
    elif verb in OTHERS:
        first = rest[0] if rest else ""
        assert first in OTHERS[verb] or (verb == "test" and (ROOT / first).exists())
    else:
        assert rest == []


def test_every_alert_has_its_line_in_the_runbook() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE))
    assert told == set(KINDS)


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_of_the_pages_exists(page: str) -> None:
    named = set(re.findall(r"\bEVERTALK_[A-Z0-9_]+\b", (ROOT / page).read_text()))
    assert named <= {*list_setting_names().values(), *list_secret_file_names(), ENV_FILE_NAME}


def test_containers_have_time_to_end_and_logs_that_end() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    services = re.split(
        r"^  (?=\w+:\n)", re.split(r"\n(?=\w)", compose.split("\nservices:\n")[1])[0], flags=re.MULTILINE
    )
    for service in filter(None, services):
        name = service.split(":")[0].strip()
        if not name or name.startswith("#"):
            continue
        ours = "<<: *evertalk" in service
        assert ours or "logging: *logging" in service, name
        assert ours or name == "valkey" or "stop_grace_period:" in service, name
    assert "stop_grace_period: 30s" in compose.split("\nservices:\n")[0]
    assert 'max-size: 10m, max-file: "5"' in compose


def test_https_is_an_optional_profile() -> None:
    caddy = (ROOT / "docker-compose.yml").read_text().split("\n  caddy:\n")[1].split("\nnetworks:\n")[0]
    assert "profiles: [tls]" in caddy
    assert "cap_drop: [ALL]" in caddy
    assert "read_only: true" in caddy
