"""One person on two channels: `/link` and `/unlink`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import LinkListed
from shared.core.identity.people import (
    CODE_MINUTES,
    Joined,
    LinkRefusal,
    LinkShown,
    Parted,
    UnlinkRefusal,
    shown_code,
)
from shared.ports import ALL_PROCESSES, TELEGRAM_CHAT_MOVED, Announcer
from shared.runtime.crash_points import CrashPoint, ignore_crash_point
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply, Ephemeral

_NUMBER = re.compile(r"[1-9][0-9]{0,2}")


class AccountLinkStore(Protocol):
    async def issue_code(self, session_id: int, address_id: int) -> str | LinkRefusal: ...
    async def link_account(self, session_id: int, address_id: int, words: str) -> Joined | LinkRefusal: ...
    async def list_links(self, session_id: int) -> Sequence[LinkShown]: ...
    async def unlink_account(
        self, session_id: int, address_id: int, link_id: int | None
    ) -> Parted | UnlinkRefusal: ...


class AccountLinkCommands:
    def __init__(
        self, people: AccountLinkStore, announcer: Announcer, *, crash_point: CrashPoint = ignore_crash_point
    ) -> None:
        self._people = people
        self._announcer = announcer
        self._crash_point = crash_point

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"link": self._link, "unlink": self._unlink}

    async def _link(self, call: CommandInvocation) -> CommandReply:
        if call.address_id is None:
            return False, call.texts.link_refusals["not_here"]
        if call.args:
            return await self._join(call, call.address_id)
        code = await self._people.issue_code(call.session_id, call.address_id)
        refusal = call.texts.link_refusals.get(code)
        if refusal is not None:
            return False, refusal
        # A code that is stored in the log would be no secret of the one who asked for it.
        return True, Ephemeral(call.texts.link_code(code=shown_code(code), minutes=CODE_MINUTES))

    async def _join(self, call: CommandInvocation, address_id: int) -> CommandReply:
        joined = await self._people.link_account(call.session_id, address_id, call.args)
        if not isinstance(joined, Joined):
            return False, call.texts.link_refusals[joined]
        if joined.again:
            return True, call.texts.linked_before
        self._crash_point("after_link")
        await self._announcer.announce(ALL_PROCESSES, TELEGRAM_CHAT_MOVED)
        words = call.texts.linked(
            channel=joined.other_channel, agent=joined.agent, other_agent=joined.other_agent
        )
        return True, words

    async def _unlink(self, call: CommandInvocation) -> CommandReply:
        if call.address_id is None:
            return False, call.texts.link_refusals["not_here"]
        links = await self._people.list_links(call.session_id)
        if not links:
            return False, call.texts.not_linked
        meant = _find_link(call.args, links)
        if meant is None:
            return False, call.texts.which_link([_listed(link) for link in links])
        parted = await self._people.unlink_account(call.session_id, call.address_id, meant.id)
        if not isinstance(parted, Parted):
            return False, call.texts.link_refusals.get(parted, call.texts.not_linked)
        await self._announcer.announce(ALL_PROCESSES, TELEGRAM_CHAT_MOVED)
        return True, call.texts.unlinked(channel=parted.channel, here=parted.is_caller)


def _find_link(args: str, links: Sequence[LinkShown]) -> LinkShown | None:
    """By its number in the list, or the only one."""
    if not args:
        return links[0] if len(links) == 1 else None
    if not _NUMBER.fullmatch(args):
        raise BadArguments("/unlink takes a number of its list, or nothing when there is only one.")
    number = int(args)
    return links[number - 1] if number <= len(links) else None


def _listed(link: LinkShown) -> LinkListed:
    return LinkListed(channel=link.channel, title=link.title, day=f"{link.linked_at:%Y-%m-%d}")
