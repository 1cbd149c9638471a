"""A turn before the turns of a test."""

from __future__ import annotations

import pytest

from tests.kit.app_driver import Visit


@pytest.fixture
async def first_answer(guest: Visit) -> None:
    """Answer a visitor once, so that the process knows what a turn may cost."""
    await guest.ask("My cat is called Miso.")
