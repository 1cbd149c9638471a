"""Push notifications for browsers without an open page: hand-overs for operators, answers for visitors. Runs
in the web processes, which know the open pages. Notices are found by polling Postgres, so no turn waits
for them. A notice is claimed before it is sent, hence sent at most once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from shared.core.identity.push import PushNotice, PushTarget, PushUnavailable, Urgency
from shared.core.ops.alerts import AlertRefused, NotSent, Outcome, Sent
from shared.core.values.errors import StorageUnavailable
from shared.locales import catalogue
from shared.runtime import BackgroundTasks, CrashPoint, ignore_crash_point

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between two searches for due notices."""
AT_ONCE = 10
"""Most notices that a process sends at the same time."""
TRIES = 3
"""Most attempts to send a notice whose push service could not be reached."""
TRY_AGAIN_SECONDS = 5.0
"""Seconds before the second attempt; each further one waits that much longer."""
LONGEST_WAIT_SECONDS = 120.0
"""Most seconds between two attempts, also if the push service asks for more."""
OPERATORS_TTL_SECONDS = 3600
"""Seconds for which a push service holds a notice for an operator whose browser is offline."""
VISITORS_TTL_SECONDS = 24 * 3600
"""Seconds for which a push service holds a notice for a visitor whose browser is offline."""
GONE = frozenset({"http_404", "http_410", "bad_keys", "address_refused"})
"""Codes of refusals after which a browser's subscription is deleted."""
BRAND = "Evertalk"
"""Title of a notice without a title of its site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Operators and addresses with an open page in this process."""

    operators: Sequence[int] = ()
    addresses: Sequence[int] = ()


class PushStore(Protocol):
    """Store of browsers' subscriptions and of due notices.

    `claim` returns due notices for people without an open page, each once; operators get none unless
    `at_work`. `record_outcome` deletes a subscription that is `gone` or has failed too often.
    """

    async def claim(
        self, *, operators: Sequence[int], addresses: Sequence[int], at_work: bool
    ) -> Sequence[PushNotice]: ...
    async def record_outcome(self, target_id: int, *, delivered: bool, gone: bool = False) -> None: ...


class PushChannel(Protocol):
    """Way to the browsers' push services; an expected failure is an outcome, not an error."""

    async def public_key(self) -> str: ...
    async def send(
        self, target: PushTarget, message: bytes, *, topic: str, ttl_seconds: int, urgency: Urgency
    ) -> Outcome: ...


class PushSender:
    """Sender of push notices to browsers, of operators and of visitors, for one web process."""

    def __init__(
        self,
        store: PushStore,
        channel: PushChannel,
        *,
        away: Callable[[], str | None],
        crash_point: CrashPoint = ignore_crash_point,
        try_again_seconds: float = TRY_AGAIN_SECONDS,
    ) -> None:
        """Create a sender that notifies operators only while `away` returns None, within working hours.

        Outside them `away` returns a text, and only visitors are notified.
        """
        self._store = store
        self._channel = channel
        self._away = away
        self._crash_point = crash_point
        self._try_again_seconds = try_again_seconds
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks = BackgroundTasks()

    def follow(self, other: PushSender) -> None:
        """Use the channel and the working hours of `other`, which depend on settings."""
        self._channel = other._channel
        self._away = other._away

    async def public_key(self) -> str:
        """Return the public key for subscriptions. Raises StorageUnavailable and PushUnavailable."""
        return await self._channel.public_key()

    async def run(self, present: Callable[[], Present]) -> None:
        """Claim and send due notices every 2 seconds until cancelled; `present` returns who has a page open
        here.
        """
        try:
            await self._make_key()
            while True:
                try:
                    await self.look(present())
                except StorageUnavailable as error:
                    log.warning("push_storage_unavailable", reason=str(error))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._tasks.cancel()

    async def look(self, present: Present) -> None:
        """Claim the notices that are due now, and start sending them in the background. Raises
        StorageUnavailable.
        """
        taken = await self._store.claim(
            operators=present.operators, addresses=present.addresses, at_work=self._away() is None
        )
        for notice in taken:
            self._crash_point("before_push")
            self._tasks.start(self._bring(notice))

    async def settle(self) -> None:
        """Wait up to two minutes for notices being sent, then cancel the rest."""
        await self._tasks.drain(LONGEST_WAIT_SECONDS)

    async def test(self, target: PushTarget) -> Outcome:
        """Send a test notice to one browser, and store and return the outcome.

        Raises StorageUnavailable and PushUnavailable.
        """
        words = catalogue("commands", target.language).say("push_test")
        message = _message(BRAND, words, tag="test", url="dashboard/account")
        outcome = await self._channel.send(target, message, topic="test", ttl_seconds=60, urgency="high")
        await self._record(target, outcome)
        return outcome

    async def _make_key(self) -> None:
        try:
            await self.public_key()
        except (PushUnavailable, StorageUnavailable) as error:
            log.info("push_key_missing", reason=str(error))

    async def _bring(self, notice: PushNotice) -> None:
        try:
            outcome = await self._sent(notice)
            self._crash_point("after_push")
            await self._record(notice.target, outcome)
        except (PushUnavailable, StorageUnavailable) as error:
            log.warning("push_failed", kind=notice.kind, reason=str(error))

    async def _sent(self, notice: PushNotice) -> Outcome:
        """Send a notice with retries; a repeated notice has the same topic and tag, so it replaces the
        former.
        """
        to_operators, tried = notice.kind != "answer", 1
        while True:
            async with self._places:
                outcome = await self._channel.send(
                    notice.target, message_of(notice), topic=notice.session.replace("-", ""),
                    ttl_seconds=OPERATORS_TTL_SECONDS if to_operators else VISITORS_TTL_SECONDS,
                    urgency="high" if to_operators else "normal",
                )  # fmt: skip
            if not isinstance(outcome, NotSent) or outcome.code == "timeout" or tried == TRIES:
                return outcome
            wait = outcome.retry_after or self._try_again_seconds * tried
            await asyncio.sleep(min(wait, LONGEST_WAIT_SECONDS))
            tried += 1

    async def _record(self, target: PushTarget, outcome: Outcome) -> None:
        gone = isinstance(outcome, AlertRefused) and outcome.code in GONE
        log.info("push_sent", outcome=type(outcome).__name__, code=getattr(outcome, "code", ""), gone=gone)
        if isinstance(outcome, NotSent):
            return  # the service or the way to it is down, which says nothing about the browser
        await self._store.record_outcome(target.id, delivered=isinstance(outcome, Sent), gone=gone)


def message_of(notice: PushNotice) -> bytes:
    """Return the notice as JSON for the service worker: title, body, tag and a `url` from the server's root.

    The body holds a name at most, never message text.
    """
    words = catalogue("commands", notice.target.language)
    if notice.kind == "answer":
        said = words.say("push_answer_of", name=notice.name) if notice.name else words.say("push_answer")
        return _message(notice.title or BRAND, said, tag=notice.session, url=f"chat?site={notice.site}")
    said = words.say(f"push_{notice.kind}", name=notice.name or words.say("push_somebody"))
    return _message(BRAND, said, tag=notice.session, url=f"dashboard/inbox?at={notice.session}")


def _message(title: str, body: str, *, tag: str, url: str) -> bytes:
    return json.dumps({"title": title, "body": body, "tag": tag, "url": url}, ensure_ascii=False).encode()
