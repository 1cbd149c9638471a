"""A client that accepts nothing costs a stream of events one timeout, not one for each event."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from web.server.event_stream import EventStream


async def test_stalled_client_is_written_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    async def stall(_response: web.StreamResponse, piece: bytes) -> None:
        tried.append(piece)
        await asyncio.Event().wait()

    monkeypatch.setattr(web.StreamResponse, "write", stall)
    monkeypatch.setattr("web.server.event_stream.SEND_SECONDS", 0.01)
    transport = Mock(is_closing=Mock(return_value=False))
    request = make_mocked_request("GET", "/", transport=transport)
    stream = EventStream(request, request_id="r", headers={})
    await stream.send("token", {"text": "one"})
    await stream.send("token", {"text": "two"})
    assert stream.gone
    assert len(tried) == 1
