"""Checks of Redis, PostgreSQL, its pooler, schema and data, of hosts, and of Telegram."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared.adapters.postgres.dashboard.telegram import BotState
from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.migrate import read_schema_state
from shared.adapters.postgres.db.pooler import has_transaction_pooling, probe_pooler
from shared.adapters.postgres.db.readiness import LEAST_POSTGRES, Standing
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.redis.arq_queue import load_server_facts
from shared.adapters.telegram_probe import (
    BotProbe,
    TelegramUnreachable,
    TokenRefused,
    WebhookProbe,
    probe_bot,
    probe_webhook,
)
from shared.bootstrap.stores import open_stores
from shared.config.bots import BotConfig, find_remarks, load_bots
from shared.config.settings import Settings
from shared.core.values.errors import StorageUnavailable
from shared.diagnostics.checks import Finding, list_together

_LEAST_REDIS = (7, 0)
"""Oldest version of Redis that is supported."""
_CLOCK_SECONDS = 2.0
"""Seconds by which the clock of PostgreSQL may differ from this machine's."""
_NAMED = 12
"""Maximum names in a finding."""
_ROLE_SETTINGS = "ALTER ROLE {role} SET statement_timeout = '9s'; ALTER ROLE {role} SET jit = off"
_LIVING = """
SELECT role, (health -> 'same')::text AS told FROM workers
 WHERE stopped_at IS NULL AND beat > now() - interval '30 seconds' AND health ? 'same'
 ORDER BY id
"""
"""SQL that returns the host fingerprints of all running processes."""


async def check_redis(settings: Settings, url: str) -> Sequence[Finding]:
    """Check the version of Redis, and its policy for full memory."""
    facts = await load_server_facts(url)
    version = str(facts.get("valkey_version") or facts["redis_version"])
    what = f"{'Valkey' if 'valkey_version' in facts else 'Redis'} {version} answers"
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST_REDIS:
        return [Finding("fail", what, "Redis 7 or newer, or Valkey, is needed.")]
    if facts.get("maxmemory_policy", "noeviction") != "noeviction":
        return [Finding("warn", what, "Set maxmemory-policy noeviction, so that jobs are not evicted.")]
    return [Finding("ok", what)]


async def check_postgres(settings: Settings, url: str) -> Sequence[Finding]:
    """Check the version, encoding and clock of PostgreSQL."""
    async with open_connection(url) as connection:
        number = int(await connection.fetchval("show server_version_num"))
        version = await connection.fetchval("show server_version")
        encoding = await connection.fetchval("show server_encoding")
        there = float(await connection.fetchval("select extract(epoch from clock_timestamp())"))
        skew = abs(there - time.time())
    what = f"PostgreSQL {version} answers"
    if number < LEAST_POSTGRES * 10_000 or encoding != "UTF8":
        return [Finding("fail", what, f"PostgreSQL {LEAST_POSTGRES} or newer with encoding UTF8 is needed.")]
    if skew > _CLOCK_SECONDS:
        advice = f"Its clock differs from this machine's by {skew:.1f} s: run NTP on both machines."
        return [Finding("warn", what, advice)]
    return [Finding("ok", what)]


async def check_pooler(settings: Settings, url: str) -> Sequence[Finding]:
    """Report limits of a connection pooler, and connections that must bypass it.

    No finding without a pooler.
    """
    async with open_connection(url) as connection:
        found = await probe_pooler(connection)
        timeout = await connection.fetchval("SELECT current_setting('statement_timeout')")
        role = await connection.fetchval("SELECT session_user")
    if not found.pooler:
        return []
    findings = [Finding("ok", "PostgreSQL is reached through a connection pooler")]
    if not found.keeps_prepared:
        what = "the pooler does not support prepared statements, so each statement is planned again"
        findings.append(Finding("warn", what, "PgBouncer 1.21 or newer with max_prepared_statements = 200."))
    if timeout == "0":
        what = "the pooler drops session settings: statements have no time limit"
        findings.append(Finding("warn", what, f"As administrator: {_ROLE_SETTINGS.format(role=role)}"))
    try:
        if await has_transaction_pooling(settings.direct_url(url)):
            what = "backups and restores need a session, but the pooler assigns one per transaction"
            advice = "Set EVERTALK_DIRECT_DATABASE_URL to the address of PostgreSQL itself."
            findings.append(Finding("warn", what, advice))
    except StorageUnavailable as error:
        findings.append(Finding("fail", f"past the pooler: {error}", error.advice))
    return findings


async def check_schema(settings: Settings, url: str) -> Sequence[Finding]:
    """Check whether this version of the program can use the schema."""
    state = await read_schema_state(url)
    if (refusal := state.find_refusal()) is not None:
        return [Finding("fail", str(refusal), refusal.advice)]
    match state.standing:
        case Standing.SAME:
            return [Finding("ok", state.describe())]
        case Standing.NEWER:
            what = f"{state.describe()}; this version keeps working with it"
            by = f"Evertalk {state.made_by}" if state.made_by else "the same version"
            return [Finding("warn", what, f"Upgrade this machine to {by}.")]
    return [Finding("warn", state.describe(), "Run ./evertalk up to upgrade it.")]


async def check_stored(settings: Settings, url: str) -> Sequence[Finding]:
    """Check the invariants of stored conversations."""
    async with open_connection(settings.direct_url(url)) as connection:
        if not await connection.fetchval("select to_regclass('sessions') is not null"):
            return [Finding("ok", "no conversations yet")]
        if not (await probe_pooler(connection)).pooler:
            # The role may limit the time of statements for people's sake; this check takes longer.
            await connection.execute("SET statement_timeout = 0")
        broken = [str(line) for line in await check_invariants(connection)]
    if not broken:
        return [Finding("ok", "all invariants of stored conversations hold")]
    advice = "Please report this, with the lines above."
    return [list_together("fail", "stored conversations violate invariants:", broken[:20], advice)]


