"""Real calls with settings as they were typed: do models and servers answer, is the bot known?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

from typing_extensions import TypedDict

from shared.adapters.models.reranker import SECONDS as RERANK_SECONDS
from shared.adapters.models.routing import Models, models_of
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.telegram_probe import TelegramSilent, TokenRefused, look_at_bot
from shared.bootstrap.from_settings import build_reranker, build_transcriber
from shared.config.settings import Settings
from shared.core.values.errors import EvertalkError, ModelError, ModelRefusedAccount
from shared.core.values.messages import text_message
from shared.core.values.recordings import Recording, silence
from shared.ports import ModelRequest
from web.dashboard.access import AuthedRequest
from web.dashboard.setup.settings import Changes, checked, load_stored
from web.rest.operation import Reply, Room

room = Room()
SECONDS = 30.0
_TOKENS = 64
"""Room for an answer of one word, also where a model thinks first."""

SettingsTested = TypedDict("SettingsTested", {"ok": bool, "message": str, "reason": str})


@room.on(
    "POST /settings/test", SettingsTested, role="admin", body="SettingsTest", strict=True, refusals=(422, 503)
)
async def try_settings(
    visit: AuthedRequest,
    *,
    what: Literal["model", "voice", "recall", "telegram"],
    changes: Changes | None = None,
) -> Reply:
    """Ask the provider or Telegram with these changes to what is stored; nothing is stored.

    `reason` has their own words, where they refuse.
    """
    wanted = {name: text.strip() if text else None for name, text in (changes or {}).items()}
    settings = await checked(await load_stored(visit), wanted)
    await visit.record("settings.tested", "settings", what=what, names=sorted(wanted))
    ok, message, reason = await _PROBES[what](settings)
    return {"ok": ok, "message": message, "reason": _without_secrets(reason, settings)}


async def _ask_models(settings: Settings) -> tuple[bool, str, str]:
    """The one that answers, and the one that summarises if it is another."""
    try:
        async with _opened(settings) as models, asyncio.timeout(SECONDS):
            if models.offline:
                return False, "No model is set: the built-in demo answers.", " ".join(models.remarks)
            return await _ask_each(models)
    except TimeoutError:
        return False, f"The model has not answered in {SECONDS:.0f} seconds.", ""
    except ModelRefusedAccount as error:
        return False, "The provider refuses the key or the account.", str(error)
    except ModelError as error:
        return False, "The model did not answer.", str(error)
    except EvertalkError as error:
        return False, "The models file cannot be used.", str(error)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Models]:
    models = models_of(settings, VocabularyCounter())
    try:
        yield models
    finally:
        await models.close()


async def _ask_each(models: Models) -> tuple[bool, str, str]:
    names = tuple(dict.fromkeys((models.chat, models.summary)))
    began = time.monotonic()
    for name in names:
        words = (text_message("user", "Say OK"),)
        await models.reply(ModelRequest(model=name, system=(), messages=words, max_output_tokens=_TOKENS))
    seconds = (time.monotonic() - began) / len(names)
    return True, f"It works: {' and '.join(names)} answered in {seconds:.1f} s.", ""


async def _ask_voice(settings: Settings) -> tuple[bool, str, str]:
    """With a second of silence."""
    transcriber = build_transcriber(settings)
    if transcriber is None:
        return False, "There is no address here to be tested.", ""
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            await transcriber.transcribe(Recording(body=silence(), mime="audio/wav", seconds=1.0))
    except TimeoutError:
        return False, f"The model has not answered in {SECONDS:.0f} seconds.", ""
    except ModelRefusedAccount as error:
        return False, "The provider refuses the key or the account.", str(error)
    except ModelError as error:
        return False, "The model did not answer.", str(error)
    return True, f"It works: {transcriber.model} answered in {time.monotonic() - began:.1f} s.", ""


async def _ask_reranker(settings: Settings) -> tuple[bool, str, str]:
    """With more patience than recall has."""
    reranker = build_reranker(settings)
    if reranker is None:
        return False, "There is no address here to be tested.", ""
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            await reranker.ask("Where is the boat?", ("It rains.", "The boat is in the harbour."))
    except TimeoutError:
        return False, f"The model has not answered in {SECONDS:.0f} seconds.", ""
    except ModelError as error:
        return False, "The model did not answer.", str(error)
    finally:
        await reranker.close()
    if (seconds := time.monotonic() - began) > RERANK_SECONDS:
        return False, f"It answered after {seconds:.1f} s; recall waits for 0.3 s.", ""
    return True, f"It works: {urlsplit(settings.rerank_url or '').hostname} answered in {seconds:.1f} s.", ""


async def _ask_telegram(settings: Settings) -> tuple[bool, str, str]:
    token = settings.telegram_bot_token
    if token is None:
        return False, "There is no token here to be tested.", ""
    try:
        seen = await look_at_bot(token, api_url=settings.telegram_api_url)
    except TokenRefused:
        return False, "Telegram knows no bot with this token.", ""
    except TelegramSilent as error:
        return False, "Telegram did not answer.", str(error)
    return True, f"It works: the bot is @{seen.username}.", ""


_PROBES = {"model": _ask_models, "voice": _ask_voice, "recall": _ask_reranker, "telegram": _ask_telegram}


def _without_secrets(reason: str, settings: Settings) -> str:
    """A server may repeat what it was sent."""
    for secret in (
        settings.anthropic_api_key, settings.openai_api_key, settings.telegram_bot_token,
        settings.transcribe_key, settings.rerank_key,
    ):  # fmt: skip
        if secret is not None and secret.get_secret_value():
            reason = reason.replace(secret.get_secret_value(), "…")
    return reason
