"""Lines of the erasure log: time, hash of the person, and numbers and ids of erased rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

AGAIN = "restore"
"""Actor of an erasure that was repeated in a restored backup, and is not repeated another time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Line of the erasure log; `contact` is a hash of the person, `about` has numbers and ids of erased rows.

    `scope` says what was erased, such as a message or everything.
    """

    at: datetime
    contact: bytes
    scope: str
    about: Mapping[str, Any]

    @property
    def key(self) -> tuple[datetime, bytes, str]:
        """Key of the line; unique, since the clock of Postgres has microseconds."""
        return self.at, self.contact, self.scope
