"""API keys: their scopes, names and lifetimes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from shared.core.values.errors import BadInput

Scope: TypeAlias = Literal["sessions:read", "messages:write", "commands:run", "memory:read", "memory:write"]
SCOPES: dict[Scope, str] = {
    "sessions:read": "read conversations: messages, events, summaries' originals, exports",
    "messages:write": "open conversations for people and write in their name",
    "commands:run": "run commands such as /compact",
    "memory:read": "read what is remembered of a person",
    "memory:write": "correct, archive and restore what is remembered",
}
"""Rights that a key can have, with a description of each for operators."""
TOKEN_MARK = "evk_"  # noqa: S105  the beginning, not the secret
"""Beginning of every API key."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,59}")
"""Pattern of a key's name."""
MOST_DAYS = 3_650
"""Longest lifetime of a key with an end, in days."""


class BadKey(BadInput):
    """Request for an API key with an invalid name, scope or lifetime; `advice` says which."""

    sentence = "A key cannot be made like this."
    code = "bad_key"

    def __init__(self, advice: str) -> None:
        super().__init__(advice, advice=advice)


class UnknownLimit(ValueError):
    """Site or agent that does not exist, to which an API key should have been limited."""


def check_name(name: str) -> str:
    """Return the key's name unchanged. Raises BadKey unless it has 1 to 60 allowed characters."""
    if NAME.fullmatch(name) is None:
        raise BadKey("A key's name has 1 to 60 letters, digits, spaces, dots, _ or -.")
    return name


def check_scopes(asked: Iterable[str]) -> tuple[Scope, ...]:
    """Return the scopes, each once, in the order of `SCOPES`.

    Raises BadKey for an unknown scope or for none.
    """
    wanted = set(asked)
    unknown = sorted(wanted - set(SCOPES))
    if unknown or not wanted:
        what = f"There is no scope {unknown[0]}." if unknown else "A key needs a scope."
        raise BadKey(f"{what} Known: {', '.join(SCOPES)}.")
    return tuple(scope for scope in SCOPES if scope in wanted)


def check_days(days: int | None) -> int | None:
    """Return the key's lifetime in days unchanged; None means unlimited.

    Raises BadKey unless it is 1 to 3,650.
    """
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise BadKey(f"A key lives 1 to {MOST_DAYS} days.")
    return days
