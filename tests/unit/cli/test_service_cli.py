"""The unit and the plist say what they should, and where nobody keeps services, that is said."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from shared.cli.service import ROOT, ServiceHost, ServiceUnavailable, read_service_arguments, run_service
from shared.config.settings import Settings, load_settings
from shared.core.ops.service_units import Service, launchd_plist, quote_word, systemd_unit

SERVICE = Service(
    command=("/opt/ever talk/.venv/bin/python", "-P", "-m", "shared", "up"), folder="/opt/ever talk",
    writable=("/var/lib/evertalk",), environment={"PYTHONPATH": "/opt/ever talk"}, account="daemon",
)  # fmt: skip
OF_A_PERSON = Service(command=("/usr/bin/true",), folder="/", writable=())


class Steps:
    """Every command that would have been run."""

    def __init__(self, code: int = 0) -> None:
        self.commands: list[str] = []
        self.code = code

    def __call__(self, command: Sequence[str]) -> int:
        self.commands.append(" ".join(command))
        return self.code


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data")


def machine(
    tmp_path: Path, steps: Steps, *, platform: str = "linux", uid: int = 0, keeper: bool = True
) -> ServiceHost:
    if keeper:
        (tmp_path / "run/systemd/system").mkdir(parents=True, exist_ok=True)
    return ServiceHost(
        platform=platform, uid=uid, home=tmp_path / "home", root=tmp_path, run=steps, follow=steps
    )  # fmt: skip


def lines_of(service: Service) -> list[str]:
    return systemd_unit(service).splitlines()


def test_the_systems_service_has_walls_around_it() -> None:
    lines = lines_of(SERVICE)
    for wall in (
        "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=read-only", "PrivateDevices=yes",
        "ProtectKernelTunables=yes", "RestrictSUIDSGID=yes", "SystemCallFilter=@system-service",
        "CapabilityBoundingSet=", "UMask=0077", "User=daemon", 'ReadWritePaths="/var/lib/evertalk"',
    ):  # fmt: skip
        assert wall in lines
    assert "WantedBy=multi-user.target" in lines


def test_a_persons_service_asks_for_nothing_that_their_manager_may_not_do() -> None:
    lines = lines_of(OF_A_PERSON)
    assert "NoNewPrivileges=yes" in lines
    assert not [line for line in lines if line.startswith(("Protect", "Private", "User=", "Capability"))]
    assert "WantedBy=default.target" in lines


def test_it_stops_in_peace_and_does_not_come_back_with_bad_settings() -> None:
    lines = lines_of(SERVICE)
    assert {"KillMode=mixed", "TimeoutStopSec=30", "Restart=always", "RestartPreventExitStatus=2"} <= set(
        lines
    )


def test_no_shell_stands_between_and_odd_paths_stay_whole() -> None:
    (line,) = [line for line in lines_of(SERVICE) if line.startswith("ExecStart=")]
    assert line == 'ExecStart="/opt/ever talk/.venv/bin/python" "-P" "-m" "shared" "up"'
    assert quote_word('50% "off"\\') == '"50%% \\"off\\"\\\\"'
    with pytest.raises(ValueError, match="cannot stand"):
        quote_word("one\nExecStartPre=/bin/evil")


def test_root_keeps_only_what_giving_rights_away_needs() -> None:
    root = Service(command=("/usr/bin/true",), folder="/", writable=("/x",), account="root")
    (line,) = [line for line in lines_of(root) if line.startswith("CapabilityBoundingSet=")]
    assert "CAP_SETUID" in line
    assert "SYS_ADMIN" not in line


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "evertalk.service"
    real = Service(command=("/bin/true", "up"), folder="/", writable=("/var/lib/evertalk",), account="daemon")
    unit.write_text(systemd_unit(real))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system"},
    )  # fmt: skip
    assert (done.returncode, "evertalk.service:" in done.stderr) == (0, False), done.stderr


def test_launchd_file_has_the_same_account_and_log() -> None:
    told = plistlib.loads(launchd_plist(SERVICE, log="/var/log/evertalk.log"))
    assert told["ProgramArguments"] == list(SERVICE.command)
    assert (told["KeepAlive"], told["RunAtLoad"], told["Umask"]) == (True, True, 0o077)
    assert (told["UserName"], told["StandardOutPath"]) == ("daemon", "/var/log/evertalk.log")


def test_install_writes_the_unit_and_starts_it(settings: Settings, tmp_path: Path) -> None:
    steps, said = Steps(), list[str]()
    here = machine(tmp_path, steps)
    wish = read_service_arguments(["install", "--account", "nobody"])
    assert run_service(wish, settings=settings, say=said.append, host=here) == 0
    unit = (tmp_path / "etc/systemd/system/evertalk.service").read_text()
    assert f'ExecStart="{ROOT}/.venv/bin/python"' in unit
    assert f'Environment="EVERTALK_DATA_DIR={settings.data_dir}"' in unit
    assert "User=nobody" in unit
    assert steps.commands == [
        "systemctl daemon-reload",
        "systemctl enable evertalk",
        "systemctl restart evertalk",
    ]
    gone = read_service_arguments(["uninstall"])
    assert run_service(gone, settings=settings, say=said.append, host=here) == 0
    assert not (tmp_path / "etc/systemd/system/evertalk.service").exists()
    assert run_service(gone, settings=settings, say=said.append, host=here) == 1


def test_no_secret_gets_into_a_file_that_everybody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    monkeypatch.setenv("EVERTALK_SECRET_KEY", "c" * 40)
    said: list[str] = []
    wish = read_service_arguments(["install", "--dry-run"])
    run_service(
        wish, settings=load_settings(data_dir=tmp_path), say=said.append, host=machine(tmp_path, Steps())
    )  # fmt: skip
    assert "sk-canary" not in "\n".join(said)
    assert "c" * 40 not in "\n".join(said)


def test_a_dry_run_prints_and_changes_nothing_even_without_systemd(
    settings: Settings, tmp_path: Path
) -> None:
    steps, said = Steps(), list[str]()
    here = machine(tmp_path, steps, uid=1000, keeper=False)
    wish = read_service_arguments(["install", "--dry-run"])
    assert run_service(wish, settings=settings, say=said.append, host=here) == 0
    assert "[Service]" in said[1]
    assert steps.commands == []
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("verb", ["install", "status", "logs", "uninstall"])
def test_where_systemd_does_not_run_that_is_said(settings: Settings, tmp_path: Path, verb: str) -> None:
    here = machine(tmp_path, Steps(), keeper=False)
    with pytest.raises(ServiceUnavailable, match="systemd does not run here"):
        run_service(read_service_arguments([verb]), settings=settings, say=print, host=here)


def test_missing_account_is_reported_with_its_command(settings: Settings, tmp_path: Path) -> None:
    wish = read_service_arguments(["install", "--account", "nobody-here"])
    with pytest.raises(ServiceUnavailable, match="no account nobody-here") as told:
        run_service(wish, settings=settings, say=print, host=machine(tmp_path, Steps()))
    assert "useradd --system" in told.value.advice


def test_status_and_logs_ask_whose_service_it_is(settings: Settings, tmp_path: Path) -> None:
    steps = Steps(code=3)
    mine = machine(tmp_path, steps, uid=1000)
    assert run_service(read_service_arguments(["status"]), settings=settings, say=print, host=mine) == 3
    run_service(read_service_arguments(["logs", "--follow"]), settings=settings, say=print, host=mine)
    mac = machine(tmp_path, steps, platform="darwin", uid=501)
    run_service(read_service_arguments(["status"]), settings=settings, say=print, host=mac)
    assert steps.commands == [
        "systemctl --user status --no-pager --lines=0 evertalk",
        "journalctl --user --unit evertalk --lines=200 --follow",
        "launchctl print gui/501/org.evertalk.evertalk",
    ]
