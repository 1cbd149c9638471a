"""Settings for operators, read-only: value, where it came from, and what docs/settings.md says."""

from __future__ import annotations

import asyncio
import functools
import re
from pathlib import Path
from typing import Any, NotRequired
from urllib.parse import urlsplit, urlunsplit

from typing_extensions import TypedDict

from shared.config.settings import Settings, find_setting_sources, is_secret, list_setting_names
from web.dashboard.access import AuthedRequest
from web.rest.operation import Reply, Room

room = Room()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
_ROW = re.compile(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \|$", re.MULTILINE)

Setting = TypedDict("Setting", {
    "name": str, "secret": bool, "meaning": str, "default": str, "value": NotRequired[str | None],
})  # fmt: skip
AllSettings = TypedDict("AllSettings", {"settings": list[Setting]})


@room.on("GET /settings", AllSettings, role="operator")
async def list_settings(visit: AuthedRequest) -> Reply:
    """Every setting, its value, and where that came from; never a secret."""
    return {"settings": await asyncio.to_thread(_all, visit.desk.settings)}


def _all(given: Settings) -> list[dict[str, Any]]:
    told, origins = _read_page(), find_setting_sources()
    return [_shown(given, field, name, told, origins[field]) for field, name in list_setting_names().items()]


def _shown(
    given: Settings, field: str, name: str, told: dict[str, tuple[str, str]], origin: str
) -> dict[str, Any]:
    value, usual = getattr(given, field), Settings.model_fields[field].get_default(call_default_factory=True)
    if origin == "default" and value != usual:
        origin = "start"
    default, meaning = told.get(name, ("", ""))
    return {
        "name": name,
        "secret": is_secret(field),
        "value": _written(field, value, known=origin != "default"),
        "from": origin,
        "default": default,
        "meaning": meaning,
    }


def _written(field: str, value: object, *, known: bool) -> str | None:
    """As it could be written; a secret never, not even its length. Some only other processes are given."""
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
    """An address may carry a name and a password of its own."""
    try:
        parts = urlsplit(text)
        if not parts.scheme or "@" not in parts.netloc:
            return text
    except ValueError:
        return text
    return urlunsplit(parts._replace(netloc=f"…@{parts.netloc.rpartition('@')[2]}"))


@functools.lru_cache(maxsize=1)
def _read_page() -> dict[str, tuple[str, str]]:
    """Default and meaning by name, as the tables say; nothing where the page is not installed."""
    try:
        text = PAGE.read_text(encoding="utf-8")
    except OSError:
        return {}
    rows = _ROW.findall(text)
    return {name: (default.replace("`", ""), meaning.replace("`", "")) for name, default, meaning in rows}
