"""`evertalk doctor`: looks at everything a start depends on, and says what to do about what it finds."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from dotenv import dotenv_values

from shared.adapters.embedded import EmbeddedServerFailed, EmbeddedServers, Wanted
from shared.adapters.embedded.binaries import find_binaries
from shared.adapters.embedded.folders import is_held
from shared.adapters.embedded.servers import are_running, urls_of
from shared.adapters.files.workspace_files import workspace_path
from shared.cli.model_discovery import describe_models
from shared.config.agents import BadAgentConfig, check_config
from shared.config.bots import BotConfig, load_bots
from shared.config.settings import BadSettings, Settings, default_env_file, find_unknown_names, load_settings
from shared.core.context.workspace import KNOWLEDGE_FOLDER, MEMORY, PERSON
from shared.core.session.presets import preset
from shared.core.session.prune_rules import BadPruneRules, prune_rules
from shared.diagnostics.backup_checks import check_backups
from shared.diagnostics.findings import Finding
from shared.diagnostics.host_checks import check_hosts
from shared.diagnostics.mcp_checks import check_mcp
from shared.diagnostics.model_checks import check_models
from shared.diagnostics.pooler_checks import check_pooler
from shared.diagnostics.site_checks import check_sites
from shared.diagnostics.spending_checks import check_spending
from shared.diagnostics.telegram_checks import check_bots, check_bots_in_service

_LEAST_FREE_BYTES = 1024**3
_LEAST_REDIS = (7, 0)
_CHECK_SECONDS = 30.0
_CLOCK_SECONDS = 2.0
_LATE_MINUTES = 10


def run_doctor() -> int:
    """0 when everything is well enough to start, 1 otherwise."""
    worst = 0
    for finding in _settings_findings():
        print(finding)
        worst = max(worst, finding.level == "fail")
    if worst:
        return 1
    return max(worst, asyncio.run(_run_checks(load_settings())))


async def _run_checks(settings: Settings) -> int:
    failed = False
    for check in (
        _check_python, _check_folder, _check_port, _check_model, _check_pruners, check_mcp, check_bots,
        check_backups,
    ):  # fmt: skip
        for finding in await check(settings):
            print(finding, flush=True)
            failed = failed or finding.level == "fail"
    try:
        async for finding in _server_findings(settings):
            print(finding, flush=True)
            failed = failed or finding.level == "fail"
    except EmbeddedServerFailed as error:
        print(Finding(level="fail", what=str(error), advice=error.advice))
        return 1
    return int(failed)


def _settings_findings() -> Iterator[Finding]:
    try:
        load_bots(load_settings())
    except BadSettings as error:
        for problem in error.problems:
            yield Finding(level="fail", what=str(problem), advice=f"Correct {problem.name}, or leave it out.")
    else:
        yield Finding(level="ok", what="settings can be read")
    path = default_env_file()
    written = dotenv_values(path) if path is not None and path.is_file() else {}
    for name, nearest in find_unknown_names({**os.environ, **dict.fromkeys(written, "")}).items():
        advice = f"Did you mean {nearest}?" if nearest else "Remove it; docs/settings.md lists all settings."
        yield Finding(level="warn", what=f"{name} means nothing to Evertalk", advice=advice)
    if path is not None and path.is_file() and path.stat().st_mode & 0o077:
        yield Finding(level="warn", what=f"others can read {path}", advice=f"chmod 600 {path}")


async def _check_python(settings: Settings) -> Sequence[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    advice = "" if good else "Install Python 3.11 or newer."
    return [Finding(level="ok" if good else "fail", what=f"Python {version}", advice=advice)]


async def _check_folder(settings: Settings) -> Sequence[Finding]:
    folder = settings.data_dir
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        advice = "Set EVERTALK_DATA_DIR to a folder that you may write to."
        return [Finding(level="fail", what=f"the data folder {folder} is not writable", advice=advice)]
    free = shutil.disk_usage(existing).free
    found = Finding(level="ok", what=f"data folder {folder}, {free / 1024**3:.1f} GiB free")
    if free < _LEAST_FREE_BYTES:
        found = Finding(level="warn", what=found.what, advice="Less than 1 GiB: make room soon.")
    return [found]


async def _check_port(settings: Settings) -> Sequence[Finding]:
    where = f"{settings.http_host}:{settings.http_port}"
    if is_held(settings.data_dir / "up.lock") or are_running(settings.data_dir / "servers"):
        return [Finding(level="ok", what=f"Evertalk runs now, at {settings.local_url}")]
    family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.http_host, settings.http_port))
        except OSError as error:
            advice = "Stop what listens there, or set EVERTALK_HTTP_PORT to another number."
            return [Finding(level="fail", what=f"{where} cannot be used: {error.strerror}", advice=advice)]
    return [Finding(level="ok", what=f"{where} is free")]


async def _check_model(settings: Settings) -> Sequence[Finding]:
    lines = await describe_models(settings)
    findings = [Finding(level="ok", what=f"answers come from {lines[0][1]}")]
    findings += [Finding(level="ok", what=line) for _, line in lines[1:]]
    if settings.anthropic_api_key is None and settings.anthropic_base_url is None:
        return findings
    host = urlsplit(settings.anthropic_base_url or "https://api.anthropic.com")
    port = host.port or (443 if host.scheme == "https" else 80)
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(host.hostname, port)
            writer.close()
        findings.append(Finding(level="ok", what=f"{host.hostname} can be reached"))
    except (OSError, TimeoutError) as error:
        advice = "Check the network, a proxy, and ANTHROPIC_BASE_URL; meanwhile messages wait."
        what = f"{host.hostname}:{port} cannot be reached ({str(error) or 'no answer'})"
        findings.append(Finding(level="warn", what=what, advice=advice))
    return findings


async def _check_pruners(settings: Settings) -> Sequence[Finding]:
    """Says nothing where no plug-in is installed, which is nearly everywhere."""
    from shared.adapters.files.pruners import check_pruners

    working, wrong = check_pruners(preset(settings.preset))
    advice = "It is not asked. Repair or uninstall the package that brings it."
    found = [Finding(level="warn", what=f"pruning plug-in {what}", advice=advice) for what in wrong]
    number = "1 pruning plug-in" if working == 1 else f"{working} pruning plug-ins"
    return [*found, Finding(level="ok", what=number)] if working else found


class _Servers:
    """Addresses of both servers: those that run, or our own for the moment of the examination."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started: EmbeddedServers | None = None

    async def open(self) -> tuple[str, str]:
        settings = self._settings
        folder = settings.data_dir / "servers"
        wanted = Wanted(postgres=settings.embedded_postgres, redis=settings.embedded_redis)
        ours = ("", "")
        if wanted.postgres or wanted.redis:
            if are_running(folder):
                ours = urls_of(folder)
            else:
                self._started = EmbeddedServers(folder, wanted=wanted, account=settings.servers_account)
                await self._started.start()
                ours = urls_of(folder)
        database = settings.database_url.get_secret_value() if settings.database_url else ours[0]
        return database, settings.redis_url.get_secret_value() if settings.redis_url else ours[1]

    async def close(self) -> None:
        if self._started is not None:
            await self._started.stop()


