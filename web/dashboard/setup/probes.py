"""Real calls with settings as they were typed: do models and servers answer, is the bot known?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from shared.adapters.files.archive import FolderProblem, find_folder_problem, shares_disk
from shared.adapters.models.embeddings import HttpEncoder
from shared.adapters.models.model_lists import (
    KeyRefused,
    LocalServer,
    ModelListUnavailable,
    find_local_servers,
    list_models,
)
from shared.adapters.models.openai_provider import OPENAI_URL, add_usual_path
from shared.adapters.models.reranker import SECONDS as RERANK_SECONDS
from shared.adapters.models.reranker import RecallServer
from shared.adapters.models.routing import Models, open_configured_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.adapters.telegram_probe import TelegramUnreachable, TokenRefused, probe_bot
from shared.bootstrap.from_settings import (
    build_picture_maker,
    build_reranker,
    build_speaker,
    build_transcriber,
)
from shared.config.fields.kinds import read_secrets
from shared.config.settings import Settings, open_secret
from shared.core.values.errors import EvertalkError, ModelError, ModelRedirected, ModelRefusedAccount
from shared.core.values.messages import text_message
from shared.core.values.recordings import Recording, silence
from shared.ports import ModelRequest
from shared.services.turns.retrieval import RERANKED
from web.dashboard.access import AuthedRequest
from web.dashboard.setup.settings import Changes, check_changes, merge_changes
from web.rest.operation import OperationRouter

router = OperationRouter()
SECONDS, PICTURE_SECONDS = 30.0, 180.0
_PASSAGE = "day {}: the boat was in the harbour, and we all walked along the beach until it began to rain"
_TOKENS = 64
"""Room for an answer of one word, also where a model thinks first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsTested:
    ok: bool
    message: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    name: str
    base_url: str
    wire: str
    models: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServers:
    servers: list[ModelServer]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeHandlers:
    """Handlers that try settings with their servers before they are stored."""

    stored_settings: PostgresStoredSettings

    @router.on(
        "POST /settings/models",
        role="admin",
        body="ModelSearch",
        strict=True,
        refusals=(422, 503),
    )
    async def look_for_models(
        self,
        authed: AuthedRequest,
        *,
        base_url: Annotated[str, Field(max_length=500)] = "",
        key: Annotated[str, Field(max_length=500)] = "",
    ) -> ModelServers:
        """List models of a model server.

        The server is called with `key` or with the stored key. Without an address, the answer lists servers
        of this machine. `message` gives the reason if there are none.
        """
        if not base_url:
            found = await find_local_servers()
            none = "" if found else "No model server was found on this machine."
            return ModelServers(servers=list(map(_shown, found)), message=none)
        await authed.record("models.listed", "settings", base_url=base_url)
        settings = await check_changes(await self.stored_settings.load_readable(), {})
        try:
            models = await list_models(add_usual_path(base_url), key or _key_for(base_url, settings))
        except KeyRefused:
            return ModelServers(servers=[], message="The server knows no such key.")
        except (ModelListUnavailable, ValueError):
            words = "The server has no list of models, or cannot be reached."
            return ModelServers(servers=[], message=words)
        server = LocalServer(name="", base_url=base_url, models=models)
        return ModelServers(servers=[_shown(server)], message="")

    @router.on(
        "POST /settings/test",
        role="admin",
        body="SettingsTest",
        strict=True,
        refusals=(422, 503),
    )
    async def try_settings(
        self,
        authed: AuthedRequest,
        *,
        what: Literal["model", "voice", "speech", "pictures", "recall", "telegram", "backups"],
        changes: Changes | None = None,
        name: Annotated[str, Field(max_length=200)] = "",
    ) -> SettingsTested:
        """Test changed settings with their server or folder.

        Nothing is stored.

        `name` is a model or the number of a bot; the default is the one in the settings. `reason` has the
        message of the provider or of Telegram if they refuse.
        """
        found = await self.stored_settings.load_readable()
        wanted = merge_changes(found, changes)
        settings = await check_changes(found, wanted)
        await authed.record("settings.tested", "settings", what=what, names=sorted(wanted))
        ok, message, reason = await _PROBES[what](settings, name)
        return SettingsTested(ok=ok, message=message, reason=_without_secrets(reason, settings))


