"""Serves Chat Completions with the script, journal, cache, windows and mind of the fake Messages API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from tests.kit.fakes.chat_completions.requests import as_messages, check_shape
from tests.kit.fakes.messages_api import prefix
from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.catalogue import Model
from tests.kit.fakes.messages_api.delivery import StreamedAnswer
from tests.kit.fakes.messages_api.journal import Record
from tests.kit.fakes.messages_api.refusals import TYPE_OF_STATUS, Refusal
from tests.kit.fakes.messages_api.server import MAX_BODY_BYTES, MessagesApi, check_key
from tests.kit.fakes.messages_api.shapes import Json, compact_json
from tests.kit.fakes.messages_api.stream import Event
from tests.kit.fakes.messages_api.validate import check_request, parsed

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
TOO_LONG = re.compile(r"prompt is too long: (\d+) tokens > (\d+) maximum")


class ChatCompletionsApi(MessagesApi):
    """A strict fake of a server that speaks Chat Completions."""

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._create),
                web.get("/v1/models", self._list_models),
                web.get("/v1/models/{id}", self._one_model),
                web.route("*", "/control/{what}", self._control),
                web.route("*", "/{rest:.*}", self._nothing_here),
            ]
        )
        return app

    def _opened(self, record: Record, *, counting_only: bool) -> tuple[Json, Model]:
        told = parsed(record.raw or b"")
        record.model = told["model"]
        model = self.models.get(told["model"])
        if model is None:
            raise Refusal(f"The model `{told['model']}` does not exist", status=404)
        check_shape(told)
        if not told["stream"]:
            raise Refusal("this server only streams")
        body = as_messages(told)
        body["with_usage"] = bool((told.get("stream_options") or {}).get("include_usage"))
        record.warnings = check_request({k: v for k, v in body.items() if k != "with_usage"}, model)
        record.input_tokens = prefix.count(body)
        return body, model

    async def _deliver(
        self, request: web.Request, record: Record, body: Json, answer: Answer
    ) -> web.StreamResponse:
        request["with_usage"] = body.pop("with_usage")
        return await super()._deliver(request, record, body, answer)

    def _check_headers(self, request: web.Request) -> None:
        check_key(request)

    def _error_body(self, refusal: Refusal, request_id: str) -> Json:
        message, code = refusal.message, None
        if found := TOO_LONG.search(message):
            code = "context_length_exceeded"
            message = (
                f"This model's maximum context length is {found[2]} tokens. However, your messages resulted "
                f"in {found[1]} tokens. Please reduce the length of the messages."
            )
        kind = TYPE_OF_STATUS.get(refusal.status, "server_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    class _streams(StreamedAnswer):  # noqa: N801 (overrides an attribute of the parent class)
        def _events(self, message: Json, answer: Answer) -> Iterator[Event]:
            frame = Frame(id=message["id"], model=message["model"], usage=self._request["with_usage"])
            for event in super()._events(message, answer):
                yield ChunkEvent(
                    name=event.name, data=event.data, delta_tokens=event.delta_tokens, frame=frame,
                    usage=message["usage"],
                )  # fmt: skip

        def _error(self, body: Json) -> Event:
            told = {"message": body["error"]["message"], "code": body["error"]["type"]}
            return Raw(name="error", data={"error": told})


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The fields that all chunks of one streamed answer share.

    `usage` says whether the request asked for token counts.
    """

    id: str
    model: str
    usage: bool

    def chunk(self, *choices: Json, **more: object) -> str:
        told = {
            "id": self.id, "object": "chat.completion.chunk", "created": 1_790_000_000, "model": self.model,
            "choices": list(choices), **more,
        }  # fmt: skip
        return f"data: {compact_json(told)}\n\n"

    def delta(self, **fields: object) -> str:
        return self.chunk({"index": 0, "delta": fields, "finish_reason": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(Event):
    def encoded(self) -> bytes:
        return f"data: {compact_json(self.data)}\n\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEvent(Event):
    """An event of the Messages API that is written as a chunk of Chat Completions.

    Events without a counterpart there write nothing.
    """

    frame: Frame
    usage: Json

    def encoded(self) -> bytes:
        return self._told().encode(errors="backslashreplace")

    def _told(self) -> str:
        frame, data = self.frame, self.data
        match self.name:
            case "message_start":
                return frame.delta(role="assistant", content="")
            case "ping":
                return ": keep-alive\n\n"
            case "content_block_start" if data["content_block"]["type"] == "tool_use":
                block = data["content_block"]
                function = {"name": block["name"], "arguments": ""}
                call = {
                    "index": data["index"],
                    "id": block["id"],
                    "type": "function",
                    "function": function,
                }
                return frame.delta(tool_calls=[call])
            case "content_block_delta":
                return self._delta()
            case "message_delta":
                return self._ended()
            case "message_stop":
                return "data: [DONE]\n\n"
        return ""

    def _delta(self) -> str:
        delta = self.data["delta"]
        match delta["type"]:
            case "text_delta":
                return self.frame.delta(content=delta["text"])
            case "thinking_delta":
                return self.frame.delta(reasoning_content=delta["thinking"])
            case "input_json_delta":
                function = {"arguments": delta["partial_json"]}
                return self.frame.delta(tool_calls=[{"index": self.data["index"], "function": function}])
        return ""

    def _ended(self) -> str:
        reason = REASONS[self.data["delta"]["stop_reason"]]
        told = self.frame.chunk({"index": 0, "delta": {}, "finish_reason": reason})
        if not self.frame.usage:
            return told
        usage, output = self.usage, int(self.data["usage"]["output_tokens"])
        read = usage["cache_read_input_tokens"]
        prompt = usage["input_tokens"] + usage["cache_creation_input_tokens"] + read
        counted = {
            "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": read},
        }  # fmt: skip
        return told + self.frame.chunk(usage=counted)
