"""The strict fake of the provider in this process, with a clock that the bench moves and a bill per run."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from shared.adapters.models.routing import DEFAULT_CHAT_MODEL
from tests.bench.peers.bill import Bill
from tests.bench.peers.ideal_mind import IdealMind
from tests.kit.fakes.messages_api.server import MessagesApi

SECONDS_BETWEEN_TURNS = 30.0


@dataclass(slots=True)
class Provider:
    api: MessagesApi
    mind: IdealMind
    url: str = ""
    bill: Bill = field(default_factory=Bill)
    refused: list[str] = field(default_factory=list)
    """In the provider's words, but for requests above a window that has shrunk."""
    too_long: int = 0

    def set_window(self, tokens: int) -> None:
        self.api.models.set_window(DEFAULT_CHAT_MODEL, tokens)

    def settle(self) -> None:
        """Puts what was asked since the last time on the bill, and lets the clock go on."""
        for record in self.api.journal.records:
            if record.outcome == "refused":
                if (record.error or "").startswith("prompt is too long"):
                    self.too_long += 1
                else:
                    self.refused.append(record.error or "")
            if record.usage is not None and record.raw is not None:
                self.bill.add(record.kind, json.loads(record.raw), record.usage)
        self.api.journal.reset()
        self.api.advance_clock(SECONDS_BETWEEN_TURNS)

    def begin_bill(self) -> Bill:
        """A new one from here on; what was written before counts as written."""
        closed, self.bill = self.bill, Bill(written=self.bill.written)
        return closed


@asynccontextmanager
async def serving(mind: IdealMind) -> AsyncIterator[Provider]:
    api = MessagesApi(mind=mind)
    async with listening(api) as url:
        yield Provider(api=api, mind=mind, url=url)


@asynccontextmanager
async def listening(api: MessagesApi) -> AsyncIterator[str]:
    """Serve a fake on a free port of the loopback."""
    runner = web.AppRunner(api.application(), access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        await web.SockSite(runner, listener).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()
