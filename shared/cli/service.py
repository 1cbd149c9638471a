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
"""Folder of the program, in which the service runs."""
_COMMAND_SECONDS = 90.0
Run = Callable[[Sequence[str]], int]
"""Function that runs a command and returns its exit code."""


class ServiceUnavailable(EvertalkError):
    """The service cannot be managed: no service manager, no right, no such account, or no installation."""

    sentence = "No service manager was found on this machine."
    code = "no_service"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceHost:
    """System that the verbs act on; tests replace it."""

    platform: str
    uid: int
    home: Path
    root: Path = Path("/")
    run: Run
    follow: Run
    """Runner of commands that last until Ctrl-C."""

    @classmethod
    def detect(cls) -> ServiceHost:
        """Return the host that this process runs on."""
        return cls(platform=sys.platform, uid=os.geteuid(), home=Path.home(), run=_run, follow=_follow)

    @property
    def is_root(self) -> bool:
        """True if the verbs act as root, on services of the system instead of the user."""
        return self.uid == 0

    @property
    def has_launchd(self) -> bool:
        """True on macOS; other systems need systemd."""
        return self.platform == "darwin"

    @property
    def file(self) -> Path:
        """Path of the service's file: a plist of launchd or a unit of systemd, of the system or the user."""
        if self.has_launchd:
            folder = (
                self.root / "Library/LaunchDaemons" if self.is_root else self.home / "Library/LaunchAgents"
            )
            return folder / f"{LABEL}.plist"
        own = self.home / ".config/systemd/user"
        return (self.root / "etc/systemd/system" if self.is_root else own) / f"{NAME}.service"


def read_service_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk service", description="Run Evertalk as a service of this machine that starts at boot."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    install = verbs.add_parser("install", help="start Evertalk now and at each boot")
    install.add_argument("--dry-run", action="store_true", help="print the files without writing them")
    install.add_argument("--account", metavar="NAME", help="account that the service runs as; only for root")
    verbs.add_parser("status", help="show whether the service is running")
    logs = verbs.add_parser("logs", help="show the newest log lines")
    logs.add_argument("-f", "--follow", action="store_true", help="keep printing new log lines")
    verbs.add_parser("uninstall", help="stop and remove the service; data are kept")
    return parser.parse_args(arguments)


def run_service(
    wish: argparse.Namespace, *, settings: Settings, say: Callable[[str], None], host: ServiceHost
) -> int:
    """Install, show or remove the service of this machine; return the exit status.

    `install --dry-run` only prints the file. Raises ServiceUnavailable, ValueError and OSError.
    """
    if wish.verb == "install":
        text = _text(settings, host, wish.account)
        if wish.dry_run:
            say(f"# {host.file}")
            say(text.decode().rstrip())
            return 0
        return _install(text, settings, host, wish.account, say)
    _check_keeper(host)
    if wish.verb == "status":
        return host.run(_status(host))
    if wish.verb == "logs":
        return host.follow(_logs(settings, host, follow=wish.follow))
    return _uninstall(host, say)


