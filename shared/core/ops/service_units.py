"""Service definitions for systemd and launchd, with restricted rights."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NAME = "evertalk"
"""Name of the systemd unit."""
LABEL = "org.evertalk.evertalk"
"""Label of the launchd service."""
STOP_SECONDS = 30
"""Seconds that the service has to stop; more than `up` needs for its answers and servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Service to define; `account` is the user of a system service, None for a service of one person.

    `folder` is its working folder; `writable` are the paths that it may write to.
    """

    command: Sequence[str]
    folder: str
    writable: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    account: str | None = None
    private_tmp: bool = True
    """False if the servers' sockets are in /tmp, where other commands must find them."""

    @property
    def whole_system(self) -> bool:
        """True if the service belongs to the system, False if to one person."""
        return self.account is not None


_ROOTS_RIGHTS = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID"
"""Capabilities that a service started as root needs to run its servers under an account without rights."""

_ANYWHERE = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)
_SYSTEM_ONLY = (
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "AmbientCapabilities=",
)
"""Restrictions that a person's own systemd manager may not apply."""


def systemd_unit(service: Service) -> str:
    """Return the text of a systemd unit; nothing is written.

    Raises ValueError for control characters in words.
    """
    return "\n".join((*_unit_lines(), "", *_service_lines(service), "", *_install_lines(service), ""))


def launchd_plist(service: Service, *, log: str) -> bytes:
    """Return the property list for launchd as XML; `log` is the path of the log file. Nothing is written."""
    told = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "WorkingDirectory": service.folder,
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "ExitTimeOut": STOP_SECONDS,
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
        **({"UserName": service.account} if service.account is not None else {}),
    }
    return plistlib.dumps(told, sort_keys=False)


def quote_word(word: str) -> str:
    """Return a word in double quotes and escaped for a unit's command or environment.

    Raises ValueError for control characters. The sign `$` is not escaped.
    """
    if any(ord(letter) < 32 for letter in word):
        raise ValueError(f"{word!r} cannot stand in a unit")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _unit_lines() -> list[str]:
    return [
        "# Written by ./evertalk service install, and overwritten each time; your own lines belong into",
        f"# systemctl edit {NAME} (with --user for a person's service).",
        "[Unit]",
        "Description=Evertalk, conversations that never end",
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=10",
    ]


def _service_lines(service: Service) -> list[str]:
    words = [quote_word(word).replace("$", "$$") for word in service.command]
    lines = ["[Service]", "Type=exec", f"ExecStart={' '.join(words)}"]
    lines.append(f"WorkingDirectory={service.folder.replace('%', '%%')}")
    lines += [f"Environment={quote_word(f'{name}={value}')}" for name, value in service.environment.items()]
    if service.account is not None:
        lines.append(f"User={service.account}")
    lines += [
        # The main process is signalled and stops its children; what is left after that is killed.
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_SECONDS}",
        "Restart=always",
        "RestartSec=2",
        # Exit status 2 means an unusable setting, which a restart cannot mend.
        "RestartPreventExitStatus=2",
        "OOMPolicy=continue",
        "LimitNOFILE=65536",
        "UMask=0022" if service.account == "root" else "UMask=0077",
    ]
    return [*lines, *_walls(service)]


def _walls(service: Service) -> list[str]:
    if not service.whole_system:
        return list(_ANYWHERE)
    return [
        *_ANYWHERE,
        *_SYSTEM_ONLY,
        f"CapabilityBoundingSet={_ROOTS_RIGHTS if service.account == 'root' else ''}",
        f"PrivateTmp={'yes' if service.private_tmp else 'no'}",
        f"ReadWritePaths={' '.join(quote_word(path) for path in service.writable)}",
    ]


def _install_lines(service: Service) -> list[str]:
    return ["[Install]", f"WantedBy={'multi-user.target' if service.whole_system else 'default.target'}"]
