"""Checks of stored rows: agents, sites, spending, models, reminders and compaction hooks."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from shared.adapters.encryption import CannotUnseal, Encryption
from shared.adapters.files.knowledge_files import build_shelf
from shared.adapters.files.workspace_files import workspace_path
from shared.adapters.models.catalog import TABLE, list_entries
from shared.adapters.models.dialects.abilities import INSTEAD, SETTINGS
from shared.adapters.postgres.dashboard.cost_queries import load_spent_today
from shared.adapters.postgres.dashboard.models import (
    has_no_summaries,
    list_learned_abilities,
    list_narrowed_windows,
    list_rejections,
)
from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.people.visitors import SiteRow
from shared.bootstrap.from_settings import (
    WORKSPACES_FOLDER,
    build_agent_defaults,
    build_policy,
    load_server_names,
)
from shared.bootstrap.stored_settings import open_stored_settings
from shared.bootstrap.stores import open_stores
from shared.config.agents import BadAgentConfig, check_config, find_unknown_servers
from shared.config.bots import BotConfig, load_bots
from shared.config.settings import BadSettings, Settings, load_policy_overrides, resolve_secret_key
from shared.config.sites import BadSiteConfig, build_secret_context, read_site_config
from shared.core.context.agents import KNOWLEDGE_FOLDER, MEMORY, PERSON
from shared.core.context.overrides import BadContextConfig, agent_policy
from shared.core.ops.alerts import advice_of
from shared.core.session.budget import budget_for
from shared.core.session.policy import ContradictoryPolicy
from shared.core.session.prune_rules import BadPruneRules, prune_rules
from shared.diagnostics.checks import Finding, list_together

_LATE_MINUTES = 10
"""Minutes after which a pending reminder is overdue."""
_NOTICEABLE_SHARE = 0.005
"""Share of the window by which a limit must be below its preset's own to be reported."""
_NEARLY_PERCENT = 80
"""Percent of the daily cap from which the doctor warns."""
_PUBLIC_PLACES = """
SELECT a.name, 'site ' || w.name AS place FROM sites w JOIN agents a ON a.id = w.agent_id
 WHERE w.audience = 'public'
UNION ALL SELECT a.name, 'bot @' || b.username FROM telegram_bots b
  JOIN agents a ON a.id = b.agent_id WHERE b.audience = 'public' ORDER BY 1, 2
"""
"""SQL that returns agents and the public sites and bots that use them."""


async def check_reminders(settings: Settings, url: str) -> Sequence[Finding]:
    """Warn about overdue reminders; no finding if there are none."""
    async with open_stores(url, size=1) as stores:
        late = await stores.reminders.count_overdue(_LATE_MINUTES)
    what = f"reminders overdue by more than {_LATE_MINUTES} minutes: {late}"
    advice = "The bot and web processes send reminders. Check that both run: ./evertalk up"
    return [Finding("warn", what, advice)] if late else []


async def check_compaction_hook(settings: Settings, url: str) -> Sequence[Finding]:
    """Warn about messages of the last day that the compaction hook did not accept.

    No finding if there are none, or without a hook.
    """
    if settings.compaction_hook_url is None:
        return []
    async with open_stores(url, size=1) as stores:
        troubles = await stores.compaction_hooks.list_troubles()
    if not troubles:
        return []
    total, code = sum(number for _, number in troubles), troubles[0][0]
    what = f"messages of the last day that the compaction hook has not taken: {total} ({code})"
    return [Finding("warn", what, advice_of(code))]


async def check_pruning_rules(settings: Settings, url: str) -> Sequence[Finding]:
    """Check the pruning rules of the agents; no finding if all are valid."""
    found: list[Finding] = []
    for name, config in (await _load_configs(url)).items():
        try:
            if "pruning" in config:
                prune_rules(config["pruning"])
        except BadPruneRules as error:
            found.append(Finding("warn", f"agent {name}: its pruning rules are ignored", error.advice))
    return found


_REJECTED_ADVICE = (
    "People are told that there is no answer. Set fallback models with EVERTALK_FALLBACK_MODELS; "
    "the log lists each refusal as turn_rejected_by_model."
)


