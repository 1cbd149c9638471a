"""Settings for operators: their values, sources, descriptions and changes."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field
from typing_extensions import TypedDict

from shared.adapters.encryption import CannotUnseal
from shared.adapters.models.catalog import ModelsFileBroken, list_stored_entries
from shared.adapters.models.price_list import list_unpriced
from shared.adapters.models.token_cap import find_token_cap
from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.config.fields.kinds import read_secrets
from shared.config.settings import (
    BadSettings,
    Settings,
    SettingsProblem,
    describe_default,
    find_setting_sources,
    is_secret,
    list_declarations,
    list_setting_names,
)
from shared.config.stored import (
    SEVERAL_SECRETS,
    STORABLE,
    StoredSetting,
    StoredSettings,
    apply_changes,
    find_locked,
    is_sealed,
    list_storable,
    load_with_stored,
    merge_secrets,
)
from shared.core.session.turns import iso
from shared.supervision.process_secrets import PROCESSES_BY_SETTING
from web.dashboard.access import AuthedRequest
from web.dashboard.requests import Seen, parse_version
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

router = OperationRouter()
_MODELS = "EVERTALK_MODELS"
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]*\)")
Changes = Annotated[
    dict[str, str | None],
    Field(max_length=len(STORABLE), description="new values by setting name; null removes a setting"),
]

Setting = TypedDict("Setting", {
    "name": str, "secret": bool, "meaning": str, "default": str, "value": NotRequired[str | None],
    "from": NotRequired[Literal["environment", "file", "stored", "start", "default"]],
    "kind": NotRequired[Literal["secret", "switch", "choice", "number", "text", "models", "bots"]],
    "choices": NotRequired[list[str]], "editable": NotRequired[bool], "stored": NotRequired[str | None],
    "changed_by": NotRequired[str], "changed_at": NotRequired[str],
})  # fmt: skip
SettingProblem = TypedDict("SettingProblem", {"name": str, "reason": str})
AllSettings = TypedDict("AllSettings", {
    "settings": list[Setting], "version": int, "pending": list[str],
    "problems": list[SettingProblem], "unpriced": list[str], "token_cap": int,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsHandlers:
    """Handlers of the settings."""

    stored_settings: PostgresStoredSettings
    settings: Settings

    @router.on("GET /settings", AllSettings, role="operator")
    async def list_settings(self, authed: AuthedRequest) -> Reply:
        """List settings with value and source.

        Secrets are not included.

        `kind` is present for settings that can be stored. `editable` is false if the environment sets the
        value, or the key of this address. `from` is `start` for a value that was chosen at the start, such as
        a free port. `pending` lists stored settings that this process does not use yet.
        """
        return await self._load_all()

    @router.on(
        "PUT /settings", AllSettings, role="admin", body="SettingChanges", strict=True,
        refusals=(409, 422, 428, 503),
    )  # fmt: skip
    async def change_settings(
        self, authed: AuthedRequest, *, changes: Annotated[Changes, Field(min_length=1)], if_match: Seen = ""
    ) -> Reply:
        """Store settings.

        Every process uses them within two seconds, without a restart.
        """
        store, seen = self.stored_settings, parse_version(if_match)
        found = await store.load_readable()
        if found.version == seen:
            wanted = merge_changes(found, changes)
            await check_changes(found, wanted)
            if await store.change(wanted, seen=seen, by=authed.operator.name) is not None:
                return await self._load_all()
            found = await store.load_readable()
        words = "Another operator changed this meanwhile: your changes were not saved."
        changed = [_render_change(row) for row in found.rows if row.version > seen]
        raise HttpRefusal(409, "stale", words, changed=changed, theirs=await self._load_all())

    async def _load_all(self) -> dict[str, Any]:
        found = await self.stored_settings.load_readable()
        return await asyncio.to_thread(render_settings, self.settings, found)


def merge_changes(found: StoredSettings, changes: Changes | None) -> dict[str, str | None]:
    """Return the changes as they will be stored; None deletes a setting. Raises HttpRefusal.

    A setting with several secrets keeps those that the change does not name.
    """
    given = {name: text.strip() if text else None for name, text in (changes or {}).items()}
    try:
        return merge_secrets(found.values, given)
    except BadSettings as error:
        raise _refusal(error) from None


async def check_changes(found: StoredSettings, changes: Mapping[str, str | None]) -> Settings:
    """Return the settings after a change. Raises HttpRefusal with a reason for each refused field."""
    try:
        values = await asyncio.to_thread(apply_changes, found, changes)
        settings = await asyncio.to_thread(load_with_stored, values)
        list_stored_entries(settings)
    except ModelsFileBroken as error:
        reason = str(error).removeprefix(f"{_MODELS}: ")
        raise _refusal(BadSettings((SettingsProblem(name=_MODELS, value="", reason=reason),))) from None
    except BadSettings as error:
        raise _refusal(error) from None
    return settings


def _refusal(error: BadSettings) -> HttpRefusal:
    words = "This cannot be used; nothing was changed."
    return HttpRefusal(422, "bad_settings", words, problems=_render_problems(error))


def _render_problems(error: BadSettings) -> list[dict[str, str]]:
    return [{"name": one.name, "reason": one.reason} for one in error.problems]


def _render_change(row: StoredSetting) -> dict[str, str | None]:
    return {"name": row.name, "value": _text_of(row), "by": row.changed_by, "at": iso(row.changed_at)}


def _text_of(row: StoredSetting) -> str | None:
    """Return a stored value as text without passwords; None if there is none.

    A secret is shown as `set`, and several secrets by the names of their purposes, none if they cannot be
    decrypted.
    """
    if row.is_set and list_storable().get(row.name) in SEVERAL_SECRETS:
        return " ".join(sorted(read_secrets(row.text)))
    return "set" if row.is_set and is_sealed(row.name) else row.text and _without_password(row.text)


def render_settings(given: Settings, found: StoredSettings) -> dict[str, Any]:
    """Return all settings as the dashboard shows them, with what is stored and not yet in use."""
    origins, locked = find_setting_sources(), find_locked()
    rows = {row.name: row for row in found.rows}
    settings = [
        _render_setting(given, field, name, origins[field])
        | (_render_stored(field, rows.get(name), name in locked) if field in STORABLE else {})
        for field, name in list_setting_names().items()
    ]
    try:
        _refuse_unreadable(found)
        pending, problems = list(_pending(given, load_with_stored(found.values), locked)), []
    except BadSettings as error:
        pending, problems = [], _render_problems(error)
    return {
        "settings": settings, "version": found.version,
        "pending": pending, "problems": problems, "unpriced": _list_unpriced(given),
        "token_cap": find_token_cap(dollars=given.cap_total_per_day_usd, tokens=given.cap_tokens_per_day),
    }  # fmt: skip


def _refuse_unreadable(found: StoredSettings) -> None:
    """Raise BadSettings with each secret that cannot be decrypted, since processes then use no change."""
    if found.unreadable:
        raise BadSettings(
            tuple(
                SettingsProblem(name=name, value="", reason=CannotUnseal.advice)
                for name in sorted(found.unreadable)
            )
        )


def _list_unpriced(settings: Settings) -> list[str]:
    try:
        return list(list_unpriced(settings))
    except ModelsFileBroken:
        return []


def _pending(given: Settings, wanted: Settings, locked: frozenset[str]) -> Iterator[str]:
    """Yield settings that this process does not use yet; secrets of other processes are unknown to it."""
    names = list_setting_names()
    for field in STORABLE:
        mine = "web" in PROCESSES_BY_SETTING.get(field, ("web",)) and names[field] not in locked
        if mine and getattr(given, field) != getattr(wanted, field):
            yield names[field]


def _render_setting(given: Settings, field: str, name: str, origin: str) -> dict[str, Any]:
    value, declared = getattr(given, field), Settings.model_fields[field]
    if origin == "default" and value != declared.get_default(call_default_factory=True):
        origin = "start"
    return {
        "name": name,
        "secret": is_secret(field),
        "value": _render_value(field, value, known=origin != "default"),
        "from": origin,
        "default": _render_plain(describe_default(field)),
        "meaning": _render_plain(declared.description or ""),
    }


def _render_stored(field: str, row: StoredSetting | None, locked: bool) -> dict[str, Any]:
    """Return what a form needs; a stored value is shown as typed, even if it is not in use yet."""
    kind, choices = _kind(field)
    form = {"kind": kind, "choices": choices, "editable": not locked, "stored": None}
    if row is None:
        return form
    form |= {"stored": _text_of(row), "changed_by": row.changed_by, "changed_at": iso(row.changed_at)}
    if locked:
        return form
    secret = {"value": "set" if row.is_set else "not set"} if is_secret(field) else {}
    return form | secret | {"from": "stored" if row.is_set else "default"}


@functools.cache
def _kind(field: str) -> tuple[str, list[str]]:
    """Return the kind of form field for a setting, and its choices.

    Only the kind `choice` has choices; an empty value means the default.
    """
    row = list_declarations()[field].form
    if row and row.kind:
        return row.kind, []
    if is_secret(field):
        return "secret", []
    if row and row.choices:
        return "choice", list(row.choices)
    leaves = list(_leaves(Settings.model_fields[field].annotation))
    choices = [str(one) for leaf in leaves if get_origin(leaf) is Literal for one in get_args(leaf)]
    if choices:
        return "choice", choices
    if bool in leaves:
        return "switch", []
    return "number" if any(leaf in (int, float, Decimal) for leaf in leaves) else "text", []


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the member types of an annotation; Literal and tuple types are yielded whole."""
    if get_origin(annotation) in (Literal, tuple) or not get_args(annotation):
        yield annotation
        return
    for one in get_args(annotation):
        yield from _leaves(one)


def _render_value(field: str, value: object, *, known: bool) -> str | None:
    """Return a value as it could be typed; None if it is empty.

    A secret gives only `set` or `not set`; `known` means that a value is configured.
    """
    if is_secret(field):
        return "set" if value is not None or known else "not set"
    if value is None or value in ((), ""):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join("=".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return _without_password(str(value))


def _without_password(text: str) -> str:
    """Return an address without its user name and password."""
    try:
        parts = urlsplit(text)
        if not parts.scheme or "@" not in parts.netloc:
            return text
    except ValueError:
        return text
    return urlunsplit(parts._replace(netloc=f"…@{parts.netloc.rpartition('@')[2]}"))


def _render_plain(text: str) -> str:
    """Return a text of the documentation without links and back-ticks."""
    return _LINK.sub(r"\1", text).replace("`", "")
