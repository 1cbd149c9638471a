"""A replay over Telegram: the stand-in, a system of its own with a bot, people, and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from aiohttp import ClientError

from shared.config.settings import Settings
from shared.replay.chat import FIRST_PERSON, Chat, play_chat, read_chat, verdict_of
from shared.replay.chat_evidence import ChatWitness
from shared.replay.evidence import Witness
from shared.replay.fake_telegram import FakeTelegram, Refused
from shared.replay.mishaps import Mishaps
from shared.replay.play import Speed
from shared.replay.progress import Bar
from shared.replay.scripts import Script
from shared.replay.system import NoSystem, OwnSystem
from shared.replay.verdict import Verdict


async def replay_on_telegram(
    scripts: Sequence[Script], settings: Settings, *, window: int | None, speed: Speed, together: int
) -> tuple[list[Verdict], dict[str, object]]:
    """The verdicts, and the facts around them; raises NoSystem."""
    async with FakeTelegram() as telegram:
        own = OwnSystem(settings, window=window, more=telegram.settings())
        async with own as system:
            assert system.database_url is not None
            began = time.monotonic()
            messages = sum(len(script.messages) for script in scripts)
            mishaps = Mishaps(telegram, own.folder, messages=messages)
            chats = [
                Chat(script=script, person=FIRST_PERSON + number) for number, script in enumerate(scripts)
            ]
            witness = await ChatWitness.call(system.database_url, telegram.bot_id)
            try:
                await _play_all(chats, telegram, witness, mishaps, speed=speed, together=together)
                verdicts, left, model = await _judge(
                    chats, telegram, witness, system.database_url, restarts=mishaps.restarts
                )
            except (ClientError, Refused) as error:
                raise NoSystem(
                    f"the stand-in for Telegram failed: {str(error) or type(error).__name__}",
                    advice="Is the folder tests/ of this checkout as it should be?",
                ) from error
            finally:
                await witness.dismiss()
            return verdicts, {
                "channel": "telegram",
                "system": system.note,
                "url": system.url,
                "model": model,
                "jobs_left": left,
                "seconds": round(time.monotonic() - began, 1),
                "restarts": mishaps.restarts,
                "pressed": sum(len(chat.pressed) for chat in chats),
                "faults": await mishaps.used(),
                "violations": len(await telegram.control("violations")),
            }


async def _play_all(
    chats: Sequence[Chat],
    telegram: FakeTelegram,
    witness: ChatWitness,
    mishaps: Mishaps,
    *,
    speed: Speed,
    together: int,
) -> None:
    places = asyncio.Semaphore(together)
    bar = Bar(sum(len(chat.script.messages) for chat in chats))

    async def one(chat: Chat) -> None:
        async with places:
            await play_chat(
                chat,
                telegram=telegram,
                witness=witness,
                mishaps=mishaps,
                speed=speed,
                on_progress=lambda count, label: bar.advance(count, label=label),
            )

    try:
        async with asyncio.TaskGroup() as tasks:
            for chat in chats:
                tasks.create_task(one(chat))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        bar.close()


async def _judge(
    chats: Sequence[Chat],
    telegram: FakeTelegram,
    witness: ChatWitness,
    database_url: str,
    *,
    restarts: int,
) -> tuple[list[Verdict], int, str]:
    """Once nothing silent runs any more."""
    told = [await witness.testify(chat.person) for chat in chats]
    upkeep = await Witness.call(database_url)
    try:
        left = await upkeep.wait_for_jobs([each.session for each in told if each.session])
        verdicts = [
            verdict_of(
                chat,
                each,
                await read_chat(chat, telegram, each),
                await upkeep.testify(each.session) if each.session else None,
                restarts=restarts,
            )
            for chat, each in zip(chats, told, strict=True)
        ]
    finally:
        await upkeep.dismiss()
    return verdicts, left, next((each.model for each in told if each.model), "")
