"""Client of one account at one server with the Messages API: connection, circuit breaker, model list."""

from __future__ import annotations

import asyncio
import base64
import functools
import importlib
import json
import logging
import re
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import aiohttp
from pydantic_core import to_json

from shared.adapters.bounded_bodies import PIECE_BYTES, bound_responses, call_at_end, read_body
from shared.adapters.certificates import find_certificate_fault
from shared.adapters.models.catalog import KEY_PLACE
from shared.adapters.models.chat_completions import ChunkTranslator
from shared.adapters.models.dialects.error_bodies import is_error_object, plain_text
from shared.adapters.models.dialects.event_lines import EventLines
from shared.adapters.models.error_mapping import build_error, read_refusal
from shared.adapters.models.stream_parser import Event
from shared.adapters.models.wire import Json, build_counted_body, build_request_body
from shared.adapters.redirects import stay_at_origin
from shared.core.values.errors import (
    ModelAnswerUnusable,
    ModelError,
    ModelRedirected,
    ModelRefusedAccount,
    ModelUnavailable,
)
from shared.core.verdicts.abilities import Ability
from shared.core.verdicts.breaker import Breaker
from shared.core.verdicts.model_verdicts import ModelVerdicts
from shared.core.verdicts.windows import LARGEST_WINDOW, SMALLEST_WINDOW
from shared.ports import ModelCard, ModelRequest
from shared.runtime import pause_gc

ANTHROPIC_URL = "https://api.anthropic.com"
"""Base URL of Anthropic's own server, used if none is configured."""
API_VERSION = "2026-10-21"
"""API version that SDK 2.11 sends; the model list is read without the SDK."""
WINDOW_SECONDS = 3.0
"""Maximum seconds for reading the model list."""
CLOSE_SECONDS = 2.0
"""Maximum seconds for reading the rest of a stream, and for closing a stream or the client."""
LOOK_SECONDS = 0.1
"""Seconds to wait for more pieces of a running answer: ten updates a second look like writing."""
_LONGEST_EVENT_BYTES = 16 * 1024 * 1024
_FIELDS = (b"data", b"event", b"id", b"retry", b"error:", b":")
"""Beginnings of lines of an event stream; any other body is JSON, a page or a text."""
_BLANKS = BOM_UTF8 + b" \t\r\n"
_WORD = re.compile(r"[\w-]{1,40}")
_BETWEEN = re.compile(r"(?:\s++|,|data:|\[DONE\])*+")
_KEPT_SECONDS = 24 * 3_600.0
_WINDOW_NAMES = (
    "max_input_tokens", "max_model_len", "context_length", "context_window", "loaded_context_length",
    "max_context_length",
)  # fmt: skip
"""Names of the window in model lists: Anthropic, vLLM, OpenRouter, Groq, LM Studio, Mistral."""
_OUTPUT_NAMES = ("max_tokens", "max_output_tokens", "max_completion_tokens")
_RETRY_UNKNOWN_SECONDS = 60.0
_SHORTEST_OUTPUT = 256

