"""Types that several operations accept or return, and the reading of ids."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired
from uuid import UUID

from pydantic import BeforeValidator, Field
from pydantic_core import core_schema
from typing_extensions import TypedDict

from shared.core.memory.search import MessageHit
from web.protocol.answers import ABSENT, Absent
from web.protocol.wire import SITE_PATTERN
from web.rest.arguments import BadField, In

Thing = dict[str, Any]
"""Object whose fields are not described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    success: bool
    result: str | Absent = ABSENT


Details = TypedDict("Details", {"advice": NotRequired[str], "retry_after": NotRequired[float]})
Error = TypedDict("Error", {
    "code": Annotated[str, Field(description="stable error code for programs")],
    "message": Annotated[str, Field(description="error message for people")], "request_id": str,
    "details": NotRequired[
        Annotated[Details, Field(description="`advice`: what to do next; `retry_after`: seconds to wait")]
    ],
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedMessage:
    mid: str
    turn: int
    event_seq: int
    dup: Annotated[bool, Field(description="true if the same `cid` was accepted earlier")] | Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcerptPart:
    text: str
    hit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessage:
    mid: str
    session_id: UUID
    here: Annotated[bool, Field(description="false for a message from before a `/link`")]
    turn: int
    role: str
    at: datetime
    excerpt: list[ExcerptPart]


def show_hit(hit: MessageHit) -> FoundMessage:
    """Return a message that a search found, as answers have it."""
    return FoundMessage(
        mid=hit.mid,
        session_id=UUID(hit.session),
        here=hit.here,
        turn=hit.turn,
        role=hit.author,
        at=hit.at,
        excerpt=[ExcerptPart(text=part.text, hit=part.hit) for part in hit.excerpt],
    )


DONE = Success(success=True)
"""Answer of an operation that returns nothing else."""


def describe(words: str, **limits: Any) -> Any:
    """Return a field description with limits, for the OpenAPI document."""
    return Field(description=words, **limits)


Endpoint = Annotated[str, describe("endpoint URL of the browser's push subscription", max_length=2_000)]
BrowserKey = Annotated[str, describe("key of the push subscription, base64url", max_length=200)]


def choice(words: str, *values: str) -> Any:
    """Return a field description with its possible values, which the handler itself checks."""
    return Field(description=words, json_schema_extra={"enum": list(values)})


class Cut:
    """Annotation of a text of which only the first `most` characters are used, after `change`."""

    def __init__(self, most: int, words: str, *, change: Callable[[str], str] = str) -> None:
        self._most, self._words, self._change = most, words, change

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(
            lambda text: self._change(text)[: self._most], handler(source)
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {**handler(schema), "maxLength": self._most, "description": self._words}


class Digits:
    """Annotation of a whole number in an address: decimal digits only, within the limits."""

    def __init__(self, least: int = 0, most: int = 2**53) -> None:
        self._least, self._most = least, most

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        number = core_schema.int_schema(ge=self._least, le=self._most)
        return core_schema.no_info_before_validator_function(_check_digits, number)


def _check_digits(given: Any) -> Any:
    if isinstance(given, str) and not (given.isascii() and given.isdigit() and len(given) < 19):
        raise ValueError
    return given


def read_mid(raw: str) -> int:
    """Return the number in the id of a message such as `m12`. Raises ValueError."""
    if re.fullmatch(r"m[0-9]{1,16}", raw) is None:
        raise ValueError("the `mid` of a message, such as m12")
    return int(raw[1:])


def _parse_moment(raw: Any) -> Any:
    """Return a date or time as a datetime, in UTC if it names no zone. Raises ValueError."""
    try:
        found = datetime.fromisoformat(raw) if isinstance(raw, str) else raw
    except ValueError:
        raise ValueError("a date such as 2026-11-21") from None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def _parse_exact_moment(raw: str) -> datetime:
    """Return a time with its zone as a datetime. Raises ValueError."""
    try:
        found = datetime.fromisoformat(raw)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 1970 < found.year < 9999:
        raise ValueError("a moment such as 2026-11-03T00:00:00Z")
    return found


Limit = Annotated[int, Digits(1, 200), describe("page size")]
Before = Annotated[int | None, Digits(), describe("`before` of the preceding page")]
Cursor = Annotated[str, Cut(500, "`next` of the preceding page")]
Total = TypedDict("Total", {"count": int, "more": bool})
Counted = Annotated[
    bool, describe("true adds `total`, the number of matches up to 10,000; null if counting takes too long")
]
Search = Annotated[str, Cut(200, "part of a name, or beginning of an id", change=str.strip)]
Mid = Annotated[int | None, BeforeValidator(read_mid, json_schema_input_type=str)]
"""Number of a message, given as its id such as `m12`; None if missing."""
NamedMid = Annotated[
    int, BeforeValidator(read_mid, json_schema_input_type=str), describe("`mid` of a message")
]
"""Number of a message, given as its id in an address."""
Moment = Annotated[
    datetime | None,
    BeforeValidator(_parse_exact_moment, json_schema_input_type=str),
    Field(json_schema_extra={"maxLength": 40}),
]
Since = Annotated[datetime, BeforeValidator(_parse_moment), Field(json_schema_extra={"format": "date"})]
"""Date or time; a date means its beginning in UTC."""
SiteName = Annotated[str, Field(pattern=SITE_PATTERN)]
FileId = Annotated[
    str, Field(description="id of a file", pattern="^[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}$")
]
"""UUID of a file; answers have it without hyphens, in operators' lists of messages with hyphens."""
Id = Annotated[UUID, Field(strict=False)]
"""UUID in a body, where JSON has only text."""
_CID = r"^[A-Za-z0-9_.:\-]{1,64}$"
Cid = Annotated[
    str,
    Field(
        pattern=_CID,
        description="idempotency key; repeating a request with the same key has no further effect",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    In("header", "Idempotency-Key"),
    Field(description="idempotency key, in place of `cid`", json_schema_extra={"pattern": _CID}),
]


def read_cid(cid: object, key: str | None) -> str | None:
    """Return the client's id of an action from the body, else from the header; None without one.

    Raises BadField if it is malformed.
    """
    given = key if cid is None else cid
    if given is not None and (not isinstance(given, str) or re.fullmatch(_CID[1:-1], given) is None):
        raise BadField("`cid` (or Idempotency-Key) has 1 to 64 letters, digits, dots, colons, _ or -.")
    return given
