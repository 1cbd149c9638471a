"""Checks of this machine: Python, data folder, port, models, plug-ins, MCP servers and backups."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import dotenv_values

from shared.adapters.certificates import find_certificate_fault
from shared.adapters.embedded.atomic_swap import JOURNAL
from shared.adapters.embedded.folders import is_held
from shared.adapters.embedded.servers import are_running
from shared.adapters.files.archive import find_folder_problem, shares_disk
from shared.adapters.files.pruners import check_pruners
from shared.adapters.mcp.tools import ServerProbe, list_servers, probe_servers
from shared.adapters.models.catalog import ModelsFileBroken
from shared.adapters.models.openai_provider import OPENAI_URL
from shared.adapters.models.price_list import list_unpriced
from shared.adapters.models.provider import ANTHROPIC_URL, load_trusted_certificates
from shared.adapters.models.token_cap import find_token_cap
from shared.cli.backup import FOLDER_PROBLEMS, find_last_backup, read_last_failure
from shared.cli.model_discovery import describe_models
from shared.config.bots import load_bots
from shared.config.settings import (
    BadSettings,
    Settings,
    default_env_file,
    find_mcp_file,
    find_secret_files,
    find_setting_sources,
    find_unknown_names,
    is_secret,
    list_setting_names,
    load_settings,
)
from shared.core.ops.backups import newest
from shared.core.presets.catalog import preset
from shared.diagnostics.checks import Finding

_LEAST_FREE_BYTES = 1024**3
"""Bytes of free disk space below which the doctor warns."""
_LATE = timedelta(days=2)
"""Age of a backup or copy from which the doctor warns."""
_TOOLS_NAMED = 8
"""Maximum tools of an MCP server that are named."""
_SOURCES = {"environment": "the environment", "file": ".env"}


def check_settings() -> Iterator[Finding]:
    """Yield findings about settings: errors, unknown names, and permissions of .env."""
    try:
        load_bots(load_settings())
    except BadSettings as error:
        for problem in error.problems:
            yield Finding("fail", str(problem), f"Correct {problem.name}, or leave it out.")
    else:
        yield Finding("ok", "settings can be read")
        yield from _describe_secrets()
    path = default_env_file()
    written = dotenv_values(path) if path is not None and path.is_file() else {}
    for name, nearest in find_unknown_names({**os.environ, **dict.fromkeys(written, "")}).items():
        advice = f"Did you mean {nearest}?" if nearest else "Remove it; docs/settings.md lists all settings."
        yield Finding("warn", f"{name} is not a setting of Evertalk", advice)
    if path is not None and path.is_file() and path.stat().st_mode & 0o077:
        yield Finding("warn", f"others can read {path}", f"chmod 600 {path}")


def _describe_secrets() -> Iterator[Finding]:
    """Yield a finding that says where each secret comes from; none if no secret is set."""
    sources, files = find_setting_sources(), find_secret_files()
    found = [
        f"{name} from {files.get(field) or _SOURCES[sources[field]]}"
        for field, name in list_setting_names().items()
        if is_secret(field) and sources[field] in _SOURCES
    ]
    if found:
        yield Finding("ok", f"secrets: {', '.join(found)}")


async def check_python(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Return the Python version; the launcher refuses one that is too old."""
    return [Finding("ok", f"Python {platform.python_version()}")]