def _shown(server: LocalServer) -> ModelServer:
    return ModelServer(
        name=server.name, base_url=server.base_url, wire=server.wire, models=list(server.models)
    )


def _key_for(base_url: str, settings: Settings) -> str:
    """Return the key that was stored for this address; empty without one. Keys go to no other address."""
    own = settings.openai_api_key if base_url == (settings.openai_base_url or OPENAI_URL) else None
    return read_secrets(settings.model_keys).get(base_url) or (own.get_secret_value() if own else "")


async def _ask_models(settings: Settings, name: str) -> tuple[bool, str, str]:
    """Test the named model; without a name, the chat model and the summary model, if it is another."""
    try:
        async with _open_models(settings) as models, asyncio.timeout(SECONDS):
            if name:
                return await _ask_each(models, (name,))
            if models.offline:
                return False, "No model is set: the built-in demo answers.", " ".join(models.remarks)
            return await _ask_each(models, tuple(dict.fromkeys((models.chat, models.summary))))
    except TimeoutError:
        return False, f"The model has not answered in {SECONDS:.0f} seconds.", ""
    except ModelRedirected as error:
        return False, "The model did not answer.", error.form_reason
    except ModelRefusedAccount as error:
        return False, "The provider refuses the key or the account.", error.form_reason
    except ModelError as error:
        return False, "The model did not answer.", error.form_reason
    except EvertalkError as error:
        return False, "The models file cannot be used.", str(error)


@asynccontextmanager
async def _open_models(settings: Settings) -> AsyncIterator[Models]:
    models = open_configured_models(settings, VocabularyCounter())
    try:
        yield models
    finally:
        await models.close()


async def _ask_each(models: Models, names: Sequence[str]) -> tuple[bool, str, str]:
    began = time.monotonic()
    for name in names:
        words = (text_message("user", "Say OK"),)
        await models.reply(ModelRequest(model=name, system=(), messages=words, max_output_tokens=_TOKENS))
    seconds = (time.monotonic() - began) / len(names)
    return True, f"It works: {' and '.join(names)} answered in {seconds:.1f} s.", ""


async def _ask_voice(settings: Settings, _name: str) -> tuple[bool, str, str]:
    """Test the transcription service with one second of silence."""
    if (transcriber := build_transcriber(settings)) is None:
        return _NO_ADDRESS
    recording = Recording(body=silence(), mime="audio/wav", seconds=1.0)
    return await _answer_of(transcriber.transcribe(recording), transcriber.model)


async def _ask_speaker(settings: Settings, _name: str) -> tuple[bool, str, str]:
    """Test the speech service with one word."""
    if (speaker := build_speaker(settings)) is None:
        return _NO_ADDRESS
    return await _answer_of(speaker.speak("Hello.", form="opus"), speaker.model)


async def _ask_picture_maker(settings: Settings, _name: str) -> tuple[bool, str, str]:
    """Test the picture service with one picture, at the usual price."""
    if (maker := build_picture_maker(settings)) is None:
        return _NO_ADDRESS
    return await _answer_of(maker.make("a small blue dot on white"), maker.model, seconds=PICTURE_SECONDS)


async def _ask_recall(settings: Settings, _name: str) -> tuple[bool, str, str]:
    """Ask each server that recall asks for each message, with more patience; the first fault counts."""
    asked: tuple[bool, str, str] = _NO_ADDRESS
    if (reranker := build_reranker(settings)) is not None:
        passages = [_PASSAGE.format(day) for day in range(1, RERANKED + 1)]
        asked = await _time_server(reranker, reranker.ask("where is the boat", passages), settings.rerank_url)
    if settings.embeddings_url is None or not (asked[0] or reranker is None):
        return asked
    encoder = HttpEncoder(
        url=settings.embeddings_url, key=open_secret(settings.embeddings_key), model=settings.embeddings_model
    )
    return await _time_server(encoder, encoder.ask(("where is the boat",)), settings.embeddings_url)