_SDK_ERRORS = {"anthropic": "AnthropicError", "openai": "OpenAIError"}
_TROUBLE = (aiohttp.ClientError, TimeoutError, OSError, EOFError, ValueError, RuntimeError)
"""Exceptions from below the SDK: sockets, TLS, undecodable bytes, and a session closed meanwhile."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWindows:
    """Limits of a model in tokens as the provider's model list states them; None if it does not.

    `is_listed` is whether the list has the model; None if unknown.
    """

    window: int | None = None
    """Maximum tokens of prompt and answer together."""
    max_output: int | None = None
    """Maximum tokens of an answer."""
    is_listed: bool | None = None


class Provider:
    """Client of one account at one server with the Messages API; subclasses speak other APIs."""

    sdk = "anthropic"
    """Name of the package with the SDK, imported at the first call."""
    path = "/v1/messages"
    """Path of calls below the base URL."""
    version: Mapping[str, str] = {"anthropic-version": API_VERSION}
    """Headers of requests for the model list."""

    def __init__(
        self,
        *,
        base_url: str = ANTHROPIC_URL,
        api_key: str | None,
        missing_key: str = "",
        foreign: bool = False,
        headers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the client; nothing is sent.

        `missing_key` names the variable that should hold the key but does not: calls are then refused at
        once. `foreign` is true for a server that is neither Anthropic's own nor its replacement.
        """
        parts = urlsplit(base_url)
        self.base_url = parts._replace(query="").geturl().rstrip("/")
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        """Query parameters of the base URL, such as Azure's `api-version`, sent with each request."""
        self.foreign = foreign
        self.breaker = Breaker(clock=clock)
        self._api_key = api_key or "none"
        self._headers = {
            name: value.replace(KEY_PLACE, self._api_key) for name, value in (headers or {}).items()
        }
        self._missing_key = missing_key
        self._clock = clock
        self._client: Any = None
        self.has_answered = True
        """Whether the server has answered since `take_answered` was called last; True at the start."""
        self._windows: dict[str, tuple[float, ModelWindows]] = {}
        self._verdicts: dict[str, ModelVerdicts] = {}
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        """Host name of the server, for operators; the whole address may contain a key."""
        return urlsplit(self.base_url).hostname or "provider"

    def build_body(
        self,
        request: ModelRequest,
        card: ModelCard,
        wire_name: str,
        *,
        thinking: bool = True,
        missing: Collection[Ability] = (),
    ) -> Json:
        """Return the body of a request for `open_stream`, without the parts that need `missing` abilities."""
        body = build_request_body(request, card, wire_name, thinking=thinking, missing=missing)
        return {**body, "stream": True}

    async def open_stream(self, body: Mapping[str, Any]) -> StreamReader:
        """Send a request and return the reader of its stream; the caller limits the wait. Raises ModelError.

        It uses the SDK's `post`, since the methods for single endpoints copy the history and serialise it in
        Python.
        """
        self._check_key()
        client = await self._connect()
        with translate_errors():
            stream = await client.post(
                self.path, content=to_json(body), cast_to=object, stream=True,
                stream_cls=sys.modules[self.sdk].AsyncStream[object],
                options={"headers": self._list_omitted_headers()},
            )  # fmt: skip
        return self.make_reader(stream)

    async def count_tokens(self, request: ModelRequest, card: ModelCard, wire_name: str) -> int:
        """Return the number of input tokens that the server counts for a request.

        Raises ModelError if the key is missing, or the server refuses or cannot be reached.
        """
        self._check_key()
        client = await self._connect()
        with translate_errors():
            body = build_counted_body(request, card, wire_name)
            counted = await client.messages.count_tokens(**body, extra_headers=self._list_omitted_headers())
        return int(counted.input_tokens)

    async def load_windows(self, wire_name: str) -> ModelWindows:
        """Return the model's limits from the provider's list, cached for a day; raises nothing.

        If the list fails, the last known limits are returned. An unknown or smaller window is requested again
        after a minute.
        """
        kept = self._windows.get(wire_name)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        found = ModelWindows() if self._missing_key else await self._ask_windows(wire_name)
        surprise = kept is not None and (found.window or 0) < (kept[1].window or 0)
        seconds = _KEPT_SECONDS if found.window and not surprise else _RETRY_UNKNOWN_SECONDS
        if kept is not None and not found.window:
            found = kept[1]
        self._windows[wire_name] = (self._clock() + seconds, found)
        return found

    def get_verdicts(self, wire_name: str) -> ModelVerdicts:
        """Return what was learned about a model at this server; the object is shared and updated."""
        if wire_name not in self._verdicts:
            self._verdicts[wire_name] = ModelVerdicts(clock=self._clock)
        return self._verdicts[wire_name]

    def forget_windows(self, wire_name: str) -> None:
        """Request the model list again at the next `load_windows`; last known limits stay."""
        kept = self._windows.get(wire_name)
        if kept is not None:
            self._windows[wire_name] = (self._clock(), kept[1])

    def get_last_windows(self, wire_name: str) -> ModelWindows:
        """Return the limits that the model list stated last, without a call."""
        kept = self._windows.get(wire_name)
        return ModelWindows() if kept is None else kept[1]

    async def load(self) -> None:
        """Load what the first call needs, such as the SDK; no request is sent."""
        if not self._missing_key:
            await self._connect()

    async def finish(self, line: StreamReader) -> None:
        """Close a stream whose answer is complete; reading its rest happens in the background."""
        if line.has_arrived:
            await line.finish()
            return
        ending = asyncio.create_task(line.finish())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def wait_for_endings(self) -> None:
        """Wait until the streams that `finish` closes in the background are closed."""
        if self._endings:
            await asyncio.wait(self._endings)

    async def close(self) -> None:
        """Wait for streams that are being closed, then close the client; its errors are ignored."""
        await self.wait_for_endings()
        client, self._client = self._client, None
        if client is not None:
            with suppress(TimeoutError, OSError, aiohttp.ClientError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.close()

    async def _ask_windows(self, wire_name: str) -> ModelWindows:
        status, told = await self._fetch(f"/v1/models/{quote(wire_name, safe='')}")
        return ModelWindows(is_listed=False) if status == 404 else parse_windows(told)

    async def _fetch(self, path: str) -> tuple[int, object]:
        """Return HTTP status and JSON of a path of the model list.

        The JSON is None unless the status is 200. The status is 0 if the call fails or the body is no JSON.
        """
        usual = {"Authorization": f"Bearer {self._api_key}", **self.version}
        left_out = {name.lower() for name, value in self._headers.items() if not value}
        headers = {name: value for name, value in usual.items() if name.lower() not in left_out}
        headers |= {name: value for name, value in self._headers.items() if value}
        timeout = aiohttp.ClientTimeout(total=WINDOW_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.get(
                    f"{self.base_url}{path}", params=self.query, headers=headers, allow_redirects=False
                ) as response,
            ):
                status = response.status
                return status, json.loads(await read_body(response)) if status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.debug("the model list of %s did not answer: %s", self.base_url, error)
            return 0, None

    def _check_key(self) -> None:
        if self._missing_key:
            raise ModelRefusedAccount(f"{self._missing_key} is not set")

    def make_reader(self, stream: Any) -> StreamReader:
        """Return a reader of the stream of an SDK, which yields Messages events."""
        return StreamReader(stream)

    async def _connect(self) -> Any:
        """Return the SDK's client; the SDK is loaded at the first call.

        It is loaded in a thread, since it takes seconds, in which the process would miss its heartbeat.
        """
        if self._client is None:
            await asyncio.to_thread(_load_sdk, self.sdk)
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _make_client(self) -> Any:
        from anthropic import AsyncAnthropic, DefaultAioHttpClient

        transport = bound_responses(DefaultAioHttpClient(verify=load_trusted_certificates()))
        stay_at_origin(transport, self.base_url)
        return AsyncAnthropic(
            api_key=self._api_key, base_url=self.base_url, max_retries=0, timeout=None, http_client=transport,
            default_headers=self._list_set_headers(), default_query=self.query,
        )  # fmt: skip

    def _list_set_headers(self) -> dict[str, str]:
        """Return the headers that the model's entry adds to each request."""
        return {name: value for name, value in self._headers.items() if value}

    def _list_omitted_headers(self) -> dict[str, Any]:
        """Return the usual headers that the model's entry removes, in the form that the SDK expects."""
        omit = sys.modules[f"{self.sdk}._types"].Omit()
        return {name: omit for name, value in self._headers.items() if not value}


class StreamReader:
    """Reader of a stream that returns all events of a received piece at once, for fewer redraws."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._chunks = stream.response.aiter_bytes()
        self._lines = EventLines()
        self._completion: ChunkTranslator | None = None
        """Translator for a server that sends chunks of Chat Completions instead of Messages events.

        It is None until a chunk of Chat Completions comes.
        """
        self._whole: bytearray | None = None
        """Bytes so far of a body that is no event stream; None for an event stream."""
        self._is_stream = False
        self._broken: ModelError | None = None
        self._has_more = False
        """Whether the last piece had the maximum size, so that more bytes are ready."""
        self._arrived = asyncio.Event()
        """Set when the last byte of the body has arrived, read or not."""
        call_at_end(stream.response, self._arrived.set)

    @property
    def has_arrived(self) -> bool:
        """Whether the last byte of the body has arrived, so that reading to the end does not wait."""
        return self._arrived.is_set()

    @property
    def request_id(self) -> str:
        """Provider's id of the request, from the headers of the answer; "" if there is none."""
        headers = self._stream.response.headers
        return str(headers.get("request-id") or headers.get("x-request-id") or "")

    async def read_next(self) -> Sequence[Event]:
        """Wait for events and return them, pings included; an empty sequence is the end of the stream.

        Raises ModelError for a broken event or connection, after the events before it were returned.
        """
        if self._broken is not None:
            raise self._broken
        while True:
            with translate_errors():
                chunk = await anext(self._chunks, None)
            self._has_more = chunk is not None and len(chunk) >= PIECE_BYTES
            events = self._read(chunk)
            if events or chunk is None:
                return events or self._end()

    async def await_more(self) -> None:
        """Wait until the body ends, at most LOOK_SECONDS, so that the next read returns more events at once.

        Does not wait if more bytes are ready.
        """
        if self._has_more or self.has_arrived:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._arrived.wait()

    def _translate(self, event: Event) -> Iterable[Event]:
        """Return a server's event as events of the Messages API; raise ModelError if it is unusable."""
        if event.get("type") == "message":
            return split_message(event)
        if "choices" not in event:
            return (event,)
        if self._completion is None:
            self._completion = ChunkTranslator()
        return self._completion.take(event)

    def _translate_whole(self, answers: Iterable[Event]) -> Iterable[Event]:
        """Return the events of an answer that came as JSON instead of a stream."""
        for answer in answers:
            yield from self._translate(answer) if "choices" in answer else split_message(answer)
        yield from self._end()

    def _end(self) -> list[Event]:
        """Return the last events of a Chat Completions stream without an end mark, else none."""
        completion, self._completion = self._completion, None
        return [] if completion is None else completion.end()

    def _events(self, kind: str | None, data: str) -> Iterable[Event]:
        """Return one server-sent event as events of the Messages API.

        `kind` is the value of its `event` line, None without one. Raises ModelError, perhaps while iterating.
        """
        if is_done(data):
            return self._end_announced()
        return (out for event in parse_events(data, kind) for out in self._translate(_named(event, kind)))

    def _end_announced(self) -> Iterable[Event]:
        """Return the last events of a stream that ends with `[DONE]`, the mark of Chat Completions."""
        if self._completion is None:
            return ({"type": "message_stop"},)
        return self._completion.end(announced=True)

    def _read(self, chunk: bytes | None) -> list[Event]:
        if self._whole is None and not self._is_stream and chunk:
            self._detect_form(chunk)
            chunk = chunk.removeprefix(BOM_UTF8)
        if self._whole is not None:
            return self._read_whole(chunk)
        # A comment shows that the server is alive; a part of an event does not, since it may never end.
        events: list[Event] = []
        try:
            with translate_errors():
                for kind, data in self._lines.feed(chunk):
                    if chunk is None and _is_cut(data):
                        continue
                    events.extend(self._events(kind, data))
        except ModelError as error:
            if not events:
                raise
            self._broken = error
        if self._lines.pending_bytes > _LONGEST_EVENT_BYTES:
            self._broken = ModelAnswerUnusable("the stream held an event without an end", may_repeat=False)
            if not events:
                raise self._broken
        return events or ([{"type": "ping"}] if self._lines.has_comment else [])

    def _detect_form(self, chunk: bytes | None) -> None:
        """Decide by the first characters whether the body is an event stream or one document."""
        begun = (chunk or b"").lstrip(_BLANKS)
        if not begun:
            return
        self._is_stream = any(begun.startswith(name) or name.startswith(begun) for name in _FIELDS)
        self._whole = None if self._is_stream else bytearray()

    def _read_whole(self, chunk: bytes | None) -> list[Event]:
        """Collect a body that is no event stream; return a ping for each piece, and its events at the end.

        Raises ModelError, also for a body over `_LONGEST_EVENT_BYTES`.
        """
        assert self._whole is not None
        if chunk:
            self._whole += chunk
            if len(self._whole) > _LONGEST_EVENT_BYTES:
                raise ModelAnswerUnusable("the answer is one body that is too long", may_repeat=False)
            return [{"type": "ping"}]
        body, self._whole = bytes(self._whole), bytearray()
        if not body:
            return []
        return list(self._translate_whole(parse_body(body)))

    async def drain(self) -> None:
        """Read and drop the rest of the stream for at most `CLOSE_SECONDS`; errors are ignored.

        The connection can be reused only if the end is reached.
        """
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while await self.read_next():
                    pass

    async def finish(self) -> None:
        """Read the rest of the stream, then close it, within twice `CLOSE_SECONDS`."""
        await self.drain()
        await self.close()

    async def close(self) -> None:
        """Close the stream within CLOSE_SECONDS; errors are ignored."""
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                with translate_errors():
                    await self._stream.close()


def _load_sdk(name: str) -> None:
    with pause_gc():
        importlib.import_module(name)


def load_for_first_answer() -> None:
    """Load the SDK and the certificates in advance, so that the first call only creates a client."""
    _load_sdk(Provider.sdk)
    load_trusted_certificates()


@functools.cache
def load_trusted_certificates() -> SSLContext:
    """Return the TLS context with trusted certificates, created once per process (45 ms)."""
    import httpx2

    return httpx2.create_ssl_context()


class translate_errors:  # noqa: N801  is used like a function: `with translate_errors():`
    """Context manager that raises errors of an SDK and its transports as ModelErrors.

    Only calls of an SDK may run inside it.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, ModelError) or not isinstance(error, Exception):
            return
        import httpx2

        for name, root in _SDK_ERRORS.items():
            sdk = sys.modules.get(name)
            if sdk is not None and isinstance(error, sdk.APIStatusError):
                headers = error.response.headers
                refused = read_refusal(error.status_code, error.body, message=error.message, headers=headers)
                raise build_error(refused) from error
            if sdk is not None and isinstance(error, getattr(sdk, root)):
                if isinstance(error.__cause__, ModelRedirected):
                    raise error.__cause__ from None
                raise _build_unreachable(error) from error
        if isinstance(error, (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, *_TROUBLE)):
            raise _build_unreachable(error) from error


def _build_unreachable(error: Exception) -> ModelUnavailable:
    """Return the error of an unreachable provider.

    The error names a certificate fault if one is among the causes.
    """
    fault = find_certificate_fault(error)
    if fault is None:
        return ModelUnavailable(f"{type(error).__name__}: {error}")
    refused = ModelUnavailable(fault.reason)
    refused.shown = fault.reason
    return refused


def _named(event: Event, kind: str | None) -> Event:
    """Return the event with `kind`, from the stream's `event:` line, as its type if it has none."""
    return {"type": kind, **event} if kind and "type" not in event else event


def _is_cut(data: str) -> bool:
    """Return whether a stream's last event was cut off: neither a JSON object nor the end mark."""
    try:
        return not isinstance(json.loads(data, strict=False), Mapping)
    except (ValueError, RecursionError):
        return not is_done(data)


def is_done(data: str) -> bool:
    """Return whether data is the end mark `[DONE]`, also in quotes or lower case."""
    return data[:8].strip(' "').upper().startswith("[DONE]")


def parse_events(data: str, kind: str | None = None) -> Iterator[Event]:
    """Yield the JSON objects of one server-sent event; `kind` is its type from the `event:` line.

    A single word or value becomes a ping: some gateways send one to keep the connection open. Several objects
    appear if a server leaves out the empty line between events.

    Raises ModelAnswerUnusable if the data is no JSON object, ModelError of a class for the error's type if it
    is an error.
    """
    try:
        found = [json.loads(data, strict=False)] if data.strip() else [{}]
    except (ValueError, RecursionError) as error:
        if kind == "error":
            raise build_error(read_refusal(200, data)) from error
        found = [None] if _WORD.fullmatch(data.strip()) else _scan_objects(data)
    for event in found:
        yield _check_event(_unpack(event), kind, data)


def _unpack(event: object) -> object:
    """Return the event that Bedrock packs as base64 in `chunk.bytes`; any other event unchanged."""
    chunk = event.get("chunk") if isinstance(event, Mapping) else None
    packed = chunk.get("bytes") if isinstance(chunk, Mapping) else None
    if not isinstance(packed, str):
        return event
    try:
        return json.loads(base64.b64decode(packed, validate=True), strict=False)
    except (ValueError, RecursionError):
        return event


def _check_event(event: object, kind: str | None, data: str) -> Event:
    """Return the event if it is an object, a ping for other values.

    Raises ModelError if it is an error or a list.
    """
    if kind == "error" or (isinstance(event, Mapping) and is_error_object(event)):
        raise build_error(read_refusal(200, event, message=data))
    if isinstance(event, Mapping):
        return event
    if isinstance(event, list):
        raise ModelAnswerUnusable("the stream held an event that is no object")
    return {"type": "ping"}


def _scan_objects(text: str) -> list[object]:
    """Return the JSON values in a text, with or without separators.

    Raises ModelAnswerUnusable if a part is no JSON.
    """
    decoder, found, at = json.JSONDecoder(strict=False), [], 0
    while (at := _skip_between(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise ModelAnswerUnusable("the stream held an event that is not JSON") from error
        found.append(value)
    return found


def _skip_between(text: str, at: int) -> int:
    """Return the position of the next value after blanks, commas, field names and end marks."""
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def parse_body(body: bytes) -> Iterator[Event]:
    """Yield the answers in a body that came instead of a stream: one object, a list, or several objects.

    Raises ModelAnswerUnusable if the body is a page or no JSON, ModelError if it is an error.
    """
    text = body.decode("utf-8-sig", "replace").strip()
    if text.startswith("<"):
        raise ModelAnswerUnusable(f"a page came in place of an answer: {plain_text(text)[:300]}")
    if text.startswith("["):
        with suppress(ValueError, RecursionError):
            found = json.loads(text, strict=False)
            if isinstance(found, list) and all(isinstance(one, Mapping) for one in found):
                for one in found:
                    yield _check_event(one, None, json.dumps(one))
                return
    if not text.startswith("{"):
        raise ModelAnswerUnusable(f"the answer is neither a stream nor JSON: {text[:300]}")
    yield from parse_events(text)


def split_message(message: Event) -> Iterator[Event]:
    """Yield a whole message of the Messages API as the events of its stream."""
    content = message.get("content")
    yield {"type": "message_start", "message": message}
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, Mapping):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_stop", "index": index}
    usage = message.get("usage")
    told = usage if isinstance(usage, Mapping) else {}
    yield {"type": "message_delta", "delta": {"stop_reason": message.get("stop_reason")}, "usage": told}
    yield {"type": "message_stop"}


def parse_windows(told: object) -> ModelWindows:
    """Return the limits in an entry of a model list; empty limits if it is no object."""
    if not isinstance(told, Mapping):
        return ModelWindows()
    window = next(filter(None, (_window(told.get(name)) for name in _WINDOW_NAMES)), None)
    longest = next(filter(None, (_longest(told.get(name)) for name in _OUTPUT_NAMES)), None)
    return ModelWindows(window=window, max_output=longest, is_listed=True)


def _positive(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= LARGEST_WINDOW else None


def _longest(value: object) -> int | None:
    """Return a plausible output limit in tokens; None if below _SHORTEST_OUTPUT or no number."""
    found = _positive(value)
    return found if found is not None and found >= _SHORTEST_OUTPUT else None


def _window(value: object) -> int | None:
    found = _positive(value)
    return found if found is not None and found >= SMALLEST_WINDOW else None
