"""Replays conversations over a fake Telegram, with a temporary system, its bot and people, and judges
them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from aiohttp import ClientError

from shared.config.settings import Settings
from tests.kit.replay.chat import FIRST_PERSON, PlayedChat, play_chat, read_chat, verdict_of
from tests.kit.replay.chat_evidence import ChatDatabaseProbe
from tests.kit.replay.evidence import DatabaseProbe
from tests.kit.replay.fake_telegram import FakeTelegram, FakeTelegramRefused
from tests.kit.replay.mishaps import Mishaps
from tests.kit.replay.play import Speed
from tests.kit.replay.progress import ProgressBar
from tests.kit.replay.scripts import ConversationScript
from tests.kit.replay.system import NoReplayTarget, TemporaryInstallation
from tests.kit.replay.verdict import ReplayVerdict


async def replay_on_telegram(
    scripts: Sequence[ConversationScript],
    settings: Settings,
    *,
    window: int | None,
    speed: Speed,
    together: int,
    more: Mapping[str, str],
) -> tuple[list[ReplayVerdict], dict[str, object]]:
    """Return the verdicts and the facts for the report.

    Raises NoReplayTarget if the system or the fake Telegram fails.
    """
    async with FakeTelegram() as telegram:
        own = TemporaryInstallation(settings, window=window, more={**more, **telegram.settings()})
        async with own as system:
            assert system.database_url is not None
            began = time.monotonic()
            messages = sum(len(script.messages) for script in scripts)
            mishaps = Mishaps(telegram, own.folder, messages=messages)
            chats = [
                PlayedChat(script=script, person=FIRST_PERSON + number)
                for number, script in enumerate(scripts)
            ]
            witness = await ChatDatabaseProbe.connect(system.database_url, telegram.bot_id)
            try:
                await _play_all(chats, telegram, witness, mishaps, speed=speed, together=together)
                verdicts, left, model = await _judge(
                    chats, telegram, witness, system.database_url, restarts=mishaps.restarts
                )
            except (ClientError, FakeTelegramRefused) as error:
                raise NoReplayTarget(
                    f"the stand-in for Telegram failed: {str(error) or type(error).__name__}",
                    advice="Is the folder tests/ of this checkout as it should be?",
                ) from error
            finally:
                await witness.close()
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
    chats: Sequence[PlayedChat],
    telegram: FakeTelegram,
    witness: ChatDatabaseProbe,
    mishaps: Mishaps,
    *,
    speed: Speed,
    together: int,
) -> None:
    places = asyncio.Semaphore(together)
    bar = ProgressBar(sum(len(chat.script.messages) for chat in chats))

    async def one(chat: PlayedChat) -> None:
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
    chats: Sequence[PlayedChat],
    telegram: FakeTelegram,
    witness: ChatDatabaseProbe,
    database_url: str,
    *,
    restarts: int,
) -> tuple[list[ReplayVerdict], int, str]:
    """Return the verdicts once no background job is due any more."""
    told = [await witness.collect(chat.person) for chat in chats]
    upkeep = await DatabaseProbe.connect(database_url)
    try:
        left = await upkeep.wait_for_jobs([each.session for each in told if each.session])
        verdicts = [
            verdict_of(
                chat,
                each,
                await read_chat(chat, telegram, each),
                await upkeep.collect(each.session) if each.session else None,
                restarts=restarts,
            )
            for chat, each in zip(chats, told, strict=True)
        ]
    finally:
        await upkeep.close()
    return verdicts, left, next((each.model for each in told if each.model), "")
