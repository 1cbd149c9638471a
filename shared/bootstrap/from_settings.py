"""Builds values of the core and of adapters from settings: policy, caps, alert rules, clients, agent
defaults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from shared.adapters.alerts.compaction_hook import CompactionHook
from shared.adapters.alerts.mail import AlertMail
from shared.adapters.alerts.webhook import AlertWebhook
from shared.adapters.encryption import CannotUnseal
from shared.adapters.files.web_pages import FETCH_URL
from shared.adapters.files.workspace_files import read_workspace, workspace_path
from shared.adapters.mcp.tools import list_server_names
from shared.adapters.meaning.client import LocalEncoder, fits_socket, has_encoder
from shared.adapters.models.catalog import TABLE, list_entries
from shared.adapters.models.offline import OFFLINE_MODEL
from shared.adapters.models.token_cap import TokenCap, find_output_weight, find_token_cap
from shared.adapters.postgres.dashboard.alerts import Rules as AlertRules
from shared.adapters.postgres.turns.allowance import PostgresTokenReservations
from shared.config.agents import AgentDefaults
from shared.config.settings import (
    BadSettings,
    Settings,
    SettingsProblem,
    load_policy_overrides,
    open_secret,
)
from shared.core.context.agents import LOOK_AT_PICTURE, without_limits
from shared.core.context.memory_tools import FORGET_MEMORY, SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY
from shared.core.context.overrides import deployment_policy
from shared.core.context.recall_query import RECALL
from shared.core.identity.handover import HandoverLimits
from shared.core.identity.working_hours import parse_working_hours
from shared.core.memory.past_summaries import ImportBudget, budget_of
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy
from shared.core.session.turns import Caps
from shared.core.values.messages import ToolSpec
from shared.ports import Clock, Encoder
from shared.runtime import CrashPoint
from shared.services.admin.alert_sender import AlertChannel
from shared.services.tools.calculator import CALCULATE
from shared.services.tools.current_time import CURRENT_TIME
from shared.services.tools.handover import ASK_HUMAN
from shared.services.tools.make_picture import MAKE_PICTURE
from shared.services.tools.reminders import REMIND_ME
from shared.services.tools.send_file import SEND_FILE
from shared.services.turns.delegate_tool import DELEGATE

if TYPE_CHECKING:
    from shared.adapters.media.drawing import HttpPictureMaker
    from shared.adapters.media.local import LocalTranscriber
    from shared.adapters.media.speech import HttpSpeaker
    from shared.adapters.media.transcriptions import HttpTranscriber
    from shared.adapters.models.reranker import HttpReranker
    from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings

WORKSPACES_FOLDER = "workspaces"
"""Folder inside the data folder with the folders of agents, unless an agent's row names another one."""
BUILT_IN_TOOLS = tuple(map(without_limits, (
    SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY, FORGET_MEMORY, RECALL, CURRENT_TIME, CALCULATE, FETCH_URL,
    REMIND_ME, SEND_FILE, ASK_HUMAN, DELEGATE, LOOK_AT_PICTURE,
)))  # fmt: skip
"""Descriptions of the built-in tools, except `make_picture`; `list_tool_specs` says which ones an
installation has.

The tools that a model is given are built in `build_turns`.
"""
DEMO_SOFT_BUDGET = 3_750
"""Token budget of a conversation with the offline model, which the conversation in `shared/samples` fills."""
_EARLY = {
    "soft_budget": DEMO_SOFT_BUDGET, "flush_threshold": DEMO_SOFT_BUDGET // 10, "recall_tokens": 400,
    "critical_at": 1.0,
}  # fmt: skip
"""Policy of the demo with small budgets.

Its gauge turns red only above the limit, because the summary before it is expected.
"""
VISITORS_OF_A_NETWORK = 3
"""Default cap of a network, as a multiple of one anonymous visitor's cap."""


def resolve_server_urls(settings: Settings) -> tuple[str, str]:
    """Return the URLs of database and Redis, in this order, that the supervisor or the operator has set.

    Raises BadSettings if one is missing.
    """
    if settings.database_url is None or settings.redis_url is None:
        reason = "is not set: start everything with `./evertalk up`"
        missing = [name for name in ("database_url", "redis_url") if getattr(settings, name) is None]
        raise BadSettings(
            tuple(SettingsProblem(name=name.upper(), value="", reason=reason) for name in missing)
        )
    return settings.database_url.get_secret_value(), settings.redis_url.get_secret_value()


