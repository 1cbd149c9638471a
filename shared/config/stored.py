"""Settings that an operator may change while Evertalk runs; the environment wins over each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.config.bots import check_stored_bots
from shared.config.fields.kinds import parse_json, read_secrets
from shared.config.settings import (
    BadSettings,
    Settings,
    SettingsProblem,
    find_setting_sources,
    is_secret,
    list_declarations,
    list_setting_names,
    load_settings,
)

STORABLE = tuple(field for field, declared in list_declarations().items() if declared.is_storable)
"""Fields of the settings that operators may store.

None of them opens a way in: addresses, ports, files, keys of the installation and logins are missing. The
folder for copies of backups is only written to.
"""
SEVERAL_SECRETS = tuple(field for field, declared in list_declarations().items() if declared.by_purpose)
"""Settings that are a JSON object of secrets: keys by address of their server, tokens by id of their bot."""
MOST_CHARS = 8000
"""Most characters of one stored setting."""
_OUTSIDE = ("environment", "file")
"""Sources that win over stored values."""
_ADDRESS_OF = {
    list_setting_names()[field]: list_setting_names()[declared.sent_to]
    for field, declared in list_declarations().items()
    if declared.sent_to
}
"""Setting with the address of each key's server; the key is sent nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSetting:
    """Setting that operators have stored; `text` is None if it was removed or cannot be decrypted.

    `version` is that of its change. Operators never see the text of a secret.
    """

    name: str
    text: str | None
    version: int
    changed_by: str
    changed_at: datetime
    fault: str = ""
    """Reason why the key of this installation cannot decrypt the secret; empty if it can."""

    @property
    def is_set(self) -> bool:
        """True unless the setting was removed."""
        return bool(self.text or self.fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSettings:
    """All stored settings, and the version of the newest change, which the next change must name."""

    version: int
    rows: tuple[StoredSetting, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """Stored values by environment variable, without removed ones and unreadable secrets."""
        return {row.name: row.text for row in self.rows if row.text is not None}

    @property
    def unreadable(self) -> frozenset[str]:
        """Environment variables of the secrets that cannot be decrypted."""
        return frozenset(row.name for row in self.rows if row.fault)


def list_storable() -> dict[str, str]:
    """Return the settings field of each setting that can be stored, by its environment variable."""
    names = list_setting_names()
    return {names[field]: field for field in STORABLE}


def find_locked() -> frozenset[str]:
    """Return the environment variables of settings that operators cannot store.

    Their value comes from the environment or `.env`. If a key comes from there, its server's address counts,
    too, so that no stored address gets the key.
    """
    given = _find_given()
    return given | {address for key, address in _ADDRESS_OF.items() if key in given}


def _find_given() -> frozenset[str]:
    """Return the environment variables of settings whose value comes from the environment or `.env`."""
    names = list_setting_names()
    return frozenset(names[field] for field, origin in find_setting_sources().items() if origin in _OUTSIDE)


def load_with_stored(values: Mapping[str, str], **overrides: Any) -> Settings:
    """Return the settings in force with these stored values, given by environment variable.

    The environment and `.env` win over them, `overrides` by field name over both. Raises BadSettings.
    """
    locked = find_locked()
    given = {
        field: values[name] if name in values else Settings.model_fields[field].get_default()
        for name, field in list_storable().items()
        if name not in locked
    }
    return load_settings(**{**given, **overrides})


def merge_secrets(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the changes, with new secrets merged into stored ones for SEVERAL_SECRETS.

    Such a setting is a JSON object: null removes one secret, and missing ones are kept, since operators
    cannot see them. Secrets that cannot be decrypted are missing in `stored` and replaced. The value None
    removes the whole setting. Raises BadSettings if the value is no such object.
    """
    names = {name for name, field in list_storable().items() if field in SEVERAL_SECRETS}
    merged = dict(changes)
    for name in names & changes.keys():
        if (text := changes[name]) is None:
            continue
        try:
            change = parse_json(text)
            if not isinstance(change, dict):
                raise ValueError("must be a JSON object")
            former = read_secrets(stored.get(name))
        except ValueError as error:
            raise BadSettings((SettingsProblem(name=name, value="", reason=str(error)),)) from None
        kept = {key: secret for key, secret in {**former, **change}.items() if secret}
        merged[name] = json.dumps(kept) if kept else None
    return merged


def apply_changes(found: StoredSettings, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the stored values after a change, by environment variable; nothing is stored.

    None or "" as a change removes the value. Secrets that cannot be decrypted are left out, so that each can
    be replaced or removed while others remain; tokens among them let the bots go unchecked. Raises
    BadSettings with every field that is refused.
    """
    if problems := tuple(_refusals(found, changes)):
        raise BadSettings(problems)
    wanted = {**found.values, **changes}
    kept = {name: text for name, text in wanted.items() if text}
    settings = load_with_stored(kept)
    if list_setting_names()["telegram_tokens"] not in found.unreadable - changes.keys():
        check_stored_bots(settings)
    return kept


def _refusals(found: StoredSettings, changes: Mapping[str, str | None]) -> Iterator[SettingsProblem]:
    known, given, locked, stored = list_storable(), _find_given(), find_locked(), found.values
    for name, text in changes.items():
        if name not in known:
            yield SettingsProblem(name=name, value="", reason="cannot be stored; set it in the environment")
        elif name in locked and (text or name not in found.unreadable):
            own = "is set by the environment, which wins"
            reason = own if name in given else "its key is set by the environment: set the address there, too"
            yield SettingsProblem(name=name, value="", reason=reason)
        elif text is not None and (len(text) > MOST_CHARS or not text.isprintable()):
            reason = f"must be one line of {MOST_CHARS:,} characters at most"
            yield SettingsProblem(name=name, value="", reason=reason)
    for key, address in _ADDRESS_OF.items():
        moved = address in changes and (changes[address] or "") != stored.get(address, "")
        if moved and (stored.get(key) or key in found.unreadable) and key not in changes:
            reason = "give it again with a new address, or take it away first: it is sent nowhere else"
            yield SettingsProblem(name=key, value="", reason=reason)


def is_sealed(name: str) -> bool:
    """Return whether a setting, by its environment name, is a secret and stored encrypted."""
    return is_secret(list_storable()[name])
