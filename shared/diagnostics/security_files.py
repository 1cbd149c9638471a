"""Security checks of files: which of them other accounts on this machine can read or change."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.adapters.embedded.process_user import ProcessUser, find_account
from shared.adapters.mcp.tools import load_servers
from shared.cli.backup import find_last_backup
from shared.config.settings import Settings, default_env_file, find_mcp_file
from shared.core.tools.mcp import McpServer
from shared.diagnostics.checks import Finding, grave, risk, serious, slight
from shared.diagnostics.security_settings import classify_host

OLD_BACKUP = timedelta(days=2)
"""Age from which the newest backup is too old."""
_PACKAGE_RUNNERS = ("npx", "uvx", "bunx", "pipx", "dlx")
"""Programs that start a package in its newest version."""
_PINNED = re.compile(r".+(@[0-9][\w.+-]*|==[\w.+-]+)")
"""Pattern of a package with a fixed version."""


def review_files(settings: Settings) -> Iterator[Finding]:
    """Yield the findings about files of a deployment."""
    folder = settings.data_dir
    yield from _check_private(
        folder,
        "it holds every conversation and the key that encrypts secrets",
        passing=_can_traverse(settings),
    )
    yield from _check_private(folder / "secret_key", "it decrypts every stored secret")
    yield from _check_private(settings.backups, "each backup holds all data")
    if (env := default_env_file()) is not None:
        yield from _check_private(env, "it holds this deployment's keys")
    yield from _check_unchangeable(folder / "workspaces", "files there are instructions to the assistant")
    yield from _check_root(folder)
    yield from _check_shared_account(settings)
    yield from _check_backups(settings)
    if (path := find_mcp_file(settings)) is not None:
        yield from _check_unchangeable(path, "programs named there are started as you")
        yield from _check_tool_servers(path)


def _read_mode(path: Path) -> int:
    """Return the permission bits of a path; 0 if it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def _check_private(path: Path, because: str, *, passing: int = 0) -> Iterator[Finding]:
    """Yield a finding if other accounts can read or change a path.

    `passing` are permission bits that are allowed.
    """
    mode = _read_mode(path)
    if not mode & 0o077 & ~passing:
        return
    right = f"{0o700 | passing:o}" if path.is_dir() else "600"
    yield risk(
        "grave" if mode & 0o022 or (mode & 0o044 and path.is_file()) else "serious",
        f"other accounts on this machine can {'change' if mode & 0o022 else 'read'} {path} ({mode:o})",
        f"{because[0].upper()}{because[1:]}.",
        f"chmod {right} {path}",
    )


def _check_unchangeable(path: Path, because: str) -> Iterator[Finding]:
    """Yield a finding if other accounts can change a path."""
    mode = _read_mode(path)
    if mode & 0o022:
        yield grave(
            f"other accounts on this machine can change {path} ({mode:o})",
            f"{because[0].upper()}{because[1:]}.",
            f"chmod -R go-w {path}",
        )


def _check_root(folder: Path) -> Iterator[Finding]:
    if os.name != "posix" or os.geteuid() != 0:
        return
    yield serious(
        "Evertalk runs as root",
        "A vulnerability in any of its parts would expose the whole machine.",
        f"useradd --system evertalk; chown -R evertalk {folder}; then start it as that user",
    )


def _find_servers_account(settings: Settings) -> ProcessUser | None:
    """Return the account of servers that root starts; None if it is root itself or no server is embedded."""
    if os.geteuid() != 0 or not (settings.embedded_postgres or settings.embedded_redis):
        return None
    servers = settings.data_dir / "servers"
    place = servers if servers.exists() else settings.data_dir
    return find_account(place, settings.servers_account) if place.exists() else None


def _can_traverse(settings: Settings) -> int:
    """Return the permission bits that the servers' account needs on the data folder."""
    account = _find_servers_account(settings)
    return 0 if account is None else account.passing


def _check_shared_account(settings: Settings) -> Iterator[Finding]:
    account = _find_servers_account(settings)
    if account is not None and account.is_shared:
        yield serious(
            "the servers run as the account nobody, which other programs use, too",
            "Every other program of that account can read all conversations.",
            "install useradd or adduser; ./evertalk up as root then creates an account for them",
        )


def _check_backups(settings: Settings) -> Iterator[Finding]:
    if not settings.embedded_postgres:
        yield slight(
            "Evertalk cannot see whether the database is backed up",
            "After a break-in or a disk failure, only a copy on another machine is left.",
            "run ./evertalk backup --to FOLDER each day, and test a restore once",
        )
        return
    now = datetime.now(UTC)
    last = find_last_backup(settings, now=now)
    if last is not None and now - last < OLD_BACKUP:
        return
    age = "none" if last is None else f"{(now - last).days} days old"
    yield serious(
        f"the newest backup in {settings.backups} is {age}",
        "After a break-in or a disk failure, only a backup can restore conversations.",
        "./evertalk backup, and copy it to another machine",
    )


def _check_tool_servers(path: Path) -> Iterator[Finding]:
    servers, _ = load_servers(path)
    for server in servers:
        yield from _check_server(server, path)
    literal = [name for name in _find_written_secrets(path) if name]
    if literal and _read_mode(path) & 0o044:
        yield grave(
            f"other accounts can read {path}, which holds secrets of {', '.join(sorted(set(literal)))}",
            "With these secrets they can act as you at those servers.",
            f"chmod 600 {path}, or write ${{NAME}} there and put NAME=… into .env",
        )


def _check_server(server: McpServer, path: Path) -> Iterator[Finding]:
    if server.url.startswith("http://") and classify_host(_parse_host(server.url)) != "here":
        yield grave(
            f"the tools of {server.name} are called over http",
            "Anyone on the network path can read the calls and answer in the server's name.",
            f"{path}: {server.url.replace('http://', 'https://', 1)}",
        )
    if Path(server.command).name in _PACKAGE_RUNNERS and not any(map(_PINNED.fullmatch, server.args)):
        yield serious(
            f"{Path(server.command).name} starts the newest version of the tools of {server.name}",
            "If that package is taken over, its code runs here as you.",
            f"{path}: name a version, as in package@1.2.3 or package==1.2.3",
        )


def _parse_host(url: str) -> str:
    return url.split("://", 1)[-1].split("/", 1)[0].rsplit("@", 1)[-1].rsplit(":", 1)[0]


def _find_written_secrets(path: Path) -> Iterator[str]:
    """Yield the names of MCP servers whose headers or environment contain plain values instead of
    variables.
    """
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    servers = raw.get("mcpServers", {}) if isinstance(raw, dict) else {}
    for name, server in servers.items() if isinstance(servers, dict) else ():
        for part in ("headers", "env"):
            values = server.get(part, {}) if isinstance(server, dict) else {}
            if isinstance(values, dict) and any("${" not in str(value) for value in values.values()):
                yield str(name)
