"""Secrets of each process: it receives those that it uses, and no others."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shared.config.fields.declaration import ALL, ProcessName
from shared.config.secret_files import SUFFIX
from shared.config.settings import (
    ENV_FILE_NAME,
    ORIGINS_NAME,
    find_setting_sources,
    list_declarations,
    list_setting_names,
)

PROCESSES_BY_SETTING = {
    field: declared.processes
    for field, declared in list_declarations().items()
    if declared.processes is not None
}
"""By field of the settings, every one that is secret."""


def works_with(process: ProcessName, field: str) -> bool:
    """Return whether a process works with a setting; every process works with what is not secret."""
    return process in PROCESSES_BY_SETTING.get(field, ALL)


def select_environment(
    process: ProcessName,
    everything: Mapping[str, str],
    *,
    tokens: Collection[str],
    stored: Collection[str] = (),
) -> dict[str, str]:
    """Return the environment of a process: settings that it uses, by name.

    `tokens` are variables of bots' tokens, `stored` those from the database. The `.env` file is read once for
    all processes, since each would read the secrets of others.
    """
    names = list_setting_names()
    others = {names[field] for field, users in PROCESSES_BY_SETTING.items() if process not in users}
    others |= set() if process == "bot" else {*tokens, *(f"{token}{SUFFIX}" for token in tokens)}
    given = {name: value for name, value in everything.items() if name.upper() not in others}
    return {**given, ENV_FILE_NAME: "", ORIGINS_NAME: _origins(stored)}


def _origins(stored: Collection[str]) -> str:
    """For the page of settings: where each comes from, also those that only another process is given."""
    names = list_setting_names()
    told = {names[field]: origin for field, origin in find_setting_sources().items() if origin != "default"}
    return " ".join(
        f"{name}={origin}" for name, origin in {**dict.fromkeys(stored, "stored"), **told}.items()
    )
