"""Notifications of an operator's browser while no page of the dashboard is open; they end with the login."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from shared.adapters.postgres.people.operator_auth import digest_of
from shared.core.identity.push import read_target
from shared.core.ops.alerts import Sent
from web.dashboard.access import AuthedRequest
from web.parts import PARTS
from web.rest.kinds import DONE, BrowserKey, Endpoint, Success, told
from web.rest.operation import Reply, Room
from web.security import HttpRefusal
from web.server.words import language_of

room = Room()
Tested = TypedDict("Tested", {
    "sent": bool, "code": Annotated[str, told("why not, such as `http_410`; empty if it was sent")],
})  # fmt: skip


@room.on("PUT /me/push", Success, role="operator", body="NewPush")
async def notify_operator(
    visit: AuthedRequest, *, endpoint: Endpoint, p256dh: BrowserKey, auth: BrowserKey
) -> Reply:
    """Notify this browser of who waits for a human while no page of the dashboard is open.

    It ends with the login, with `POST /me/push/end`, and 30 days after it was last asked for.
    """
    language, services = language_of(visit.request), visit.desk.settings.push_services
    browser = read_target(endpoint, p256dh, auth, language=language, services=services)
    new = await visit.desk.stores.push.subscribe_operator(
        browser, operator_id=visit.operator.operator_id, login_hash=digest_of(visit.token)
    )
    if new is None:
        raise HttpRefusal(401, "unauthorized", "This login has ended already.")
    if new:
        await visit.record("push.on", visit.operator.name)
    return DONE


@room.on("POST /me/push/end", Success, role="operator", body="EndedPush")
async def end_operators_push(visit: AuthedRequest, *, endpoint: Endpoint) -> Reply:
    """Notify this browser of nothing any more."""
    await visit.desk.stores.push.unsubscribe(endpoint, operator_id=visit.operator.operator_id)
    await visit.record("push.off", visit.operator.name)
    return DONE


@room.on(
    "POST /me/push/test", Tested, role="operator", body="EndedPush", refusals=(404, 503)
)  # fmt: skip
async def test_push(visit: AuthedRequest, *, endpoint: Endpoint) -> Reply:
    """Send this browser a notification now."""
    found = await visit.desk.stores.push.find_operators(endpoint, operator_id=visit.operator.operator_id)
    if found is None:
        return None
    outcome = await visit.request.app[PARTS].push.test(found)
    return {"sent": isinstance(outcome, Sent), "code": getattr(outcome, "code", "")}
