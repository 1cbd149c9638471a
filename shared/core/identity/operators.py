"""Rules for names, roles and pictures of operators, and errors of changes to operators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from shared.core.values.errors import BadInput, EvertalkError
from shared.core.values.files import picture_mime

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""Roles in ascending order; each includes the rights of the ones before."""
MOST_NAME_CHARS = 64
"""Most characters of an operator's login name."""
INVITATION_HOURS = 24
"""Hours for which an invitation is valid."""
MOST_DISPLAY_CHARS = 60
"""Most characters of the name that people see."""
MOST_PICTURE_BYTES = 40_960
"""Most bytes of an operator's picture, enough for 256 × 256 pixels. The database has the same limit."""
_NAME = re.compile(r"[\w][\w.@+ \-]*")
COMMAND_LINE = "command line"
"""Actor in the audit log of changes by verbs of the shell."""
_TAKEN_BY_THE_PROGRAM = frozenset({"nobody", "cli", COMMAND_LINE, "identity provider", "retention", "person"})
"""Names that the audit log uses for other actors; `cli` stands in entries of 0.1.0.

API keys need no entry, since their names have a colon.
"""


class BadOperator(BadInput):
    """Invalid name, display name, picture or role of an operator; `advice` says what is allowed."""

    sentence = "Invalid operator name or role."
    code = "bad_operator"


class UnknownOperator(EvertalkError):
    """Operator that does not exist."""

    sentence = "Unknown operator."
    code = "unknown_operator"
    advice = "There is no such operator. Reload the list."


class OperatorExists(EvertalkError):
    """Login name that another operator already has."""

    sentence = "The name is taken."
    code = "operator_exists"

    def __init__(self, name: str) -> None:
        super().__init__(name, advice=f"An operator {name} already exists. Choose another name.")


class LastAdmin(EvertalkError):
    """Refused removal, lock or change of role of the last admin."""

    sentence = "The last admin cannot be removed or locked."
    code = "last_admin"
    advice = "This is the last admin. Make somebody else an admin first."


class OfTheProvider(EvertalkError):
    """Change of role or password of an operator for whom the identity provider decides both."""

    sentence = "The identity provider decides this."
    code = "of_the_provider"
    advice = "This operator comes from your identity provider: role and password are set there."


class OperatorLocked(EvertalkError):
    """Action that a locked operator cannot take part in; unlock first."""

    sentence = "The operator is locked."
    code = "operator_locked"
    advice = "This operator is locked. Unlock them first, on the page Operators."


class StaleOperator(EvertalkError):
    """Change of an operator whom another admin has changed since; `current` is the newer state."""

    sentence = "Another admin has changed this operator."
    code = "stale"
    advice = "Another operator changed this one meanwhile. Check the newer state, then try again."

    def __init__(self, *, current: Mapping[str, Any]) -> None:
        super().__init__()
        self.current = dict(current)


def check_operator_name(name: str) -> str:
    """Return the login name with single blanks. Raises BadOperator if it is invalid, too long or reserved."""
    name = " ".join(name.split())
    if not name or len(name) > MOST_NAME_CHARS or not _NAME.fullmatch(name):
        advice = f"A name has 1 to {MOST_NAME_CHARS} letters, digits, spaces and . @ + _ - signs."
        raise BadOperator(advice=advice)
    if name.casefold() in _TAKEN_BY_THE_PROGRAM:
        raise BadOperator(advice=f"{name} is a reserved name: the audit log uses it.")
    return name


def check_display_name(name: str) -> str:
    """Return the display name with single blanks; empty means none.

    Raises BadOperator if it has more than 60 characters or unprintable ones.
    """
    name = " ".join(name.split())
    if len(name) > MOST_DISPLAY_CHARS or not name.isprintable():
        raise BadOperator(advice=f"A name that people see has at most {MOST_DISPLAY_CHARS} printable signs.")
    return name


def check_picture(content: bytes) -> bytes:
    """Return the picture's bytes unchanged.

    Raises BadOperator unless it is a JPEG, PNG, GIF or WebP file of at most 40 KiB.
    """
    if not 0 < len(content) <= MOST_PICTURE_BYTES or picture_mime(content) is None:
        raise BadOperator(
            advice=f"A picture is a JPEG, PNG, GIF or WebP file of at most {MOST_PICTURE_BYTES // 1024} kB."
        )
    return content


def check_role(role: str) -> Role:
    """Return the role. Raises BadOperator if it is not one of `ROLES`."""
    for known in ROLES:
        if role == known:
            return known
    raise BadOperator(advice=f"A role is one of {', '.join(ROLES)}.")


def presentable_name(said: str, *, fallback: str) -> str:
    """Return a valid operator name made from `said`, the name that the identity provider sent.

    Invalid characters are removed. If nothing valid remains, `fallback` is used in the same way, then
    `operator`.
    """
    for one in (said, fallback):
        try:
            return check_operator_name(re.sub(r"[^\w.@+ \-]", "", one)[:MOST_NAME_CHARS].lstrip(".@+ -"))
        except BadOperator:
            continue
    return "operator"
