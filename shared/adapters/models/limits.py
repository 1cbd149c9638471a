"""What one model was seen to take and said to refuse: when a refusal's number is believed for everybody."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

BELIEVED_SECONDS = 120.0
"""After the last refusal that said so. Then the next request goes out as before, and is refused or not."""
REMEMBERED_SECONDS = 600.0
CONVERSATIONS = 2
TURNS = 3
"""So many conversations, or turns of one, must have met the same number: one slip proves nothing."""
SMALLEST_WINDOW = 1_000
"""A smaller number in a refusal is surely something else."""
LARGEST_WINDOW = 1_000_000_000
TAKEN_SECONDS = 3_600.0
_SLICE_SECONDS = 300.0
_MOST_REFUSALS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    at: float
    maximum: int
    about: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedWindow:
    """A model whose provider refuses, again and again, what should fit."""

    provider: str
    model: str
    window: int
    """What it is sent at most while that is believed."""
    expected: int


class ModelLimits:
    """Of one model at one provider. Nothing below what it took within the hour is believed of it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refusals: deque[_Refusal] = deque(maxlen=_MOST_REFUSALS)
        self._taken: dict[int, int] = {}
        """The largest prompt of each five minutes."""

    def record_accepted(self, tokens: int) -> None:
        """The model answered a prompt of this size: whoever said that it takes less was wrong, or is now."""
        part = int(self._clock() // _SLICE_SECONDS)
        self._taken[part] = max(tokens, self._taken.get(part, 0))
        self._taken = {
            at: most for at, most in self._taken.items() if part - at <= TAKEN_SECONDS / _SLICE_SECONDS
        }
        if any(refusal.maximum < tokens for refusal in self._refusals):
            self._refusals = deque(
                (one for one in self._refusals if one.maximum >= tokens), maxlen=_MOST_REFUSALS
            )

    def record_refused(self, maximum: int, *, about: tuple[int, int]) -> bool:
        """Note the number; true when everybody believes it from now on.

        `about` is the conversation and its turn: whatever is tried there again proves nothing more, nor does
        what is of none.
        """
        if about == (0, 0) or not SMALLEST_WINDOW <= maximum <= LARGEST_WINDOW:
            return False
        self._refusals.append(_Refusal(at=self._clock(), maximum=maximum, about=about))
        return self._proven(REMEMBERED_SECONDS) is not None

    def get_believed_maximum(self) -> int | None:
        """The window that the provider's refusals name, for as long as everybody believes them."""
        return self._apply_floor(self._proven(BELIEVED_SECONDS))

    def get_reported_maximum(self) -> int | None:
        """The same for operators, until it has not been heard for a while."""
        return self._apply_floor(self._proven(REMEMBERED_SECONDS))

    def _proven(self, seconds: float) -> int | None:
        """What the newest refusal said, if others have said so, too, and it is not older than that."""
        now = self._clock()
        if not self._refusals or now - self._refusals[-1].at >= seconds:
            return None
        maximum = self._refusals[-1].maximum
        same = [one for one in self._refusals if one.maximum == maximum and now - one.at < REMEMBERED_SECONDS]
        turns = {one.about for one in same}
        conversations = {conversation for conversation, _ in turns}
        return maximum if len(conversations) >= CONVERSATIONS or len(turns) >= TURNS else None

    def _apply_floor(self, maximum: int | None) -> int | None:
        if maximum is None:
            return None
        oldest = (self._clock() - TAKEN_SECONDS) // _SLICE_SECONDS
        return max([maximum, *(most for at, most in self._taken.items() if at >= oldest)])
