"""What a review of a deployment found: how grave, what, why it matters, and the change to make."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from shared.core.tools.web_address import is_house_name

Grade = Literal["grave", "serious", "slight"]
GRADES: tuple[Grade, ...] = ("grave", "serious", "slight")
"""Grave: somebody can read, write or spend what is not theirs. Serious: one more mistake, and they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityFinding:
    grade: Grade
    what: str
    why: str
    change: str
    """A line for .env, or a command, as it is to be typed."""

    def __str__(self) -> str:
        return f"{self.grade:<7}  {self.what}\n         {self.why}\n         → {self.change}"

    @property
    def to_json(self) -> Mapping[str, str]:
        return asdict(self)


HostLocation = Literal["here", "around", "away"]


def classify_host(host: str) -> HostLocation:
    """On this machine, in a network that is nobody else's (as of containers), or somewhere else."""
    name = host.strip("[]").rstrip(".").lower()
    if name in ("", "localhost") or name.startswith("/") or name.endswith(".localhost"):
        return "here"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "around" if is_house_name(name) else "away"
    if address.is_loopback:
        return "here"
    return "around" if address.is_private else "away"
