"""One account at one server that speaks Chat Completions: OpenAI, its likes, and most that run at home."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from shared.adapters.bounded_bodies import bound_responses
from shared.adapters.models.chat_completions import (
    ChunkTranslator,
    build_completion_body,
    build_delta_event,
    build_messages,
    convert_usage,
)
from shared.adapters.models.error_mapping import build_error, read_refusal
from shared.adapters.models.provider import (
    ModelWindows,
    Provider,
    StreamReader,
    load_trusted_certificates,
    parse_windows,
)
from shared.adapters.models.stream_parser import Event
from shared.adapters.models.wire import Json
from shared.adapters.redirects import stay_at_origin
from shared.core.values.errors import ModelUnavailable
from shared.core.verdicts.abilities import Ability
from shared.ports import ModelCard, ModelRequest

if TYPE_CHECKING:
    from anthropic._streaming import ServerSentEvent


LEAST_OUTPUT = 16
"""Tokens: a smaller limit is refused."""
_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def build_response_body(request: ModelRequest, card: ModelCard, wire_name: str) -> Json:
    """The body of a streamed call."""
    told = (one for message in request.messages for one in build_messages(message, request, card))
    body: Json = {"model": wire_name, "input": [item for one in told for item in _items(one)]}
    if system := "\n\n".join(part.text for part in request.system if part.text.strip()):
        body["instructions"] = system
    tools = [tool for tool in request.tools if tool.provider is None]
    if tools and "tools" in card.capabilities:
        body["tools"] = [
            {
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": dict(tool.input_schema), "strict": False,
            }
            for tool in tools
        ]  # fmt: skip
    if request.json_schema is not None and "json" in card.capabilities:
        named = {"type": "json_schema", "name": "answer", "schema": dict(request.json_schema)}
        body["text"] = {"format": named}
    longest = max(LEAST_OUTPUT, min(request.max_output_tokens, card.max_output))
    return {**body, "max_output_tokens": longest, "store": False, "stream": True}


def _items(message: Json) -> Iterator[Json]:
    """What is one message of Chat Completions is several items here."""
    parts = message["content"]
    if message["role"] == "tool":
        output = "\n".join(part["text"] for part in parts)
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}
        return
    if message["role"] == "assistant":
        if parts:
            yield {"role": "assistant", "content": "\n\n".join(part["text"] for part in parts)}
    else:
        yield {"role": "user", "content": [_part(part) for part in parts]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _part(part: Json) -> Json:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}


class ResponseTranslator:
    """The events of one answer, as those from which `AnswerParser` makes it; thoughts are left out."""

    def __init__(self) -> None:
        self._calls: dict[object, int] = {}
        """Blocks of calls, by their place in the output."""
        self._heard: set[object] = set()
        self._refused = False

    def take(self, event: Mapping[str, Any]) -> list[Event]:
        """Raises ModelErrors."""
        return list(self._translate_done(event))

    def take_whole(self, response: Mapping[str, Any]) -> list[Event]:
        """Return the events of a response that came as one object; raise ModelErrors."""
        events: list[Event] = [{"type": "message_start"}]
        output = response.get("output")
        for place, item in enumerate(output if isinstance(output, list) else ()):
            if not isinstance(item, Mapping):
                continue
            for kind in ("response.output_item.added", "response.output_item.done"):
                events += self.take({"type": kind, "item": item, "output_index": place})
            events += [build_delta_event("text_delta", 0, text=text) for text in _texts_of(item)]
        failed = response.get("status") == "failed"
        return [
            *events,
            *self.take({"type": f"response.{'failed' if failed else 'completed'}", "response": response}),
        ]

    def end(self, *, announced: bool = False) -> list[Event]:
        """Return nothing: an answer whose end was not told was cut."""
        return []

    def _translate_done(self, event: Mapping[str, Any]) -> Iterator[Event]:
        item = _mapping(event.get("item"))
        place = _place(event.get("output_index"))
        match event.get("type"):
            case "response.created":
                yield {"type": "message_start"}
            case "response.output_text.delta":
                yield build_delta_event("text_delta", 0, text=str(event.get("delta") or ""))
            case "response.refusal.delta":
                self._refused = True
                yield build_delta_event("text_delta", 0, text=str(event.get("delta") or ""))
            case "response.output_item.added" if _is_call(item):
                self._calls[place] = len(self._calls) + 1
                block = {
                    "type": "tool_use",
                    "id": f"call_{uuid4().hex}",
                    "name": str(item["name"]),
                    "input": {},
                }
                yield {"type": "content_block_start", "index": self._calls[place], "content_block": block}
            case "response.function_call_arguments.delta" if place in self._calls:
                self._heard.add(place)
                given = str(event.get("delta") or "")
                yield build_delta_event("input_json_delta", self._calls[place], partial_json=given)
            case "response.output_item.done" if _is_call(item) and place in self._calls.keys() - self._heard:
                given = str(item.get("arguments") or "")
                yield build_delta_event("input_json_delta", self._calls[place], partial_json=given)
            case "response.completed" | "response.incomplete":
                yield from self._translate_end(_mapping(event.get("response")))
            case "response.failed":
                raise build_error(read_refusal(200, _mapping(event.get("response"))))
            case _:
                yield {"type": "ping"}

    def _translate_end(self, response: Mapping[str, Any]) -> Iterator[Event]:
        why = _mapping(response.get("incomplete_details")).get("reason")
        reason = "tool_use" if self._calls else "refusal" if self._refused else "end_turn"
        usage = _mapping(response.get("usage"))
        told = {
            "prompt_tokens": usage.get("input_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens": usage.get("output_tokens"),
        }
        ended = {"stop_reason": _INCOMPLETE.get(str(why), reason)}
        yield {"type": "message_delta", "delta": ended, "usage": convert_usage(told) if usage else {}}
        yield {"type": "message_stop"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _place(value: object) -> object:
    """Return a place that can be a key; one of another kind counts as none."""
    return value if isinstance(value, int | str) else None


def _texts_of(item: Mapping[str, Any]) -> Iterator[str]:
    content = item.get("content")
    for part in content if item.get("type") == "message" and isinstance(content, list) else ():
        text = _mapping(part).get("text")
        if isinstance(text, str):
            yield text


def _is_call(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "function_call" and bool(item.get("name"))


OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY_NAME = "OPENAI_API_KEY"
_DONE = "[DONE]"


def add_usual_path(base_url: str) -> str:
    """An address without a path gets `/v1`."""
    return base_url if urlsplit(base_url).path.strip("/") else f"{base_url.rstrip('/')}/v1"


class OpenAIProvider(Provider):
    sdk = "openai"
    path = "/chat/completions"
    version: Mapping[str, str] = {}

    def __init__(self, *, base_url: str = OPENAI_URL, **account: Any) -> None:
        super().__init__(base_url=add_usual_path(base_url), **account)

    def build_body(
        self,
        request: ModelRequest,
        card: ModelCard,
        wire_name: str,
        *,
        thinking: bool = True,
        missing: Collection[Ability] = (),
    ) -> Json:
        return build_completion_body(request, card, wire_name, missing=missing)

    def make_reader(self, stream: Any) -> StreamReader:
        return ChunkReader(stream)

    async def count_tokens(self, request: ModelRequest, card: ModelCard, wire_name: str) -> int:
        raise ModelUnavailable("this API counts no tokens")

    async def _ask_windows(self, wire_name: str) -> ModelWindows:
        """From the model's own entry, or the list where that says little or is not there."""
        status, told = await self._fetch(f"/models/{quote(wire_name, safe='')}")
        found = parse_windows(told)
        if found.window is not None:
            return found
        listed, page = await self._fetch("/models")
        models = page.get("data") if isinstance(page, Mapping) else None
        if listed != 200 or not isinstance(models, list):
            return found
        mine = next((one for one in models if isinstance(one, Mapping) and one.get("id") == wire_name), None)
        return ModelWindows(is_listed=status == 200) if mine is None else parse_windows(mine)

    def _make_client(self) -> Any:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        transport = bound_responses(DefaultAioHttpClient(verify=load_trusted_certificates()))
        stay_at_origin(transport, self.base_url)
        return AsyncOpenAI(
            api_key=self._api_key, base_url=self.base_url, max_retries=0, timeout=None, http_client=transport
        )


