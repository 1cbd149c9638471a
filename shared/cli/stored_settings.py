"""`evertalk settings`: what is stored in the place of environment variables, and its way in and out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.adapters.encryption import CannotUnseal
from shared.adapters.models.catalog import ModelsFileBroken, list_stored_entries
from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.bootstrap.stored_settings import open_stored_settings
from shared.config.settings import BadSettings, Settings
from shared.config.stored import (
    apply_changes,
    find_locked,
    is_sealed,
    list_storable,
    load_with_stored,
    merge_secrets,
)
from shared.core.identity.operators import COMMAND_LINE
from shared.core.values.errors import BadInput

_TAKES = "Stored. A running Evertalk follows within two seconds."
_FORMAT = "evertalk-settings-1"


def read_settings_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command's arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk settings", description="Show and change the settings that are stored in the database."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="list stored settings; secrets are masked")
    setting = verbs.add_parser(
        "set", help="store a setting; a secret is prompted for or read from standard input"
    )
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("value", metavar="VALUE", nargs="?")
    unset = verbs.add_parser("unset", help="remove a setting")
    unset.add_argument("name", metavar="NAME")
    verbs.add_parser("export", help="print stored settings as JSON, without secrets")
    incoming = verbs.add_parser("import", help="store the settings of an exported file; others are kept")
    incoming.add_argument("file", metavar="FILE", type=Path)
    return parser.parse_args(arguments)


async def run_settings(
    wish: argparse.Namespace, *, database_url: str, settings: Settings, say: Callable[[str], None],
    tell: Callable[[str], None], ask: Callable[[], str],
) -> int:  # fmt: skip
    """Run one verb of `evertalk settings`; return exit status 0, or 1 for a failure.

    Lists and exports go to `say`, messages and reasons to `tell`; `ask` reads the value of a secret. A
    running Evertalk follows the change.
    """
    async with open_stored_settings(database_url, settings) as store:
        match wish.verb:
            case "list":
                return await _list(store, say)
            case "export":
                values = (await store.load_readable()).values
                plain = {name: text for name, text in values.items() if not is_sealed(name)}
                say(json.dumps({"format": _FORMAT, "settings": plain}, indent=2, sort_keys=True))
                return 0
        try:
            return await _change(store, _read_changes(wish, ask), tell)
        except BadInput as error:
            tell(f"evertalk: {error.advice}")
        return 1


async def _list(store: PostgresStoredSettings, say: Callable[[str], None]) -> int:
    locked = find_locked()
    for row in (await store.load_readable()).rows:
        if not row.is_set:
            continue
        note = "  (the environment wins)" if row.name in locked else ""
        shown = "(hidden)" if is_sealed(row.name) else row.text
        if row.fault:
            shown = "(cannot be decrypted; set or unset it)"
        say(f"{row.name}={shown}{note}  [{row.changed_by}, {row.changed_at:%Y-%m-%d %H:%M} UTC]")
    return 0


def _read_changes(wish: argparse.Namespace, ask: Callable[[], str]) -> Mapping[str, str | None]:
    """Return the settings to change by name; None removes one. Raises BadInput."""
    if wish.verb == "import":
        return _read_file(wish.file)
    name = wish.name.upper()
    if wish.verb == "unset":
        return {name: None}
    secret = name in list_storable() and is_sealed(name)
    if secret and wish.value is not None:
        raise BadInput(name, advice=f"{name} is a secret: leave its value out, and it is asked for.")
    if not secret and wish.value is None:
        raise BadInput(name, advice=f"Say what {name} is to be: settings set {name} VALUE")
    return {name: ask().strip() if secret else wish.value}


def _read_file(path: Path) -> Mapping[str, str | None]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        given = found["settings"] if found["format"] == _FORMAT else None
    except (ValueError, LookupError, TypeError):
        given = None
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise BadInput(str(path), advice=f"{path} is not what `settings export` prints.")
    if secrets := [name for name in given if name in list_storable() and is_sealed(name)]:
        raise BadInput(str(path), advice=f"{path} holds secrets ({', '.join(secrets)}): set each by itself.")
    return given


async def _change(
    store: PostgresStoredSettings, changes: Mapping[str, str | None], tell: Callable[[str], None]
) -> int:
    if not changes:
        tell("There is nothing to store.")
        return 0
    found = await store.load_readable()
    try:
        changes = merge_secrets(found.values, changes)
        list_stored_entries(load_with_stored(apply_changes(found, changes)))
    except ModelsFileBroken as error:
        tell(f"evertalk: {error}")
        return 1
    except BadSettings as error:
        for problem in error.problems:
            tell(f"evertalk: {problem}")
        return 1
    if await store.change(changes, seen=found.version, by=COMMAND_LINE) is None:
        tell("Somebody else changed a setting in this moment: nothing was stored. Try it again.")
        return 1
    remaining = found.unreadable - changes.keys()
    for name in sorted(remaining):
        tell(f"{name} cannot be decrypted, so stored settings are not in use. {CannotUnseal.advice}")
    tell("Stored." if remaining else _TAKES)
    return 0
