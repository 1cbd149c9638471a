"""The common part of fakes with one endpoint: a script of outcomes, and the list of received requests."""

from __future__ import annotations

import argparse
import json
import socket
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from aiohttp import web

from tests.kit.fakes.lifetime import live

KEY = "a-key-for-the-fake"


class ScriptedApi(ABC):
    """A fake with one endpoint.

    A POST to `/control/next` sets the outcomes of the next requests; a GET of `/control/requests` returns the
    requests since the last GET.
    """

    path: ClassVar[str]
    actions: ClassVar[frozenset[str]]
    """Names that an outcome in the script may have."""
    most_bytes: ClassVar[int] = 2**20

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self._next: list[dict[str, Any]] = []

    @abstractmethod
    async def answer(self, request: web.Request) -> web.StreamResponse: ...

    def application(self) -> web.Application:
        app = web.Application(client_max_size=self.most_bytes)
        app.router.add_post(self.path, self.answer)
        app.router.add_post("/control/next", self._script)
        app.router.add_get("/control/requests", self._told)
        return app

    def next_action(self) -> dict[str, Any]:
        return self._next.pop(0) if self._next else {}

    async def _script(self, request: web.Request) -> web.Response:
        self._next = await request.json()
        unknown = {name for one in self._next for name in one} - self.actions
        return web.json_response(sorted(unknown), status=400 if unknown else 200)

    async def _told(self, request: web.Request) -> web.Response:
        asked, self.asked = self.asked, []
        return web.json_response(asked)


def has_key(request: web.Request) -> bool:
    return request.headers.get("Authorization") == f"Bearer {KEY}"


def run(api: ScriptedApi) -> None:
    """Run the fake as a process: it prints its port when ready, and ends at SIGTERM or with its parent."""

    async def start(arguments: argparse.Namespace) -> None:
        runner = web.AppRunner(api.application(), access_log=None)
        await runner.setup()
        listener = socket.socket()
        listener.bind(("127.0.0.1", arguments.port))
        await web.SockSite(runner, listener).start()
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)

    parser = argparse.ArgumentParser(description=api.__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    live(parser, start)
