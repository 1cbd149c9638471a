"""Serves the Responses API with the script, journal, cache, windows and mind of the other fakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web

from tests.kit.fakes.chat_completions.server import ChatCompletionsApi
from tests.kit.fakes.messages_api import prefix
from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.catalogue import Model
from tests.kit.fakes.messages_api.delivery import StreamedAnswer
from tests.kit.fakes.messages_api.journal import Record
from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.server import MAX_BODY_BYTES
from tests.kit.fakes.messages_api.shapes import Json, compact_json
from tests.kit.fakes.messages_api.stream import Event
from tests.kit.fakes.messages_api.validate import check_request, parsed
from tests.kit.fakes.responses.requests import as_messages, check_shape

INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}


class ResponsesApi(ChatCompletionsApi):
    """A strict fake of a server that speaks Responses."""

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/v1/responses", self._create),
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
        record.warnings = check_request(body, model)
        record.input_tokens = prefix.count(body)
        return {**body, "with_usage": True}, model

    class _streams(StreamedAnswer):  # noqa: N801 (overrides an attribute of the parent class)
        def _events(self, message: Json, answer: Answer) -> Iterator[Event]:
            told = Told(
                id=message["id"].replace("msg_", "resp_"), model=message["model"], usage=message["usage"]
            )
            for event in super()._events(message, answer):
                yield ResponseEvent(
                    name=event.name, data=event.data, delta_tokens=event.delta_tokens, told=told
                )

        def _error(self, body: Json) -> Event:
            words, code = body["error"]["message"], body["error"]["type"]
            told = {"type": "error", "code": code, "message": words, "param": None, "sequence_number": 0}
            return Raw(name="error", data=told)


@dataclass(slots=True, kw_only=True)
class Told:
    """The fields that all events of one streamed answer share, and what its last event has to repeat."""

    id: str
    model: str
    usage: Json
    number: int = 0
    reason: str = ""
    output_tokens: int = 0
    blocks: dict[int, Json] = field(default_factory=dict)

    def event(self, kind: str, **fields: object) -> str:
        self.number += 1
        told = {"type": kind, "sequence_number": self.number - 1, **fields}
        return f"event: {kind}\ndata: {compact_json(told)}\n\n"

    def response(self, status: str, **more: object) -> Json:
        return {"id": self.id, "object": "response", "model": self.model, "status": status, **more}

    def ended(self) -> str:
        usage = self.usage
        read = usage["cache_read_input_tokens"]
        prompt = usage["input_tokens"] + usage["cache_creation_input_tokens"] + read
        counted = {
            "input_tokens": prompt, "input_tokens_details": {"cached_tokens": read},
            "output_tokens": self.output_tokens, "total_tokens": prompt + self.output_tokens,
        }  # fmt: skip
        if why := INCOMPLETE.get(self.reason):
            told = self.response("incomplete", incomplete_details={"reason": why}, usage=counted)
            return self.event("response.incomplete", response=told)
        return self.event("response.completed", response=self.response("completed", usage=counted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(Event):
    def encoded(self) -> bytes:
        return f"event: error\ndata: {compact_json(self.data)}\n\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEvent(Event):
    """An event of the Messages API that is written as an event of Responses.

    Events without a counterpart there write nothing.
    """

    told: Told

    def encoded(self) -> bytes:
        return self._written().encode(errors="backslashreplace")

    def _written(self) -> str:
        told, data = self.told, self.data
        match self.name:
            case "message_start":
                return told.event("response.created", response=told.response("in_progress"))
            case "ping":
                return ": keep-alive\n\n"
            case "content_block_start":
                return self._begun(data["index"], data["content_block"])
            case "content_block_delta":
                return self._delta()
            case "content_block_stop":
                item = told.blocks[data["index"]]
                return told.event("response.output_item.done", output_index=data["index"], item=item)
            case "message_delta":
                told.reason = data["delta"]["stop_reason"]
                told.output_tokens = int(data["usage"]["output_tokens"])
            case "message_stop":
                return told.ended()
        return ""

    def _begun(self, index: int, block: Json) -> str:
        kind = {"text": "message", "tool_use": "function_call"}.get(block["type"], "reasoning")
        item: Json = {"type": kind, "id": f"item_{index}"}
        if kind == "function_call":
            item |= {"call_id": block["id"], "name": block["name"], "arguments": ""}
        self.told.blocks[index] = item
        return self.told.event("response.output_item.added", output_index=index, item=item)

    def _delta(self) -> str:
        index, delta = self.data["index"], self.data["delta"]
        at = {"output_index": index, "item_id": f"item_{index}"}
        match delta["type"]:
            case "text_delta":
                return self.told.event(
                    "response.output_text.delta", **at, content_index=0, delta=delta["text"]
                )
            case "thinking_delta":
                words = delta["thinking"]
                return self.told.event("response.reasoning_text.delta", **at, content_index=0, delta=words)
            case "input_json_delta":
                given = delta["partial_json"]
                self.told.blocks[index]["arguments"] += given
                return self.told.event("response.function_call_arguments.delta", **at, delta=given)
        return ""