async def _time_server(
    server: RecallServer, asking: Awaitable[Any], address: str | None
) -> tuple[bool, str, str]:
    began = time.monotonic()
    try:
        found = await _answer_of(asking, urlsplit(address or "").hostname or "")
    finally:
        await server.close()
    if found[0] and (seconds := time.monotonic() - began) > RERANK_SECONDS:
        return False, f"It answered after {seconds:.1f} s; recall waits for 0.3 s.", ""
    return found


_NO_ADDRESS = (False, "There is no address to test.", "")


async def _answer_of(
    asking: Awaitable[object], name: str, *, seconds: float = SECONDS
) -> tuple[bool, str, str]:
    """Wait for a test call; return whether it passed, a sentence for operators, and a detail."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            await asking
    except TimeoutError:
        return False, f"The model has not answered in {seconds:.0f} seconds.", ""
    except ModelRedirected as error:
        return False, "The model did not answer.", error.form_reason
    except ModelRefusedAccount as error:
        return False, "The provider refuses the key or the account.", error.form_reason
    except ModelError as error:
        return False, "The model did not answer.", error.form_reason
    return True, f"It works: {name} answered in {time.monotonic() - began:.1f} s.", ""


async def _ask_telegram(settings: Settings, name: str) -> tuple[bool, str, str]:
    stored = read_secrets(settings.telegram_tokens).get(name)
    token = SecretStr(stored) if stored else None if name else settings.telegram_bot_token
    if token is None:
        return False, "There is no token to test.", ""
    try:
        seen = await probe_bot(token, api_url=settings.telegram_api_url)
    except TokenRefused:
        return False, "Telegram does not know a bot with this token.", ""
    except TelegramUnreachable as error:
        return False, "Telegram did not answer.", str(error)
    return True, f"It works: the bot is @{seen.username}.", ""


_FOLDER_PROBLEMS: dict[FolderProblem, str] = {
    "missing": "There is no such folder on this machine. Is its disk mounted?",
    "denied": "Evertalk may not write to this folder.",
}


async def _try_copy_folder(settings: Settings, _name: str) -> tuple[bool, str, str]:
    if (folder := settings.backup_copy_dir) is None:
        return False, "No folder is set: backups stay on one disk.", ""
    if problem := await asyncio.to_thread(find_folder_problem, folder):
        return False, _FOLDER_PROBLEMS[problem], ""
    if await asyncio.to_thread(shares_disk, folder, settings.data_dir):
        return False, "The folder can be written, but lies on the same disk as the data.", ""
    return True, "It works: the folder is on another disk than the data.", ""


_PROBES = {
    "model": _ask_models, "voice": _ask_voice, "speech": _ask_speaker, "pictures": _ask_picture_maker,
    "recall": _ask_recall, "telegram": _ask_telegram, "backups": _try_copy_folder,
}  # fmt: skip


def _without_secrets(reason: str, settings: Settings) -> str:
    """Return a server's text without this installation's secrets, which the server may repeat."""
    single = (
        settings.anthropic_api_key, settings.openai_api_key, settings.telegram_bot_token,
        settings.transcribe_key, settings.speech_key, settings.picture_key, settings.rerank_key,
        settings.embeddings_key,
    )  # fmt: skip
    several = (settings.model_keys, settings.telegram_tokens)
    secrets = [secret.get_secret_value() for secret in single if secret is not None]
    for secret in (*secrets, *(one for some in several for one in read_secrets(some).values())):
        reason = reason.replace(secret, "…") if secret else reason
    return reason
