"""Database addresses, read in one way for asyncpg, SQLAlchemy and libpq's programs."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from shared.core.values.errors import StorageUnavailable

_VERIFYING = ("verify-ca", "verify-full")
_SYSTEM = "system"
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Files in which systems store trusted authorities, as libpq and the driver need them."""
_FOR_LIBPQ_ALONE = frozenset(
    {
        "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
        "tcp_user_timeout", "gssencmode", "sslcompression", "sslsni", "load_balance_hosts",
        "fallback_application_name", "client_encoding", "channel_binding",
    }
)  # fmt: skip
"""Parameters of libpq that are removed for asyncpg, which would send them to the server as settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """Host and port of a server; port None means the default, 5432.

    `host` is a name, an IP address without brackets, or the folder of a Unix socket.
    """

    host: str
    port: int | None = None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


def build_driver_url(url: str) -> str:
    """Return a database address of libpq's or SQLAlchemy's form as asyncpg takes it.

    Raises StorageUnavailable for an address of another database, for `channel_binding=require`, and if the
    system's list of authorities is requested and there is none.
    """
    parts = urlsplit(_plain(url))
    said = dict(parse_qsl(parts.query))
    if said.get("channel_binding") == "require":
        raise StorageUnavailable(
            "DATABASE_URL: channel_binding=require is not possible here",
            advice="sslmode=verify-full with the server's authority in sslrootcert keeps impostors out.",
        )
    query = {name: value for name, value in said.items() if name not in _FOR_LIBPQ_ALONE}
    if root := _root_of(query):
        query["sslrootcert"] = root
    return parts._replace(query=urlencode(query)).geturl()


def parse_hosts(url: str) -> Sequence[HostAddress]:
    """Return the hosts of a database address in the written order; `localhost` if it names none.

    A port is None if the address names none. Raises StorageUnavailable for an address of another database.
    """
    parts = urlsplit(_plain(url))
    said = dict(parse_qsl(parts.query))
    written = parts.netloc.rpartition("@")[2] or said.get("host", "") or "localhost"
    ports = said.get("port", "").split(",")
    hosts = written.split(",")
    return [
        _place(host, ports[number] if len(ports) == len(hosts) else ports[0])
        for number, host in enumerate(hosts)
    ]


def format_location(url: str) -> str:
    """Return the hosts and the database of an address for people to read, never the password.

    Raises StorageUnavailable for an address of another database.
    """
    return f"{','.join(map(str, parse_hosts(url)))}{urlsplit(_plain(url)).path}"


def _plain(url: str) -> str:
    """Return an address without SQLAlchemy's driver name; raise StorageUnavailable if it is not PostgreSQL's.

    `urlsplit` keeps several hosts whole in `netloc`, but gives no port for them.
    """
    plain = url.replace("postgresql+asyncpg://", "postgresql://", 1)
    if not plain.startswith(("postgresql://", "postgres://")):
        raise StorageUnavailable(
            "a database address begins with postgresql://",
            advice="DATABASE_URL=postgresql://USER:PASSWORD@HOST:5432/DATABASE",
        )
    return plain


def _place(host: str, port: str) -> HostAddress:
    name, separator, own = host.rpartition(":") if not host.startswith("/") else (host, "", "")
    if not separator or host.endswith("]"):
        name, own = host, port
    return HostAddress(host=name.strip("[]"), port=int(own) if own.isdigit() else None)


def _root_of(query: dict[str, str]) -> str | None:
    """Return the path of the file with trusted authorities; None if the driver checks none or finds its own.

    Raises StorageUnavailable if the system's list is requested and there is none.
    """
    mode, root = query.get("sslmode", os.environ.get("PGSSLMODE", "")), query.get("sslrootcert")
    if root and root != _SYSTEM:
        return str(Path(root).expanduser())
    if root is None and (mode not in _VERIFYING or os.environ.get("PGSSLROOTCERT") or _own_root().is_file()):
        return None
    for bundle in (ssl.get_default_verify_paths().cafile, *_BUNDLES):
        if bundle and Path(bundle).is_file():
            return bundle
    raise StorageUnavailable(
        "DATABASE_URL wants the server's certificate checked, and this system has no list of authorities",
        advice="Name the file of the authority: …?sslmode=verify-full&sslrootcert=/etc/evertalk/db-ca.pem",
    )


def _own_root() -> Path:
    try:
        return Path.home() / ".postgresql" / "root.crt"
    except RuntimeError:
        return Path("/nonexistent")
