"""A visitor who was answered once, and messages that are stored with their claim."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.session.turns import Accepted, Claim
from shared.core.values.messages import Block
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
async def guest(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    """Who was answered once: their process knows what a turn may cost."""
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        cap_total_per_day_usd="5",
    )  # fmt: skip
    async with running_app(settings) as app:
        talking = await visit(app)
        await talking.ask("My cat is called Miso.")
        yield talking
        connection = await asyncpg.connect(database_url, timeout=60)
        try:
            assert await check_invariants(connection) == []
        finally:
            await connection.close(timeout=30)


async def begin(guest: Visit, text: str, *, cid: str | None = None, more: tuple[Block, ...] = ()) -> Accepted:
    return await guest.app.sessions.accept_and_claim(guest.inbound(text, cid=cid, more=more))


async def begun_claim(guest: Visit, text: str) -> Claim:
    await begin(guest, text)
    claim, _ = guest.app.sessions._begun[guest.session_id]
    return claim
