"""Alerts for operators: test alerts, sent by the same rules from shell and REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from shared.core.values.errors import EvertalkError


class AlertTestStore(Protocol):
    """Store of test alerts; `has_sender` says whether a process that sends alerts is alive."""

    async def send_test(self, targets: Sequence[str], *, by: str) -> UUID: ...
    async def has_sender(self) -> bool: ...


class NoAlertTargets(EvertalkError):
    """No recipient of alerts is set up."""

    sentence = "No recipient of alerts is set up."
    code = "no_targets"
    advice = (
        "Alerts go to nobody yet: set EVERTALK_ALERT_TELEGRAM_CHATS, EVERTALK_ALERT_WEBHOOK_URL "
        "or EVERTALK_ALERT_SMTP_URL."
    )


class NoAlertSender(EvertalkError):
    """No process runs that sends alerts."""

    sentence = "No process runs that sends alerts."
    code = "no_sender"
    advice = "Evertalk does not run, and only it sends alerts. Start it, then try again."


class AlertService:
    """Operators' test of alerts, recorded in the audit log. Raises StorageUnavailable."""

    def __init__(self, alerts: AlertTestStore) -> None:
        self._alerts = alerts

    async def send_test(self, targets: Sequence[str], *, by: str, needs_sender: bool = False) -> UUID:
        """Store a test alert with a due message to each target, and return its public id; another task sends
        it.

        `needs_sender` requires that a process which sends alerts is alive. Raises NoAlertTargets without
        targets, NoAlertSender without that process.
        """
        if not targets:
            raise NoAlertTargets
        if needs_sender and not await self._alerts.has_sender():
            raise NoAlertSender
        return await self._alerts.send_test(targets, by=by)
