"""A visitor whose window is small, with a tool that fills it; modules with another visitor have their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.services.turns.toolbox import Toolbox
from tests.kit.app_driver import LookUp, Visit, running_app, visit, with_little_room
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
async def guest(
    database_url: str, redis_url: str, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Visit]:
    await provider.reset()
    monkeypatch.setattr(
        "shared.bootstrap.build_turns.Toolbox", lambda tools, **more: Toolbox([*tools, LookUp()], **more)
    )
    settings = with_little_room(database_url, redis_url, provider.base_url)
    async with running_app(settings) as app:
        yield await visit(app)
