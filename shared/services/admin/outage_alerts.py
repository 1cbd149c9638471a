"""Alerts of a database that takes no writes: sent from memory, for the table of alerts cannot be written.

Each process that can reach operators looks at the age of its newest written heartbeat. Processes agree in
Redis on who sends to which target. Without Redis the oldest process sends, and the second one after five
times the delay. When beats are written again, the outage is stored with what was sent, and its end is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import uuid4

import structlog

from shared.core.ops.alerts import MOST_TRIES, NotSent, Outage, Outcome, wait_seconds
from shared.core.values.errors import StorageUnavailable
from shared.services.admin.alert_sender import AlertChannel

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks at the age of the newest written heartbeat."""
RANK_SECONDS = 10.0
"""Seconds between two counts of the older processes with the same role."""
DEPUTY_FACTOR = 5
"""Factor of the usual delay for the second oldest process, used if Redis cannot say who has sent."""


class OutageStore(Protocol):
    """Store of ended outages, and of the processes that may report them.

    `count_older_processes` counts living processes of the same role that started earlier. `record_outage`
    stores outcomes by target, None where unknown, and makes messages about the end due.
    """

    async def count_older_processes(self, worker_id: int) -> int: ...
    async def record_outage(self, outage: Outage, results: Mapping[str, Outcome | None]) -> None: ...


class OutageClaims(Protocol):
    """Agreement of all processes in Redis on an outage, and on who notifies which target.

    `open` returns the outage that holds for all; `claim` whether this process must notify a target; `load`
    the outage with outcomes by target. None means that Redis does not answer or, for `load`, that no outage
    is stored.
    """

    async def open(self, outage: Outage, *, not_before: datetime | None) -> Outage | None: ...
    async def claim(self, target: str) -> bool | None: ...
    async def note(self, target: str, outcome: Outcome) -> None: ...
    async def load(self) -> tuple[Outage, Mapping[str, Outcome | None]] | None: ...
    async def clear(self) -> bool | None: ...


@dataclass(slots=True)
class _Message:
    """State of the message to one target."""

    attempt: int = 0
    due: float = 0.0
    is_ours: bool = False
    is_settled: bool = False
    result: Outcome | None = None


class OutageMonitor:
    """Monitor that alerts operators from memory while the database takes no writes.

    Run it in each process that can reach operators, apart from all that needs the database.
    """

    def __init__(
        self,
        claims: OutageClaims,
        *,
        channels: Callable[[], Mapping[str, AlertChannel]],
        silent_seconds: Callable[[], float],
        state: Callable[[], str],
        after_seconds: float,
        has_beaten: bool = True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`silent_seconds` is the age of the newest written beat; `has_beaten` is False if there was none."""
        self._claims = claims
        self._channels = channels
        self._silent_seconds = silent_seconds
        self._state = state
        self._after_seconds = after_seconds
        self._has_beaten = has_beaten
        self._clock = clock
        self._now = now
        self._outage: Outage | None = None
        self._messages: dict[str, _Message] = {}
        self.rank = 0
        """Number of older processes of the same role, as last read."""

    async def run(self, store: OutageStore, *, worker_id: int, is_alone: bool = False) -> None:
        """Look every second, until cancelled: alert operators during an outage, and store it once it is over.

        `is_alone` says that no other process has these targets.
        """
        is_clear, ranked_at = False, -RANK_SECONDS
        while True:
            try:
                if self._state() != "ok":
                    is_clear = False
                    await self.send_due()
                elif not is_clear:
                    await self.record(store)
                    is_clear = True
                elif not is_alone and self._clock() - ranked_at >= RANK_SECONDS:
                    self.rank = await store.count_older_processes(worker_id)
                    ranked_at = self._clock()
            except StorageUnavailable as error:
                log.warning("outage_storage_unavailable", reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def send_due(self) -> None:
        """Alert each target that was not alerted yet, unless another process does it or the outage is too
        short.

        Failed messages are tried again in later calls. Raises nothing.
        """
        silent = self._silent_seconds()
        if silent < self._after_seconds:
            return
        for target, channel in self._channels().items():
            message = self._messages.setdefault(target, _Message())
            if message.is_settled or self._clock() < message.due:
                continue
            outage = await self._agree(silent)
            if outage is not None and await self._claim(target, message, silent):
                await self._send(channel, outage, target, message)

    async def record(self, store: OutageStore) -> None:
        """Store an outage that is over, also one that a dead process reported, and forget it.

        Without an outage nothing is stored. Raises StorageUnavailable.
        """
        own = {target: one.result for target, one in self._messages.items() if one.is_ours}
        agreed = await self._claims.load()
        for outage, results in _merge(self._outage, own, agreed):
            await store.record_outage(outage, results)
            log.warning("outage_recorded", outage=outage.public_id, targets=sorted(results))
        if agreed is not None:
            await self._claims.clear()
        self._outage, self._messages = None, {}

    async def _agree(self, silent: float) -> Outage | None:
        """Return the outage that messages are about; None while another process is to speak first."""
        if self._outage is None:
            began = self._now() - timedelta(seconds=silent)
            own = Outage(
                public_id=str(uuid4()), opened_at=self._now().replace(microsecond=0),
                detail={"state": self._state().replace(" ", "-"), "seconds": round(self._after_seconds)},
            )  # fmt: skip
            self._outage = await self._claims.open(own, not_before=began if self._has_beaten else None)
            if self._outage is None and self._speaks_alone(silent):
                self._outage = own
        return self._outage

    async def _claim(self, target: str, message: _Message, silent: float) -> bool:
        if not message.is_ours:
            claimed = await self._claims.claim(target)
            message.is_settled = claimed is False
            message.is_ours = self._speaks_alone(silent) if claimed is None else claimed
        return message.is_ours

    def _speaks_alone(self, silent: float) -> bool:
        """Return whether this process sends although Redis cannot say whether another one has."""
        return self.rank == 0 or (self.rank == 1 and silent >= DEPUTY_FACTOR * self._after_seconds)

    async def _send(self, channel: AlertChannel, outage: Outage, target: str, message: _Message) -> None:
        message.attempt += 1
        outcome = await channel.send(outage.build_sending(target, attempt=message.attempt))
        log.warning(
            "outage_alert_sent", target=target, outcome=type(outcome).__name__,
            code=getattr(outcome, "code", ""),
        )  # fmt: skip
        message.result = outcome
        message.is_settled = not isinstance(outcome, NotSent) or message.attempt >= MOST_TRIES
        message.due = self._clock() + wait_seconds(message.attempt)
        await self._claims.note(target, outcome)


def _merge(
    outage: Outage | None,
    own: Mapping[str, Outcome | None],
    agreed: tuple[Outage, Mapping[str, Outcome | None]] | None,
) -> list[tuple[Outage, Mapping[str, Outcome | None]]]:
    """Return each outage with its results; what this process knows itself is newer."""
    if outage is not None and agreed is not None and agreed[0].public_id == outage.public_id:
        return [(outage, {**agreed[1], **own})]
    found = [(outage, own)] if outage is not None and own else []
    return [*found, agreed] if agreed is not None else found
