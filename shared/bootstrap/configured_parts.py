"""Parts of a process that depend on settings only: models, policy, caps, and clients of other servers.

A running process builds them again when stored settings change. Parts that no changed setting concerns are
kept, with their connections and what they have learned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import structlog

from shared.adapters.mcp.tools import KNOWN_FILE, KnownMcpTools, McpToolReviews, McpTools, list_servers
from shared.adapters.models.routing import Models, open_configured_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.db.pool import Pool
from shared.bootstrap.from_settings import (
    build_caps,
    build_encoder,
    build_picture_maker,
    build_policy,
    build_reranker,
    build_speaker,
    build_token_cap,
    build_transcriber,
)
from shared.bootstrap.stores import Stores, change_timezone
from shared.config.settings import Settings
from shared.core.session.policy import ContextPolicy
from shared.core.session.turns import Caps
from shared.ports import Encoder, Reranker
from shared.runtime import Tracer, build_crash_point

if TYPE_CHECKING:
    from shared.adapters.media.drawing import HttpPictureMaker
    from shared.adapters.media.local import LocalTranscriber
    from shared.adapters.media.speech import HttpSpeaker
    from shared.adapters.media.transcriptions import HttpTranscriber

log = structlog.get_logger(__name__)
Role = Literal["web", "bot", "worker"]
MODEL_FIELDS = frozenset({
    "anthropic_api_key", "anthropic_base_url", "openai_api_key", "openai_base_url", "model", "summary_model",
    "fallback_models", "models", "model_keys", "models_file",
})  # fmt: skip
"""Names of the settings that decide which models exist and how they are reached; a test checks the list."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredParts:
    """Parts that depend on settings; each is also a field of `App`, and None if it is not configured."""

    settings: Settings
    stores: Stores
    models: Models
    policy: ContextPolicy
    caps: Caps
    transcriber: HttpTranscriber | LocalTranscriber | None
    speaker: HttpSpeaker | None
    picture_maker: HttpPictureMaker | None
    reranker: Reranker | None
    encoder: Encoder | None
    mcp_tools: McpTools | KnownMcpTools | None


def list_changed_fields(former: Settings, settings: Settings) -> frozenset[str]:
    """Return the names of the fields whose values differ."""
    return frozenset(
        name for name in Settings.model_fields if getattr(former, name) != getattr(settings, name)
    )


def build_parts(
    settings: Settings, stores: Stores, *, role: Role, counter: VocabularyCounter, tracer: Tracer
) -> ConfiguredParts:
    """Return all parts that depend on settings, newly built; connections to MCP servers are started.

    Raises ContradictoryPolicy and ModelsFileBroken.
    """
    return _build(settings, stores, role=role, counter=counter, tracer=tracer, keep=lambda _, build: build())


def rebuild_parts(
    former: ConfiguredParts,
    settings: Settings,
    *,
    pool: Pool,
    role: Role,
    counter: VocabularyCounter,
    tracer: Tracer,
) -> ConfiguredParts:
    """Return parts for changed settings; those that no changed setting concerns are the former ones.

    The former parts that are replaced stay open; the caller closes them. Raises ContradictoryPolicy and
    ModelsFileBroken.
    """
    changed = list_changed_fields(former.settings, settings)
    stores = former.stores
    if "timezone" in changed:
        stores = change_timezone(stores, pool, settings)

    def keep(name: str, build: Callable[[], _T]) -> _T:
        kept: _T = getattr(former, name)
        return build() if changed & _FIELDS_OF[name] else kept

    return _build(settings, stores, role=role, counter=counter, tracer=tracer, keep=keep)


def _build(
    settings: Settings,
    stores: Stores,
    *,
    role: Role,
    counter: VocabularyCounter,
    tracer: Tracer,
    keep: Callable[[str, Callable[[], Any]], Any],
) -> ConfiguredParts:
    models: Models = keep("models", lambda: open_configured_models(settings, counter))
    policy = build_policy(settings, demo=models.offline)
    models.trace(tracer)
    crash_point = build_crash_point(settings.crash_point)
    models.cap_tokens(build_token_cap(settings, stores.token_reservations, crash_point))
    talks_with_people = role != "worker"
    return ConfiguredParts(
        settings=settings,
        stores=stores,
        models=models,
        policy=policy,
        caps=build_caps(settings),
        transcriber=keep("transcriber", lambda: build_transcriber(settings) if talks_with_people else None),
        speaker=keep("speaker", lambda: build_speaker(settings) if talks_with_people else None),
        # The worker has no key and makes no picture; its requests list the same tools as those of turns.
        picture_maker=keep("picture_maker", lambda: build_picture_maker(settings)),
        reranker=keep("reranker", lambda: build_reranker(settings)),
        encoder=keep("encoder", lambda: build_encoder(settings)),
        mcp_tools=keep("mcp_tools", lambda: build_mcp_tools(settings, stores.mcp_tool_lists, role=role)),
    )


def _prefixed(*prefixes: str) -> Collection[str]:
    return frozenset(name for name in Settings.model_fields if name.startswith(prefixes))


_FIELDS_OF: Mapping[str, frozenset[str]] = {
    "models": MODEL_FIELDS,
    "transcriber": frozenset(_prefixed("transcribe_")),
    "speaker": frozenset(_prefixed("speech_")),
    "picture_maker": frozenset(_prefixed("picture_")),
    "reranker": frozenset(_prefixed("rerank_")),
    "encoder": frozenset({*_prefixed("embeddings_"), "meaning", "meaning_socket"}),
    "mcp_tools": frozenset(_prefixed("mcp_")),
}
"""Settings on which each part depends, by name of the part."""


def select_parts(process: Any) -> ConfiguredParts:
    """Return the parts that a process uses now, read from its fields of the same names."""
    return ConfiguredParts(
        **{each.name: getattr(process, each.name) for each in dataclasses.fields(ConfiguredParts)}
    )


def build_mcp_tools(
    settings: Settings, reviews: McpToolReviews, *, role: Role
) -> McpTools | KnownMcpTools | None:
    """Return the started connections to MCP servers; None if none is configured.

    The worker connects to none and gets only the list of tools that models saw before. Invalid entries of the
    file are logged.
    """
    servers, problems = list_servers(settings)
    for problem in problems:
        log.warning("mcp_file_invalid", problem=problem)
    if not servers:
        return None
    known = settings.data_dir / KNOWN_FILE
    if role == "worker":
        return KnownMcpTools(servers, known=known)
    tools = McpTools(servers, known=known, reviews=reviews, rule=settings.mcp_approval)
    tools.start()
    return tools
