"""How answers are written as JSON, and fields that an answer leaves out: `note: str | Absent = ABSENT`."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

from pydantic_core import PydanticOmit

from shared.core.session.turns import iso


class Absent(Enum):
    """Type of `ABSENT`. The OpenAPI document shows a field with this type as optional, without null."""

    ABSENT = "absent"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        raise PydanticOmit


ABSENT: Final = Absent.ABSENT
"""Value of a field that the JSON object does not get; None is sent as null."""


def wire_name(name: str) -> str:
    """Return the name of a field in JSON: `from` for `from_`, which Python cannot use without the mark."""
    return name.rstrip("_")


def to_json(value: Any) -> str:
    """Return a value as compact JSON, with what `to_plain` makes of its parts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=to_plain)


def to_plain(value: Any) -> Any:
    """Return a value for `json.dumps`: times in UTC, a dataclass as a dict without fields that are `ABSENT`.

    Raises TypeError for other types that JSON does not have.
    """
    if isinstance(value, datetime):
        return iso(value)
    if is_dataclass(value) and not isinstance(value, type):
        sent = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {wire_name(name): each for name, each in sent if each is not ABSENT}
    if isinstance(value, UUID | date):
        return str(value)
    raise TypeError(f"{type(value)} has no form in JSON")
