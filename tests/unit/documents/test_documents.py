"""The documents cannot rot: settings, verbs, commands and presets stand in them as in the code."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from shared.__main__ import VERB_NAMES
from shared.adapters.postgres.db.readiness import LEAST_POSTGRES
from shared.adapters.postgres.privacy.retention import RULES
from shared.config.agents import AgentDefaults, check_config, read_config
from shared.config.settings import Settings, list_setting_names
from shared.core.commands.commands import COMMANDS, commands_for
from shared.core.presets.catalog import PRESETS

ROOT = Path(__file__).parents[3]
STEADY = PRESETS["steady"]


def read_page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def rows(name: str) -> dict[str, list[str]]:
    """Of all tables of a page: the first cell without its back-ticks → the other cells."""
    found = re.findall(r"^\| `([^`]+)` \|(.*)\|$", read_page(name), flags=re.MULTILINE)
    assert len(found) == len({first for first, _ in found}), "a row stands twice"
    return {first: [cell.strip() for cell in cells.split("|")] for first, cells in found}


def test_every_setting_and_no_other_is_in_the_table() -> None:
    assert set(rows("settings")) == set(list_setting_names().values())


def test_the_settings_stand_in_one_page_only() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        listed = re.findall(r"^\| `([A-Z][A-Z0-9_]+)` \|", page.read_text(), flags=re.MULTILINE)
        assert page.name == "settings.md" or listed == [], page.name


def test_the_defaults_in_the_table_are_the_defaults() -> None:
    table = rows("settings")
    for field, name in list_setting_names().items():
        default = Settings.model_fields[field].default
        if isinstance(default, int | str | Decimal) and default:
            assert table[name][0] == str(default), name


def test_documented_oldest_postgres_is_the_doctors_limit() -> None:
    assert f"PostgreSQL {LEAST_POSTGRES} or newer" in rows("settings")["DATABASE_URL"][1]


def test_every_command_is_described_in_its_own_words() -> None:
    documented = {name[1:]: cells[0] for name, cells in rows("commands").items() if name[0] == "/"}
    assert documented == {command.name: command.describe() for command in COMMANDS}


@pytest.mark.control("S47")
def test_documented_group_and_public_commands_match_the_code() -> None:
    (told,) = re.findall(
        r"In groups, only administrators can use ([^.]+)\.\s+"
        r"With the audience `public`, people can use only ([^.]+)\.",
        read_page("commands"),
    )
    for_admins, for_all = (re.findall(r"`/(\w+)`", words) for words in told)
    assert for_admins == [command.name for command in COMMANDS if command.groups == "admins"]
    public = commands_for(channel="telegram", audience="public")
    assert for_all == [command.name for command in public]


def test_every_verb_of_pairing_is_named() -> None:
    (cell,) = rows("commands")["./evertalk pairing VERB"]
    assert set(re.findall(r"`(\w+)[^`]*`", cell)) == {"list", "approve", "deny", "revoke", "owner"}


def test_every_verb_of_person_is_named() -> None:
    (cell,) = rows("commands")["./evertalk person VERB"]
    assert set(re.findall(r"`(\w+)[^`]*`", cell)) == {"list", "export", "erase", "hold", "release"}


@pytest.mark.control("S42")
def test_documented_retention_covers_every_table() -> None:
    told = dict(re.findall(r"^\| ([a-z_, ]+) \| (.+) \|$", read_page("data"), flags=re.MULTILINE))
    kept = {table: words for tables, words in told.items() for table in tables.split(", ") if table in RULES}
    assert kept == {table: rule.period for table, rule in RULES.items()}


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("agent", {"list", "show", "edit", "create", "delete", "import", "export", "assign"}),
        ("site", {"list", "show", "add", "edit", "secret", "snippet"}),
        ("key", {"create", "list", "revoke"}),
        ("service", {"install", "status", "logs", "uninstall"}),
        ("operator", {"add", "passwd", "list", "revoke"}),
    ],
)
def test_every_verb_of_agents_and_sites_is_named(verb: str, words: set[str]) -> None:
    (cell,) = rows("commands")[f"./evertalk {verb} VERB"]
    assert set(re.findall(r"`(\w+)`", cell)) == words


def test_the_settings_of_the_documented_agent_can_be_used() -> None:
    (told,) = re.findall(r'```json\n(\{"name": "Ada".+?)```', read_page("agents"), flags=re.DOTALL)
    assert check_config(read_config(told), AgentDefaults(policy=PRESETS["steady"])) == ()


def test_the_bot_is_one_of_the_services_of_the_container_file() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    for process in ("web", "worker", "bot"):
        assert f"  {process}:\n    <<: *evertalk\n    command: [python, -m, {process}]\n" in compose


def test_every_verb_is_in_the_table() -> None:
    documented = {name.split()[1] for name in rows("commands") if name.startswith("./evertalk ")}
    assert documented == set(VERB_NAMES)


def test_every_preset_is_named() -> None:
    (table,) = re.findall(
        r"^\| preset \|.+\n\|---\|---\|---\|\n((?:\|.+\n)+)", read_page("context"), flags=re.MULTILINE
    )
    assert sorted(re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)) == sorted(PRESETS)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("window", (f"{STEADY.context_window:,}",)),
        ("answer", (f"{STEADY.max_output:,}", f"{STEADY.max_output_share:.0%}")),
        ("hard limit of a request", (f"{STEADY.overhead:,}", f"{STEADY.overhead_share:.0%}")),
        ("limit", (f"({STEADY.reserve:,}", f"({STEADY.soft_budget:,})")),
        (
            "memory flush",
            (
                f"{STEADY.timing.flush_threshold:,}",
                f"{STEADY.timing.flush_share_below:,}",
                f"{STEADY.timing.flush_share:.0%}",
            ),
        ),
        (
            "newest turns that are never summarised",
            (
                f"({STEADY.keeping.keep_turns})",
                f"{STEADY.keeping.tail_room:,}",
                f"{STEADY.keeping.tail_share_most:.0%}",
            ),
        ),
        ("size after a compaction", (f"{STEADY.keeping.land_at:.0%}",)),
        ("idle compaction", (f"{STEADY.timing.idle_over:,}",)),
        ("gauge", (f"{STEADY.warning_at:.0%}", f"{STEADY.critical_at:.0%}")),
    ],
)
def test_the_thresholds_are_those_of_steady(row: str, told: tuple[str, ...]) -> None:
    (cell,) = re.findall(rf"^\| {row} \| (.+) \|$", read_page("context"), flags=re.MULTILINE)
    assert [number for number in told if number not in cell.replace(" %", "%")] == []
