"""Search for problems, and sending of alerts to webhooks and by mail.

Web and bot processes run both, and therefore report the death of a worker too; the worker itself sends no
alerts. The process that polls the bot sends the alerts for Telegram.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import structlog

from shared.core.ops.alerts import Outcome, Sending
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CrashPoint, ignore_crash_point

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 5.0
"""Seconds between two searches for problems."""
SEND_SECONDS = 1.0
"""Seconds between two searches for due messages."""


class AlertSweep(Protocol):
    """Result of one search for problems: numbers of alerts that were opened and ended."""

    @property
    def opened(self) -> int: ...
    @property
    def ended(self) -> int: ...


class AlertStore(Protocol):
    """Store of alerts and of the messages about them; the type of `rules` is known to the store alone.

    `sweep` returns None while another process sweeps; `claim` returns the next due message that no other
    process has, None if none is due. `record_outcome` returns False if another process has taken the message
    over.
    """

    async def sweep(self, rules: Any, *, worker_id: int, targets: Sequence[str]) -> AlertSweep | None: ...
    async def claim(self, targets: Sequence[str], *, worker_id: int) -> Sending | None: ...
    async def record_outcome(self, sending: Sending, outcome: Outcome, *, worker_id: int) -> bool: ...


class AlertChannel(Protocol):
    """Channel that sends one message and returns its outcome; a failure is an outcome, not an error."""

    async def send(self, sending: Sending) -> Outcome: ...


class AlertSender:
    """Sender of due alerts: claims, sends and stores one after another.

    Outcomes that could not be stored stay in memory, and are stored before the next alert is sent.
    """

    def __init__(
        self, store: AlertStore, *, worker_id: int, crash_point: CrashPoint = ignore_crash_point
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._crash_point = crash_point
        self._unstored: list[tuple[Sending, Outcome]] = []

    async def store_pending_outcomes(self) -> None:
        """Store the outcomes that could not be stored when their alerts were sent. Raises
        StorageUnavailable.
        """
        while self._unstored:
            sending, outcome = self._unstored[0]
            await self._store.record_outcome(sending, outcome, worker_id=self._worker_id)
            self._unstored.pop(0)

    async def send_due(self, carriers: Mapping[str, AlertChannel]) -> int:
        """Send due messages one after another until none is due; return how many were tried.

        `carriers` are the channels by target. A message that did not arrive is due again later. Raises
        StorageUnavailable.
        """
        await self.store_pending_outcomes()
        done = 0
        while sending := await self._store.claim(tuple(carriers), worker_id=self._worker_id):
            self._crash_point("before_alert_send")
            outcome = await carriers[sending.target].send(sending)
            self._crash_point("after_alert_send")
            log.info(
                "alert_sent", kind=sending.alert.kind, target=sending.target, phase=sending.phase,
                outcome=type(outcome).__name__, code=getattr(outcome, "code", ""),
            )  # fmt: skip
            self._unstored.append((sending, outcome))
            await self.store_pending_outcomes()
            done += 1
        return done


class AlertMonitor:
    """Monitor of problems and sender of their alerts.

    `run_sweeps` and `run_sends` run until cancelled; `sweep_once` and `send_due` are one round of each.
    """

    def __init__(
        self,
        store: AlertStore,
        *,
        rules: Any,
        targets: Sequence[str],
        carriers: Mapping[str, AlertChannel],
        worker_id: int,
        crash_point: CrashPoint = ignore_crash_point,
    ) -> None:
        self._store = store
        self._rules = rules
        self._targets = tuple(targets)
        self.carriers: Mapping[str, AlertChannel] = dict(carriers)
        """Channels of this process by target, also for alerts that no table can hold."""
        self._worker_id = worker_id
        self._crash_point = crash_point
        self._bringing = AlertSender(store, worker_id=worker_id, crash_point=crash_point)

    def follow(self, other: AlertMonitor) -> None:
        """Use the rules, targets and channels of `other` from the next round on; called after settings were
        changed.
        """
        self._rules = other._rules
        self._targets = other._targets
        self.carriers = other.carriers

    async def sweep_once(self) -> AlertSweep | None:
        """Open alerts for new problems, and end those whose problem is over; return their numbers.

        Messages about both become due; nothing is sent. Returns None while another process sweeps. Raises
        StorageUnavailable.
        """
        self._crash_point("before_alert_opens")
        swept = await self._store.sweep(self._rules, worker_id=self._worker_id, targets=self._targets)
        if swept is not None and swept.opened:
            self._crash_point("after_alert_opens")
        if swept is not None and (swept.opened or swept.ended):
            log.warning("alerts_changed", opened=swept.opened, ended=swept.ended)
        return swept

    async def send_due(self) -> int:
        """Send the due messages of this process's targets; return how many were tried. Raises
        StorageUnavailable.
        """
        return await self._bringing.send_due(self.carriers)

    async def run_sweeps(self) -> None:
        """Search for problems every `SWEEP_SECONDS` until cancelled; an unavailable database is only
        logged.
        """
        while True:
            try:
                await self._bringing.store_pending_outcomes()
                await self.sweep_once()
            except StorageUnavailable as error:
                log.warning("alert_storage_unavailable", reason=str(error))
            await asyncio.sleep(SWEEP_SECONDS)

    async def run_sends(self) -> None:
        """Send due messages every `SEND_SECONDS` until cancelled; an unavailable database is only logged."""
        while True:
            if self.carriers:
                try:
                    await self.send_due()
                except StorageUnavailable as error:
                    log.warning("alert_storage_unavailable", reason=str(error))
            await asyncio.sleep(SEND_SECONDS)
