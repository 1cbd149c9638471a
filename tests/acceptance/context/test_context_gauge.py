"""What `/context` and the gauge say is what the provider bills."""

from __future__ import annotations

import re

import pytest

from shared.core.session.turns import ContextMeasured
from tests.kit.app_driver import Visit, working

FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 6
MESSAGE_TOKENS = 100
"""More than a short question takes, with the clock and what stands around passages."""


async def command(guest: Visit, name: str, args: str = "") -> str:
    async with working(guest):
        done = await guest.app.commands.run(
            session_id=guest.session_id, address_id=guest.address_id, name=name, args=args
        )
    return done.result


async def gauge(guest: Visit) -> ContextMeasured:
    measured = await guest.app.sessions.measure_context(guest.session_id)
    assert measured is not None
    return measured


async def billed(guest: Visit) -> int:
    audits = "SELECT reported_input_tokens FROM turn_context_audit ORDER BY id DESC LIMIT 1"
    return int(await guest.one(audits))


async def test_after_a_compaction_the_gauge_says_what_the_next_call_sends(guest: Visit) -> None:
    """What the next call holds beyond it is its message and at most what is reserved."""
    for number in range(14):
        await guest.ask(f"The piano number {number} of Anna is PX-{number}471. {FILLER}")
        await command(guest, "remember", f"Anna's piano {number} stands in the house of her uncle {number}.")
    shown = await gauge(guest)
    for _ in range(2):
        await command(guest, "compact", "--force")
        shown = await gauge(guest)
        await guest.ask("Which number has Anna's piano 3?")
        assert shown.used <= await billed(guest) <= 1.06 * (shown.used + shown.reserved) + MESSAGE_TOKENS
        later = await gauge(guest)
        await guest.ask("Which number has Anna's piano 4?")
        assert later.used <= await billed(guest) <= 1.06 * (later.used + later.reserved) + MESSAGE_TOKENS
    assert shown.reserved > 1_000
    estimates = "SELECT estimated_input_tokens_before FROM turn_context_audit ORDER BY id DESC LIMIT 1"
    assert await guest.one(estimates) == pytest.approx(await billed(guest), rel=0.04)


async def test_the_parts_of_context_add_up_and_tell_what_is_recalled(guest: Visit) -> None:
    for number in range(12):
        await guest.ask(f"The piano number {number} of Anna is PX-{number}471. {FILLER}")
    parts_of = re.compile(r"^(?!Free)[A-Z][^\d\n]+?\s+([\d,]+)$", re.MULTILINE)
    for args in ("", "--force"):
        if args:
            await command(guest, "compact", args)
        told = await command(guest, "context")
        total = re.search(r"([\d,]+) of [\d,]+ tokens", told)
        assert total, told
        sizes = [int(size.replace(",", "")) for size in parts_of.findall(told)]
        assert len(sizes) >= 3, told
        assert sum(sizes) == int(total[1].replace(",", "")), told
        assert ("are kept free for passages that fit your question" in told) is bool(args), told
    await command(guest, "new")
    shown = await gauge(guest)
    assert sum(shown.parts.values()) == shown.used