async def check_models(settings: Settings, url: str) -> Sequence[Finding]:
    """Warn about models with a reduced window, refused requests or missing summaries.

    No finding if there are none, or if no process runs.
    """
    advice = "Requests are shortened meanwhile. If this is the model's window, set it in a models file."
    found = [
        Finding(
            "warn",
            f"{provider} refuses more than {window:,} tokens for {model}; its window is {most:,}",
            advice,
        )
        for provider, model, window, most in await list_narrowed_windows(url)
    ]
    found += [
        Finding(
            "warn",
            f"{provider} returns no usable answer for {model}: {wording} ({count} times)",
            _REJECTED_ADVICE,
        )
        for provider, model, wording, count in await list_rejections(url)
    ]
    found += [_build_lesson(*lesson) for lesson in await list_learned_abilities(url)]
    if await has_no_summaries(url):
        what = "no model wrote the newest summaries: conversations continue with extracted sentences"
        advice = "See the page Jobs for the reason, or set another model with EVERTALK_SUMMARY_MODEL."
        found.append(Finding("warn", what, advice))
    return found


def _build_lesson(provider: str, model: str, ability: str, number: int | None) -> Finding:
    """Return a finding about what a server refuses, with the field of a models file that makes that
    permanent.
    """
    instead = next((text for name, text in INSTEAD.items() if name == ability), "it is left out")
    setting = next((text for name, text in SETTINGS.items() if name == ability), "")
    advice = (
        f"To set this permanently, add to its entry in a models file: {setting.format(number=number)}"
        if setting
        else ""
    )
    return Finding("ok", f"{provider} does not accept {ability} for {model}: {instead} for a day", advice)


async def check_spending(settings: Settings, url: str) -> Sequence[Finding]:
    """Report today's spending against the cap."""
    used, warned = await load_spent_today(url, timezone=settings.timezone)
    return [build_spending_finding(settings, used_micro=used, warned=warned)]


def build_spending_finding(settings: Settings, *, used_micro: int, warned: int) -> Finding:
    """Return a finding about today's spending.

    `warned` is the number of people and conversations near a cap.
    """
    cap = settings.cap_total_per_day_usd
    whose = "1 person or conversation" if warned == 1 else f"{warned} people or conversations"
    near = f"; {whose} close to a cap" if warned else ""
    cap_micro = int(cap * 1_000_000)
    percent = 100 * used_micro // cap_micro if cap_micro else 100
    what = f"${used_micro / 1e6:.2f} of today's ${cap:.2f} used ({percent} %){near}"
    if percent < _NEARLY_PERCENT:
        return Finding("ok", what)
    advice = "At 100 % answers stop until midnight. Raise the cap with EVERTALK_CAP_TOTAL_PER_DAY_USD."
    return Finding("warn", what, advice)


async def check_agents(settings: Settings, url: str) -> Sequence[Finding]:
    """Check the agents' configurations against the settings, models and MCP servers of this installation."""
    configs = await _load_configs(url)
    finding = check_agent_rows(settings, configs)
    public: dict[str, list[str]] = {}
    async with open_connection(url) as connection:
        for row in await connection.fetch(_PUBLIC_PLACES):
            public.setdefault(row["name"], []).append(row["place"])
    async with open_stored_settings(url, settings) as stored:
        servers = await load_server_names(stored, settings)
    remarks = [
        *check_agent_remarks(settings, configs, public),
        *check_bot_remarks(load_bots(settings), configs),
        *check_agent_servers(configs, servers),
    ]
    if finding.level != "ok" or not remarks:
        return [finding]
    return [
        list_together(
            "warn", "about the agents:", remarks, "Change an agent with ./evertalk agent edit NAME."
        )
    ]


