"""Clients of OpenAI, compatible services and local servers, by Chat Completions or Responses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from shared.adapters.bounded_bodies import bound_responses
from shared.adapters.models.chat_completions import (
    STATE_INDEX,
    ChunkTranslator,
    build_completion_body,
    build_delta_event,
    build_messages,
    shorten_id,
)
from shared.adapters.models.dialects.opaque_state import ReasoningCollector, find_state
from shared.adapters.models.dialects.usage_fields import convert_usage
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

LEAST_OUTPUT = 16
"""Minimum output limit in tokens; the Responses API refuses a smaller one."""
_REASONING = "reasoning.encrypted_content"
"""Value of `include` that requests encrypted reasoning, which must be sent back with tool results."""
_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def build_response_body(
    request: ModelRequest, card: ModelCard, wire_name: str, *, missing: Collection[Ability] = ()
) -> Json:
    """Return the body of a streamed call of the Responses API.

    `missing` are abilities that the server has refused.
    """
    items: list[Json] = []
    for message in request.messages:
        state = find_state(message.blocks, wire_name, missing).get("reasoning", {})
        reasoning = {shorten_id(id_) if id_ else "": before for id_, before in state.items()}
        for one in build_messages(message, request, card):
            items += _items(one, reasoning)
    body: Json = {"model": wire_name, "input": items}
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
        if "opaque_state" not in missing:
            body["include"] = [_REASONING]
    if request.json_schema is not None and "json" in card.capabilities:
        named = {"type": "json_schema", "name": "answer", "schema": dict(request.json_schema)}
        body["text"] = {"format": named}
    longest = max(LEAST_OUTPUT, min(request.max_output_tokens, card.max_output))
    return {**body, "max_output_tokens": longest, "store": False, "stream": True}


def _items(message: Json, reasoning: Mapping[str, Sequence[Json]]) -> Iterator[Json]:
    """Return the items of one message of Chat Completions, each call after its own reasoning."""
    parts = message["content"]
    if message["role"] == "tool":
        output = "\n".join(part["text"] for part in parts)
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}
        return
    if message["role"] == "assistant":
        if parts:
            yield from reasoning.get("", ())
            yield {"role": "assistant", "content": "\n\n".join(part["text"] for part in parts)}
    else:
        yield {"role": "user", "content": [_part(part) for part in parts]}
    for call in message.get("tool_calls", ()):
        yield from reasoning.get(call["id"], ())
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _part(part: Json) -> Json:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}


class ResponseTranslator:
    """Translator of one answer's events into those that `AnswerParser` reads; reasoning is kept as state.

    The API sends everything three times: in pieces, when a part is done, and in the whole response. Other
    servers leave out one or two of these, so each is used where nothing came before it.
    """

    def __init__(self) -> None:
        self._blocks: dict[object, int] = {}
        """Numbers of the blocks of calls, by id and by place in the output."""
        self._calls = 0
        self._heard: set[int] = set()
        """Numbers of the blocks whose arguments have arrived."""
        self._texts: set[object] = set()
        """Output indexes whose text has arrived."""
        self._refused = False
        self._ended = False
        self._reasoning = ReasoningCollector()

    def take(self, event: Mapping[str, Any]) -> list[Event]:
        """Return the translated events of one event of the API. Raises ModelError if it reports a failure."""
        return list(self._translate_done(event))

    def take_whole(self, response: Mapping[str, Any]) -> list[Event]:
        """Return the events of a response that came as one object.

        Raises ModelError if it reports a failure.
        """
        return [{"type": "message_start"}, *self._translate_end(response)]

    def end(self, *, announced: bool = False) -> list[Event]:
        """Return the end of an answer whose stream ended with a mark only; empty for a cut answer."""
        if self._ended or not announced or not (self._texts or self._calls):
            return []
        reason = "tool_use" if self._calls else "end_turn"
        return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]

    def _translate_done(self, event: Mapping[str, Any]) -> Iterator[Event]:
        item = _mapping(event.get("item"))
        place = _place(event.get("output_index"))
        match event.get("type"):
            case "response.created":
                yield {"type": "message_start"}
            case "response.output_text.delta":
                self._texts.add(place)
                yield build_delta_event("text_delta", 0, text=str(event.get("delta") or ""))
            case "response.output_text.done" if isinstance(text := event.get("text"), str):
                yield from self._say(place, text)
            case "response.refusal.delta":
                self._refused = True
                self._texts.add(place)
                yield build_delta_event("text_delta", 0, text=str(event.get("delta") or ""))
            case "response.output_item.added" if _is_call(item):
                yield from self._open(item, place)
            case "response.output_item.added" if item.get("type") == "message":
                self._reasoning.follow("")
                yield {"type": "ping"}
            case "response.function_call_arguments.delta":
                yield from self._argue(event, place, event.get("delta"), is_piece=True)
            case "response.function_call_arguments.done":
                yield from self._argue(event, place, event.get("arguments"))
            case "response.output_item.done":
                yield from self._translate_item(item, place)
                yield {"type": "ping"}
            case "response.completed" | "response.incomplete" | "response.done" | "response.failed":
                yield from self._translate_end(_mapping(event.get("response")))
            case None if event.get("object") == "response":
                yield from self.take_whole(event)
            case _:
                yield {"type": "ping"}

    def _translate_item(self, item: Mapping[str, Any], place: object) -> Iterator[Event]:
        """Yield events for the content of a finished item that no earlier event brought."""
        if item.get("type") == "reasoning":
            self._reasoning.take(item)
            return
        if _is_call(item):
            if not self._is_known(item, place):
                yield from self._open(item, place)
            yield from self._argue(item, place, item.get("arguments"))
            return
        for text in _texts_of(item):
            yield from self._say(place, text)

    def _say(self, place: object, text: str) -> Iterator[Event]:
        """Yield the text of an output place as one event, unless text of that place was yielded before.

        `place` is the output index; None stands for the whole response.
        """
        is_heard = place in self._texts or (place is None and bool(self._texts))
        if text and not is_heard:
            self._texts.add(place)
            yield build_delta_event("text_delta", 0, text=text)

    def _open(self, item: Mapping[str, Any], place: object) -> Iterator[Event]:
        self._calls += 1
        for key in (_key(item, "id"), _key(item, "call_id"), ("place", place)):
            self._blocks[key] = self._calls
        id_ = f"call_{uuid4().hex}"
        self._reasoning.follow(id_)
        block = {"type": "tool_use", "id": id_, "name": str(item["name"]), "input": {}}
        yield {"type": "content_block_start", "index": self._calls, "content_block": block}

    def _is_known(self, item: Mapping[str, Any], place: object) -> bool:
        ids = [key for name in ("id", "call_id") if (key := _key(item, name))[1] is not None]
        return any(key in self._blocks for key in ids or [("place", place)])

    def _argue(
        self, event: Mapping[str, Any], place: object, given: object, *, is_piece: bool = False
    ) -> Iterator[Event]:
        """Yield the event that adds arguments to a call's block: a piece, or the whole if no piece came."""
        ids = (("id", _place(event.get("item_id"))), _key(event, "id"), _key(event, "call_id"))
        keys = (*(key for key in ids if key[1] is not None), ("place", place))
        block = next((self._blocks[key] for key in keys if key in self._blocks), None)
        if block is None or (not is_piece and block in self._heard) or not given:
            return
        self._heard.add(block)
        text = given if isinstance(given, str) else json.dumps(given)
        yield build_delta_event("input_json_delta", block, partial_json=text)

    def _translate_end(self, response: Mapping[str, Any]) -> Iterator[Event]:
        if response.get("status") == "failed" or response.get("error"):
            raise build_error(read_refusal(200, response))
        yield from self._translate_output(response)
        self._ended = True
        why = _mapping(response.get("incomplete_details")).get("reason")
        reason = "tool_use" if self._calls else "refusal" if self._refused else "end_turn"
        usage = _mapping(response.get("usage"))
        if self._calls and (state := self._reasoning.build()) is not None:
            yield {"type": "content_block_start", "index": STATE_INDEX, "content_block": state}
            yield {"type": "content_block_stop", "index": STATE_INDEX}
        ended = {"stop_reason": _INCOMPLETE.get(str(why), reason)}
        yield {"type": "message_delta", "delta": ended, "usage": convert_usage(usage) if usage else {}}
        yield {"type": "message_stop"}

    def _translate_output(self, response: Mapping[str, Any]) -> Iterator[Event]:
        """Yield events of a final response: its calls and reasoning, and its texts if none came before."""
        output, said = response.get("output"), bool(self._texts)
        for place, item in enumerate(output if isinstance(output, list) else ()):
            if isinstance(item, Mapping) and (_is_call(item) or item.get("type") == "reasoning" or not said):
                yield from self._translate_item(item, place)
        text = response.get("output_text")
        if isinstance(text, str) and text and not self._texts:
            yield from self._say(None, text)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _place(value: object) -> object:
    """Return an id or position that can be a key; None for a value of another type."""
    return value if isinstance(value, int | str) else None


