"""Root's servers have an account of their own, take over what `nobody` had, and let `nobody` in no more."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServers
from shared.adapters.embedded.binaries import make_reachable
from shared.adapters.embedded.process_user import SHARED, ProcessUser, find_account, make_account
from shared.config.settings import load_settings
from shared.diagnostics.security_files import review_files
from tests.acceptance.operations.conftest import ROOT
from tests.integration.adapters.embedded.other_processes import add_one, end_process, start_elsewhere

OTHER = "daemon"
"""A system account that every Unix has and nothing uses."""
OWN = "evertalk-trial"
"""No machine has it, also one on which Evertalk has run."""
NOWHERE = "--no-create-home --home-dir /nonexistent"
PRIVATE_ETC = """
mount -t tmpfs none "$1" && cp -a /etc/. "$1" && mount --bind "$1" /etc && shift && exec "$@"
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has accounts to give")


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@as_root
@pytest.mark.control("S44")
@pytest.mark.parametrize("killed", [False, True])
async def test_data_without_account_are_taken_over_completely(open_folder: Path, killed: bool) -> None:
    servers = open_folder / "servers"
    async with EmbeddedServers(servers) as former:
        assert await add_one(former) == (1, 1)
    nobody, other = pwd.getpwnam(SHARED).pw_uid, pwd.getpwnam(OTHER).pw_uid
    assert owners(servers / "pg") == {nobody}
    if killed:
        # Servers that nobody stopped are there still, or were a moment ago.
        process, pids = await asyncio.to_thread(start_elsewhere, servers)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.to_thread(end_process, process, signal.SIGKILL)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    async with EmbeddedServers(servers, account=OTHER) as later:
        assert await add_one(later) == (2, 2)
        assert later.postgres is not None
        assert later.postgres.process is not None
        status = Path(f"/proc/{later.postgres.process.pid}/status").read_text()
        assert f"Uid:\t{other}\t{other}\t{other}\t{other}" in status
        assert owners(servers / "pg") | owners(servers / "valkey") | owners(servers / "run") == {other}
        assert stat.S_IMODE((servers / "run").stat().st_mode) == 0o700


@as_root
@pytest.mark.control("S38", "S44")
async def test_process_of_the_unprivileged_account_is_refused_by_postgres(open_folder: Path) -> None:
    servers = open_folder / "servers"
    async with EmbeddedServers(servers, wanted=EmbeddedChoice(redis=False), durable=False) as running:
        account = find_account(servers)
        assert account.is_shared
        done = await asyncio.to_thread(_asked_by, account, running.database_url, servers)
        assert done.returncode == 2
        assert "Peer authentication failed" in done.stderr
        connection = await asyncpg.connect(running.database_url)
        rules = await connection.fetch("SELECT type, database, user_name, auth_method FROM pg_hba_file_rules")
        await connection.close()
        assert [tuple(rule) for rule in rules] == [("local", ["all"], ["all"], "peer")]


def _asked_by(account: ProcessUser, url: str, servers: Path) -> subprocess.CompletedProcess[str]:
    psql = make_reachable(account, servers).postgres_bin / "psql"
    return subprocess.run(
        [str(psql), url, "-Atc", "select 1"],
        capture_output=True, text=True, timeout=60, **account.spawn_options(),
    )  # fmt: skip


@as_root
def test_what_is_taken_over_is_nothing_of_roots_and_nothing_elsewhere(tmp_path: Path) -> None:
    nobody, daemon = pwd.getpwnam(SHARED), pwd.getpwnam(OTHER)
    outside, taken = tmp_path / "outside", tmp_path / "pg"
    outside.write_text("not theirs")
    (taken / "base").mkdir(parents=True)
    (taken / "base" / "1").write_text("theirs")
    os.link(outside, taken / "linked")
    (taken / "roots").write_text("root's")
    (taken / "way_out").symlink_to(outside)
    for path in (taken, taken / "base", taken / "base" / "1", outside):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    ProcessUser(uid=daemon.pw_uid, gid=daemon.pw_gid).take(taken)
    assert {path.name for path in taken.rglob("*") if path.lstat().st_uid == daemon.pw_uid} == {"base", "1"}
    assert (taken.stat().st_uid, outside.stat().st_uid) == (daemon.pw_uid, nobody.pw_uid)


