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
TOKEN_MARK = "evk_"  # noqa: S105  the beginning, not the secret
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,59}")
MOST_DAYS = 3_650


class BadKey(BadInput):
    """A key cannot be made like this."""

    sentence = "A key cannot be made like this."
    code = "bad_key"

    def __init__(self, advice: str) -> None:
        super().__init__(advice, advice=advice)


class UnknownLimit(ValueError):
    """Unknown site or agent."""


def check_name(name: str) -> str:
    """Return the key's name. Raises BadKey if it is invalid."""
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
    """Return the key's lifetime in days; None means unlimited. Raises BadKey if it is out of range."""
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise BadKey(f"A key lives 1 to {MOST_DAYS} days.")
    return days