async def check_hosts(settings: Settings, url: str) -> Iterable[Finding]:
    """Compare all hosts by the fingerprints of their latest heartbeats.

    No finding if there is only one host.
    """
    async with open_connection(url) as connection:
        rows = await connection.fetch(_LIVING)
    by_role: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        told = json.loads(row["told"])
        by_role[row["role"]][told["place"]] = told
    return list(compare_hosts(by_role))


def compare_hosts(by_role: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Finding]:
    """Yield the differences between hosts.

    Processes are compared by role, since different roles may have different settings.
    """
    places = sorted({place for told in by_role.values() for place in told})
    if len(places) < 2:
        return
    if len({told["key"] for role in by_role.values() for told in role.values()}) > 1:
        what = f"the hosts have different secret keys: {', '.join(places)}"
        advice = "EVERTALK_SECRET_KEY must be the same: hosts cannot read each other's encrypted secrets."
        yield Finding("fail", what, advice)
        return
    differ = sorted({name for role in by_role.values() for name in _different(role.values(), "settings")})
    if differ:
        what = f"settings differ between {', '.join(places)}: {', '.join(differ[:_NAMED])}"
        advice = "Use the same .env on every host, except for its folder, addresses and log."
        yield Finding("warn", what, advice)
    files = sorted({name for role in by_role.values() for name in _different(role.values(), "files")})
    for name in files[:_NAMED]:
        have = {place for role in by_role.values() for place, told in role.items() if name in told["files"]}
        what = f"{name} is not the same on every host: {', '.join(sorted(have))}"
        advice = "Copy it from one host to the others (rsync -a). Until then answers depend on the host."
        yield Finding("warn", what, advice)
    if not differ and not files:
        yield Finding("ok", f"{len(places)} hosts with the same setup: {', '.join(places)}")


def _different(told: Iterable[Mapping[str, Any]], part: str) -> set[str]:
    """Return the names in a part of the fingerprints whose hashes differ."""
    marks = [one[part] for one in told]
    return {name for name in set().union(*marks) if len({one.get(name) for one in marks}) > 1}


async def check_bots(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Check each bot's token and webhook at Telegram."""
    bots = load_bots(settings)
    findings = [Finding("warn", remark) for remark in find_remarks(bots, settings)]
    for bot in bots:
        findings += await _check_bot(bot, settings.telegram_api_url)
    return findings


async def _check_bot(bot: BotConfig, api_url: str) -> Sequence[Finding]:
    try:
        seen = await probe_bot(bot.token, api_url=api_url)
        webhook = await probe_webhook(bot.token, api_url=api_url)
    except TokenRefused as error:
        advice = "Copy it again from @BotFather, or create a new one there with /revoke."
        return [Finding("fail", f"{bot.token_name}: {error}", advice)]
    except TelegramUnreachable as error:
        advice = "Check the network and EVERTALK_TELEGRAM_API_URL. Meanwhile Telegram keeps new messages."
        return [Finding("warn", f"{bot.token_name}: {error}", advice)]
    what = f"Telegram confirms @{seen.username} ({bot.mode}, access {bot.access})"
    return [Finding("ok", what), *_check_webhook(bot, seen, webhook)]


def _check_webhook(bot: BotConfig, seen: BotProbe, webhook: WebhookProbe) -> Iterator[Finding]:
    name = f"@{seen.username}"
    if bot.mode == "polling" and webhook.host:
        what = f"{name} uses polling, but Telegram sends its messages to a webhook at {webhook.host}"
        advice = "The bot removes the webhook when it starts. Does another program use this token?"
        yield Finding("warn", what, advice)
    if bot.mode == "webhook" and not webhook.host:
        what = f"Telegram has no webhook for {name}"
        yield Finding("warn", what, "Run ./evertalk up: the bot process sets it.")
    if webhook.waiting:
        what = f"messages for {name} waiting at Telegram: {webhook.waiting}"
        yield Finding("warn", what, "Run ./evertalk up to receive them.")
    if webhook.last_error and webhook.last_error_at is not None:
        what = f"Telegram could not deliver to {webhook.host}: {webhook.last_error}"
        advice = f"Last error at {webhook.last_error_at:%Y-%m-%d %H:%M} UTC. Is it reachable from outside?"
        yield Finding("warn", what, advice)


async def check_bots_in_service(settings: Settings, url: str) -> Sequence[Finding]:
    """Report bots without a process, problems of bots, and uncertain deliveries."""
    bots = load_bots(settings)
    if not bots:
        return []
    async with open_stores(url, size=1) as stores:
        known = {state.bot_id: state for state in await stores.telegram_bots.list_bots()}
    return [finding for bot in bots for finding in _check_in_service(bot, known.get(bot.bot_id))]


def _check_in_service(bot: BotConfig, state: BotState | None) -> Iterator[Finding]:
    if state is None:
        yield Finding("ok", f"the bot of {bot.token_name} has not been started yet")
        return
    name = f"@{state.username}"
    if state.served_by is None:
        yield Finding("ok", f"no process serves {name} at the moment; start it with ./evertalk up")
    else:
        yield Finding("ok", f"{name} is served by process {state.served_by}")
    if state.problem:
        yield Finding("warn", f"{name}: {state.problem}", "See the bot's log for details.")
    if state.uncertain:
        number = "1 message" if state.uncertain == 1 else f"{state.uncertain} messages"
        what = f"{number} of {name} may not have arrived: Telegram did not answer"
        advice = (
            "Each person was notified and can request the message with a button; the dashboard lists them."
        )
        yield Finding("warn", what, advice)
