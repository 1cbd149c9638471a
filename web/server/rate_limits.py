"""Counters that limit how often a client may do something, and say how long it must wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_KEYS_BEFORE_TIDYING = 10_000
"""Number of keys from which idle ones are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of a client.

    `frames` and `messages` are counted within `frames_seconds` and `messages_seconds`.
    """

    frames: int = 30
    frames_seconds: float = 3.0
    messages: int = 20
    messages_seconds: float = 60.0
    sockets_per_session: int = 5
    sockets_per_address: int = 50
    strikes: int = 60
    """Refused frames after which a connection is closed."""
    uploads: int = 20
    """Uploads per minute of one conversation; twice as many from one address."""
    uploads_at_once: int = 3
    """Simultaneous uploads."""
    upload_bytes_per_day: int = 100 * 2**20
    """Uploaded bytes per day that are stored for one conversation."""
    upload_bytes_per_hour: int = 200 * 2**20
    """Uploaded bytes per hour from one address."""
    opening_seconds: float = 15.0
    """Seconds per minute that the opening of files from one address may take."""
    files_shown: int = 240
    """Files per minute that are shown in one conversation."""
    newcomers: int = 40
    """New visitors per minute from one address, since each one stores a row."""
    recoveries: int = 5
    """Wrong recovery codes from one address, after which each further try must wait longer."""
    reads: int = 240
    """Pages of messages, events and summaries per minute of one conversation, and of one address."""


LOCAL = ClientLimits(
    frames=6_000,
    messages=60_000,
    sockets_per_session=50,
    sockets_per_address=10_000,
    strikes=600,
    uploads=6_000,
    upload_bytes_per_day=2 * 2**30,
    upload_bytes_per_hour=2 * 2**30,
    opening_seconds=60_000.0,
    files_shown=60_000,
    newcomers=60_000,
    reads=60_000,
)
"""Limits on the machine of a personal installation, where the only client is its owner."""


class Window:
    """Sliding window that allows at most `count` uses in any `seconds`."""

    __slots__ = ("_clock", "_count", "_seconds", "_times")

    def __init__(self, count: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._seconds = seconds
        self._clock = clock
        self._times: list[float] = []  # an empty deque holds 760 bytes, and most sockets are idle

    def take(self, elsewhere: int = 0, weight: int = 1) -> float:
        """Count a use and return 0.0 if it is allowed; otherwise return the seconds until it would be.

        `elsewhere` is the number of uses in other processes, `weight` the number of uses that this one counts
        for.
        """
        now, weight = self._clock(), min(weight, self._count)
        self._forget(now)
        too_many = len(self._times) + elsewhere + weight - self._count
        if too_many > 0:
            last = min(too_many, weight, len(self._times)) - 1
            return max(0.1, (self._times[last] if self._times else now) + self._seconds - now)
        self._times += [now] * weight
        return 0.0

    @property
    def empty(self) -> bool:
        """Whether the window has no use."""
        self._forget(self._clock())
        return not self._times

    def _forget(self, now: float) -> None:
        old = 0
        while old < len(self._times) and self._times[old] <= now - self._seconds:
            old += 1
        if old:
            del self._times[:old]


class RateWindows:
    """Sliding windows of `seconds`, one for each key, which can include counts of other processes.

    At 10,000 keys the idle ones are deleted.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._newly_taken: Counter[str] = Counter()
        self._elsewhere: Mapping[str, int] = {}
        self._elsewhere_at = 0.0

    def take(self, key: str, count: int, weight: int = 1) -> float:
        """Count a use of a key and return 0.0 if fewer than `count` were made.

        Otherwise return the seconds to wait.
        """
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= _KEYS_BEFORE_TIDYING:
                self._tidy()
            window = self._windows[key] = Window(count, self.seconds, clock=self._clock)
        wait = window.take(self._taken_elsewhere(key), weight)
        if not wait and len(self._newly_taken) < _KEYS_BEFORE_TIDYING:
            self._newly_taken[key] += weight
        return wait

    def take_new_counts(self) -> Counter[str]:
        """Return the number of allowed uses by key since the last call."""
        taken, self._newly_taken = self._newly_taken, Counter()
        return taken

    def set_remote_counts(self, elsewhere: Mapping[str, int]) -> None:
        """Set the counts of other processes by key; they expire after one window."""
        self._elsewhere, self._elsewhere_at = elsewhere, self._clock()

    def _taken_elsewhere(self, key: str) -> int:
        if not self._elsewhere or self._clock() > self._elsewhere_at + self.seconds:
            return 0
        return self._elsewhere.get(key, 0)

    def _tidy(self) -> None:
        self._windows = {key: window for key, window in self._windows.items() if not window.empty}


class Amounts:
    """Sums of amounts by key over the last `seconds`; at 10,000 keys the idle ones are deleted."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._amounts: dict[str, list[tuple[float, int]]] = {}

    def wait(self, key: str, most: int) -> float:
        """Return 0.0 while the sum of a key is below `most`.

        Otherwise the seconds until its oldest amount expires.
        """
        known = self._recent(key)
        if sum(amount for _, amount in known) < most:
            return 0.0
        return max(0.1, known[0][0] + self._seconds - self._clock())

    def add(self, key: str, amount: int) -> None:
        """Add an amount to a key's sum; 0 has no effect."""
        if len(self._amounts) >= _KEYS_BEFORE_TIDYING:
            self._amounts = {one: known for one in self._amounts if (known := self._recent(one))}
        if amount:
            self._amounts[key] = [*self._recent(key), (self._clock(), amount)]

    def _recent(self, key: str) -> list[tuple[float, int]]:
        since = self._clock() - self._seconds
        return [one for one in self._amounts.get(key, ()) if one[0] > since]


class Tries:
    """Limiter of failed tries by key.

    After `most` failures, each further try must wait twice as long as before, from `first` up to `longest`
    seconds.
    """

    def __init__(
        self, *, first: float = 60.0, longest: float = 3_600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._longest = longest
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def take(self, key: str, most: int) -> float:
        """Count a try as failed and return 0 if it is allowed now; otherwise return the seconds to wait.

        The caller reports a successful try by `mark_passed`.
        """
        now = self._clock()
        count, last = self._failed.get(key, (0, now))
        pause = self._pause(count, most)
        if pause and now < last + pause:
            return max(0.1, last + pause - now)
        if now > last + 2 * max(self._first, pause):
            count = 0
        if len(self._failed) >= _KEYS_BEFORE_TIDYING:
            longest = now - 2 * self._longest
            self._failed = {one: known for one, known in self._failed.items() if known[1] > longest}
        self._failed[key] = count + 1, now
        return 0.0

    def mark_passed(self, key: str) -> None:
        """Take back the count of the last try, since it was successful."""
        count, last = self._failed.get(key, (0, 0.0))
        if count:
            self._failed[key] = count - 1, last

    def _pause(self, count: int, most: int) -> float:
        return 0.0 if count < most else min(self._longest, self._first * 2.0 ** min(count - most, 20))


class Places:
    """Numbers of open things by key, such as connections."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def open(self, key: str) -> int:
        """Return how many are open for a key."""
        return self._open.get(key, 0)

    def take(self, key: str, most: int) -> bool:
        """Count one more as open; return False if the key has `most` already."""
        taken = self._open.get(key, 0)
        if taken >= most:
            return False
        self._open[key] = taken + 1
        return True

    def leave(self, key: str) -> None:
        """Count one less as open for a key; does nothing if none is."""
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)
