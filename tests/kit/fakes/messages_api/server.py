"""Serves the Messages API and, beside it, `/control`, by which a test scripts and reads the fake."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.kit.fakes.messages_api import brain, prefix
from tests.kit.fakes.messages_api.answers import Mind, answered, lengthened, scripted_refusal
from tests.kit.fakes.messages_api.brain import Answer, kind_of
from tests.kit.fakes.messages_api.cache import PrefixCache
from tests.kit.fakes.messages_api.catalogue import Catalogue, Model
from tests.kit.fakes.messages_api.delivery import StreamedAnswer, send_whole, wait_while_connected
from tests.kit.fakes.messages_api.faults import make_script
from tests.kit.fakes.messages_api.journal import Journal, Record, usage_json
from tests.kit.fakes.messages_api.limits import output_tokens, within_limits
from tests.kit.fakes.messages_api.refusals import TYPE_OF_STATUS, Refusal, error_body, too_long
from tests.kit.fakes.messages_api.shapes import Json
from tests.kit.fakes.messages_api.signatures import Signatures
from tests.kit.fakes.messages_api.validate import check_request, parsed
from tests.kit.fakes.script import BadScript

MAX_BODY_BYTES = 64 * 1024 * 1024
BAD_KEY = "bad-key"
VERSION = re.compile(r"^20\d\d-\d\d-\d\d$")


class MessagesApi:
    """The fake Messages API.

    All that does not depend on the wire format is here; `chat_completions` inherits from it.
    """

    def __init__(self, *, window: int | None = None, seed: int = 0, mind: Mind = brain.answer) -> None:
        self._mind = mind
        self.models = Catalogue(window)
        self._signatures = Signatures(seed)
        self._cache = PrefixCache()
        self._script = make_script()
        self.journal = Journal()
        self._clock_offset = 0.0
        self._pace_seconds = 0.0

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/v1/messages", self._create),
                web.post("/v1/messages/count_tokens", self._count_tokens),
                web.get("/v1/models", self._list_models),
                web.get("/v1/models/{id}", self._one_model),
                web.route("*", "/control/{what}", self._control),
                web.route("*", "/{rest:.*}", self._nothing_here),
            ]
        )
        return app

    async def _create(self, request: web.Request) -> web.StreamResponse:
        return await self._recorded(request, self._answer)

    async def _count_tokens(self, request: web.Request) -> web.StreamResponse:
        return await self._recorded(request, self._count)

    async def _recorded(
        self, request: web.Request, handle: Callable[[web.Request, Record], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        raw, oversized = b"", None
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            oversized = Refusal("Request exceeds the maximum size", status=413)
        record = self.journal.open(request.path, dict(request.headers), raw)
        try:
            if oversized is not None:
                raise oversized
            self._check_headers(request)
            return await handle(request, record)
        except Refusal as refusal:
            record.status, record.outcome, record.error = refusal.status, "refused", refusal.message
            return self._refused(refusal, record.id)
        except ConnectionError:
            record.outcome = "cut" if record.outcome == "cut" else "client_gone"
            return web.Response(status=499)

    async def _answer(self, request: web.Request, record: Record) -> web.StreamResponse:
        body, model = self._opened(record, counting_only=False)
        record.kind = kind_of(body)
        record.action = action = self._script.action_for((body, record.kind))
        if "latency" in action:
            await wait_while_connected(request, action["latency"])
        refusal = scripted_refusal(action, input_tokens=record.input_tokens, window=model.window)
        if refusal is not None:
            raise refusal
        if record.input_tokens > model.window:
            raise Refusal(too_long(record.input_tokens, model.window))
        self._signatures.check(body)
        answer = answered(body, action, self._signatures, self._mind)
        if "lengthen" in action:
            answer = lengthened(answer, action["lengthen"])
        answer = within_limits(
            answer,
            body,
            input_tokens=record.input_tokens,
            window=model.window,
        )
        return await self._deliver(request, record, body, answer)

    async def _deliver(
        self, request: web.Request, record: Record, body: Json, answer: Answer
    ) -> web.StreamResponse:
        whole = output_tokens(answer.blocks)
        record.usage = self._cache.use(body, now=self._now())
        record.status, record.stop_reason, record.answer = 200, answer.stop_reason, list(answer.blocks)
        message: Json = {
            "id": f"msg_{record.id:024d}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": list(answer.blocks),
            "stop_reason": answer.stop_reason,
            "stop_sequence": answer.stop_sequence,
            "usage": {**usage_json(record.usage, whole), **record.action.get("counted", {})},
        }
        if answer.stop_reason == "refusal":
            message["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
        if body.get("stream"):
            streamed = self._streams(request, record.action, record, pace_seconds=self._pace_seconds)
            return await streamed.send(message, answer)
        record.output_tokens = whole
        return await send_whole(request, message, record.action, record)

    async def _count(self, request: web.Request, record: Record) -> web.StreamResponse:
        body, model = self._opened(record, counting_only=True)
        record.kind = "count_tokens"
        record.action = action = self._script.action_for((body, record.kind))
        if "latency" in action:
            await wait_while_connected(request, action["latency"])
        refusal = scripted_refusal(action, input_tokens=record.input_tokens, window=model.window)
        if refusal is not None:
            raise refusal
        self._signatures.check(body)
        record.status, record.outcome = 200, "answered"
        return web.json_response({"input_tokens": record.input_tokens})

    _streams = StreamedAnswer

    def _opened(self, record: Record, *, counting_only: bool) -> tuple[Json, Model]:
        body = parsed(record.raw or b"")
        record.model = body["model"]
        model = self.models.get(body["model"])
        if model is None:
            raise Refusal(f"model: {body['model']}", status=404)
        record.warnings = check_request(body, model, counting_only=counting_only)
        record.input_tokens = prefix.count(body)
        return body, model

    async def _list_models(self, request: web.Request) -> web.StreamResponse:
        models = [model.as_json() for model in self.models.all()]
        page = {
            "data": models,
            "has_more": False,
            "first_id": models[0]["id"],
            "last_id": models[-1]["id"],
        }
        return self._checked(request, lambda: web.json_response(page))

    async def _one_model(self, request: web.Request) -> web.StreamResponse:
        return self._checked(
            request, lambda: web.json_response(self._model_named(request.match_info["id"]).as_json())
        )

    def _model_named(self, name: str) -> Model:
        model = self.models.get(name)
        if model is None:
            raise Refusal(f"model: {name}", status=404)
        return model

    async def _nothing_here(self, _request: web.Request) -> web.StreamResponse:
        return self._refused(Refusal("Not Found", status=404), 0)

    async def _control(self, request: web.Request) -> web.StreamResponse:
        what = request.match_info["what"]
        try:
            if request.method == "GET":
                return web.json_response(self._shown(what, request))
            self._changed(what, json.loads(await request.read() or b"{}"))
        except LookupError as error:
            return web.json_response({"error": f"no such control: {error}"}, status=404)
        except (BadScript, TypeError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"ok": True})

    def _shown(self, what: str, request: web.Request) -> object:
        match what:
            case "requests":
                return self.journal.since(int(request.query.get("since", "0")))
            case "usage":
                return self.journal.totals()
            case "warnings":
                return self.journal.warnings()
            case "script":
                return [rule.as_json() for rule in self._script.rules]
        raise LookupError(what)

    def _changed(self, what: str, wish: Any) -> None:
        match what:
            case "script":
                self._script.set(wish["rules"] if isinstance(wish, dict) else wish)
            case "window":
                self.models.set_window(str(wish["model"]), int(wish["tokens"]))
            case "clock":
                self.advance_clock(float(wish["advance_seconds"]))
            case "pace":
                self._pace_seconds = float(wish["ms"]) / 1_000
            case "reset":
                self._reset()
            case _:
                raise LookupError(what)

    def advance_clock(self, seconds: float) -> None:
        self._clock_offset += seconds

    def _reset(self) -> None:
        self.models.reset()
        self._cache.reset()
        self._script.set([])
        self.journal.reset()
        self._clock_offset = 0.0
        self._pace_seconds = 0.0

    def _now(self) -> float:
        return time.monotonic() + self._clock_offset

    def _check_headers(self, request: web.Request) -> None:
        check_key(request)
        version = request.headers.get("anthropic-version")
        if version is None:
            raise Refusal("anthropic-version: header is required")
        if not VERSION.fullmatch(version):
            raise Refusal(f'anthropic-version: "{version}" is not a valid version')

    def _checked(self, request: web.Request, respond: Callable[[], web.Response]) -> web.Response:
        try:
            self._check_headers(request)
            return respond()
        except Refusal as refusal:
            return self._refused(refusal, 0)

    def _refused(self, refusal: Refusal, number: int) -> web.Response:
        headers = {"request-id": f"req_{number}"}
        if refusal.retry_after is not None:
            headers["retry-after"] = f"{refusal.retry_after:g}"
        body = self._error_body(refusal, headers["request-id"])
        return web.json_response(body, status=refusal.status, headers=headers)

    def _error_body(self, refusal: Refusal, request_id: str) -> Json:
        return error_body(TYPE_OF_STATUS.get(refusal.status, "api_error"), refusal.message, request_id)


def check_key(request: web.Request) -> None:
    authorization = request.headers.get("Authorization", "")
    key = request.headers.get("x-api-key") or authorization.removeprefix("Bearer ").strip()
    if not key:
        raise Refusal("x-api-key header is required", status=401)
    if key == BAD_KEY:
        raise Refusal("invalid x-api-key", status=401)
    if request.method == "POST" and request.content_type != "application/json":
        raise Refusal("content-type: must be application/json")
