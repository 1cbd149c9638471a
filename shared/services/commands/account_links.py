"""Commands `/link` and `/unlink`, which join the channels of one person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, get_args

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import excerpt, number_lines
from shared.core.identity.people import (
    CODE_MINUTES,
    AccountLink,
    LinkedContacts,
    LinkRefusal,
    UnlinkedContact,
    UnlinkRefusal,
    format_code,
)
from shared.locales import Catalogue
from shared.ports import ALL_PROCESSES, TELEGRAM_CHAT_MOVED, Announcer
from shared.runtime import CrashPoint, ignore_crash_point
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply, Ephemeral

_NUMBER = re.compile(r"[1-9][0-9]{0,2}")


class AccountLinkStore(Protocol):
    """Store of codes and links between a person's channels.

    `issue_code`, `link_account` and `unlink_account` return the reason as text if they refuse. A code is
    valid for a short time, and only its hash is stored. `link_id` None means the only link.
    """

    async def issue_code(self, session_id: int, address_id: int) -> str | LinkRefusal: ...
    async def link_account(
        self, session_id: int, address_id: int, words: str
    ) -> LinkedContacts | LinkRefusal: ...
    async def list_links(self, session_id: int) -> Sequence[AccountLink]: ...
    async def unlink_account(
        self, session_id: int, address_id: int, link_id: int | None
    ) -> UnlinkedContact | UnlinkRefusal: ...


class AccountLinkCommands:
    """Handlers of `/link` and `/unlink`."""

    def __init__(
        self, people: AccountLinkStore, announcer: Announcer, *, crash_point: CrashPoint = ignore_crash_point
    ) -> None:
        self._people = people
        self._announcer = announcer
        self._crash_point = crash_point

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handlers of `/link` and `/unlink` by command name."""
        return {"link": self._link, "unlink": self._unlink}

    async def _link(self, call: CommandInvocation) -> CommandReply:
        if call.address_id is None:
            return False, call.texts.say("link_refused_not_here")
        if call.args:
            return await self._join(call, call.address_id)
        code = await self._people.issue_code(call.session_id, call.address_id)
        if code in get_args(LinkRefusal):
            return False, call.texts.say(f"link_refused_{code}")
        # The code must stay secret, so it is not stored in the log.
        return True, Ephemeral(call.texts.say("link_code", code=format_code(code), count=CODE_MINUTES))

    async def _join(self, call: CommandInvocation, address_id: int) -> CommandReply:
        joined = await self._people.link_account(call.session_id, address_id, call.args)
        if not isinstance(joined, LinkedContacts):
            return False, call.texts.say(f"link_refused_{joined}")
        if joined.again:
            return True, call.texts.say("linked_before")
        self._crash_point("after_link")
        await self._announcer.announce(ALL_PROCESSES, TELEGRAM_CHAT_MOVED)
        words = call.texts.say(f"linked_{_channel(joined.other_channel)}")
        if joined.agent != joined.other_agent:
            words = f"{words}\n\n{call.texts.say('linked_agent', agent=excerpt(joined.agent))}"
        return True, words

    async def _unlink(self, call: CommandInvocation) -> CommandReply:
        if call.address_id is None:
            return False, call.texts.say("link_refused_not_here")
        links = await self._people.list_links(call.session_id)
        if not links:
            return False, call.texts.say("not_linked")
        meant = _find_link(call.args, links)
        if meant is None:
            rows = number_lines([_render_links(link, call.texts) for link in links])
            return False, f"{call.texts.say('which_link')}\n\n{rows}"
        parted = await self._people.unlink_account(call.session_id, call.address_id, meant.id)
        if not isinstance(parted, UnlinkedContact):
            refused = f"link_refused_{parted}"
            return False, call.texts.say(refused if refused in call.texts else "not_linked")
        await self._announcer.announce(ALL_PROCESSES, TELEGRAM_CHAT_MOVED)
        return True, call.texts.say(f"unlinked_{'here' if parted.is_caller else _channel(parted.channel)}")


def _find_link(args: str, links: Sequence[AccountLink]) -> AccountLink | None:
    """Return the link that the argument numbers, or the only one; None if it must be chosen.

    Raises BadArguments for another argument than a number.
    """
    if not args:
        return links[0] if len(links) == 1 else None
    if not _NUMBER.fullmatch(args):
        raise BadArguments.from_key("bad_unlink")
    number = int(args)
    return links[number - 1] if number <= len(links) else None


def _render_links(link: AccountLink, texts: Catalogue) -> str:
    channel, day = texts.say(f"channel_{_channel(link.channel)}"), f"{link.linked_at:%Y-%m-%d}"
    if link.title:
        return texts.say("link_row_titled", channel=channel, title=excerpt(link.title), day=day)
    return texts.say("link_row", channel=channel, day=day)


def _channel(name: str) -> str:
    return name if name in ("telegram", "web") else "elsewhere"