async def _server_findings(settings: Settings) -> AsyncIterator[Finding]:
    if settings.embedded_postgres or settings.embedded_redis:
        find_binaries()
        yield Finding(level="ok", what="programs of the embedded servers are installed")
    servers = _Servers(settings)
    database_url, redis_url = await servers.open()
    try:
        yield await _run_check("Redis", "REDIS_URL", lambda: _check_redis(redis_url))
        found = await _run_check("PostgreSQL", "DATABASE_URL", lambda: _check_postgres(database_url))
        yield found
        if found.level != "fail":
            for finding in await check_pooler(settings, database_url):
                yield finding
            direct = settings.direct_url(database_url)
            schema = await _run_check("the schema", "DATABASE_URL", lambda: _check_schema(database_url))
            yield schema
            if schema.level != "fail":
                yield await _run_check("the data", "DATABASE_URL", lambda: _check_invariants(direct))
            if schema.level == "ok":
                for finding in await _check_late_reminders(database_url):
                    yield finding
                for finding in await _load_agent_rules(database_url):
                    yield finding
                for finding in await check_bots_in_service(settings, database_url):
                    yield finding
                for finding in await check_models(database_url):
                    yield finding
                yield await _run_check(
                    "spending", "DATABASE_URL", lambda: check_spending(settings, database_url)
                )
                yield await _run_check(
                    "the agents", "DATABASE_URL", lambda: _check_agents(settings, database_url)
                )
                for finding in await check_hosts(database_url):
                    yield finding
                yield await _run_check("the sites", "DATABASE_URL", lambda: check_sites(database_url))
    finally:
        await servers.close()