def build_policy(settings: Settings, *, demo: bool = False) -> ContextPolicy:
    """Return the configured preset with the operator's overrides. Raises ContradictoryPolicy.

    With `demo`, for the offline model, small budgets apply unless the operator has set one.
    """
    given = load_policy_overrides(settings)
    unsaid = settings.context_window is None and not given.keys() & _EARLY
    if demo and unsaid and (preset(settings.preset).soft_budget or 0) > DEMO_SOFT_BUDGET:
        given |= _EARLY
    return deployment_policy(settings.preset, context_window=settings.context_window, given=given)


def build_caps(settings: Settings) -> Caps:
    """Return the spending caps in micro-dollars.

    In a personal installation the visitor is its owner; only the public profile has separate caps for
    visitors.
    """
    public = settings.profile == "public"
    network = settings.cap_network_per_day_usd
    if network is None:
        network = VISITORS_OF_A_NETWORK * settings.cap_visitor_per_day_usd
    hourly = settings.cap_total_per_day_usd * settings.cap_visitors_per_hour_percent / 100
    return Caps(
        total=to_micro(settings.cap_total_per_day_usd),
        person=to_micro(settings.cap_person_per_day_usd),
        visitor=to_micro(settings.cap_visitor_per_day_usd if public else settings.cap_person_per_day_usd),
        session=to_micro(settings.cap_session_usd),
        network=to_micro(network) if public else None,
        visitors_hour=to_micro(hourly) if public else None,
        guests=to_micro(settings.cap_guests_per_day_usd),
        secretary=to_micro(settings.cap_secretary_per_day_usd),
        customer=to_micro(settings.cap_customer_per_day_usd),
        timezone=settings.timezone,
    )


def build_token_cap(
    settings: Settings, store: PostgresTokenReservations, crash_point: CrashPoint
) -> TokenCap:
    """Return the cap on tokens of models without a known price; the built-in demo is free."""
    cap = find_token_cap(dollars=settings.cap_total_per_day_usd, tokens=settings.cap_tokens_per_day)
    return TokenCap(
        store, cap=cap, timezone=settings.timezone, free_models=(OFFLINE_MODEL,), crash_point=crash_point
    )


def build_import_budget(settings: Settings) -> ImportBudget:
    """Return the budget for the summaries of one import, made from the spending caps and the cap of
    tokens.
    """
    day = find_token_cap(dollars=settings.cap_total_per_day_usd, tokens=settings.cap_tokens_per_day)
    return budget_of(build_caps(settings), day_tokens=day, output_weight=find_output_weight())


def to_micro(dollars: Decimal | None) -> int | None:
    """Return dollars as whole micro-dollars, rounded down; None for None."""
    return None if dollars is None else int(dollars * 1_000_000)


def build_alert_rules(settings: Settings) -> AlertRules:
    """Return the rules of alerts; an unanswered handover is reported after half of its waiting time."""
    waiting = settings.handover_minutes * 60 / 2 if settings.has_handover else 0.0
    return AlertRules(
        timezone=settings.timezone, cap_micro=build_caps(settings).total, handover_seconds=waiting
    )


def build_alert_channels(settings: Settings) -> dict[str, AlertChannel]:
    """Return the configured alert channels by name: `webhook`, `email` or both; empty for none.

    Telegram is not among them: the process that holds the bot sends there.
    """
    dashboard = f"{settings.base_url}/dashboard"
    carriers: dict[str, AlertChannel] = {}
    if (url := settings.alert_webhook_url) and (secret := settings.alert_webhook_secret):
        carriers["webhook"] = AlertWebhook(
            url.get_secret_value(), secret.get_secret_value(), dashboard_url=dashboard
        )
    if settings.alert_smtp_url is not None:
        carriers["email"] = AlertMail(
            settings.alert_smtp_url.get_secret_value(),
            sender=settings.alert_email_from,
            receivers=settings.alert_email_to,
            dashboard_url=dashboard,
        )
    return carriers


def build_hook_poster(settings: Settings) -> CompactionHook | None:
    """Return the sender of compaction hooks; None if this process has no hook address."""
    url, secret = settings.compaction_hook_url, settings.compaction_hook_secret
    if url is None or secret is None:
        return None
    return CompactionHook(url.get_secret_value(), secret.get_secret_value())


