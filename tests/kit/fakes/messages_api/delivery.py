"""Sends one answer, whole or as a stream, with the faults that the script prescribes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiohttp import web

from tests.kit.fakes.messages_api.brain import Answer
from tests.kit.fakes.messages_api.journal import Record
from tests.kit.fakes.messages_api.limits import output_tokens
from tests.kit.fakes.messages_api.refusals import USUAL_MESSAGE, Refusal, error_body
from tests.kit.fakes.messages_api.shapes import Json
from tests.kit.fakes.messages_api.stream import Event, events

GLANCE_SECONDS = 0.05
STATUS_OF_TYPE = {"overloaded_error": 529, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504}


class _Ended(Exception):
    """Raised when a stream ends early; its argument is the outcome for the journal."""


async def wait_while_connected(request: web.Request, seconds: float) -> None:
    """Wait `seconds`; raise ConnectionResetError as soon as the other side hangs up."""
    clock = asyncio.get_running_loop()
    until = clock.time() + seconds
    while (left := until - clock.time()) > 0:
        if request.transport is None or request.transport.is_closing():
            raise ConnectionResetError
        await asyncio.sleep(min(GLANCE_SECONDS, left))


def drop_connection(request: web.Request) -> None:
    """Abort the connection of a request without an answer."""
    if request.transport is not None:
        request.transport.abort()


async def send_whole(request: web.Request, message: Json, action: Json, record: Record) -> web.StreamResponse:
    if "stall" in action:
        await wait_while_connected(request, action["stall"].get("seconds", 60))
    if "stream_error" in action:
        kind = action.get("error_type", "overloaded_error")
        status = STATUS_OF_TYPE.get(kind, 500)
        raise Refusal(USUAL_MESSAGE[status], status=status)
    if "cut" in action:
        record.outcome = "cut"
        drop_connection(request)
        raise ConnectionResetError
    record.outcome = "answered"
    if "malformed" in action:
        return web.Response(text='{"type": "message", "content": [', content_type="application/json")
    return web.json_response(message, headers={"request-id": f"req_{record.id}"})


class StreamedAnswer:
    """One streamed answer.

    It counts the deltas sent, so that each fault occurs at the place that the script names.
    """

    def __init__(self, request: web.Request, action: Json, record: Record, *, pace_seconds: float) -> None:
        self._request = request
        self._action = action
        self._record = record
        self._pace_seconds = action.get("pace_ms", pace_seconds * 1_000) / 1_000
        self._response = web.StreamResponse(
            headers={
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "request-id": f"req_{record.id}",
            }
        )
        self._deltas = 0
        self._tokens = 0

    async def send(self, message: Json, answer: Answer) -> web.StreamResponse:
        whole = output_tokens(answer.blocks)
        self._record.output_tokens = 1
        await self._response.prepare(self._request)
        try:
            for event in self._events(message, answer):
                await self._faults_before(event)
                await self._write(event.encoded())
                self._count(event, whole)
            self._record.outcome = "answered"
        except _Ended as ended:
            self._record.outcome = str(ended)
        await self._finish()
        return self._response

    def _events(self, message: Json, answer: Answer) -> Iterator[Event]:
        return events(message, answer)

    def _error(self, body: Json) -> Event:
        return Event(name="error", data=body)

    def _count(self, event: Event, whole: int) -> None:
        if event.is_delta:
            self._deltas += 1
            self._tokens += event.delta_tokens
            self._record.output_tokens = min(whole, max(1, self._tokens))
        elif event.name == "message_delta":
            self._record.output_tokens = whole

    async def _faults_before(self, event: Event) -> None:
        """Cause the faults that are due before this event.

        A fault after k deltas occurs before the next one, at the latest before the end of the answer.
        """
        if event.is_delta and self._deltas and self._pace_seconds:
            await wait_while_connected(self._request, self._pace_seconds)
        ending = event.name == "message_delta"
        if not (event.is_delta or ending):
            if event.name == "message_stop" and self._action.get("no_message_stop"):
                raise _Ended("no_message_stop")
            return
        if self._due("unknown_event", ending):
            await self._write(
                b'event: brand_new_event\ndata: {"type":"brand_new_event","note":"ignore me"}\n\n'
            )
        if self._due("malformed", ending):
            await self._write(
                b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n'
            )
        await self._ends_before(ending)

    async def _ends_before(self, ending: bool) -> None:
        stall = self._action.get("stall")
        if stall and self._due_after(stall.get("after", 0), ending):
            await wait_while_connected(self._request, stall.get("seconds", 60))
        if self._due("stream_error", ending):
            kind = self._action.get("error_type", "overloaded_error")
            body = error_body(kind, USUAL_MESSAGE[STATUS_OF_TYPE.get(kind, 500)], f"req_{self._record.id}")
            await self._write(self._error(body).encoded())
            raise _Ended("stream_error")
        if self._due("cut", ending):
            raise _Ended("cut")

    def _due(self, name: str, ending: bool) -> bool:
        return name in self._action and self._due_after(self._action[name], ending)

    def _due_after(self, deltas: int, ending: bool) -> bool:
        return deltas == self._deltas or (ending and deltas > self._deltas)

    async def _write(self, data: bytes) -> None:
        drip = self._action.get("drip")
        if drip is None:
            await self._response.write(data)
            return
        for byte in data:
            await self._response.write(bytes((byte,)))
            await wait_while_connected(self._request, drip)

    async def _finish(self) -> None:
        if self._record.outcome == "cut":
            drop_connection(self._request)
        else:
            await self._response.write_eof()
