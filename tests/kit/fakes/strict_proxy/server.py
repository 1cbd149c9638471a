"""Forwards requests to a server, and blocks, delays, cuts or replaces them as its rules say."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web
from multidict import CIMultiDict

HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "content-length", "date", "server",
})  # fmt: skip
HANG_SECONDS = 60.0
BLOCKED = "<!doctype html><title>{status}</title><h1>{status}: blocked by the rules of your network</h1>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which the proxy treats connections now."""

    upgrades: str = "pass"
    """WebSocket upgrades: `pass`; `refused` (403); `hang`, without any answer."""
    streams: str = "pass"
    """Event streams: `pass`; `headers`, of which only the headers pass; `held`, of which nothing passes."""
    cut_seconds: float = 0.0
    """Seconds after which an unfinished response is cut; 0 cuts none."""
    trouble: float = 0.0
    """Share, 0 to 1, of requests to the API that get a 403, a 502 or a 200 in HTML, or no answer at all."""


class StrictProxy:
    """The proxy.

    `/control/rules` sets its rules, `/control/seen` returns counters, `/control/cut` breaks all connections.
    """

    def __init__(self, upstream: int, *, seed: int = 0) -> None:
        self._upstream = f"http://127.0.0.1:{upstream}"
        self._rules = Rules()
        self._chance = random.Random(seed)
        self._seen: Counter[str] = Counter()
        self._open: set[asyncio.BaseTransport] = set()
        self._http: aiohttp.ClientSession

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/control/rules", self._set_rules)
        app.router.add_post("/control/cut", self._cut)
        app.router.add_get("/control/seen", self._count)
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.cleanup_ctx.append(self._client)
        return app

    async def _client(self, _app: web.Application) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=None, connect=5)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        ) as self._http:
            yield

    async def _set_rules(self, request: web.Request) -> web.Response:
        self._rules = replace(Rules(), **await request.json())
        return web.json_response({})

    async def _cut(self, request: web.Request) -> web.Response:
        for transport in self._open - {request.transport}:
            if isinstance(transport, asyncio.Transport):
                transport.abort()
        return web.json_response({})

    async def _count(self, _request: web.Request) -> web.Response:
        return web.json_response(dict(self._seen))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._open.add(transport)
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._upgrade(request)
            self._seen["polls" if request.path.endswith("/stream/events") else request.method] += 1
            if request.path.startswith("/api/") and self._chance.random() < self._rules.trouble:
                return self._make_trouble(transport)
            return await self._forward(request)
        except (aiohttp.ClientError, OSError):
            return _page(502)
        finally:
            self._open.discard(transport)

    def _make_trouble(self, transport: asyncio.BaseTransport) -> web.Response:
        self._seen["trouble"] += 1
        status = self._chance.choice((403, 502, 200, 0))
        if not status and isinstance(transport, asyncio.Transport):
            transport.abort()
        return _page(status or 502)

    async def _upgrade(self, request: web.Request) -> web.StreamResponse:
        self._seen["upgrades"] += 1
        if self._rules.upgrades == "refused":
            return _page(403)
        if self._rules.upgrades == "hang":
            await asyncio.sleep(HANG_SECONDS)
            return _page(504)
        headers = {
            name: request.headers[name] for name in ("Origin", "Cookie", "Host") if name in request.headers
        }
        here = web.WebSocketResponse()
        async with self._http.ws_connect(f"{self._upstream}{request.rel_url}", headers=headers) as there:
            await here.prepare(request)
            self._seen["sockets"] += 1
            ways = [asyncio.ensure_future(_pump(here, there)), asyncio.ensure_future(_pump(there, here))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await here.close(code=there.close_code or 1001)
        return here

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        rules, response = self._rules, None
        headers = _pass_on(request.headers)
        try:
            async with (
                asyncio.timeout(rules.cut_seconds or None),
                self._http.request(
                    request.method, f"{self._upstream}{request.rel_url}", headers=headers,
                    data=await request.read(), allow_redirects=False,
                ) as found,
            ):  # fmt: skip
                passed = _pass_on(found.headers)
                if not found.content_type.startswith("text/event-stream"):
                    return web.Response(status=found.status, headers=passed, body=await found.read())
                if rules.streams == "held":
                    await asyncio.sleep(HANG_SECONDS)
                    return _page(504)
                response = web.StreamResponse(status=found.status, headers=passed)
                await response.prepare(request)
                if rules.streams == "headers":
                    await asyncio.sleep(HANG_SECONDS)
                async for piece in found.content.iter_any():
                    await response.write(piece)
        except TimeoutError:
            self._seen["cuts"] += 1
            if response is None:
                return _page(504)
            if isinstance(request.transport, asyncio.Transport):
                request.transport.abort()
        return response


def _page(status: int) -> web.Response:
    return web.Response(status=status, text=BLOCKED.format(status=status), content_type="text/html")


def _pass_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers without those that concern one connection only.

    Names may repeat, as with cookies.
    """
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP)


async def _pump(source: Any, sink: Any) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):
        async for message in source:
            if message.type is not WSMsgType.TEXT:
                return
            await sink.send_str(message.data)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", type=int, required=True, help="port of the server behind the proxy")
    parser.add_argument("--seed", type=int, default=0)


async def start(arguments: argparse.Namespace) -> None:
    application = StrictProxy(arguments.upstream, seed=arguments.seed).application()
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
    await runner.setup()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
