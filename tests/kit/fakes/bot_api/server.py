"""Serves the Bot API to bots on one port, and the tests' controls (`/control`) on another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from tests.kit.fakes.bot_api.accounts import Bot
from tests.kit.fakes.bot_api.calls import Call, Journal, Record
from tests.kit.fakes.bot_api.control import Control
from tests.kit.fakes.bot_api.door import Door
from tests.kit.fakes.bot_api.faults import HTML_PAGE, error_body, make_script
from tests.kit.fakes.bot_api.methods import Dispatcher
from tests.kit.fakes.bot_api.refusals import Refusal
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.wire import Sent, read_call
from tests.kit.fakes.bot_api.world import World

MAX_BODY_BYTES = 120 * 1024 * 1024
DRIPS = 20
SHUTDOWN_SECONDS = 1.0


class _Cut(Exception):
    """Raised to drop the connection instead of answering."""


class BotApiServer:
    """The fake Bot API: a server for bots and a server for the controls of tests, with one world behind
    both.
    """

    def __init__(self) -> None:
        self.world = World()
        self.journal = Journal()
        self.script = make_script()
        self._dispatcher = Dispatcher(self.world, self.journal)
        self._runners: list[web.AppRunner] = []
        self._doors: list[Door] = []

    async def start(self, *, port: int = 0, control_port: int = 0) -> tuple[int, int]:
        """Listen on both servers, and return the ports of the Bot API and of the controls.

        0 takes a free port.
        """
        runner = await self._runner(self._bot_application())
        door = Door(runner, port)
        control = Control(self.world, self.journal, self.script, door)
        control_door = Door(await self._runner(control.application()), control_port)
        self._doors = [door, control_door]
        for one in self._doors:
            await one.open()
        return door.port, control_door.port

    async def close(self) -> None:
        """Stop both servers, and close the webhooks of the world."""
        await self.world.close()
        for runner in self._runners:
            await runner.cleanup()
        for door in self._doors:
            door.close()

    async def _runner(self, application: web.Application) -> web.AppRunner:
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS
        )
        await runner.setup()
        self._runners.append(runner)
        return runner

    def _bot_application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/bot{token}/{method}", self._called)
        app.router.add_get("/file/bot{token}/{path:.+}", self._fetched)
        app.router.add_route("*", "/{rest:.*}", self._nothing_here)
        return app

    async def _called(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["method"]
        method = self.world.schema.method(name)
        record = self.journal.open(method or name, self.world.clock.now())
        try:
            response = await self._answered(request, record, known=method is not None)
            if record.fault and "then_refuse" in record.fault:
                response.force_close()
            return response
        except Refusal as refusal:
            if refusal.violation:
                self.journal.violated(record, refusal.description)
            record.status, record.outcome = refusal.status, "refused"
            record.description = refusal.description
            return _json(refusal.body(), status=refusal.status, headers=refusal.headers())
        except (_Cut, ConnectionError):
            record.outcome = "lost"
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=499)
        except asyncio.CancelledError:
            record.outcome = "client_gone"
            raise

    async def _answered(self, request: web.Request, record: Record, *, known: bool) -> web.StreamResponse:
        bot = self._bot(request)
        record.bot = bot.id
        sent = await read_call(request)
        record.params = _readable(sent)
        record.files = {upload.name: len(upload.content) for upload in sent.uploads.values()}
        record.fault = action = self.script.action_for(record) or None
        if action:
            await _faults_before(action)
            if "status" in action:
                return await self._failed(request, record, action)
        if not known:
            raise Refusal("method not found", status=404, violation=True)
        params = self.world.schema.checked(record.method, sent.values)
        record.params = params
        call = Call(method=record.method, bot=bot, params=params, uploads=sent.uploads)
        result = await self._dispatcher.run(call)
        record.processed = True
        if record.method != "getUpdates":
            record.result = _kept(result)
        body = json.dumps({"ok": True, "result": result}, ensure_ascii=False).encode()
        if not action:
            record.status, record.outcome = 200, "answered"
            return web.Response(body=body, content_type="application/json")
        return await self._spoiled(request, record, action, body)

    async def _failed(self, request: web.Request, record: Record, action: Json) -> web.StreamResponse:
        record.status, record.outcome = action["status"], "refused"
        await self._refuse_afterwards(request, action)
        if action.get("html"):
            return web.Response(status=action["status"], text=HTML_PAGE, content_type="text/html")
        body = error_body(action)
        record.description = body["description"]
        after = body.get("parameters", {}).get("retry_after")
        headers = {} if after is None else {"Retry-After": str(after)}
        return _json(body, status=action["status"], headers=headers)

    async def _spoiled(
        self, request: web.Request, record: Record, action: Json, body: bytes
    ) -> web.StreamResponse:
        """Return the answer to a processed call, spoiled as the fault `action` says: late, cut, dripped or
        dropped.
        """
        if "stall_after" in action:
            await asyncio.sleep(action["stall_after"])
        await self._refuse_afterwards(request, action)
        if action.get("reset") == "after":
            raise _Cut
        record.status, record.outcome = 200, "answered"
        if action.get("truncate"):
            body = body[: len(body) // 2]
        if "slow" in action:
            return await _dripped(request, body, seconds=action["slow"])
        return web.Response(body=body, content_type="application/json")

    async def _refuse_afterwards(self, request: web.Request, action: Json) -> None:
        if "then_refuse" in action:
            await self._doors[0].shut(action["then_refuse"], sparing=request.transport)

    async def _fetched(self, request: web.Request) -> web.StreamResponse:
        record = self.journal.open("file", self.world.clock.now())
        try:
            record.bot = self._bot(request).id
            record.params = {"path": request.match_info["path"]}
            record.fault = action = self.script.action_for(record) or None
            if action:
                await _faults_before(action)
                if "status" in action:
                    return await self._failed(request, record, action)
            found = self.world.files.at(request.match_info["path"])
            if found is None:
                raise Refusal("", status=404)
            record.status, record.outcome, record.processed = 200, "answered", True
            if action and "slow" in action:
                return await _dripped(request, found.content, seconds=action["slow"])
            return web.Response(body=found.content, content_type=found.media_type.split(";")[0])
        except Refusal as refusal:
            record.status, record.outcome = refusal.status, "refused"
            return _json(refusal.body(), status=refusal.status)
        except _Cut:
            record.outcome = "lost"
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=499)

    async def _nothing_here(self, _request: web.Request) -> web.StreamResponse:
        return _json(Refusal("", status=404).body(), status=404)

    def _bot(self, request: web.Request) -> Bot:
        bot = self.world.bots.get(request.match_info["token"])
        if bot is None or bot.revoked:
            raise Refusal("", status=401)
        return bot


async def _faults_before(action: Json) -> None:
    await asyncio.sleep(action.get("latency", 0))
    await asyncio.sleep(action.get("stall", 0))
    if action.get("reset") == "before":
        raise _Cut


async def _dripped(request: web.Request, body: bytes, *, seconds: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    step = max(1, len(body) // DRIPS)
    for start in range(0, len(body), step):
        await response.write(body[start : start + step])
        await asyncio.sleep(seconds / DRIPS)
    await response.write_eof()
    return response


def _readable(sent: Sent) -> Json:
    """Return the unchecked parameters for the script's rules, with ids of chats and messages as numbers."""
    found: dict[str, Any] = dict(sent.values)
    for name in ("chat_id", "message_thread_id", "message_id"):
        value = found.get(name)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            found[name] = int(value)
    return found


def _kept(result: object) -> object:
    """Return the part of a result that the journal keeps: of a message only its id, since the message itself
    still changes.
    """
    return (
        {"message_id": result["message_id"]}
        if isinstance(result, dict) and "message_id" in result
        else result
    )


def _json(body: Json, *, status: int, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(body, status=status, headers=headers)
