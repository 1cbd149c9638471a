"""What both servers need to know about the folder that they live in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.adapters.embedded.binaries import Binaries
from shared.adapters.embedded.process_user import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`durable=False` is for tests: it forgets everything with the machine, and is faster for it."""

    folder: Path
    sockets: Path
    binaries: Binaries
    account: Account
    durable: bool = True