def render_service(settings: Settings, host: ServiceHost, account: str | None) -> Service:
    """Return the description of the service, which starts Python directly: no shell, and no installation at
    boot.

    `account` is the one it runs as; for root, None means the owner of the data.
    """
    environment = {"PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(settings.data_dir)}
    if (named := os.environ.get(ENV_FILE_NAME)) is not None:
        environment[ENV_FILE_NAME] = named
    longest = settings.data_dir / "servers" / "run" / ".s.PGSQL.5432.lock"
    return Service(
        command=(str(ROOT / ".venv" / "bin" / "python"), "-P", "-m", "shared", "up"),
        folder=str(ROOT),
        writable=tuple(dict.fromkeys((str(settings.data_dir), str(settings.backups)))),
        environment=environment,
        account=_account(settings, account) if host.is_root else None,
        private_tmp=len(os.fsencode(longest)) <= LONGEST_SOCKET_BYTES,
    )


def _text(settings: Settings, host: ServiceHost, account: str | None) -> bytes:
    if account is not None and not host.is_root:
        raise ServiceUnavailable(
            "--account needs root", advice="Leave it out: your own service runs under your rights."
        )
    service = render_service(settings, host, account)
    if host.has_launchd:
        return launchd_plist(service, log=str(_launchd_log(settings)))
    return systemd_unit(service).encode()


def _account(settings: Settings, named: str | None) -> str:
    """Return the account that owns the data, else the folder; none is created."""
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
    text: bytes, settings: Settings, host: ServiceHost, account: str | None, say: Callable[[str], None]
) -> int:
    _check_keeper(host)
    if not (ROOT / ".venv" / "bin" / "python").exists():
        raise ServiceUnavailable("there is no .venv yet", advice="Run ./evertalk version once: it installs.")
    for folder in (settings.data_dir, settings.backups):
        _make(folder, account)
    if host.is_root and _account(settings, account) == "root" and settings.embedded_postgres:
        # The service itself may write nothing of the system's.
        make_account(settings.servers_account)
    if host.has_launchd:
        _launchd_log(settings).parent.mkdir(parents=True, exist_ok=True)
    host.file.parent.mkdir(parents=True, exist_ok=True)
    partial = host.file.with_name(f".{host.file.name}.part")
    partial.write_bytes(text)
    partial.chmod(0o644)
    partial.rename(host.file)
    say(f"Written: {host.file}")
    for command in _start(host):
        if code := host.run(command):
            say(f"{' '.join(command)} ended with {code}; ./evertalk service logs tells why.")
            return 1
    if account is not None and (env_file := default_env_file()) is not None and env_file.exists():
        say(f"{account} must be able to read {env_file}: chown {account} {env_file}")
    say("It runs, and begins with the machine. ./evertalk service status | logs | uninstall")
    if not host.has_launchd and not host.is_root:
        say("So that it runs while you are not logged in: loginctl enable-linger")
    return 0


def _make(folder: Path, account: str | None) -> None:
    """Create a folder that is missing, for the service's account; systemd needs it to exist."""
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o711)
        if account is not None:
            shutil.chown(folder, account)


def _uninstall(host: ServiceHost, say: Callable[[str], None]) -> int:
    if not host.file.exists():
        say(f"Nothing is installed at {host.file}.")
        return 1
    for command in _stop(host):
        host.run(command)
    host.file.unlink()
    if not host.has_launchd:
        host.run([*_systemctl(host), "daemon-reload"])
    say(f"Removed: {host.file}. Data and settings are where they were.")
    return 0


def _check_keeper(host: ServiceHost) -> None:
    if host.has_launchd:
        return
    if not host.platform.startswith("linux") or not (host.root / "run/systemd/system").is_dir():
        raise ServiceUnavailable(
            "systemd does not run here, so there is nobody to keep a service",
            advice="In a container, let its own keeper run ./evertalk up; docker-compose.yml does. "
            "./evertalk service install --dry-run prints the unit for another machine.",
        )


def _systemctl(host: ServiceHost) -> list[str]:
    return ["systemctl", *([] if host.is_root else ["--user"])]


def _start(host: ServiceHost) -> list[list[str]]:
    if host.has_launchd:
        return [["launchctl", "bootstrap", _domain(host), str(host.file)]]
    return [
        [*_systemctl(host), "daemon-reload"],
        [*_systemctl(host), "enable", NAME],
        [*_systemctl(host), "restart", NAME],
    ]


def _stop(host: ServiceHost) -> list[list[str]]:
    if host.has_launchd:
        return [["launchctl", "bootout", f"{_domain(host)}/{LABEL}"]]
    return [[*_systemctl(host), "disable", "--now", NAME]]


def _status(host: ServiceHost) -> list[str]:
    if host.has_launchd:
        return ["launchctl", "print", f"{_domain(host)}/{LABEL}"]
    return [*_systemctl(host), "status", "--no-pager", "--lines=0", NAME]


def _logs(settings: Settings, host: ServiceHost, *, follow: bool) -> list[str]:
    if host.has_launchd:
        return ["tail", "-n", "200", *(["-F"] if follow else []), str(_launchd_log(settings))]
    whose = [] if host.is_root else ["--user"]
    return [
        "journalctl",
        *whose,
        "--unit",
        NAME,
        "--lines=200",
        *(["--follow"] if follow else ["--no-pager"]),
    ]


def _domain(host: ServiceHost) -> str:
    return "system" if host.is_root else f"gui/{host.uid}"


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
