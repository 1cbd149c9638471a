"""What `evertalk doctor` finds: how good it is, in words, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Level
    what: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<4}  {self.what}"
        return f"{line}\n      → {self.advice}" if self.advice else line
