"""Notifications of a visitor's browser while no page is open; the page at /chat offers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shared.adapters.postgres.handover.push import PostgresPush
from shared.config.settings import Settings
from shared.core.identity.push import parse_target
from shared.services.admin.push_sender import PushSender
from web.rest.calls import Call, unauthorized_error
from web.rest.kinds import DONE, BrowserKey, Endpoint, Success, describe
from web.rest.operation import OperationRouter

router = OperationRouter("conversations", visitor=True, rate="commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushKey:
    key: Annotated[str, describe("`applicationServerKey` for the Push API, base64url")]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitorPushHandlers:
    """Handlers of a visitor's notifications."""

    push_sender: PushSender
    settings: Settings
    push_store: PostgresPush

    @router.on("GET /push-key", visitor=False, anyone=True, rate="", refusals=(503,))
    async def show_push_key(self, call: Call) -> PushKey:
        """Get the public key for push subscriptions."""
        return PushKey(key=await self.push_sender.public_key())

    @router.on("PUT /push", body="NewVisitorPush", refusals=(404,))
    async def notify_visitor(
        self,
        call: Call,
        *,
        endpoint: Endpoint,
        p256dh: BrowserKey,
        auth: BrowserKey,
        renews: Annotated[
            bool, describe("true renews an existing subscription only; 404 if there is none")
        ] = False,
    ) -> Success | None:
        """Subscribe this browser to notifications of answers.

        Notifications are sent while the visitor has no page open.

        The subscription ends with the visitor's token, with `POST /push/end`, or 30 days after the last
        request.
        """
        services, token = self.settings.push_services, _token(call)
        browser = parse_target(endpoint, p256dh, auth, language=call.language[:35], services=services)
        done = await self.push_store.subscribe_visitor(browser, visitor_hash=token, renews=renews)
        if done is None and not renews:
            raise unauthorized_error()
        return None if done is None else DONE

    @router.on("POST /push/end", body="EndedPush")
    async def end_visitors_push(self, call: Call, *, endpoint: Endpoint) -> Success:
        """Unsubscribe this browser from notifications."""
        await self.push_store.unsubscribe(endpoint, visitor_hash=_token(call))
        return DONE


def _token(call: Call) -> bytes:
    admitted_by = call.person.admitted_by
    if not isinstance(admitted_by, bytes):
        raise unauthorized_error("A visitor's token is needed.")
    return admitted_by
