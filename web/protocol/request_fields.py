"""Reads what programs send, strictly: known names, right types, with words that say how to do it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from aiohttp import web

from shared.core.memory.search import SearchKey
from shared.core.values.errors import BadInput
from web.protocol.wire import clean

_MID = re.compile(r"m[0-9]{1,16}")
CID = re.compile(r"[A-Za-z0-9_.:\-]{1,64}")
MAX_NUMBER = 2**53


class BadField(BadInput):
    """A field of the request cannot be used."""

    code = "bad_field"

    def __init__(self, advice: str) -> None:
        super().__init__(advice, advice=advice)


def only(body: Mapping[str, Any], *names: str) -> None:
    for name in body:
        if name not in names:
            shown = "".join(char for char in name[:40] if char.isprintable())
            raise BadField(f"There is no field `{shown}`; known are {', '.join(names)}.")


def text(body: Mapping[str, Any], name: str, *, most: int, needed: bool = False) -> str | None:
    """None when it is not given; raises BadField, UnreadableMessage."""
    value = body.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, str) or (needed and not value.strip()):
        raise BadField(f"`{name}` is text{', and is needed' if needed else ''}.")
    if len(value) > most:
        raise BadField(f"`{name}` has {len(value)} characters; {most} is the most.")
    return clean(value)


def cid(request: web.Request, body: Mapping[str, Any]) -> str | None:
    """The client's own id of what it does, from the body or the header `Idempotency-Key`."""
    given = body.get("cid")
    if given is None:
        given = request.headers.get("Idempotency-Key")
    if given is not None and (not isinstance(given, str) or CID.fullmatch(given) is None):
        raise BadField("`cid` (or Idempotency-Key) has 1 to 64 letters, digits, dots, colons, _ or -.")
    return given


def number(query: Mapping[str, str], name: str, *, least: int = 0, most: int = MAX_NUMBER) -> int | None:
    raw = query.get(name)
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 16 and least <= int(raw) <= most):
        raise BadField(f"`{name}` is a whole number from {least} to {most}.")
    return int(raw)


def moment(query: Mapping[str, str], name: str) -> datetime | None:
    raw = query.get(name)
    if raw is None:
        return None
    try:
        found = datetime.fromisoformat(raw)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 1970 < found.year < 9999:
        raise BadField(f"`{name}` is a moment such as 2026-11-03T00:00:00Z.")
    return found


def search_key(query: Mapping[str, str], name: str) -> SearchKey | None:
    """Where a page of a search goes on."""
    raw = query.get(name)
    if raw is None:
        return None
    if (found := SearchKey.parse(raw)) is None:
        raise BadField(f"`{name}` is the `next` of the page before.")
    return found


def entry(query: Mapping[str, str], name: str) -> int | None:
    """The number in the id of a message."""
    raw = query.get(name)
    if raw is None:
        return None
    if _MID.fullmatch(raw) is None:
        raise BadField(f"`{name}` is the `mid` of a message, such as m12.")
    return int(raw[1:])


def is_id(value: str) -> bool:
    try:
        UUID(value)
    except ValueError:
        return False
    return True
