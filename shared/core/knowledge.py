"""What an agent's own files say, in passages that can be found and cited."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a file that stands for itself; `heading` is the way to it, as in `Returns › Deadlines`."""

    heading: str
    text: str
