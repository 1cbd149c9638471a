"""Limits on the size of bodies from outside: a longer body is cut off while it is read."""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp

MOST_BYTES = 16 * 2**20
"""Maximum bytes of an answer that is read as a whole: vectors, lists of models, errors, results of tools."""
MOST_EVENT_BYTES = 16 * 2**20
"""Maximum bytes of one server-sent event, and of one line without an end."""
MOST_STREAM_BYTES = 256 * 2**20
"""Maximum bytes of one streamed answer; the fastest model sends a tenth of that in ten minutes."""
PIECE_BYTES = 16_384
"""Maximum bytes of a piece of a streamed body that the clients of the SDKs return."""
_PIECE = 65_536
_EVENTS = "text/event-stream"
_WRAPPED = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class BodyTooLarge(aiohttp.ClientPayloadError):
    """Raised for an answer longer than its bound, whose rest was not read."""

    def __init__(self, most: int) -> None:
        super().__init__(describe_bound(most))


def describe_bound(most: int) -> str:
    """Return the sentence that an answer exceeds `most` bytes, in MiB."""
    return f"the answer is longer than {most / 2**20:g} MiB; the rest was not read"


async def read_body(response: aiohttp.ClientResponse, most: int = MOST_BYTES) -> bytes:
    """Return the body of a response.

    Raises BodyTooLarge and closes the connection if it is longer than `most` bytes.
    """
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE):
        body += piece
        if len(body) > most:
            response.close()
            raise BodyTooLarge(most)
    return bytes(body)


def bound_responses(client: Any, *, most: int = MOST_BYTES, endless_streams: bool = False) -> Any:
    """Make an httpx2 client limit the bodies that it reads, and return the client.

    Whole bodies have at most `most` bytes; streams MOST_EVENT_BYTES per event and, unless `endless_streams`,
    MOST_STREAM_BYTES in all. Reading past a limit raises httpx2.StreamError.
    """
    client.headers["Accept-Encoding"] = "identity"
    hook = functools.partial(_bound, most=most, endless_streams=endless_streams)
    client.event_hooks = {**client.event_hooks, "response": [*client.event_hooks["response"], hook]}
    return client


def call_at_end(response: Any, callback: Callable[[], None]) -> None:
    """Call `callback` when the last byte of a streamed response arrives, even if the reader has paused.

    Only responses that aiohttp carries are supported; for others `callback` is never called.
    """
    stream = getattr(response, "stream", None)
    while stream is not None:
        if (found := getattr(stream, "_aiohttp_response", None)) is not None:
            found.content.on_eof(callback)
            return
        stream = getattr(stream, "_stream", None)


async def _bound(response: Any, *, most: int, endless_streams: bool) -> None:
    """Replace the stream of a response by one with limits.

    Compressed bodies are measured after decompression.
    """
    streams = response.status_code < 400 and response.headers.get("content-type", "").startswith(_EVENTS)
    in_all: float = most
    if streams:
        in_all = float("inf") if endless_streams else MOST_STREAM_BYTES
    encoding = response.headers.get("content-encoding", "identity").strip().casefold() or "identity"
    unpack = None
    if encoding in _WRAPPED:
        unpack = zlib.decompressobj(_WRAPPED[encoding])
        del response.headers["content-encoding"]
    elif encoding != "identity":
        raise _too_large()(f"the answer is packed with {encoding[:20]}, which was not asked for")
    response.stream = _bounded_stream()(response.stream, in_all=in_all, per_event=streams, unpack=unpack)


@functools.cache
def _too_large() -> type[Exception]:
    error: type[Exception] = importlib.import_module("httpx2").StreamError
    return error


@functools.cache
def _bounded_stream() -> Callable[..., Any]:
    """Return the class of streams with limits.

    It is defined at the first call, since httpx2 is imported only with an SDK.
    """
    httpx2 = importlib.import_module("httpx2")

    class BoundedStream(httpx2.AsyncByteStream):  # type: ignore[misc, name-defined]
        """Body that raises httpx2.StreamError when it exceeds a limit."""

        def __init__(self, stream: Any, *, in_all: float, per_event: bool, unpack: Any) -> None:
            self._stream, self._in_all, self._per_event = stream, in_all, per_event
            self._unpack = unpack

        async def __aiter__(self) -> AsyncIterator[bytes]:
            whole = event = 0
            async for packed in self._stream:
                for piece in self._unpacked(packed):
                    whole += len(piece)
                    end = max(piece.rfind(b"\n\n"), piece.rfind(b"\r\n\r\n"), piece.rfind(b"\r\r"))
                    event = len(piece) - end if end >= 0 else event + len(piece)
                    if whole > self._in_all:
                        raise _too_large()(describe_bound(int(self._in_all)))
                    if self._per_event and event > MOST_EVENT_BYTES:
                        raise _too_large()(describe_bound(MOST_EVENT_BYTES))
                    yield piece

        def _unpacked(self, packed: bytes) -> Any:
            if self._unpack is None:
                yield packed
                return
            while packed:
                try:
                    yield self._unpack.decompress(packed, _PIECE)
                except zlib.error as error:
                    raise _too_large()("the answer cannot be unpacked") from error
                packed = self._unpack.unconsumed_tail

        def aclose(self) -> Awaitable[None]:
            closing: Awaitable[None] = self._stream.aclose()
            return closing

    return BoundedStream
