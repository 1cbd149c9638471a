"""What was sent to the dashboard: JSON objects and forms, bounded in size and time, as text that keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from shared.core.values.errors import BadInput
from web.dashboard.access import AuthedRequest, DashboardRefusal
from web.protocol import wire
from web.security import MAX_BODY_BYTES

JSON_BYTES = MAX_BODY_BYTES
FORM_BYTES = 8192
SECONDS = 10.0


async def read_json(
    visit: AuthedRequest, *, most: int = JSON_BYTES, needed: bool = True
) -> Mapping[str, Any]:
    """An object; without `needed` nothing at all is an empty one. Raises Refusal."""
    _check_size(visit.request, most)
    try:
        async with asyncio.timeout(SECONDS):
            sent = await visit.request.text()
        body = wire.read_object(sent if sent or needed else "{}")
        for text in _texts(body):
            wire.clean(text)
    except TimeoutError:
        raise _too_slow() from None
    except (BadInput, ValueError, LookupError, RecursionError):
        raise DashboardRefusal(
            400, "bad_input", "A JSON object is needed, of text that can be kept."
        ) from None
    return body


async def read_form(visit: AuthedRequest) -> Mapping[str, str]:
    """The fields of a form that are text. Raises Refusal."""
    _check_size(visit.request, FORM_BYTES)
    try:
        async with asyncio.timeout(SECONDS):
            form = await visit.request.post()
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        "".join(fields.values()).encode()
    except TimeoutError:
        raise _too_slow() from None
    except ValueError:
        raise DashboardRefusal(400, "bad_input", "That form cannot be read.") from None
    return {name: value.replace("\x00", "") for name, value in fields.items()}


def _check_size(request: web.Request, most: int) -> None:
    """By what was said of it; what lied is cut off where the application's own limit is."""
    if (request.content_length or 0) > most:
        raise DashboardRefusal(413, "too_large", "That is too large.")


def _too_slow() -> DashboardRefusal:
    return DashboardRefusal(408, "timeout", "That took too long to arrive. Please try again.")


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
