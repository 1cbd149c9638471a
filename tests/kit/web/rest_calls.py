"""Calls of the REST interface as a program makes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import ClientResponse

from tests.kit.web.fixtures import Frame, Server

Told = tuple[int, Frame]


async def call(server: Server, method: str, path: str, headers: Mapping[str, str], **sent: Any) -> Told:
    async with server.client.request(method, f"{server.url}/api/v1{path}", headers=headers, **sent) as answer:
        return answer.status, await answer.json()


async def opened(server: Server, headers: Mapping[str, str], external_id: str = "ada") -> str:
    status, told = await call(server, "POST", "/sessions", headers, json={"external_id": external_id})
    assert status in (200, 201), told
    return str(told["session_id"])


async def events_of(answer: ClientResponse) -> list[tuple[str, Frame]]:
    """Return all events of a stream, each as its kind and data, until the stream ends."""
    found: list[tuple[str, Frame]] = []
    async with asyncio.timeout(20):
        text = (await answer.read()).decode()
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found