async def _load_configs(url: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the configuration of each agent by name."""
    async with open_connection(url) as connection:
        rows = await connection.fetch("SELECT name, config::text FROM agents ORDER BY name")
    return {row["name"]: json.loads(row["config"]) for row in rows}


def check_agent_rows(settings: Settings, configs: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Return a finding about invalid configurations of agents."""
    defaults, problems = build_agent_defaults(settings), []
    for name, config in configs.items():
        try:
            # pruning rules have a separate finding
            check_config({key: value for key, value in config.items() if key != "pruning"}, defaults)
        except BadAgentConfig as error:
            problems += [f"agent {name}: {problem}" for problem in error.problems]
    if not problems:
        whose = "1 agent's" if len(configs) == 1 else f"{len(configs)} agents'"
        return Finding("ok", f"{whose} context settings can be used")
    advice = f"Until they are corrected, these agents use the preset {defaults.policy.name}."
    return list_together("warn", "agents have invalid settings:", problems, advice)


def check_agent_remarks(
    settings: Settings, configs: Mapping[str, Mapping[str, Any]], public: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield remarks about agents: unknown models, folders, files and knowledge that cannot be used.

    `public` are the places of each agent where strangers reach it.
    """
    defaults = build_agent_defaults(settings)
    for name, config in configs.items():
        with contextlib.suppress(BadAgentConfig):
            yield from (f"agent {name}: {remark}" for remark in check_config(config, defaults))
        yield from (f"agent {name}: {remark}" for remark in check_effective_limit(settings, config))
        folder = config.get("workspace")
        if not isinstance(folder, str) or not folder:
            continue
        path = workspace_path(settings.data_dir / WORKSPACES_FOLDER, folder)
        yield from (f"agent {name}: {problem}" for problem in build_shelf(path / KNOWLEDGE_FOLDER).problems)
        told = defaults.load_workspace(folder)
        if name in public and config.get("audience") != "public" and (told.text(PERSON) or told.text(MEMORY)):
            yield (
                f"agent {name}: strangers reach it at {', '.join(public[name])}, and its folder is about one "
                'person. "audience": "public" in its settings keeps that from them.'
            )


def check_effective_limit(settings: Settings, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a remark if an agent summarises earlier than its preset intends, because the model's window is
    small.
    """
    name = str(config.get("model") or settings.model)
    windows = {entry.name: entry.window for entry in list_entries(settings)}
    known = TABLE.get(name)
    window = windows.get(name) or (known.window if known else None)
    if window is None:
        return
    with contextlib.suppress(BadContextConfig, ContradictoryPolicy):
        policy = agent_policy(
            build_policy(settings), config, context_window=settings.context_window,
            given=load_policy_overrides(settings),
        )  # fmt: skip
        wanted = policy.timing.share_of_window
        if wanted is None:
            return
        budget = budget_for(policy, window, policy.max_output, 0)
        share = budget.limit / budget.window
        if share < wanted - _NOTICEABLE_SHARE:
            yield (
                f"{policy.name} summarises at {share:.0%} of the {budget.window:,} tokens of {name}, not at "
                f"{wanted:.0%}: the answer and the newest message need the rest."
            )


def check_agent_servers(
    configs: Mapping[str, Mapping[str, Any]], servers: Collection[str] | None
) -> Iterator[str]:
    """Yield a remark for each MCP server in an agent's configuration that does not exist."""
    for name, config in configs.items():
        yield from (f"agent {name}: {problem}" for problem in find_unknown_servers(config, servers))


def check_bot_remarks(bots: Sequence[BotConfig], agents: Collection[str]) -> Iterator[str]:
    """Yield a remark for each bot whose agent does not exist."""
    for bot in bots:
        if bot.agent not in agents:
            near = difflib.get_close_matches(bot.agent, agents, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            yield (
                f"the bot of {bot.token_name} has the agent {bot.agent!r}, which does not exist: "
                f"the default agent answers instead.{meant}"
            )


async def check_sites(settings: Settings, url: str) -> Sequence[Finding]:
    """Check the rows of sites; a site with invalid settings admits no visitor."""
    async with open_stores(url, size=1) as stores:
        sites = await stores.visitors.load_sites()
    problems = [
        f"site {name}: {problem}"
        for name, row in sorted(sites.items())
        for problem in (*_find_problem(row), *_find_closed_secrets(settings, row))
    ]
    if not problems:
        return [Finding("ok", f"{len(sites)} site{'' if len(sites) == 1 else 's'} can be used")]
    what, advice = "sites have invalid settings:", "Change a site with ./evertalk site edit NAME."
    return [list_together("warn", what, problems, advice)]


def _find_closed_secrets(settings: Settings, site: SiteRow) -> Iterator[str]:
    """Yield a problem for each secret of a site that the key of this machine cannot decrypt."""
    if not site.secrets:
        return
    try:
        encryption = Encryption(resolve_secret_key(settings))
    except BadSettings as error:
        yield f"its secrets cannot be decrypted: {error}"
        return
    for secret_id, sealed in sorted(site.secrets.items()):
        try:
            encryption.open(sealed, about=build_secret_context(site.name, secret_id))
        except CannotUnseal:
            yield (
                f"secret {secret_id} is encrypted with another EVERTALK_SECRET_KEY: it signs in no visitor"
            )


def _find_problem(site: SiteRow) -> tuple[str, ...]:
    """Return the problems of a site's row."""
    try:
        config = read_site_config(site.config)
    except BadSiteConfig as error:
        return (*error.problems, "Until this is corrected, the site admits no visitors.")
    if config.verified != "off" and not site.secrets:
        return (f"visitors cannot sign in yet: add a secret with ./evertalk site secret {site.name} add",)
    return ()
