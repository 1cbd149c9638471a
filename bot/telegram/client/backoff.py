"""How long to wait before the next try: longer each time, never all at the same moment."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Seconds; `most` is never exceeded, `reset` begins anew after a success."""

    first: float = 1.0
    most: float = 15.0
    factor: float = 2.0
    _tries: int = field(default=0, init=False)

    def next(self) -> float:
        """Between half and the whole of what this try may wait, at least `first`."""
        whole = min(self.most, self.first * self.factor ** min(self._tries, 32))
        self._tries += 1
        return max(min(self.first, self.most), random.uniform(whole / 2, whole))

    def reset(self) -> None:
        self._tries = 0
