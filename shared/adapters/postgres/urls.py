"""One database address, spelled for each of the two libraries that open it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit


def asyncpg_url(url: str) -> str:
    """`postgresql://…` as asyncpg reads it."""
    return url.replace("postgresql+asyncpg://", "postgresql://", 1)


def sqlalchemy_url(url: str) -> str:
    """The same address with the driver named, as SQLAlchemy wants it."""
    plain = asyncpg_url(url)
    for scheme in ("postgresql://", "postgres://"):
        if plain.startswith(scheme):
            return "postgresql+asyncpg://" + plain[len(scheme) :]
    raise ValueError("a database address begins with postgresql://")


def place_of(url: str) -> str:
    """Host and database, for people to read: never the password."""
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [parts.hostname or "localhost"])[0]
    return f"{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
