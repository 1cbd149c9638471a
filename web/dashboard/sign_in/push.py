"""Notifications of an operator's browser while no page of the dashboard is open; they end with the login."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shared.adapters.postgres.handover.push import PostgresPush
from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.config.settings import Settings
from shared.core.identity.push import parse_target
from shared.core.ops.alerts import Sent
from shared.services.admin.push_sender import GONE, PushSender
from web.dashboard.access import AuthedRequest
from web.rest.kinds import DONE, BrowserKey, Endpoint, Success, describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal
from web.server.words import language_of

router = OperationRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    sent: bool
    code: Annotated[str, describe("error code such as `http_410`; empty if the notification was sent")]
    ended: Annotated[bool, describe("true if the subscription has expired and was deleted")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPushHandlers:
    """Handlers of an operator's notifications."""

    settings: Settings
    push: PostgresPush
    push_sender: PushSender | None

    @router.on("PUT /me/push", role="operator", body="NewPush")
    async def notify_operator(
        self, authed: AuthedRequest, *, endpoint: Endpoint, p256dh: BrowserKey, auth: BrowserKey
    ) -> Success:
        """Subscribe this browser to notifications of hand-overs.

        Notifications are sent while no page of the dashboard is open.

        The subscription ends with the login, with `POST /me/push/end`, or 30 days after the last request.
        """
        language, services = language_of(authed.request), self.settings.push_services
        browser = parse_target(endpoint, p256dh, auth, language=language, services=services)
        new = await self.push.subscribe_operator(
            browser, operator_id=authed.operator.operator_id, login_hash=hash_secret(authed.token)
        )
        if new is None:
            raise HttpRefusal(401, "unauthorized", "This login has ended already.")
        if new:
            await authed.record("push.on", authed.operator.name)
        return DONE

    @router.on("POST /me/push/end", role="operator", body="EndedPush")
    async def end_operators_push(self, authed: AuthedRequest, *, endpoint: Endpoint) -> Success:
        """Unsubscribe this browser from notifications."""
        await self.push.unsubscribe(endpoint, operator_id=authed.operator.operator_id)
        await authed.record("push.off", authed.operator.name)
        return DONE

    @router.on(
        "POST /me/push/test", role="operator", body="EndedPush", refusals=(404, 503)
    )  # fmt: skip
    async def test_push(self, authed: AuthedRequest, *, endpoint: Endpoint) -> Tested | None:
        """Send a test notification to this browser."""
        found = await self.push.find_operator_target(endpoint, operator_id=authed.operator.operator_id)
        if found is None:
            return None
        if self.push_sender is None:
            raise HttpRefusal(503, "not_available", "Nothing can be changed from here just now.")
        outcome = await self.push_sender.test(found)
        sent, code = isinstance(outcome, Sent), getattr(outcome, "code", "")
        return Tested(sent=sent, code=code, ended=code in GONE)