async def check_folder(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Check that the data folder can be written, and has at least 1 GiB of free space."""
    folder = existing = settings.data_dir
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK):
        advice = "Set EVERTALK_DATA_DIR to a folder that you may write to."
        return [Finding("fail", f"the data folder {folder} is not writable", advice)]
    free = shutil.disk_usage(existing).free
    what = f"data folder {folder}, {free / 1024**3:.1f} GiB free"
    if free < _LEAST_FREE_BYTES:
        return [Finding("warn", what, "Less than 1 GiB: make room soon.")]
    return [Finding("ok", what)]


async def check_port(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Check that the HTTP port is free, or used by Evertalk itself."""
    where = f"{settings.http_host}:{settings.http_port}"
    if is_held(settings.data_dir / "up.lock") or are_running(settings.data_dir / "servers"):
        return [Finding("ok", f"Evertalk runs now, at {settings.local_url}")]
    family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((settings.http_host, settings.http_port))
        except OSError as error:
            advice = "Stop what listens there, or set EVERTALK_HTTP_PORT to another number."
            return [Finding("fail", f"{where} cannot be used: {error.strerror}", advice)]
    return [Finding("ok", f"{where} is free")]


async def check_model(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Say which models answer, and check that the provider's server can be reached."""
    lines = await describe_models(settings)
    findings = [
        Finding("ok", f"answers come from {lines[0][1]}"),
        *(Finding("ok", line) for _, line in lines[1:]),
    ]
    if settings.anthropic_api_key is not None or settings.anthropic_base_url is not None:
        name, url = "ANTHROPIC_BASE_URL", settings.anthropic_base_url or ANTHROPIC_URL
    elif settings.openai_api_key is not None or settings.openai_base_url is not None:
        name, url = "OPENAI_BASE_URL", settings.openai_base_url or OPENAI_URL
    else:
        return findings
    host = urlsplit(url)
    port = host.port or (443 if host.scheme == "https" else 80)
    tls = load_trusted_certificates() if host.scheme == "https" else None
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(host.hostname, port, ssl=tls)
            writer.close()
    except (OSError, TimeoutError) as error:
        if (fault := find_certificate_fault(error)) is not None:
            what = f"{host.hostname}:{port} cannot be used: {fault.reason}"
            return [*findings, Finding("warn", what, f"{fault.advice} Meanwhile messages wait.")]
        what = f"{host.hostname}:{port} cannot be reached ({str(error) or 'no answer'})"
        advice = f"Check the network, a proxy, and {name}; meanwhile messages wait."
        return [*findings, Finding("warn", what, advice)]
    return [*findings, Finding("ok", f"{host.hostname} can be reached")]


async def check_prices(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Warn about models whose price is unknown, since tokens are capped instead.

    No finding if all are known.
    """
    try:
        names = list_unpriced(settings)
    except ModelsFileBroken:
        return []
    if not names:
        return []
    cap = find_token_cap(dollars=settings.cap_total_per_day_usd, tokens=settings.cap_tokens_per_day)
    what = f"no price is known for {', '.join(names)}: a cap of {cap:,} tokens a day stands in"
    advice = (
        "Enter prices on the page Settings or in the models file, 0 where tokens cost nothing; "
        "EVERTALK_CAP_TOKENS_PER_DAY changes the cap."
    )
    return [Finding("warn", what, advice)]


async def check_pruning_plug_ins(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Check the installed pruning plug-ins; no finding if there are none."""
    working, wrong = check_pruners(preset(settings.preset).pruning)
    advice = "It is ignored. Repair or uninstall its package."
    found = [Finding("warn", f"pruning plug-in {what}", advice) for what in wrong]
    number = "1 pruning plug-in" if working == 1 else f"{working} pruning plug-ins"
    return [*found, Finding("ok", number)] if working else found


async def check_mcp(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Check the MCP servers by starting or connecting to each of them once."""
    path = find_mcp_file(settings)
    servers, problems = list_servers(settings)
    advice = "Correct it; docs/agents.md, MCP servers, has an example."
    findings = [Finding("warn", f"{path}: {problem}", advice) for problem in problems]
    for probed in await asyncio.gather(*(probe_servers(server) for server in servers)):
        findings += _check_mcp(probed)
    return findings


def _check_mcp(probed: ServerProbe) -> Iterator[Finding]:
    if not probed.reached:
        what = f"the MCP server {probed.server} cannot be used: {probed.problem}"
        yield Finding("warn", what, "Start it by hand to see its output, or remove it from the file.")
        return
    named = ", ".join(probed.tools[:_TOOLS_NAMED])
    more = f" and {len(probed.tools) - _TOOLS_NAMED} more" if len(probed.tools) > _TOOLS_NAMED else ""
    yield Finding("ok", f"MCP server {probed.server}: {named or 'no tools'}{more}")
    for tool in probed.left_out:
        what = f"the tool {tool.name} of {tool.server} is left out: {tool.reason}"
        yield Finding("warn", what, "Models cannot use it until its server describes it differently.")


async def check_backups(settings: Settings, url: str = "") -> Sequence[Finding]:
    """Check the age of backups and their copies.

    No finding for an external database, which is not backed up here.
    """
    if not settings.embedded_postgres:
        return []
    found = [_check_newest_backup(settings, datetime.now(UTC))]
    if settings.backup_copy_dir is not None:
        found.append(_check_newest_copy(settings.backup_copy_dir, settings, datetime.now(UTC)))
    if (settings.data_dir / JOURNAL).exists():
        what = "a restore was interrupted while it replaced files"
        found.append(Finding("warn", what, "Run ./evertalk up to complete it."))
    return found


def _check_newest_copy(folder: Path, settings: Settings, now: datetime) -> Finding:
    """Return a finding about the folder for copies: whether it is missing, outdated, or on the disk of the
    data.
    """
    if problem := find_folder_problem(folder):
        what = f"backups cannot be copied to {folder}: {FOLDER_PROBLEMS[problem]}"
        return Finding("warn", what, "Mount it, or name another folder in EVERTALK_BACKUP_COPY_DIR.")
    last = newest((path.name for path in folder.iterdir()), now=now)
    if last is None:
        return Finding("warn", f"{folder} has no copy yet", "Run ./evertalk backup.")
    what = f"the newest copy is of {last:%Y-%m-%d %H:%M} UTC, in {folder}"
    if now - last > _LATE:
        return Finding("warn", what, "Run ./evertalk backup.")
    if shares_disk(folder, settings.data_dir):
        what = f"{folder} is on the same disk as the data"
        return Finding("warn", what, "Choose a folder on another disk.")
    return Finding("ok", what)


def _check_newest_backup(settings: Settings, now: datetime) -> Finding:
    """Return a finding about the newest backup, or about the last failure of a daily one."""
    last = find_last_backup(settings, now=now)
    if (failure := read_last_failure(settings)) is not None:
        what = f"the last daily backup failed: {failure}"
        return Finding("warn", what, "Fix the cause, then run ./evertalk backup.")
    if settings.backup_keep == 0:
        what = f"automatic backups are off{f'; the newest backup is of {last:%Y-%m-%d}' if last else ''}"
        return Finding("warn", what, "Set EVERTALK_BACKUP_KEEP=7, or run ./evertalk backup yourself.")
    if last is None:
        if not (settings.data_dir / "servers" / "pg").exists():
            return Finding("ok", "nothing to back up yet")
        advice = "The running system creates one within minutes; ./evertalk backup creates one now."
        return Finding("warn", "there is no backup yet", advice)
    what = f"the newest backup is of {last:%Y-%m-%d %H:%M} UTC, in {settings.backups}"
    if now - last > _LATE:
        advice = "Evertalk creates one each day while it runs; ./evertalk backup creates one now."
        return Finding("warn", what, advice)
    return Finding("ok", what)
