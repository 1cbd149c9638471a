"""What is said of one operation of REST, and the parameters that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shared.core.identity.api_keys import Scope
from web.api.spec.shapes import CID, FILE_ID, ID, SITE_NAME, words

Role = Literal["viewer", "operator", "admin"]
Schema = dict[str, Any]
Place = Literal["path", "query", "header"]
V1 = "/api/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    told: str
    schema: Mapping[str, Any]
    place: Place = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    name: str
    group: str
    told: str
    """One sentence."""
    more: str = ""
    anyone: bool = False
    visitor: bool = False
    """Of their own conversation."""
    scope: Scope | None = None
    """Which opens this to a key."""
    role: Role | None = None
    """From which on an operator may."""
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    """The name of a schema."""
    takes: str = "application/json"
    """The media type of the body."""
    answers: Mapping[int, str] = field(default_factory=dict)
    """Statuses and the names of schemas."""
    events: Mapping[str, str] = field(default_factory=dict)
    """With `Accept: text/event-stream`: names of events and of schemas."""
    refusals: tuple[int, ...] = ()
    """Beside those that every operation of its kind has."""
    media: str = "application/json"


def in_path(name: str, told: str, schema: Mapping[str, Any]) -> Parameter:
    return Parameter(name=name, told=told, schema=schema, place="path")


def number(name: str, told: str, *, least: int = 1, most: int = 2**53) -> Parameter:
    return Parameter(name=name, told=told, schema={"type": "integer", "minimum": least, "maximum": most})


def some_words(name: str, told: str, most: int = 200) -> Parameter:
    return Parameter(name=name, told=told, schema=words(most))


def choice(name: str, told: str, *values: str) -> Parameter:
    return Parameter(name=name, told=told, schema={"type": "string", "enum": list(values)})


def seen(
    path: str,
    name: str,
    told: str,
    answer: str,
    *parameters: Parameter,
    role: Role = "viewer",
    refusals: tuple[int, ...] | None = None,
    media: str = "application/json",
    more: str = "",
) -> Operation:
    """What a page of the dashboard reads; a thing that is named in its address may be missing."""
    missing = (404,) if "{" in path else ()
    return Operation(
        method="GET", path=f"{V1}{path}", name=name, group="dashboard", told=told, more=more, role=role,
        parameters=parameters, answers={200: answer}, media=media,
        refusals=missing if refusals is None else refusals,
    )  # fmt: skip


def done(
    method: str,
    path: str,
    name: str,
    told: str,
    answer: str,
    *parameters: Parameter,
    role: Role = "operator",
    body: str = "",
    status: int = 200,
    refusals: tuple[int, ...] = (404, 409),
    more: str = "",
) -> Operation:
    """What a button of the dashboard does."""
    return Operation(
        method=method, path=f"{V1}{path}", name=name, group="dashboard", told=told, more=more, role=role,
        parameters=parameters, body=body, answers={status: answer}, refusals=refusals,
    )  # fmt: skip


SESSION = in_path("id", "the public id of a conversation", ID)
SUMMARY = in_path("id", "the public id of a summary", ID)
NOTE = in_path("id", "the short id of a note", {"type": "string", "pattern": "^n[0-9a-f]{8}$"})
OF = Parameter(name="session_id", told="whose, for a key; a visitor has one conversation", schema=ID)
KEY_HEADER = Parameter(
    name="Idempotency-Key", told="in place of `cid`", schema={"type": "string", "pattern": CID["pattern"]},
    place="header",
)  # fmt: skip
LIMIT = number("limit", "at most so many", most=200)
CURSOR = some_words("cursor", "`next` of the page before", 500)
BEFORE = number("before", "a page's `before`")
COMMAND = in_path("name", "of a command, without the slash", {"type": "string"})
SITE = in_path("name", "of a site", SITE_NAME)
FILE = in_path("id", "the id of a file", FILE_ID)
