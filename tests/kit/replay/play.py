"""Plays one conversation over the web: a message, its answer, the next; now and then several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from aiohttp import ClientSession

from tests.kit.replay.scripts import ConversationScript
from tests.kit.replay.visitor import AnswerTimeout, SimulatedVisitor, VisitorRejected

Speed = Literal["max", "real"]

ANSWER_SECONDS = 300.0
"""Longest wait for answers in seconds; while a provider is away, turns wait up to 30 at a time."""
CHARS_PER_SECOND = 15.0
LONGEST_TYPING_SECONDS = 12.0
_BURST_EVERY = 8
_BURSTS = (2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedConversation:
    script: ConversationScript
    visitor: SimulatedVisitor
    given_up: str


async def play(
    script: ConversationScript,
    *,
    http: ClientSession,
    url: str,
    speed: Speed,
    on_progress: Callable[[int, str], None],
) -> PlayedConversation:
    visitor = SimulatedVisitor(http, url)
    connected = asyncio.ensure_future(visitor.run())
    talking = asyncio.ensure_future(_talk(visitor, script, speed, on_progress))
    try:
        await asyncio.wait([connected, talking], return_when=asyncio.FIRST_COMPLETED)
        return PlayedConversation(script=script, visitor=visitor, given_up=_reason(connected, talking))
    finally:
        for task in (connected, talking):
            task.cancel()
        await asyncio.wait([connected, talking], timeout=5)


async def _talk(
    visitor: SimulatedVisitor,
    script: ConversationScript,
    speed: Speed,
    on_progress: Callable[[int, str], None],
) -> None:
    for step in steps(script.messages):
        for text in step:
            if speed == "real":
                await asyncio.sleep(min(LONGEST_TYPING_SECONDS, len(text) / CHARS_PER_SECOND))
            await visitor.say(text)
        await visitor.settled(timeout_seconds=ANSWER_SECONDS)
        on_progress(len(step), script.id)


def steps(messages: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the messages in groups that are sent without waiting: mostly single ones, sometimes two or
    three.
    """
    at, number = 0, 0
    while at < len(messages):
        number += 1
        together = _BURSTS[number // _BURST_EVERY % len(_BURSTS)] if number % _BURST_EVERY == 0 else 1
        yield messages[at : at + together]
        at += together


def _reason(connected: asyncio.Task[None], talking: asyncio.Task[None]) -> str:
    for task in (connected, talking):
        if not task.done():
            continue
        match task.exception():
            case None:
                return ""
            case AnswerTimeout() | VisitorRejected() as error:
                return str(error)
            case error:
                raise error
    return ""
