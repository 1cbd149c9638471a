"""Messages that are stored with their claim."""

from __future__ import annotations

from shared.core.session.turns import Accepted, Claim
from shared.core.values.messages import Block
from tests.kit.app_driver import Visit


async def begin(guest: Visit, text: str, *, cid: str | None = None, more: tuple[Block, ...] = ()) -> Accepted:
    return await guest.app.sessions.accept_and_claim(guest.inbound(text, cid=cid, more=more))


async def begun_claim(guest: Visit, text: str) -> Claim:
    await begin(guest, text)
    claim, _ = guest.app.sessions._begun[guest.session_id]
    return claim