def build_transcriber(settings: Settings) -> HttpTranscriber | LocalTranscriber | None:
    """Return the local transcriber of a folder, else the client of a server; None if neither is configured.

    Their code is imported only if it is needed.
    """
    if settings.transcribe_folder is not None:
        from shared.adapters.media.local import LocalTranscriber

        return LocalTranscriber(settings.transcribe_folder)
    if settings.transcribe_url is None:
        return None
    from shared.adapters.media.transcriptions import HttpTranscriber

    return HttpTranscriber(
        url=settings.transcribe_url,
        key=open_secret(settings.transcribe_key),
        model=settings.transcribe_model,
    )


def build_picture_maker(settings: Settings) -> HttpPictureMaker | None:
    """Return the client of the picture server; None if none is configured."""
    if settings.picture_url is None:
        return None
    from shared.adapters.media.drawing import HttpPictureMaker

    return HttpPictureMaker(
        url=settings.picture_url,
        key=open_secret(settings.picture_key),
        model=settings.picture_model,
    )


def build_speaker(settings: Settings) -> HttpSpeaker | None:
    """Return the client of the speech server; None if none is configured."""
    if settings.speech_url is None:
        return None
    from shared.adapters.media.speech import HttpSpeaker

    return HttpSpeaker(
        url=settings.speech_url,
        key=open_secret(settings.speech_key),
        model=settings.speech_model,
        voice=settings.speech_voice,
    )


def build_encoder(settings: Settings) -> Encoder | None:
    """Return the client of the embeddings server, else of the local encoder process; None without both."""
    if settings.embeddings_url is not None:
        from shared.adapters.models.embeddings import HttpEncoder

        key = open_secret(settings.embeddings_key)
        return HttpEncoder(url=settings.embeddings_url, key=key, model=settings.embeddings_model)
    path = settings.encoder_socket
    answers = settings.meaning_socket is not None or has_encoder() or path.exists()
    if not (settings.meaning and answers and fits_socket(path)):
        return None
    return LocalEncoder(path)


def build_reranker(settings: Settings) -> HttpReranker | None:
    """Return the client of the reranking server; None if none is configured.

    It connects at the first request.
    """
    if settings.rerank_url is None:
        return None
    from shared.adapters.models.reranker import HttpReranker

    return HttpReranker(
        url=settings.rerank_url, key=open_secret(settings.rerank_key), model=settings.rerank_model
    )


def build_away(settings: Settings, clock: Clock) -> Callable[[], str | None]:
    """Return a function that returns the notice outside of working hours, and None during them.

    An empty notice means the default text. Without configured hours it always returns None.
    """
    hours = parse_working_hours(settings.working_hours, settings.timezone)
    return lambda: None if hours is None or hours.is_open(clock.now()) else settings.away_text


def build_handover_limits(settings: Settings) -> HandoverLimits:
    """Return the limits of handovers in minutes.

    They are 0 if handover is switched off, so that waiting conversations end at once.
    """
    if not settings.has_handover:
        return HandoverLimits(waiting=0, silence=0)
    return HandoverLimits(waiting=settings.handover_minutes, silence=settings.handover_silence_minutes)


async def load_server_names(stored: PostgresStoredSettings, settings: Settings) -> frozenset[str] | None:
    """Return the names of all MCP servers: from settings, their file, and the stored setting.

    None if that setting cannot be decrypted. Raises StorageUnavailable.
    """
    name = "EVERTALK_MCP_SERVERS"
    try:
        values = (await stored.load(frozenset({name}))).values
    except (BadSettings, CannotUnseal):
        return None
    return await asyncio.to_thread(list_server_names, settings, values.get(name))


def build_agent_defaults(settings: Settings) -> AgentDefaults:
    """Return the defaults that agents' configurations are checked against.

    Raises ContradictoryPolicy and ModelsFileBroken.
    """
    entries = list_entries(settings)
    named = {settings.model, settings.summary_model, *settings.fallback_models} - {""}
    return AgentDefaults(
        policy=build_policy(settings),
        context_window=settings.context_window,
        operator_policy=load_policy_overrides(settings),
        models=frozenset({OFFLINE_MODEL, *TABLE, *named, *(entry.name for entry in entries)}),
        load_workspace=lambda folder: read_workspace(
            workspace_path(settings.data_dir / WORKSPACES_FOLDER, folder)
        ),
        tools=list_tool_specs(settings),
    )


def list_tool_specs(settings: Settings) -> tuple[ToolSpec, ...]:
    """Return the built-in tools that models get with these settings, by which agents are checked.

    `ask_human` needs handovers, and `make_picture` a picture server.
    """
    always = (tool for tool in BUILT_IN_TOOLS if settings.has_handover or tool.name != ASK_HUMAN.name)
    return (*always, *([MAKE_PICTURE] if settings.picture_url else ()))
