"""Former migrations, which bring data of schemas before 0044 to 0044, where today's migrations begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from shared.adapters.postgres.db.readiness import BRIDGE_END, FORMER, VERSIONS


def build_config(versions: Path) -> Config:
    """Return the Alembic settings that run the migrations of one folder."""
    config = Config()
    config.set_main_option("script_location", str(versions.parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(versions))
    return config


def cross_bridge(connection: Connection, found: str) -> None:
    """Bring a database with revision `found` to a revision from which the migrations in `versions` continue.

    First runs renumbered migrations that the database lacks, then the former ones to `BRIDGE_END`. Has no
    effect if neither is needed. The caller commits.
    """
    if _close_gaps(connection, found) < BRIDGE_END:
        run_former(connection, BRIDGE_END)


def run_former(connection: Connection, revision: str) -> None:
    """Upgrade by the former migrations alone, to a revision of at most `BRIDGE_END`."""
    config = build_config(FORMER)
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _close_gaps(connection: Connection, found: str) -> str:
    """Run migrations that a database lacks because they were renumbered; return the revision it then has."""
    group = next((group for group in RENUMBERED if found in group.marks), None)
    if group is None:
        return found
    applied = {one for one, mark in group.marks.items() if connection.scalar(text(f"SELECT {mark}"))}
    if not applied:
        return found
    reached = max(applied)
    scripts = ScriptDirectory.from_config(build_config(group.folder))
    with Operations.context(MigrationContext.configure(connection)):
        for revision in sorted(group.marks.keys() - applied):
            if revision < reached:
                scripts.get_revision(revision).module.upgrade()
    connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": reached})
    return reached


def _has_column(table: str, column: str) -> str:
    return (
        f"EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{table}')"
        f" AND attname = '{column}' AND NOT attisdropped)"
    )


def _has_relation(name: str) -> str:
    return f"to_regclass('{name}') IS NOT NULL"


def _allows(constraint: str, value: str) -> str:
    return (
        "EXISTS (SELECT FROM pg_constraint WHERE connamespace = current_schema()::regnamespace"
        f" AND conname = '{constraint}' AND pg_get_constraintdef(oid) LIKE '%''{value}''%')"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Renumbered:
    """Group of migrations whose numbers or order changed before a release.

    A database may have the number of a later one and lack earlier ones. `marks` maps each revision to an SQL
    condition that is true after the migration ran; `folder` has the migrations.
    """

    folder: Path
    marks: Mapping[str, str]


RENUMBERED = (
    Renumbered(
        folder=FORMER,
        marks={
            "0003": _allows("prune_form", "hide"),
            "0004": _has_relation("checkpoints"),
            "0005": _has_column("prune_decisions", "shown"),
            "0006": _has_column("sessions", "measured_by"),
            "0007": "to_regproc('party_family') IS NOT NULL",
            "0008": _has_relation("note_lists"),
            "0009": _has_relation("passages"),
            "0011": _has_relation("reminders"),
            "0012": _has_column("sessions", "model"),
            "0013": _has_relation("party_links"),
            "0014": _has_relation("erasures"),
            "0015": "to_regproc('agent_cap') IS NOT NULL",
        },
    ),
    Renumbered(
        folder=FORMER,
        marks={
            "0031": _has_relation("jobs_dead_by_time"),
            "0032": _has_relation("entry_rows"),
            "0033": _has_column("turns", "refused_scope"),
            "0034": _has_relation("sessions_troubled_by_id"),
        },
    ),
    Renumbered(
        folder=VERSIONS,
        marks={
            "0047": _has_relation("refused_origins"),
            "0048": _has_column("reminders", "repeat"),
            "0049": _has_relation("operator_pictures"),
            "0050": _has_column("turn_entries", "replaced_by"),
            "0051": _has_relation("stored_settings"),
            "0052": _has_column("operators", "checklist_hidden_at"),
            "0053": _has_relation("sample_plays"),
            "0054": _has_relation("agent_versions"),
            "0055": _has_relation("hourly_stats"),
            "0056": _has_relation("private_notes"),
            "0057": _allows("spend_purpose", "transcribe"),
        },
    ),
)
"""All groups of renumbered migrations; a revision is in at most one group."""
