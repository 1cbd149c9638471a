"""The rate limit of messages asks the database only at the limit, and not without end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shared.core.values.errors import StorageUnavailable
from web.chat.message_intake import CHARS_OF_ONE, MessageIntake
from web.protocol import wire
from web.server.client_limiter import ClientLimiter
from web.server.rate_limits import ClientLimits

LIMITS = ClientLimits(messages=2)
KNOWN: Any = SimpleNamespace(row=SimpleNamespace(session_id=7))


class Events:
    """Event log that knows no message; it never answers while `is_silent`."""

    is_silent = False

    async def has_message(self, session_id: int, key: str) -> bool:
        if self.is_silent:
            await asyncio.Event().wait()
        return False


def _build_intake(events: Any) -> MessageIntake:
    nothing: Any = None
    return MessageIntake(
        sessions=nothing, uploads=nothing, events=events, edits=nothing, eraser=nothing, hub=nothing,
        replies=nothing, storage_limiter=nothing,
        limiter=ClientLimiter.create(nothing, is_personal=False, limits=LIMITS),
    )  # fmt: skip


async def _write(intake: MessageIntake, chars: int) -> None:
    await intake.check_rate(LIMITS, KNOWN, cid="c1", address=None, chars=chars)


@pytest.mark.parametrize(("chars", "allowed"), [(CHARS_OF_ONE - 1, 2), (CHARS_OF_ONE, 1)])
async def test_message_of_8000_characters_counts_as_two(chars: int, allowed: int) -> None:
    intake = _build_intake(Events())
    for _ in range(allowed):
        await _write(intake, chars)
    with pytest.raises(wire.RateLimited):
        await _write(intake, chars)


async def test_message_over_the_limit_waits_no_longer_for_a_silent_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("web.chat.message_intake.ACCEPT_SECONDS", 0.01)
    events = Events()
    intake = _build_intake(events)
    await _write(intake, CHARS_OF_ONE)
    events.is_silent = True
    async with asyncio.timeout(20):
        with pytest.raises(StorageUnavailable):
            await _write(intake, 0)
