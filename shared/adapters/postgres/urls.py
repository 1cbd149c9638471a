"""One database address, spelled for each of the two libraries that open it."""

from __future__ import annotations


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
