"""Pairing for operators: who asked to write to the bots, and the word of yes or no."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from shared.adapters.postgres.dashboard.telegram import PostgresTelegramBots
from shared.adapters.postgres.telegram.access import CODE_HOURS, AccessRow, PostgresTelegramAccess
from shared.core.session.client_payloads import iso
from web.dashboard.access import AuthedRequest, DashboardRefusal, Route, answer
from web.dashboard.requests.request_json import read_json

PAIRING = "/api/v1/pairing"
_MOST = 2**53


def routes() -> tuple[Route, ...]:
    return (
        Route(method="GET", path=PAIRING, need="viewer", handler=pairing),
        Route(method="POST", path=PAIRING, need="operator", handler=decide),
    )


async def pairing(visit: AuthedRequest) -> web.StreamResponse:
    """Requests first, the newest first; a code is told to those who may use it."""
    bots = {bot.bot_id: bot.username for bot in await PostgresTelegramBots(visit.desk.pool).bots()}
    may = visit.operator.may("operator")
    rows = [_shown(row, bots, may=may) for row in await PostgresTelegramAccess(visit.desk.pool).all()]
    if not visit.refresh:
        await visit.desk.operators.record(actor=visit.operator.name, action="read.pairing")
    return answer({"requests": rows, "bots": sorted(bots.values()), "code_hours": CODE_HOURS})


async def decide(visit: AuthedRequest) -> web.StreamResponse:
    """`{"action": "approve"|"refuse", "code"}`, or `{"action": "block"|"allow", "bot", "chat"}`."""
    body = await read_json(visit)
    match body.get("action"):
        case "approve" | "refuse" as action:
            row = await _by_code(visit, body, allowed=action == "approve")
        case "block" | "allow" as action:
            row = await _by_chat(visit, body, allowed=action == "allow")
        case _:
            raise DashboardRefusal(400, "bad_input", "action is approve, refuse, block or allow.")
    await visit.desk.operators.record(
        actor=visit.operator.name, action=f"pairing.{action}", about=f"telegram:{row.bot_id}:{row.chat_id}"
    )
    return answer({"request": _shown(row, {}, may=True)})


async def _by_code(visit: AuthedRequest, body: Mapping[str, Any], *, allowed: bool) -> AccessRow:
    code = body.get("code")
    if not isinstance(code, str) or not 0 < len(code) <= 40 or "\x00" in code:
        raise DashboardRefusal(400, "bad_input", "Send the `code` that the person was given.")
    access = PostgresTelegramAccess(visit.desk.pool)
    row = await access.decide_by_code(code, allowed=allowed, by=visit.operator.name)
    if row is None:
        words = f"No request with this code waits: it was decided, or is older than {CODE_HOURS} hour."
        raise DashboardRefusal(409, "no_request", words)
    return row


async def _by_chat(visit: AuthedRequest, body: Mapping[str, Any], *, allowed: bool) -> AccessRow:
    bot, chat = body.get("bot"), body.get("chat")
    for number in (bot, chat):
        if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _MOST:
            raise DashboardRefusal(400, "bad_input", "Send `bot` and `chat`, the numbers of Telegram.")
    assert isinstance(bot, int)
    assert isinstance(chat, int)
    access = PostgresTelegramAccess(visit.desk.pool)
    if await access.find(bot, chat) is None:
        raise DashboardRefusal(404, "not_found", "Nobody of that number has written to this bot.")
    return await access.decide(bot, chat, allowed=allowed, by=visit.operator.name)


def _shown(row: AccessRow, bots: Mapping[int, str], *, may: bool) -> dict[str, Any]:
    lapsed = row.state == "pending" and datetime.now(UTC) - row.asked_at > timedelta(hours=CODE_HOURS)
    return {
        "bot": row.bot_id,
        "username": bots.get(row.bot_id) or None,
        "chat": row.chat_id,
        "group": row.chat_id < 0,
        "state": "lapsed" if lapsed else row.state,
        "owner": row.owner and row.state == "allowed",
        "name": row.name or None,
        "handle": row.username or None,
        "code": row.code if may and not lapsed else None,
        "asked_at": iso(row.asked_at),
        "decided_by": row.decided_by or None,
    }
