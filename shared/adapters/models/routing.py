"""Choice of the model and provider for each model name, and of its fallbacks."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.models.catalog import (
    MOST_FALLBACKS,
    UNKNOWN_MAX_OUTPUT,
    UNKNOWN_WINDOW,
    ModelEntry,
    ModelsFileBroken,
    Wire,
    find_known_card,
    list_entries,
)
from shared.adapters.models.offline import OFFLINE_MODEL, PIECE_SECONDS, WINDOW, OfflineModel
from shared.adapters.models.openai_provider import (
    OPENAI_KEY_NAME,
    OPENAI_URL,
    OpenAIProvider,
    ResponsesProvider,
)
from shared.adapters.models.provider import ANTHROPIC_URL, Provider
from shared.adapters.models.remote import RemoteModel
from shared.adapters.models.timeouts import Patience
from shared.adapters.models.token_cap import TokenCap
from shared.adapters.models.wire import build_request_body
from shared.config.fields.kinds import read_secrets
from shared.config.secret_files import SecretEnvironment
from shared.config.settings import Settings
from shared.core.values.errors import ModelRefusedAccount
from shared.core.verdicts.abilities import LearnedAbility
from shared.core.verdicts.breaker import BreakerState
from shared.core.verdicts.rejections import Rejection
from shared.core.verdicts.windows import NarrowedWindow
from shared.ports import ChatModel, ModelCard, ModelReply, ModelRequest, OnText, TokenCounter
from shared.runtime import NULL_TRACER, ModelCall, Tracer

DEFAULT_CHAT_MODEL = "claude-sonnet-5-5"
"""Model for answers if none is configured and a key for Anthropic exists."""
DEFAULT_SUMMARY_MODEL = "claude-haiku-5-5"
"""Model for summaries if none is configured and a key for Anthropic exists."""
KEY_NAME = "ANTHROPIC_API_KEY"
"""Environment variable with the key of the server with the Messages API."""
_PROVIDERS: Mapping[Wire, type[Provider]] = {
    "messages": Provider, "openai": OpenAIProvider, "responses": ResponsesProvider,
}  # fmt: skip
_MAKERS_PREFIX = "claude"
"""Prefix of Anthropic's models; Anthropic's own server has no others."""
_log = logging.getLogger(__name__)


def _describe_call(request: ModelRequest, model: ChatModel | None) -> ModelCall:
    if not isinstance(model, RemoteModel):
        return ModelCall(model=request.model, wire="", max_tokens=request.max_output_tokens)
    host, port = model.server
    return ModelCall(
        model=request.model, wire=model.wire, server=host, port=port, max_tokens=request.max_output_tokens
    )


class Models:
    """ChatModel for every configured name; `chat` and `summary` are the chosen names."""

    def __init__(
        self,
        *,
        chat: str,
        summary: str,
        models: Mapping[str, ChatModel],
        fallbacks: Mapping[str, tuple[str, ...]],
        providers: Sequence[Provider],
        usual: Callable[[str], ChatModel] | None,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.chat = chat
        self.summary = summary
        self.remarks = remarks
        """Sentences for operators about the choice of models."""
        self._models = dict(models)
        self._fallbacks = fallbacks
        self._providers = tuple(providers)
        self._usual = usual
        self._tracer: Tracer = NULL_TRACER
        self._token_cap: TokenCap | None = None
        self._loading: asyncio.Future[None] | None = None

    @property
    def offline(self) -> bool:
        """Whether the chat model is the offline demo."""
        return self.chat == OFFLINE_MODEL

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models that have been opened, the offline demo included."""
        return tuple(self._models)

    async def load_card(self, model: str) -> ModelCard:
        """Return the card of a model; that of an unknown model if no provider is configured for it."""
        found = self._model(model)
        return _unknown(model) if found is None else await found.load_card(model)

    def trace(self, tracer: Tracer) -> None:
        """Set the tracer: each later model call becomes a span with the provider's request id."""
        self._tracer = tracer

    def cap_tokens(self, cap: TokenCap) -> None:
        """Count tokens of models with unknown prices against `cap`."""
        self._token_cap = cap

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Call the request's model and return its answer, recording a span.

        `on_text` receives pieces of text. Raises ModelRefusedAccount if the model has no provider.
        """
        model = self._model(request.model)
        with self._tracer.model_call(_describe_call(request, model)) as span:
            if model is None:
                raise ModelRefusedAccount(f"no provider is configured for the model {request.model!r}")
            if isinstance(model, RemoteModel):
                reply = await model.reply(
                    request,
                    on_text=on_text,
                    on_first_chunk=span.note_first_chunk,
                    token_cap=None if model.has_price else self._token_cap,
                )
            else:
                reply = await model.reply(request, on_text=on_text)
            span.note_reply(
                model=reply.model,
                request_id=reply.request_id,
                finish_reason=reply.stop_reason,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                cache_read_tokens=reply.usage.cache_read_tokens,
                cache_write_tokens=reply.usage.cache_write_tokens,
                known=reply.usage.known,
            )
            return reply

    def fallbacks(self, model: str) -> tuple[str, ...]:
        """Return the fallback models of a model, in order: its own, else the deployment's.

        Unusable ones are left out.
        """
        names = self._fallbacks.get(model) or self._fallbacks.get("", ())
        return tuple(name for name in names if name != model and self._model(name) is not None)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the request's tokens as the provider counts them; None if it does not count."""
        model = self._model(request.model)
        return None if model is None else await model.count_tokens(request)

    async def body(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the JSON body of a request without sending it; for the offline model, an equivalent one."""
        model = self._model(request.model)
        if isinstance(model, RemoteModel):
            return await model.build_body(request)
        return {
            **build_request_body(request, await self.load_card(request.model), request.model),
            "stream": True,
        }

    async def is_listed(self, model: str) -> bool | None:
        """Return whether the provider's list of models contains the model; None without such a list."""
        found = self._model(model)
        return await found.is_listed() if isinstance(found, RemoteModel) else None

    def start_loading(self) -> None:
        """Start loading the chat model's library in the background; further calls do nothing."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())

    async def wait_until_loaded(self) -> None:
        """Wait until loading in the background has ended; after a failure the model's next call raises."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    async def _load(self) -> None:
        model = self._model(self.chat)
        if not isinstance(model, RemoteModel):
            return
        try:
            await model.load()
        except Exception as error:  # noqa: BLE001  the call that needs it meets it again
            _log.warning("the model's library cannot be loaded: %r", error)

    async def close(self) -> None:
        """Cancel loading in the background and close the clients of all providers."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        for provider in self._providers:
            await provider.close()

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return the state of each provider's circuit breaker by base URL."""
        return {provider.base_url: provider.breaker.get_state() for provider in self._providers}

    def list_narrowed_windows(self) -> tuple[NarrowedWindow, ...]:
        """Return each model whose provider repeatedly refuses requests that should fit, with its limit."""
        found = (model.find_narrowed_window() for model in self._list_remote())
        return tuple(window for window in found if window is not None)

    def list_learned(self) -> tuple[LearnedAbility, ...]:
        """Return the abilities that the models' servers have refused."""
        return tuple(lesson for model in self._list_remote() for lesson in model.list_learned())

    def list_rejections(self) -> tuple[Rejection, ...]:
        """Return the newest rejection of each model that has one."""
        found = (model.find_rejection() for model in self._list_remote())
        return tuple(rejection for rejection in found if rejection is not None)

    def _list_remote(self) -> list[RemoteModel]:
        return [model for model in self._models.values() if isinstance(model, RemoteModel)]

    def take_answered(self) -> tuple[str, ...]:
        """Return the hosts of providers that have answered since the last call.

        At the first call, returns all of them.
        """
        found = tuple(provider.host for provider in self._providers if provider.has_answered)
        for provider in self._providers:
            provider.has_answered = False
        return tuple(dict.fromkeys(found))

    def _model(self, name: str) -> ChatModel | None:
        found = self._models.get(name)
        if found is None and self._usual is not None:
            found = self._models[name] = self._usual(name)
        return found


def open_models(
    *,
    api_key: str | None,
    base_url: str | None,
    entries: Sequence[ModelEntry],
    counter: TokenCounter,
    chat_model: str = "",
    summary_model: str = "",
    fallback_models: Sequence[str] = (),
    openai_key: str | None = None,
    openai_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    patience: Patience | None = None,
    clock: Callable[[], float] = time.monotonic,
    offline_window: int = WINDOW,
    offline_piece_seconds: float = PIECE_SECONDS,
) -> Models:
    """Open the configured models without calling any provider.

    `api_key` goes only to `base_url`, or to Anthropic's own address if that is None. An entry with another
    base URL gets the key that its `key_env` names, or none. `openai_key` and `openai_url` do the same for a
    server with Chat Completions.

    A model without an entry uses `base_url`. It uses the Chat Completions server, if configured, where the
    other is not configured, or is Anthropic's own and the name is no Anthropic model. `fallback_models`, in
    order, replace a failing model whose entry names no fallbacks.
    """
    factory = _ModelFactory(
        api_key=api_key,
        base_url=(base_url or ANTHROPIC_URL).rstrip("/"),
        openai_key=openai_key,
        openai_url=(openai_url or OPENAI_URL).rstrip("/"),
        environ=SecretEnvironment(os.environ if environ is None else environ),
        counter=counter,
        patience=patience or Patience(),
        clock=clock,
    )
    offline = OfflineModel(counter, window=offline_window, piece_seconds=offline_piece_seconds)
    made: dict[str, ChatModel] = {OFFLINE_MODEL: offline, **{one.name: factory.model(one) for one in entries}}
    fallbacks = {entry.name: entry.fallbacks for entry in entries if entry.fallbacks}
    usual = factory.find_usual(base_url)
    reachable = usual is not None
    chat, summary, remarks = _choose_models(
        chat_model, summary_model, entries=entries, key=api_key, base_url=base_url, reachable=reachable
    )
    fallbacks[""] = tuple(fallback_models)[:MOST_FALLBACKS]
    for name in (chat, summary, *fallback_models):
        if name not in made and usual is not None:
            made[name] = usual(name)
    return Models(
        chat=chat,
        summary=summary,
        models=made,
        fallbacks=fallbacks,
        providers=tuple(factory.opened.values()),
        usual=usual,
        remarks=(*remarks, *factory.remarks, *_missing_fallbacks(fallbacks, made, reachable=reachable)),
    )


def open_configured_models(settings: Settings, counter: TokenCounter) -> Models:
    """Open the models of the settings without calling any provider. Raises ModelsFileBroken."""
    key, openai_key = settings.anthropic_api_key, settings.openai_api_key
    return open_models(
        api_key=key.get_secret_value() if key else None,
        base_url=settings.anthropic_base_url,
        openai_key=openai_key.get_secret_value() if openai_key else None,
        openai_url=settings.openai_base_url,
        entries=list_entries(settings),
        environ={**os.environ, **read_secrets(settings.model_keys)},
        counter=counter,
        chat_model=settings.model,
        summary_model=settings.summary_model,
        fallback_models=settings.fallback_models,
    )


def _choose_models(
    chat: str,
    summary: str,
    *,
    entries: Sequence[ModelEntry],
    key: str | None,
    base_url: str | None,
    reachable: bool,
) -> tuple[str, str, tuple[str, ...]]:
    """Return the names of chat and summary model, and sentences for operators about the choice."""
    known = {OFFLINE_MODEL, *(entry.name for entry in entries)}
    remarks: list[str] = []
    wished = {"chat": chat, "summary": summary}
    for role, name in wished.items():
        if name and name not in known and not reachable:
            wished[role] = ""
            remarks.append(f"The model {name} has no key ({KEY_NAME}) and is not used.")
    usual = DEFAULT_CHAT_MODEL if key else next((entry.name for entry in entries), OFFLINE_MODEL)
    if reachable and not key and not wished["chat"] and not entries:
        told = "ANTHROPIC_BASE_URL is set" if base_url else "OPENAI_API_KEY or OPENAI_BASE_URL is set"
        remarks.append(f"{told}; name a model in EVERTALK_MODEL, or set {KEY_NAME}.")
    chosen = wished["chat"] or usual
    cheap = wished["summary"] or _cheap_beside(chosen, entries, key=key, base_url=base_url)
    if cheap is None and key is not None and chosen != OFFLINE_MODEL:
        remarks.append(f"{chosen} writes its own summaries; EVERTALK_SUMMARY_MODEL can name a cheaper model.")
    return chosen, cheap or chosen, tuple(remarks)


def _cheap_beside(
    chat: str, entries: Sequence[ModelEntry], *, key: str | None, base_url: str | None
) -> str | None:
    """Return the default summary model if the chat model's account has it; None if it surely does not.

    An entry for the chat model that only sets its price or window does not change its account.
    """
    own = (base_url or ANTHROPIC_URL).rstrip("/")

    def account(entry: ModelEntry) -> tuple[str, str]:
        url = entry.base_url or (own if entry.wire == "messages" else OPENAI_URL)
        return url, entry.key_env or (KEY_NAME if url == own else "")

    mine = next((entry for entry in entries if entry.name == chat), ModelEntry(name=chat))
    for entry in entries:
        if entry.wire_name == DEFAULT_SUMMARY_MODEL and account(entry) == account(mine):
            return entry.name
    usual = key is not None and account(mine) == (own, KEY_NAME) and chat != OFFLINE_MODEL
    makers = own == ANTHROPIC_URL or find_known_card(mine.wire_name) is not None
    return DEFAULT_SUMMARY_MODEL if usual and makers else None


def _missing_fallbacks(
    fallbacks: Mapping[str, Sequence[str]], made: Collection[str], *, reachable: bool
) -> tuple[str, ...]:
    return tuple(
        f"{f'The model {model}' if model else 'EVERTALK_FALLBACK_MODELS'} falls back to {name}, "
        "which is not configured."
        for model, names in fallbacks.items()
        for name in names
        if name not in made and not reachable
    )


_Account = tuple[str, str, type[Provider], tuple[tuple[str, str], ...]]
"""Account: base URL, name of the key, class of the provider, headers."""


@dataclass(slots=True, kw_only=True)
class _ModelFactory:
    """Factory of models; models with the same base URL, key and headers share a provider."""

    api_key: str | None
    base_url: str
    openai_key: str | None
    openai_url: str
    environ: Mapping[str, str]
    counter: TokenCounter
    patience: Patience
    clock: Callable[[], float]
    opened: dict[_Account, Provider] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def model(self, entry: ModelEntry) -> RemoteModel:
        return RemoteModel(entry, self._provider(entry), self.counter, patience=self.patience)

    def find_usual(self, base_url: str | None) -> Callable[[str], ChatModel] | None:
        """Return the function that opens a model without an entry; None if no server is configured."""
        messages = self.api_key is not None or base_url is not None
        chat_completions = self.openai_key is not None or self.openai_url != OPENAI_URL

        def wire_of(name: str) -> Wire:
            foreign = self.base_url == ANTHROPIC_URL and not name.startswith(_MAKERS_PREFIX)
            return "openai" if chat_completions and (foreign or not messages) else "messages"

        if not (messages or chat_completions):
            return None
        return lambda name: self.model(ModelEntry(name=name, wire=wire_of(name)))

    def _provider(self, entry: ModelEntry) -> Provider:
        usual, usual_key = self.base_url, KEY_NAME
        if entry.wire != "messages":
            usual, usual_key = self.openai_url, OPENAI_KEY_NAME
        url = entry.base_url or usual
        which_key = entry.key_env or ("" if url != usual else usual_key)
        kind = _PROVIDERS[entry.wire]
        headers = tuple(sorted(entry.headers.items()))
        found = self.opened.get((url, which_key, kind, headers))
        if found is None:
            found = self._open_provider(url, which_key, kind, entry.headers)
            self.opened[url, which_key, kind, headers] = found
        return found

    def _open_provider(
        self, url: str, which_key: str, kind: type[Provider], headers: Mapping[str, str]
    ) -> Provider:
        usual = {KEY_NAME: self.api_key, OPENAI_KEY_NAME: self.openai_key}
        try:
            key = usual[which_key] if which_key in usual else self.environ.get(which_key)
        except ValueError as error:
            raise ModelsFileBroken(f"{which_key}: {error}") from None
        # A server of another operator, or of this one, may need no key.
        needed = not key and not (which_key in usual and url not in (ANTHROPIC_URL, OPENAI_URL))
        missing = which_key if needed else ""
        if missing:
            self.remarks.append(f"{missing} is not set, so that models at {url} cannot be used.")
        foreign = kind is not Provider or url not in (self.base_url, ANTHROPIC_URL)
        return kind(
            base_url=url, api_key=key, missing_key=missing, foreign=foreign, headers=headers, clock=self.clock
        )


def _unknown(model: str) -> ModelCard:
    known = find_known_card(model)
    if known is not None:
        return known
    return ModelCard(
        name=model, window=UNKNOWN_WINDOW, max_output=UNKNOWN_MAX_OUTPUT, window_known=False, prices=None
    )
