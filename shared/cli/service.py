"""`evertalk service`: started with the machine, started again when it falls, by systemd or launchd."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.adapters.embedded.folders import LONGEST_SOCKET_BYTES
from shared.adapters.embedded.process_user import make_account
from shared.config.settings import ENV_FILE_NAME, Settings, default_env_file
from shared.core.ops.service_units import LABEL, NAME, Service, launchd_plist, systemd_unit
from shared.core.values.errors import EvertalkError

ROOT = Path(__file__).resolve().parents[2]
_COMMAND_SECONDS = 90.0
Run = Callable[[Sequence[str]], int]


class ServiceUnavailable(EvertalkError):
    """There is nobody here who could keep a service."""

    code = "no_service"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceHost:
    """What the verbs need of the world; tests have their own."""

    platform: str
    uid: int
    home: Path
    root: Path = Path("/")
    run: Run
    follow: Run
    """For what goes on until Ctrl-C."""

    @classmethod
    def detect(cls) -> ServiceHost:
        return cls(platform=sys.platform, uid=os.geteuid(), home=Path.home(), run=_run, follow=_follow)

    @property
    def is_root(self) -> bool:
        return self.uid == 0

    @property
    def has_launchd(self) -> bool:
        return self.platform == "darwin"

    @property
    def file(self) -> Path:
        if self.has_launchd:
            folder = (
                self.root / "Library/LaunchDaemons" if self.is_root else self.home / "Library/LaunchAgents"
            )
            return folder / f"{LABEL}.plist"
        own = self.home / ".config/systemd/user"
        return (self.root / "etc/systemd/system" if self.is_root else own) / f"{NAME}.service"


def read_service_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Ends the program with 2 and a usage line when they cannot be used."""
    parser = argparse.ArgumentParser(
        prog="evertalk service", description="Evertalk as a service of this machine."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    install = verbs.add_parser("install", help="start now, and with the machine")
    install.add_argument(
        "--dry-run", action="store_true", help="print what would be written, and change nothing"
    )
    install.add_argument("--account", metavar="NAME", help="as root: under whose rights it runs")
    verbs.add_parser("status", help="say whether it runs")
    logs = verbs.add_parser("logs", help="show what it has said last")
    logs.add_argument("-f", "--follow", action="store_true", help="and what it says from now on")
    verbs.add_parser("uninstall", help="stop it and remove the service; data stay")
    return parser.parse_args(arguments)


def run_service(
    wish: argparse.Namespace, *, settings: Settings, say: Callable[[str], None], machine: ServiceHost
) -> int:
    """The exit code; raises NoService, ValueError, OSError."""
    if wish.verb == "install":
        text = _text(settings, machine, wish.account)
        if wish.dry_run:
            say(f"# {machine.file}")
            say(text.decode().rstrip())
            return 0
        return _install(text, settings, machine, wish.account, say)
    _check_keeper(machine)
    if wish.verb == "status":
        return machine.run(_status(machine))
    if wish.verb == "logs":
        return machine.follow(_logs(settings, machine, follow=wish.follow))
    return _uninstall(machine, say)


def render_service(settings: Settings, machine: ServiceHost, account: str | None) -> Service:
    """The interpreter itself is started: no shell, and nothing is installed while the machine starts."""
    environment = {"PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(settings.data_dir)}
    if (named := os.environ.get(ENV_FILE_NAME)) is not None:
        environment[ENV_FILE_NAME] = named
    longest = settings.data_dir / "servers" / "run" / ".s.PGSQL.5432.lock"
    return Service(
        command=(str(ROOT / ".venv" / "bin" / "python"), "-P", "-m", "shared", "up"),
        folder=str(ROOT),
        writable=tuple(dict.fromkeys((str(settings.data_dir), str(settings.backups)))),
        environment=environment,
        account=_account(settings, account) if machine.is_root else None,
        private_tmp=len(os.fsencode(longest)) <= LONGEST_SOCKET_BYTES,
    )


def _text(settings: Settings, machine: ServiceHost, account: str | None) -> bytes:
    if account is not None and not machine.is_root:
        raise ServiceUnavailable(
            "--account needs root", advice="Leave it out: your own service runs under your rights."
        )
    service = render_service(settings, machine, account)
    if machine.has_launchd:
        return launchd_plist(service, log=str(_launchd_log(settings)))
    return systemd_unit(service).encode()


def _account(settings: Settings, named: str | None) -> str:
    """Who owns the data, else who owns this folder: no account is made for it."""
    if named is not None:
        try:
            return pwd.getpwnam(named).pw_name
        except KeyError:
            raise ServiceUnavailable(
                f"there is no account {named}",
                advice=f"useradd --system --home-dir /var/lib/evertalk {named}",
            ) from None
    place = next(path for path in (settings.data_dir, ROOT) if path.exists())
    return pwd.getpwuid(place.stat().st_uid).pw_name


def _install(
    text: bytes, settings: Settings, machine: ServiceHost, account: str | None, say: Callable[[str], None]
) -> int:
    _check_keeper(machine)
    if not (ROOT / ".venv" / "bin" / "python").exists():
        raise ServiceUnavailable("there is no .venv yet", advice="Run ./evertalk version once: it installs.")
    for folder in (settings.data_dir, settings.backups):
        _make(folder, account)
    if machine.is_root and _account(settings, account) == "root" and settings.embedded_postgres:
        # The service itself may write nothing of the system's.
        make_account(settings.servers_account)
    if machine.has_launchd:
        _launchd_log(settings).parent.mkdir(parents=True, exist_ok=True)
    machine.file.parent.mkdir(parents=True, exist_ok=True)
    partial = machine.file.with_name(f".{machine.file.name}.part")
    partial.write_bytes(text)
    partial.chmod(0o644)
    partial.rename(machine.file)
    say(f"Written: {machine.file}")
    for command in _start(machine):
        if code := machine.run(command):
            say(f"{' '.join(command)} ended with {code}; ./evertalk service logs tells why.")
            return 1
    if account is not None and (env_file := default_env_file()) is not None and env_file.exists():
        say(f"{account} must be able to read {env_file}: chown {account} {env_file}")
    say("It runs, and begins with the machine. ./evertalk service status | logs | uninstall")
    if not machine.has_launchd and not machine.is_root:
        say("So that it runs while you are not logged in: loginctl enable-linger")
    return 0


def _make(folder: Path, account: str | None) -> None:
    """systemd opens only folders that are there; a new one belongs to whom the service runs as."""
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o711)
        if account is not None:
            shutil.chown(folder, account)


def _uninstall(machine: ServiceHost, say: Callable[[str], None]) -> int:
    if not machine.file.exists():
        say(f"Nothing is installed at {machine.file}.")
        return 1
    for command in _stop(machine):
        machine.run(command)
    machine.file.unlink()
    if not machine.has_launchd:
        machine.run([*_systemctl(machine), "daemon-reload"])
    say(f"Removed: {machine.file}. Data and settings are where they were.")
    return 0


def _check_keeper(machine: ServiceHost) -> None:
    if machine.has_launchd:
        return
    if not machine.platform.startswith("linux") or not (machine.root / "run/systemd/system").is_dir():
        raise ServiceUnavailable(
            "systemd does not run here, so there is nobody to keep a service",
            advice="In a container, let its own keeper run ./evertalk up; docker-compose.yml does. "
            "./evertalk service install --dry-run prints the unit for another machine.",
        )


def _systemctl(machine: ServiceHost) -> list[str]:
    return ["systemctl", *([] if machine.is_root else ["--user"])]


def _start(machine: ServiceHost) -> list[list[str]]:
    if machine.has_launchd:
        return [["launchctl", "bootstrap", _domain(machine), str(machine.file)]]
    return [
        [*_systemctl(machine), "daemon-reload"],
        [*_systemctl(machine), "enable", NAME],
        [*_systemctl(machine), "restart", NAME],
    ]


def _stop(machine: ServiceHost) -> list[list[str]]:
    if machine.has_launchd:
        return [["launchctl", "bootout", f"{_domain(machine)}/{LABEL}"]]
    return [[*_systemctl(machine), "disable", "--now", NAME]]


def _status(machine: ServiceHost) -> list[str]:
    if machine.has_launchd:
        return ["launchctl", "print", f"{_domain(machine)}/{LABEL}"]
    return [*_systemctl(machine), "status", "--no-pager", "--lines=0", NAME]


def _logs(settings: Settings, machine: ServiceHost, *, follow: bool) -> list[str]:
    if machine.has_launchd:
        return ["tail", "-n", "200", *(["-F"] if follow else []), str(_launchd_log(settings))]
    whose = [] if machine.is_root else ["--user"]
    return [
        "journalctl",
        *whose,
        "--unit",
        NAME,
        "--lines=200",
        *(["--follow"] if follow else ["--no-pager"]),
    ]


def _domain(machine: ServiceHost) -> str:
    return "system" if machine.is_root else f"gui/{machine.uid}"


def _launchd_log(settings: Settings) -> Path:
    return settings.data_dir / "logs" / "up.log"


def _run(command: Sequence[str]) -> int:
    try:
        return subprocess.call(list(command), stdin=subprocess.DEVNULL, timeout=_COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return 124


def _follow(command: Sequence[str]) -> int:
    try:
        return subprocess.call(list(command))
    except KeyboardInterrupt:
        return 0
