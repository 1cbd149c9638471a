"""An open stream hands out whole events, however their bytes come, and what came before a broken one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from shared.adapters.bounded_bodies import PIECE_BYTES
from shared.adapters.models import provider
from shared.adapters.models.provider import StreamReader
from shared.core.values.errors import ModelAnswerUnusable, ModelUnavailable

ALIVE = {"type": "ping"}
"""Sign of life for bytes that are no whole event."""
EVENTS = [
    {"type": "message_start"},
    *({"type": "content_block_delta", "text": word} for word in ("Zoë", "東京", "🌊", "a\nb")),
]


def written(events: Iterable[object], end: str = "\n") -> bytes:
    lines = [f"event: x{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in events]
    return "".join(lines).encode()


def line_of(*chunks: bytes) -> StreamReader:
    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    stream: Any = SimpleNamespace(response=SimpleNamespace(aiter_bytes=arriving, headers={}))
    return StreamReader(stream)


async def all_of(line: StreamReader) -> list[Any]:
    found: list[Any] = []
    while events := await line.read_next():
        found += [event for event in events if event != ALIVE]
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
async def test_events_are_whole_wherever_their_bytes_are_cut(size: int, end: str) -> None:
    sent = written(EVENTS, end)
    line = line_of(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert await all_of(line) == EVENTS
    assert await line.read_next() == []


async def test_what_came_together_is_handed_out_together() -> None:
    line = line_of(written(EVENTS[:3]) + b": a comment\n\n", written(EVENTS[3:]))
    assert [await line.read_next(), await line.read_next(), await line.read_next()] == [
        EVENTS[:3],
        EVENTS[3:],
        [],
    ]


async def test_last_event_is_read_without_its_empty_line() -> None:
    last = {"type": "message_stop"}
    assert await all_of(line_of(written(EVENTS), f"data: {json.dumps(last)}".encode())) == [*EVENTS, last]


@pytest.mark.parametrize("cut", [b'data: {"type": "mess', b"data: ", b"event: x", b"da", b'data: "word"'])
async def test_last_event_is_passed_over_when_it_was_cut(cut: bytes) -> None:
    assert await all_of(line_of(written(EVENTS), cut)) == EVENTS


async def test_events_without_empty_lines_are_handed_out_while_they_come() -> None:
    line = line_of(b'data: {"a": 1}\n', b'data: {"a": 2}\n', b'data: {"a": 3}\n')
    assert [await line.read_next() for _ in range(4)] == [[{"a": 1}], [{"a": 2}], [{"a": 3}], []]


@pytest.mark.parametrize(
    "broken",
    [b"data: {half\n\n", b"data: [1]\n\n", b"data: \xff\n\n", b'event: error\ndata: {"type": "error"}\n\n'],
    ids=["no JSON", "no object", "no text", "an error"],
)
async def test_what_came_before_a_broken_event_is_heard_first(broken: bytes) -> None:
    line = line_of(written(EVENTS[:2]) + broken + written(EVENTS[2:]))
    assert await line.read_next() == EVENTS[:2]
    for _ in range(2):
        with pytest.raises(ModelUnavailable if b"error" in broken else ModelAnswerUnusable):
            await line.read_next()


async def test_nothing_of_a_stream_that_ends_at_once() -> None:
    assert await all_of(line_of()) == []


async def test_an_event_that_never_ends_is_none() -> None:
    assert await all_of(line_of(b"data: ", *([b"x" * 16_384] * 200))) == []


@pytest.mark.parametrize(
    ("size", "waits"), [(10, True), (PIECE_BYTES - 1, True), (PIECE_BYTES, False), (100_000, False)]
)
async def test_reader_pauses_unless_more_is_there_already(
    monkeypatch: pytest.MonkeyPatch, size: int, waits: bool
) -> None:
    monkeypatch.setattr(provider, "LOOK_SECONDS", 3_600.0)
    head = written(EVENTS[:1])
    line = line_of(head + b":" * (size - len(head)) if size > len(head) else head)
    assert await line.read_next() == EVENTS[:1]
    pause = asyncio.create_task(line.await_more())
    for _ in range(3):
        await asyncio.sleep(0)
    assert pause.done() is not waits
    pause.cancel()


async def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_LONGEST_EVENT_BYTES", 1_000)
    line = line_of(written(EVENTS), *[b"data: " + b"x" * 200] * 10, written(EVENTS))
    assert await line.read_next() == EVENTS
    with pytest.raises(ModelAnswerUnusable, match="without an end"):
        await all_of(line)
