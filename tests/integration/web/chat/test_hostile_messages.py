"""Messages made to keep the program busy: each is answered, and other visitors are answered meanwhile."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from shared.bootstrap.app import App
from shared.services.turns.session_service import MESSAGE_CHARS
from tests.integration.web.chat.real_server import real
from tests.kit.hostile_texts import REPEATED, hostile_text
from tests.kit.night import by_night
from tests.kit.web.fixtures import Screen, hello
from tests.kit.web.http_client import browsing

__all__ = ["real"]

WORST = ("angle and blanks", "angle and lines", "laughter", "open tags", "dotted words", "nested links")
KINDS = tuple(REPEATED) if by_night(1, else_=0) else WORST


async def _visitor(client: ClientSession, url: str) -> Screen:
    screen = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
    await screen.send(hello())
    await screen.until("welcome")
    return screen


@pytest.mark.control("S51")
async def test_hostile_message_delays_no_other_visitor(real: tuple[str, App]) -> None:
    url, _ = real
    async with browsing() as client:
        stranger, other = await _visitor(client, url), await _visitor(client, url)
        for number, kind in enumerate(KINDS):
            await stranger.say(hostile_text(kind, MESSAGE_CHARS), cid=f"h{number}")
            await other.say("Hello there", cid=f"o{number}")
            assert (await other.until("msg", role="assistant"))["text"], kind
            await other.until("run", state="done")
            assert (await stranger.until("msg", role="assistant"))["text"], kind
            await stranger.until("run", state="done")