def _key(item: Mapping[str, Any], name: str) -> tuple[str, object]:
    return name, _place(item.get(name))


def _texts_of(item: Mapping[str, Any]) -> Iterator[str]:
    content = item.get("content")
    parts = content if item.get("type") == "message" and isinstance(content, list) else ()
    texts = [text for part in parts if isinstance(text := _mapping(part).get("text"), str)]
    if texts:
        yield "".join(texts)


def _is_call(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "function_call" and bool(item.get("name"))


OPENAI_URL = "https://api.openai.com/v1"
"""Base URL of OpenAI's own server, used if none is configured."""
OPENAI_KEY_NAME = "OPENAI_API_KEY"
"""Environment variable with the key of the server with Chat Completions."""


def add_usual_path(base_url: str) -> str:
    """Return the base URL, with `/v1` if it has no path."""
    parts = urlsplit(base_url)
    return base_url if parts.path.strip("/") else parts._replace(path="/v1").geturl()


class OpenAIProvider(Provider):
    """Client of one account at one server with Chat Completions."""

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
        """Return the body of a call of Chat Completions; `thinking` has no effect."""
        return build_completion_body(request, card, wire_name, missing=missing)

    def make_reader(self, stream: Any) -> StreamReader:
        """Return a reader that translates chunks of Chat Completions into Messages events."""
        return ChunkReader(stream)

    async def count_tokens(self, request: ModelRequest, card: ModelCard, wire_name: str) -> int:
        """Raise ModelUnavailable: this API counts no tokens."""
        raise ModelUnavailable("this API counts no tokens")

    async def _ask_windows(self, wire_name: str) -> ModelWindows:
        """Return the model's limits in tokens, from its own entry, else from the list of models."""
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
            api_key=self._api_key, base_url=self.base_url, max_retries=0, timeout=None, http_client=transport,
            default_headers=self._list_set_headers(), default_query=self.query,
        )  # fmt: skip


class ResponsesProvider(OpenAIProvider):
    """OpenAI provider that uses the Responses API instead of Chat Completions."""

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
        """Return the body of a call of the Responses API; `thinking` has no effect."""
        return build_response_body(request, card, wire_name, missing=missing)

    def make_reader(self, stream: Any) -> StreamReader:
        """Return a reader that translates events of the Responses API into Messages events."""
        return ResponseReader(stream)


_OF_MESSAGES = ("message_", "content_block_")
"""Beginnings of event types that a gateway sends if its model uses the Messages API."""


class ChunkReader(StreamReader):
    """Reader of a stream of chunks.

    Comments show that the server is alive, and an end mark may be missing.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._translator = self._make_translator()
        self._is_done = False

    def _make_translator(self) -> ChunkTranslator | ResponseTranslator:
        return ChunkTranslator()

    def _end_announced(self) -> Iterable[Event]:
        return self._end(announced=True)

    def _translate(self, event: Event) -> Iterable[Event]:
        kind = event.get("type")
        if isinstance(kind, str) and kind.startswith(_OF_MESSAGES):
            return (event,)
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
    """Reader of a stream of the Responses API."""

    def _make_translator(self) -> ResponseTranslator:
        return ResponseTranslator()