@as_root
@pytest.mark.parametrize(
    ("programs", "made"),
    [
        (["useradd"], [f"useradd --system --user-group {NOWHERE} --shell /usr/sbin/nologin {OWN}"]),
        (
            ["addgroup", "adduser"],
            [f"addgroup -S {OWN}", f"adduser -S -D -H -h /nonexistent -s /sbin/nologin -G {OWN} {OWN}"],
        ),
        ([], []),
    ],
)
def test_an_account_is_made_by_what_the_system_has(
    programs: list[str], made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    for name in programs:
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$(/usr/bin/basename "$0") $*" >> {told}\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not make_account(OWN), "these programs only pretend"
    assert (told.read_text().splitlines() if told.exists() else []) == made
    assert make_account(OTHER), "it is there already"


def up_in_private(etc: Path, data: Path) -> subprocess.Popen[str]:
    """`up` on a machine whose accounts are a copy that goes with it."""
    return subprocess.Popen(
        [
            "unshare", "--mount", "sh", "-c", PRIVATE_ETC, "sh", str(etc),
            sys.executable, "-P", "-m", "shared", "up",
        ],
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(data), "EVERTALK_HTTP_PORT": "0",
            "EVERTALK_SERVERS_ACCOUNT": OWN,
        },
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
    )  # fmt: skip


def may_have_private_accounts() -> bool:
    if os.geteuid() != 0 or not (shutil.which("useradd") and shutil.which("unshare")):
        return False
    tried = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(tried, capture_output=True, timeout=20).returncode == 0


@pytest.mark.control("S44")
@pytest.mark.skipif(not may_have_private_accounts(), reason="needs root, useradd and mounts of one's own")
async def test_up_makes_the_account_and_closes_the_data_to_everybody_else(open_folder: Path) -> None:
    etc, data = open_folder / "etc", open_folder / "data"
    etc.mkdir()
    accounts = Path("/etc/passwd").read_bytes()
    async with EmbeddedServers(data / "servers") as former:
        assert await add_one(former) == (1, 1)
    process = up_in_private(etc, data)
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if "Ctrl-C" in line:
                break
        assert process.poll() is None, lines
        found = data.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o710)
        (uid,) = owners(data / "servers" / "pg")
        inside = Path(f"/proc/{process.pid}/root/etc/passwd").read_text()
        assert f"{OWN}:x:{uid}:{found.st_gid}:" in inside
        assert found.st_gid not in {one.gr_gid for one in grp.getgrall()}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()
    assert Path("/etc/passwd").read_bytes() == accounts


@as_root
def test_the_review_advises_no_rights_that_would_shut_the_servers_out(open_folder: Path) -> None:
    """With the rights that it advises they can run; the one remark left is that `nobody` is shared."""
    settings = load_settings(data_dir=open_folder / "data")
    (settings.data_dir / "servers").mkdir(parents=True)
    account = find_account(settings.data_dir / "servers", settings.servers_account)
    for mode, advice in ((0o711, []), (0o755, [f"chmod 711 {settings.data_dir}"]), (0o700, [])):
        settings.data_dir.chmod(mode)
        changes = [risk.advice for risk in review_files(settings)]
        assert [change for change in changes if change.startswith("chmod")] == advice
        assert any("creates an account for them" in change for change in changes)
    settings.data_dir.chmod(0o711)
    assert account.can_run(settings.data_dir)
    elsewhere = settings.model_copy(update={"database_url": "postgresql://x", "redis_url": "redis://x"})
    assert any(risk.advice == f"chmod 700 {settings.data_dir}" for risk in review_files(elsewhere))
