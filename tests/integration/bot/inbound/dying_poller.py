"""A poller that is killed in the middle: `python -m … BASE_URL DATABASE_URL before|after` the store."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bot.telegram.client.session import create_bot
from bot.telegram.inbound.inbox import Poller
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from tests.kit.fakes.bot_api import TOKEN

LIFE_SECONDS = 30.0


class DyingInbox:
    def __init__(self, inbox: PostgresTelegramInbox, moment: str) -> None:
        self._inbox = inbox
        self._moment = moment

    async def load_next_offset(self, bot_id: int) -> int:
        return await self._inbox.load_next_offset(bot_id)

    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int:
        if self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        stored = await self._inbox.store(bot_id, updates)
        os.kill(os.getpid(), signal.SIGKILL)
        return stored


async def main(base_url: str, database_url: str, moment: str) -> None:
    pool = await open_pool(database_url, size=2)
    poller = Poller(
        create_bot(TOKEN, api_url=base_url),
        inbox=DyingInbox(PostgresTelegramInbox(pool), moment),
        problems=PostgresTelegramChats(pool),
        on_stored=lambda: None,
    )
    await asyncio.wait_for(poller.run(), LIFE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