class ResponsesProvider(OpenAIProvider):
    """The same account by the Responses API."""

    path = "/responses"

    def build_body(
        self,
        request: ModelRequest,
        card: ModelCard,
        wire_name: str,
        *,
        thinking: bool = True,
        missing: Collection[Ability] = (),
    ) -> Json:
        return build_response_body(request, card, wire_name)

    def make_reader(self, stream: Any) -> StreamReader:
        return ResponseReader(stream)


class ChunkReader(StreamReader):
    """A stream of chunks; a comment is a sign of life, and the end may come without being announced."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._translator = self._make_translator()
        self._is_done = False

    def _make_translator(self) -> ChunkTranslator | ResponseTranslator:
        return ChunkTranslator()

    async def read_next(self) -> Sequence[Event]:
        events = await super().read_next()
        return events or self._end()

    def _make_decoder(self) -> Any:
        from openai._streaming import SSEDecoder

        return SSEDecoder()

    def _events(self, sse: ServerSentEvent) -> Iterable[Event]:
        if sse.data.startswith(_DONE):
            return self._end(announced=True)
        return super()._events(sse)

    def _translate(self, event: Event) -> Iterable[Event]:
        return self._translator.take(event)

    def _translate_whole(self, answers: Iterable[Event]) -> Iterable[Event]:
        for answer in answers:
            yield from self._translator.take_whole(answer)
        yield from self._end(announced=True)

    def _end(self, *, announced: bool = False) -> list[Event]:
        events = [] if self._is_done else self._translator.end(announced=announced)
        self._is_done = True
        return events


class ResponseReader(ChunkReader):
    def _make_translator(self) -> ResponseTranslator:
        return ResponseTranslator()
