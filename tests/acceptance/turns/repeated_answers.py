"""Commands and answers of a talk in which questions are answered again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.acceptance.long_talks import FILLER
from tests.acceptance.sent_requests import unmarked
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake


async def run(guest: Visit, name: str, args: str = "") -> Any:
    doing = asyncio.ensure_future(
        guest.app.commands.run(session_id=guest.session_id, address_id=guest.address_id, name=name, args=args)
    )
    while not doing.done():
        await guest.run_due_jobs()
        await asyncio.sleep(0.02)
    return await doing


async def says(provider: RunningFake, text: str) -> None:
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": text}}])


async def talk(guest: Visit, turns: int) -> None:
    for number in range(turns):
        await guest.ask(f"Message {number}. {FILLER}")


async def sent(provider: RunningFake) -> str:
    """What the provider was asked last."""
    chats = [r for r in await provider.requests() if r["kind"] == "chat" and r["status"] == 200]
    return json.dumps(chats[-1]["body"])


def messages_of(body: str) -> list[Any]:
    request = json.loads(body)
    unmarked(request)
    return list(request["messages"])
