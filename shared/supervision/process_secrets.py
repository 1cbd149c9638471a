"""Secrets that the supervisor gives to each process: those that it uses, and no others.

The web process also decrypts stored secrets of other processes while an operator views or changes settings.
"""

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
"""Names of the processes that get a secret setting, by the setting's field; contains every secret setting."""


def works_with(process: ProcessName, field: str) -> bool:
    """Return whether a process gets a setting; every process gets settings that are not secret."""
    return process in PROCESSES_BY_SETTING.get(field, ALL)


def select_environment(
    process: ProcessName,
    everything: Mapping[str, str],
    *,
    tokens: Collection[str],
    stored: Collection[str] = (),
) -> dict[str, str]:
    """Return the environment of a process, with only those secrets that it uses.

    `everything` is the whole environment, `tokens` are names of variables with tokens of bots, `stored` names
    of settings that come from the database. The variable for the `.env` file is emptied, because the file
    would give a process the secrets of others.
    """
    names = list_setting_names()
    withheld = {names[field] for field, users in PROCESSES_BY_SETTING.items() if process not in users}
    withheld |= set() if process == "bot" else {*tokens, *(f"{token}{SUFFIX}" for token in tokens)}
    given = {name: value for name, value in everything.items() if name.upper() not in withheld}
    return {**given, ENV_FILE_NAME: "", ORIGINS_NAME: _origins(stored)}


def _origins(stored: Collection[str]) -> str:
    """Return `NAME=origin` for each setting that is not a default, separated by spaces.

    It tells the page Settings where values come from, also those that only another process gets.
    """
    names = list_setting_names()
    told = {names[field]: origin for field, origin in find_setting_sources().items() if origin != "default"}
    return " ".join(
        f"{name}={origin}" for name, origin in {**dict.fromkeys(stored, "stored"), **told}.items()
    )
