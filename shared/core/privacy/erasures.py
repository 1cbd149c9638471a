"""Lines of the erasure log: the time, a hash of the person, and numbers and ids of erased rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

AGAIN = "restore"
"""The actor of an erasure that was done again in a restored backup: it is not done a third time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    at: datetime
    contact: bytes
    scope: str
    about: Mapping[str, Any]

    @property
    def key(self) -> tuple[datetime, bytes, str]:
        """No two erasures have the same: Postgres' clock tells microseconds."""
        return self.at, self.contact, self.scope