async def _load_agent_rules(database_url: str) -> Sequence[Finding]:
    """Says nothing where every agent's pruning rules can be used."""
    from shared.adapters.postgres.db.connecting import connect

    connection = await connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT name, (config -> 'pruning')::text AS rules FROM agents WHERE config ? 'pruning'",
            timeout=10,
        )
    finally:
        await connection.close(timeout=5)
    found: list[Finding] = []
    for row in rows:
        try:
            prune_rules(json.loads(row["rules"]))
        except BadPruneRules as error:
            what = f"agent {row['name']}: its pruning rules are left out"
            found.append(Finding(level="warn", what=what, advice=error.advice))
    return found


async def _check_late_reminders(database_url: str) -> Sequence[Finding]:
    """Says nothing where every reminder comes in time."""
    from shared.bootstrap.stores import open_stores

    async with open_stores(database_url, size=1) as stores:
        late = await stores.reminders.overdue(_LATE_MINUTES)
    advice = "Whoever serves their channel tells them: does the bot run, and the web? ./evertalk up"
    what = f"reminders that are due for more than {_LATE_MINUTES} minutes: {late}"
    return [Finding(level="warn", what=what, advice=advice)] if late else []


async def _run_check(what: str, setting: str, check: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the doctor reports it and goes on
        advice = f"Check {setting}, and that the server runs."
        return Finding(level="fail", what=f"{what}: {str(error) or type(error).__name__}", advice=advice)


async def _check_redis(redis_url: str) -> Finding:
    from shared.adapters.redis.arq_queue import try_the_bell

    facts = await try_the_bell(redis_url)
    version = str(facts.get("valkey_version") or facts["redis_version"])
    what = f"{'Valkey' if 'valkey_version' in facts else 'Redis'} {version} answers"
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST_REDIS:
        return Finding(level="fail", what=what, advice="Redis 7 or newer, or Valkey, is needed.")
    if facts.get("maxmemory_policy", "noeviction") != "noeviction":
        return Finding(level="warn", what=what, advice="Set maxmemory-policy noeviction: jobs live there.")
    return Finding(level="ok", what=what)


async def _check_postgres(database_url: str) -> Finding:
    from shared.adapters.postgres.db.connecting import connect
    from shared.adapters.postgres.db.readiness import LEAST_POSTGRES

    connection = await connect(database_url)
    try:
        number = int(await connection.fetchval("show server_version_num"))
        version = await connection.fetchval("show server_version")
        encoding = await connection.fetchval("show server_encoding")
        there = float(await connection.fetchval("select extract(epoch from clock_timestamp())"))
        skew = abs(there - time.time())
    finally:
        await connection.close(timeout=5)
    what = f"PostgreSQL {version} answers"
    if number < LEAST_POSTGRES * 10_000 or encoding != "UTF8":
        advice = f"PostgreSQL {LEAST_POSTGRES} or newer with encoding UTF8 is needed."
        return Finding(level="fail", what=what, advice=advice)
    if skew > _CLOCK_SECONDS:
        advice = f"Its clock and ours differ by {skew:.1f} s: let NTP run on both machines."
        return Finding(level="warn", what=what, advice=advice)
    return Finding(level="ok", what=what)


async def _check_schema(database_url: str) -> Finding:
    from shared.adapters.postgres.db.migrate import current_revision
    from shared.adapters.postgres.db.readiness import SchemaUnknown, is_newer, refuse_unknown

    found, newest = await current_revision(database_url)
    if found == newest:
        return Finding(level="ok", what=f"schema is at revision {found}")
    try:
        refuse_unknown(found)
    except SchemaUnknown as error:
        return Finding(level="fail", what=str(error), advice=error.advice)
    if is_newer(found, newest):
        what = f"schema is at {found}, newer than this version ({newest}), which works on beside it"
        return Finding(level="warn", what=what, advice="Bring this machine to the same version.")
    advice = "./evertalk up brings it up to date."
    return Finding(level="warn", what=f"schema is at {found or 'nothing'}, {newest} is newest", advice=advice)


async def _check_agents(settings: Settings, database_url: str) -> Finding:
    """Agents whose rows cannot be used as they are: what is wrong in them is as the deployment has it."""
    configs, public = await _agents_and_public_places(database_url)
    finding = check_agent_rows(settings, configs)
    remarks = [
        *check_agent_remarks(settings, configs, public),
        *check_bot_remarks(load_bots(settings), configs),
    ]
    if finding.level != "ok" or not remarks:
        return finding
    what = "\n      ".join(["about the agents:", *remarks])
    return Finding(level="warn", what=what, advice="./evertalk agent edit NAME changes an agent.")


async def _agents_and_public_places(
    database_url: str,
) -> tuple[dict[str, Mapping[str, Any]], dict[str, list[str]]]:
    """Each agent's config, and for agents that strangers reach, where."""
    from shared.adapters.postgres.db.connecting import connect

    connection = await connect(database_url)
    try:
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        agents = await connection.fetch("SELECT name, config FROM agents ORDER BY name")
        places = await connection.fetch(
            """SELECT a.name, 'site ' || w.name AS place FROM sites w JOIN agents a ON a.id = w.agent_id
                WHERE w.audience = 'public'
               UNION ALL SELECT a.name, 'bot @' || b.username FROM telegram_bots b
                 JOIN agents a ON a.id = b.agent_id WHERE b.audience = 'public' ORDER BY 1, 2"""
        )
    finally:
        await connection.close(timeout=5)
    public: dict[str, list[str]] = {}
    for row in places:
        public.setdefault(row["name"], []).append(row["place"])
    return {row["name"]: row["config"] for row in agents}, public


def check_agent_rows(settings: Settings, configs: Mapping[str, Mapping[str, Any]]) -> Finding:
    from shared.bootstrap.from_settings import build_agent_defaults

    ground, problems = build_agent_defaults(settings), []
    for name, config in configs.items():
        try:
            # Rules of pruning have a finding of their own.
            check_config({key: value for key, value in config.items() if key != "pruning"}, ground)
        except BadAgentConfig as error:
            problems += [f"agent {name}: {problem}" for problem in error.problems]
    if not problems:
        whose = "1 agent's" if len(configs) == 1 else f"{len(configs)} agents'"
        return Finding(level="ok", what=f"{whose} context settings can be used")
    what = "\n      ".join(["agents have settings that cannot be used:", *problems])
    advice = f"Until they are corrected, these agents keep contexts as {ground.policy.name}."
    return Finding(level="warn", what=what, advice=advice)


def check_agent_remarks(
    settings: Settings, configs: Mapping[str, Mapping[str, Any]], public: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """What may not have been meant: unknown models, folders, files and knowledge that cannot be used."""
    from shared.adapters.files.knowledge_files import shelf_of
    from shared.bootstrap.from_settings import WORKSPACES_FOLDER, build_agent_defaults

    ground = build_agent_defaults(settings)
    for name, config in configs.items():
        with contextlib.suppress(BadAgentConfig):
            yield from (f"agent {name}: {remark}" for remark in check_config(config, ground))
        folder = config.get("workspace")
        if not isinstance(folder, str) or not folder:
            continue
        path = workspace_path(settings.data_dir / WORKSPACES_FOLDER, folder)
        yield from (f"agent {name}: {problem}" for problem in shelf_of(path / KNOWLEDGE_FOLDER).problems)
        told = ground.load_workspace(folder)
        if name in public and config.get("audience") != "public" and (told.text(PERSON) or told.text(MEMORY)):
            yield (
                f"agent {name}: strangers reach it at {', '.join(public[name])}, and its folder tells of one "
                'person. "audience": "public" in its settings keeps that from them.'
            )


def check_bot_remarks(bots: Sequence[BotConfig], agents: Collection[str]) -> Iterator[str]:
    for bot in bots:
        if bot.agent not in agents:
            near = difflib.get_close_matches(bot.agent, agents, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            yield (
                f"the bot of {bot.token_name} wants an agent {bot.agent!r} that is not there: "
                f"another one answers for it.{meant}"
            )


async def _check_invariants(database_url: str) -> Finding:
    from shared.adapters.postgres.db.connecting import connect
    from shared.adapters.postgres.db.pooler import between
    from shared.adapters.postgres.operations.invariants import check_invariants

    connection = await connect(database_url)
    try:
        if not await connection.fetchval("select to_regclass('sessions') is not null"):
            return Finding(level="ok", what="no conversations yet")
        if not (await between(connection)).pooler:
            # The role may have a limit for statements that people wait for.
            await connection.execute("SET statement_timeout = 0")
        broken = [str(line) for line in await check_invariants(connection)]
    finally:
        await connection.close(timeout=5)
    if not broken:
        return Finding(level="ok", what="every promise about stored conversations holds")
    what = "\n      ".join(["stored conversations break promises:", *broken[:20]])
    return Finding(level="fail", what=what, advice="Please report this, with the lines above.")
