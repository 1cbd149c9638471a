"""How much one browser, one session and one client address may do, and how long to wait after too much."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_KEYS_BEFORE_TIDYING = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Counts per window; `local` holds for a person's own machine, where the only client is that person."""

    frames: int = 30
    frames_seconds: float = 3.0
    messages: int = 20
    messages_seconds: float = 60.0
    sockets_per_session: int = 5
    sockets_per_address: int = 50
    strikes: int = 60
    """Frames refused on one socket before it is closed."""
    uploads: int = 20
    """In a minute and one conversation; twice as many from one address."""
    uploads_at_once: int = 3
    upload_bytes_per_day: int = 100 * 2**20
    """Kept of one conversation."""
    upload_bytes_per_hour: int = 200 * 2**20
    """From one address."""
    opening_seconds: float = 15.0
    """In a minute, of one address: pictures and papers that are being opened."""
    files_shown: int = 240
    """In a minute and one conversation."""
    newcomers: int = 40
    """Visitors never seen before, in a minute and from one address: each is a row that stays for a while."""
    recoveries: int = 5
    """Wrong codes from one address before each further one has to wait, longer every time."""
    reads: int = 240
    """Pages of messages, events and summaries in a minute and one conversation; as many from one address."""


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


class Window:
    """Sliding window that allows at most `count` uses in any `seconds`."""

    __slots__ = ("_clock", "_count", "_seconds", "_times")

    def __init__(self, count: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._seconds = seconds
        self._clock = clock
        self._times: list[float] = []  # an empty deque holds 760 bytes, and most sockets are idle

    def take(self, elsewhere: int = 0, weight: int = 1) -> float:
        """Count a use and return 0.0 if it is allowed, else return the seconds until it would be.

        `elsewhere` is the number of uses in other processes; `weight` is how many uses this one counts for.
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
        self._forget(self._clock())
        return not self._times

    def _forget(self, now: float) -> None:
        old = 0
        while old < len(self._times) and self._times[old] <= now - self._seconds:
            old += 1
        if old:
            del self._times[:old]


class RateWindows:
    """Sliding windows of `seconds`, one per key, which can include counts of other processes.

    `take` returns 0.0 or the seconds to wait. Empty windows are deleted when there are 10,000 keys.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._newly_taken: Counter[str] = Counter()
        self._elsewhere: Mapping[str, int] = {}
        self._elsewhere_at = 0.0

    def take(self, key: str, count: int, weight: int = 1) -> float:
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
        """Set the counts of other processes; they expire after one window without news."""
        self._elsewhere, self._elsewhere_at = elsewhere, self._clock()

    def _taken_elsewhere(self, key: str) -> int:
        if not self._elsewhere or self._clock() > self._elsewhere_at + self.seconds:
            return 0
        return self._elsewhere.get(key, 0)

    def _tidy(self) -> None:
        self._windows = {key: window for key, window in self._windows.items() if not window.empty}


class Amounts:
    """Sums of amounts by key over the last `seconds`; idle keys are deleted when there are 10,000."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._amounts: dict[str, list[tuple[float, int]]] = {}

    def wait(self, key: str, most: int) -> float:
        """Return 0.0 while a key's sum is below `most`, else the seconds until its oldest amount expires."""
        known = self._recent(key)
        if sum(amount for _, amount in known) < most:
            return 0.0
        return max(0.1, known[0][0] + self._seconds - self._clock())

    def add(self, key: str, amount: int) -> None:
        if len(self._amounts) >= _KEYS_BEFORE_TIDYING:
            self._amounts = {one: known for one in self._amounts if (known := self._recent(one))}
        if amount:
            self._amounts[key] = [*self._recent(key), (self._clock(), amount)]

    def _recent(self, key: str) -> list[tuple[float, int]]:
        since = self._clock() - self._seconds
        return [one for one in self._amounts.get(key, ()) if one[0] > since]


class Tries:
    """Limiter of failed tries: after `most`, each further one waits twice as long, up to `longest`."""

    def __init__(
        self, *, first: float = 60.0, longest: float = 3_600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._longest = longest
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def take(self, key: str, most: int) -> float:
        """Count a try; return 0 if it may be made now, else the seconds to wait.

        It counts as failed until `mark_passed`.
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
        """Remove the last try from the failures, since it passed."""
        count, last = self._failed.get(key, (0, 0.0))
        if count:
            self._failed[key] = count - 1, last

    def _pause(self, count: int, most: int) -> float:
        return 0.0 if count < most else min(self._longest, self._first * 2.0 ** min(count - most, 20))


class Places:
    """Counts what is open per key."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def open(self, key: str) -> int:
        return self._open.get(key, 0)

    def take(self, key: str, most: int) -> bool:
        taken = self._open.get(key, 0)
        if taken >= most:
            return False
        self._open[key] = taken + 1
        return True

    def leave(self, key: str) -> None:
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)
