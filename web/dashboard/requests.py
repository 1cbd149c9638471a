"""Request bodies of the dashboard: JSON objects and forms, bounded in size and time, and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from shared.config.agents import AGENT_NAME
from shared.core.values.errors import BadInput
from web.protocol import wire
from web.rest.arguments import In
from web.security import HttpRefusal

FORM_BYTES = 8192
"""Maximum bytes of a form, and of JSON bodies as small as one."""
SECONDS = 10.0
"""Seconds in which a body must arrive."""
NewName = Annotated[
    str, Field(pattern=f"^{AGENT_NAME.pattern}$", title="1 to 40 of a-z, 0-9, _ and -, no mark first")
]
"""Name of a new agent, by the rule of the command line."""
Seen = Annotated[
    str, In("header", "If-Match"),
    Field(
        description="`etag` or version that the caller has read",
        json_schema_extra={"minLength": 1, "maxLength": 80},
    ),
]  # fmt: skip


async def read_json(request: web.Request, *, most: int, needed: bool = True) -> Mapping[str, Any]:
    """Return the body as a JSON object; an empty body gives an empty object if it is not `needed`.

    Raises HttpRefusal: 413 above `most` bytes, 408 after `SECONDS`, 400 for anything else but a JSON object
    of text that Postgres can store.
    """
    _check_size(request.content_length, most)
    try:
        async with asyncio.timeout(SECONDS):
            _check_size(len(await request.read()), most)
        sent = await request.text()
        body = wire.read_object(sent if sent or needed else "{}")
        for text in _texts(body):
            wire.clean(text)
    except web.HTTPRequestEntityTooLarge:
        raise _too_large() from None
    except TimeoutError:
        raise _too_slow() from None
    except (BadInput, ValueError, LookupError, RecursionError):
        raise HttpRefusal(400, "bad_input", "A JSON object is needed, of text that can be kept.") from None
    return body


async def read_form(request: web.Request) -> Mapping[str, str]:
    """Return the text fields of a form, without NUL characters.

    Raises HttpRefusal: 413 above `FORM_BYTES`, 408 after `SECONDS`, 400 for an unreadable form.
    """
    _check_size(request.content_length, FORM_BYTES)
    try:
        async with asyncio.timeout(SECONDS):
            form = await request.clone(client_max_size=FORM_BYTES).post()
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        "".join(fields.values()).encode()
    except web.HTTPRequestEntityTooLarge:
        raise _too_large() from None
    except TimeoutError:
        raise _too_slow() from None
    except ValueError:
        raise HttpRefusal(400, "bad_input", "That form cannot be read.") from None
    return {name: value.replace("\x00", "") for name, value in fields.items()}


async def add_total(
    page: Awaitable[Mapping[str, Any]], count: Awaitable[Mapping[str, Any] | None] | None
) -> Mapping[str, Any]:
    """Return a page of a list, and the result of `count` as its field `total`.

    With `count` None, the page has no such field.
    """
    if count is None:
        return await page
    found, total = await asyncio.gather(page, count)
    return {**found, "total": total}


def parse_etag(if_match: str) -> str:
    """Return the version in an `If-Match` header, which the caller has read. Raises HttpRefusal 428 without
    one.
    """
    given = if_match.strip().removeprefix("W/")
    if not given:
        raise HttpRefusal(428, "version_needed", "Send `If-Match` with the version that you have read.")
    return given


def parse_version(if_match: str) -> int:
    """Return the version number in an `If-Match` header.

    Raises HttpRefusal: 428 without one, 400 if it is no number.
    """
    given = parse_etag(if_match).strip('"')
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise HttpRefusal(400, "bad_input", "`If-Match` is the `etag` that came with it.")
    return int(given)


def build_stale_refusal(*, yours: Any, theirs: Any) -> HttpRefusal:
    """Return HTTP 409 with both versions, after another operator has changed the object."""
    words = "Another operator changed this meanwhile: your changes were not saved."
    return HttpRefusal(409, "stale", words, yours=yours, theirs=theirs)


def _check_size(length: int | None, most: int) -> None:
    """Check the stated or true length of a body; None if none is stated. Raises HttpRefusal 413 above `most`
    bytes.
    """
    if (length or 0) > most:
        raise _too_large()


def _too_large() -> HttpRefusal:
    return HttpRefusal(413, "too_large", "That is too large.")


def _too_slow() -> HttpRefusal:
    return HttpRefusal(408, "timeout", "That took too long to arrive. Please try again.")


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
