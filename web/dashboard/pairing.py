"""Pairing for operators: who asked to write to the bots, and the word of yes or no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from shared.adapters.postgres.dashboard.telegram import PostgresTelegramBots
from shared.adapters.postgres.telegram.access import OWNER_LINK_MINUTES, PostgresTelegramAccess
from shared.core.identity.people import CODE_HOURS
from shared.ports import AccessRow
from shared.services.admin.pairing_service import PairingService
from web.dashboard.access import AuthedRequest
from web.rest.kinds import describe
from web.rest.operation import OperationRouter
from web.security import HttpRefusal

router = OperationRouter()
_MOST = 2**53
BotId = Annotated[int, describe("id of a bot at Telegram", ge=1, le=_MOST)]
TelegramId = Annotated[int | None, Field(ge=-_MOST, le=_MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """Request of a person or group for access to a bot, and the decision."""

    bot: int
    username: str | None
    chat: int
    group: bool
    state: str
    owner: bool
    name: str | None
    handle: str | None
    code: str | None
    asked_at: datetime
    decided_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedBot:
    """Bot, and the number of its owners."""

    bot: int
    username: str
    owners: Annotated[int, describe("number of people who decide in Telegram who may write")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Requests for access, and the bots that they concern."""

    requests: list[AccessRequest]
    bots: list[str]
    owned_bots: list[OwnedBot]
    code_hours: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLink:
    """Link that makes the first person who opens it an owner of the bot."""

    link: Annotated[str, describe("link that works once; the first person to open it owns the bot")]
    minutes: Annotated[int, describe("minutes that the link is valid")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Request after a decision."""

    request: AccessRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingHandlers:
    """Handlers of access to the bots."""

    pairing_service: PairingService
    telegram_access: PostgresTelegramAccess
    telegram_bots: PostgresTelegramBots

    @router.on("GET /pairing", role="viewer")
    async def list_pairing(self, authed: AuthedRequest) -> Pairing:
        """List requests for access to the bots."""
        access = self.telegram_access
        bots = {bot.bot_id: bot.username for bot in await self.telegram_bots.list_bots()}
        may = authed.operator.has_role("operator")
        rows = [_request(row, bots, may=may) for row in await access.list_all()]
        owners = await access.count_owners()
        owned = [
            OwnedBot(bot=bot, username=name, owners=owners.get(bot, 0)) for bot, name in bots.items() if name
        ]
        await authed.record_reading("pairing")
        return Pairing(requests=rows, bots=sorted(bots.values()), owned_bots=owned, code_hours=CODE_HOURS)

    @router.on("POST /pairing/{bot}/owner-link", role="admin", missing="There is no such bot.")
    async def make_owner_link(self, authed: AuthedRequest, bot: BotId) -> OwnerLink:
        """Create an owner link of a bot.

        The first person to open it in Telegram becomes an owner. Earlier owners and unused links remain.
        """
        link = await self.pairing_service.issue_owner_link(bot, by=authed.operator.name)
        return OwnerLink(link=link, minutes=OWNER_LINK_MINUTES)

    @router.on("POST /pairing", role="operator", body="PairingMove")
    async def decide_pairing(
        self,
        authed: AuthedRequest,
        *,
        action: Literal["approve", "refuse", "block", "allow"],
        code: Annotated[str, Field(max_length=40)] = "",
        bot: TelegramId = None,
        chat: TelegramId = None,
    ) -> Paired:
        """Approve, refuse, block or allow a chat.

        `approve` and `refuse` need the `code` of a request; `block` and `allow` need the ids of `bot` and
        `chat`.
        """
        if action in ("approve", "refuse"):
            row = await self._by_code(authed, code, allowed=action == "approve")
        else:
            row = await self._by_chat(authed, bot, chat, allowed=action == "allow")
        return Paired(request=_request(row, {}, may=True))

    async def _by_code(self, authed: AuthedRequest, code: str, *, allowed: bool) -> AccessRow:
        if not code:
            raise HttpRefusal(400, "bad_input", "Send the `code` that the person was given.")
        by = authed.operator.name
        return await self.pairing_service.decide_request(code, allowed=allowed, by=by, actor=by)

    async def _by_chat(
        self, authed: AuthedRequest, bot: int | None, chat: int | None, *, allowed: bool
    ) -> AccessRow:
        if bot is None or chat is None:
            raise HttpRefusal(400, "bad_input", "Send `bot` and `chat`, the numbers of Telegram.")
        by = authed.operator.name
        return await self.pairing_service.decide_chat(bot, chat, allowed=allowed, by=by, actor=by)


def _request(row: AccessRow, bots: Mapping[int, str], *, may: bool) -> AccessRequest:
    """Return a request as operators see it; only those who `may` decide get its code."""
    lapsed = row.state == "pending" and datetime.now(UTC) - row.asked_at > timedelta(hours=CODE_HOURS)
    return AccessRequest(
        bot=row.bot_id,
        username=bots.get(row.bot_id) or None,
        chat=row.chat_id,
        group=row.chat_id < 0,
        state="lapsed" if lapsed else row.state,
        owner=row.owner and row.state == "allowed",
        name=row.name or None,
        handle=row.username or None,
        code=row.code if may and not lapsed else None,
        asked_at=row.asked_at,
        decided_by=row.decided_by or None,
    )
