"""What was sent is known while the process lives: a database that is away makes nobody read it twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.core.ops.alerts import Alert, Outcome, Sending, Sent
from shared.core.values.errors import StorageUnavailable
from shared.services.admin.alert_sender import AlertSender

ALERT = Alert(public_id="p", kind="test", key="", detail={}, opened_at=datetime(2026, 3, 1, tzinfo=UTC))


class Store:
    def __init__(self, *targets: str) -> None:
        self.due = [
            Sending(send_id=at, send_key=str(at), target=target, phase="opened", attempt=1, alert=ALERT)
            for at, target in enumerate(targets)
        ]
        self.away = False
        self.stored: list[tuple[int, Outcome]] = []

    async def sweep(self, rules: Any, *, worker_id: int, targets: Sequence[str]) -> None:
        raise AssertionError("nobody looks here")

    async def claim(self, targets: Sequence[str], *, worker_id: int) -> Sending | None:
        found = next((one for one in self.due if one.target in targets), None)
        if found is not None:
            self.due.remove(found)
        return found

    async def record_outcome(self, sending: Sending, outcome: Outcome, *, worker_id: int) -> bool:
        if self.away:
            raise StorageUnavailable("gone")
        self.stored.append((sending.send_id, outcome))
        return True


class Mailbox:
    def __init__(self) -> None:
        self.read: list[str] = []

    async def send(self, sending: Sending) -> Outcome:
        self.read.append(sending.send_key)
        return Sent()


async def test_only_what_one_can_carry_is_claimed() -> None:
    store, box = Store("webhook", "telegram:5"), Mailbox()
    assert await AlertSender(store, worker_id=1).send_due({"webhook": box}) == 1
    assert [one.target for one in store.due] == ["telegram:5"]
    assert store.stored == [(0, Sent())]


async def test_what_could_not_be_stored_is_stored_later_and_not_sent_again() -> None:
    store, box = Store("email", "email"), Mailbox()
    bringing = AlertSender(store, worker_id=1)
    store.away = True
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            await bringing.send_due({"email": box})
    assert (box.read, store.stored) == (["0"], [])
    store.away = False
    assert await bringing.send_due({"email": box}) == 1
    assert (box.read, [send_id for send_id, _ in store.stored]) == (["0", "1"], [0, 1])


async def test_it_can_die_before_and_after_each_message() -> None:
    passed: list[str] = []
    bringing = AlertSender(Store("email"), worker_id=1, crash_point=passed.append)
    await bringing.send_due({"email": Mailbox()})
    assert passed == ["before_alert_send", "after_alert_send"]
