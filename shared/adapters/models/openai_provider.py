"""One account at one server that speaks Chat Completions: OpenAI, its likes, and most that run at home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from shared.adapters.models.chat_completions import (
    LONG_OUTPUT,
    OPTIONAL,
    SHORT_OUTPUT,
    ChunkTranslator,
    completion_body,
)
from shared.adapters.models.provider import (
    ModelWindows,
    Provider,
    StreamReader,
    event_of,
    translated,
    trusted,
    windows_in,
)
from shared.adapters.models.responses import ResponseTranslator, response_body
from shared.adapters.models.stream_parser import Event
from shared.adapters.models.wire import Json
from shared.core.values.errors import ModelError, ModelRejectedRequest, ModelUnavailable
from shared.ports import ModelCard, ModelRequest

if TYPE_CHECKING:
    from anthropic._streaming import ServerSentEvent

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY_NAME = "OPENAI_API_KEY"
_DONE = "[DONE]"


def with_usual_path(base_url: str) -> str:
    """An address without a path gets `/v1`."""
    return base_url if urlsplit(base_url).path.strip("/") else f"{base_url.rstrip('/')}/v1"


class OpenAIProvider(Provider):
    sdk = "openai"
    version: Mapping[str, str] = {}

    def __init__(self, *, base_url: str = OPENAI_URL, **account: Any) -> None:
        super().__init__(base_url=with_usual_path(base_url), **account)
        self._refused: dict[str, set[str]] = {}
        """By model: what the server has said that it does not take."""

    def body(
        self, request: ModelRequest, card: ModelCard, wire_name: str, *, thinking: bool, schema: bool
    ) -> Json:
        refused = self._refused.get(wire_name, set())
        output = LONG_OUTPUT if SHORT_OUTPUT in refused else SHORT_OUTPUT
        body = completion_body(request, card, wire_name, schema=schema, output=output)
        return {name: value for name, value in body.items() if name not in refused}

    def narrows(self, wire_name: str, error: ModelError) -> bool:
        if not isinstance(error, ModelRejectedRequest):
            return False
        refused, words = self._refused.setdefault(wire_name, set()), str(error)
        # OpenAI's newer models refuse the one name and ask for the other in the same sentence.
        names = (*OPTIONAL, SHORT_OUTPUT) if LONG_OUTPUT in words else OPTIONAL
        named = [name for name in names if name in words and name not in refused]
        refused.update(named[:1])
        return bool(named)

    async def open_stream(self, body: Mapping[str, Any]) -> StreamReader:
        self._check_key()
        client = await self._connected()
        with translated():
            stream = await client.chat.completions.create(**body)
        return ChunkReader(stream)

    async def count_tokens(self, request: ModelRequest, card: ModelCard, wire_name: str) -> int:
        raise ModelUnavailable("this API counts no tokens")

    async def _ask_windows(self, wire_name: str) -> ModelWindows:
        """From the model's own entry, or the list where that says little or is not there."""
        status, told = await self._fetch(f"/models/{quote(wire_name, safe='')}")
        found = windows_in(told)
        if found.window is not None:
            return found
        listed, page = await self._fetch("/models")
        models = page.get("data") if isinstance(page, Mapping) else None
        if listed != 200 or not isinstance(models, list):
            return found
        mine = next((one for one in models if isinstance(one, Mapping) and one.get("id") == wire_name), None)
        return ModelWindows(is_listed=status == 200) if mine is None else windows_in(mine)

    def _make_client(self) -> Any:
        from openai import AsyncOpenAI, DefaultAioHttpClient

        transport = DefaultAioHttpClient(verify=trusted())
        return AsyncOpenAI(
            api_key=self._api_key, base_url=self.base_url, max_retries=0, timeout=None, http_client=transport
        )


class ResponsesProvider(OpenAIProvider):
    """The same account by the Responses API."""

    def body(
        self, request: ModelRequest, card: ModelCard, wire_name: str, *, thinking: bool, schema: bool
    ) -> Json:
        return response_body(request, card, wire_name, schema=schema)

    def narrows(self, wire_name: str, error: ModelError) -> bool:
        return False

    async def open_stream(self, body: Mapping[str, Any]) -> StreamReader:
        self._check_key()
        client = await self._connected()
        with translated():
            stream = await client.responses.create(**body)
        return ResponseReader(stream)


class ChunkReader(StreamReader):
    """A stream of chunks; a comment is a sign of life, and the end may come without being announced."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._translator = self._make_translator()
        self._is_done = False

    def _make_translator(self) -> ChunkTranslator | ResponseTranslator:
        return ChunkTranslator()

    async def next(self) -> Sequence[Event]:
        events = await super().next()
        return events or self._end()

    def _make_decoder(self) -> Any:
        from openai._streaming import SSEDecoder

        return SSEDecoder()

    def _events(self, sse: ServerSentEvent) -> Iterable[Event]:
        if sse.data.startswith(_DONE):
            return self._end()
        chunk = event_of(sse)
        return self._translator.take(chunk)

    def _read(self, chunk: bytes | None) -> list[Event]:
        events = super()._read(chunk)
        alive = not events and chunk is not None and chunk.lstrip().startswith(b":")
        return [{"type": "ping"}] if alive else events

    def _end(self) -> list[Event]:
        events = [] if self._is_done else self._translator.end()
        self._is_done = True
        return events


class ResponseReader(ChunkReader):
    def _make_translator(self) -> ResponseTranslator:
        return ResponseTranslator()
