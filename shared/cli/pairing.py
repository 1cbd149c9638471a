"""`evertalk pairing`: access to Telegram bots, and links that make a person an owner."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from shared.adapters.postgres.dashboard.telegram import BotState
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import Stores, open_stores
from shared.cli.editor_session import format_columns
from shared.config.bots import BotConfig
from shared.core.identity.operators import COMMAND_LINE
from shared.core.identity.people import CODE_HOURS
from shared.core.values.errors import StorageUnavailable
from shared.ports import AccessRow
from shared.services.admin.agent_service import BotNotFound
from shared.services.admin.pairing_service import ChatNotFound, NoAccessRequest, PairingService

_BY = "./evertalk pairing"
"""Shown in the list of chats as the one who decided."""
_LOOK_SECONDS = 0.1
SERVING_SECONDS = 60.0
"""Seconds to wait until a process serves a bot that has reached Telegram; the process first loads its
models.
"""
_NAME_CHARS = 32


def read_pairing_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk pairing", description="Decide who may write to the Telegram bots."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="list requests, and people and groups that are approved or denied")
    approve = verbs.add_parser("approve", help="approve the person or group with this code")
    deny = verbs.add_parser("deny", help="deny the person or group with this code")
    for verb in (approve, deny):
        verb.add_argument("code", metavar="CODE")
    verbs.add_parser("revoke", help="withdraw an approval").add_argument("id", metavar="ID", type=int)
    verbs.add_parser("owner", help="print a link; the first person to open it becomes the bot's owner")
    return parser.parse_args(arguments)


async def run_pairing(
    wish: argparse.Namespace, *, database_url: str, bots: Sequence[BotConfig], say: Callable[[str], None]
) -> int:
    """Run `evertalk pairing`; return exit status 0, or 1 after a line with the reason."""
    async with open_stores(database_url) as stores:
        if wish.verb == "list":
            return await _list(stores, say)
        pairing = build_operator_services(stores).pairing
        if wish.verb == "revoke":
            return await _revoke(pairing, wish.id, say)
        if wish.verb == "owner":
            return await _owner(pairing, stores, bots, say)
        return await _decide(pairing, wish.code, wish.verb == "approve", say)


async def _list(stores: Stores, say: Callable[[str], None]) -> int:
    names = {bot.bot_id: f"@{bot.username}" for bot in await stores.telegram_bots.list_bots()}
    rows = [
        _cells(row, names.get(row.bot_id, str(row.bot_id))) for row in await stores.telegram_access.list_all()
    ]
    if not rows:
        say("No requests yet. People who write to the bot get a code, which you can approve here.")
        return 0
    head = ("code", "state", "id", "name", "asked", "bot")
    for line in format_columns([head, *rows], most=[80] * len(head)):
        say(line)
    return 0


def _cells(row: AccessRow, bot: str) -> tuple[str, ...]:
    lapsed = row.state == "pending" and datetime.now(UTC) - row.asked_at > timedelta(hours=CODE_HOURS)
    state = "lapsed" if lapsed else "owner" if row.owner and row.state == "allowed" else row.state
    code = "–" if lapsed or row.code is None else row.code
    return code, state, str(row.chat_id), format_person(row), f"{row.asked_at:%Y-%m-%d %H:%M}", bot


async def _decide(pairing: PairingService, code: str, allowed: bool, say: Callable[[str], None]) -> int:
    try:
        row = await pairing.decide_request(code, allowed=allowed, by=_BY, actor=COMMAND_LINE)
    except NoAccessRequest:
        say(f"No request with the code {strip_unprintable(code)} is waiting. A code lasts {CODE_HOURS} hour.")
        say("Writing to the bot again creates a new one; `./evertalk pairing list` shows the requests.")
        return 1
    if allowed:
        say(f"{format_person(row)}, number {row.chat_id}, can write to the bot from now on.")
        say("The bot tells them as soon as it runs.")
    else:
        say(f"{format_person(row)}, number {row.chat_id}, was refused.")
    return 0


async def _revoke(pairing: PairingService, chat_id: int, say: Callable[[str], None]) -> int:
    try:
        revoked = await pairing.revoke_chat(chat_id, by=_BY, actor=COMMAND_LINE)
    except ChatNotFound:
        say(f"Nobody with the number {chat_id} can write to a bot; ./evertalk pairing list shows who can.")
        return 1
    for one in revoked:
        say(f"{format_person(one.access)}, number {chat_id}, can no longer write to @{one.username}.")
        if one.left_without_owner:
            say(f"@{one.username} has no owner now; ./evertalk pairing owner makes a link for a new one.")
    return 0


async def _owner(
    pairing: PairingService, stores: Stores, bots: Sequence[BotConfig], say: Callable[[str], None]
) -> int:
    if not bots:
        say("No bot is set up. ./evertalk setup asks for the token of one.")
        return 1
    names = {bot.bot_id: bot.username for bot in await stores.telegram_bots.list_bots()}
    late = 0
    for bot in bots:
        try:
            link = await pairing.issue_owner_link(bot.bot_id, by=COMMAND_LINE)
        except BotNotFound:
            say(f"The bot of {bot.token_name} has not reached Telegram yet. Start it: ./evertalk up")
            late += 1
            continue
        say(f"@{names[bot.bot_id]} – {link}")
        say("Open it in Telegram within an hour: whoever does so first owns the bot.")
    return 1 if late else 0


async def describe_bots(
    database_url: str, bots: Sequence[BotConfig], *, seconds: float
) -> tuple[list[str], tuple[BotConfig, ...]]:
    """Wait up to `seconds` for the bots; return lines about those that reached Telegram, and the other bots.

    A bot has a line with its problem or its link. For a bot without an owner, a new link makes the first
    person who opens it the owner. With 0 seconds there is no wait.
    """
    if not bots:
        return [], ()
    lines: list[str] = []
    async with open_stores(database_url) as stores:
        states = await _wait_for_enrolment(stores, bots, seconds=seconds)
        for bot in bots:
            if bot.bot_id in states:
                lines += await _lines(stores, states[bot.bot_id])
    return lines, tuple(bot for bot in bots if bot.bot_id not in states)


async def _wait_for_enrolment(
    stores: Stores, bots: Sequence[BotConfig], *, seconds: float
) -> dict[int, BotState]:
    """Wait up to `seconds` until all bots have reached Telegram; return the known states by bot id.

    Once they have, wait until a process serves each, at most `SERVING_SECONDS` from the start. Bots that have
    not reached Telegram are missing in the result. With 0 seconds there is no wait.
    """
    loop = asyncio.get_running_loop()
    ends, serving_ends = loop.time() + seconds, loop.time() + SERVING_SECONDS
    wanted = {bot.bot_id for bot in bots}
    while True:
        states = {
            bot.bot_id: bot for bot in await _retry_storage(stores.telegram_bots.list_bots) if bot.username
        }
        has_reached = wanted <= states.keys() and not any(states[one].problem for one in wanted)
        serves = has_reached and all(states[one].served_by is not None for one in wanted)
        if serves or loop.time() > (serving_ends if has_reached and seconds else ends):
            return states
        await asyncio.sleep(_LOOK_SECONDS)


async def _retry_storage(ask: Callable[[], Awaitable[list[BotState]]]) -> list[BotState]:
    """Return the bots' states; an empty list if the database does not answer, so that the wait continues."""
    with contextlib.suppress(StorageUnavailable):
        return await ask()
    return []


async def _lines(stores: Stores, bot: BotState) -> list[str]:
    if bot.problem:
        return [f"@{bot.username}: {bot.problem}"]
    if await stores.telegram_access.list_owners(bot.bot_id):
        return [f"@{bot.username} – https://t.me/{bot.username}"]
    link = await build_operator_services(stores).pairing.issue_owner_link(bot.bot_id, by=COMMAND_LINE)
    return [f"@{bot.username} – {link}", "(open it in Telegram: whoever does so first owns the bot)"]


def format_person(row: AccessRow) -> str:
    """Return name and user name of a person or group without characters that could control the terminal."""
    name = strip_unprintable(row.name)[:_NAME_CHARS] or ("a group" if row.chat_id < 0 else "somebody")
    return f"{name} (@{strip_unprintable(row.username)})" if row.username else name


def strip_unprintable(text: str) -> str:
    """Return the text without unprintable characters and without blanks at its ends."""
    return "".join(char for char in text if char.isprintable()).strip()
