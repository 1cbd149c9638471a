"""Command `/search`: finds messages of a conversation by words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from shared.core.commands.texts import Markdown, escape, excerpt, number_lines
from shared.core.memory.search import MessagesFound, SaidMessage
from shared.core.tools.reminders import format_moment
from shared.core.values.local_time import resolve_zone
from shared.locales import Catalogue
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply, Ephemeral


class MessageSearchStore(Protocol):
    """Store that searches a session's messages, newest hits first; `linked` adds conversations joined by
    `/link`.
    """

    async def search(self, session_id: int, text: str, *, linked: bool = True) -> MessagesFound: ...


class SearchCommand:
    """Handler of `/search`."""

    def __init__(self, store: MessageSearchStore, *, timezone: str) -> None:
        """Set up the command; `timezone` applies to people whose time zone is unknown."""
        self._store = store
        self._timezone = timezone

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/search` by command name."""
        return {"search": self._search}

    async def _search(self, call: CommandInvocation) -> CommandReply:
        """Reply with the messages found.

        The reply is not stored, since a message in it may be erased later.
        """
        if not call.args:
            return False, Ephemeral(call.texts.say("search_what"))
        found = await self._store.search(call.session_id, call.args, linked=call.audience == "personal")
        if not found.hits:
            return True, Ephemeral(call.texts.say("nothing_found", words=excerpt(call.args)))
        return True, Ephemeral(render_found(found, call.texts, self._timezone))


def render_found(
    found: MessagesFound,
    texts: Catalogue,
    timezone: str,
    *,
    links: Mapping[str, str] = MappingProxyType({}),
    more: bool = True,
) -> Markdown:
    """Return the hits as a numbered Markdown list with time, author and excerpt.

    `timezone` applies if the person's is unknown. `links` holds an address for a hit's key; `more` adds a
    sentence if there are older hits.
    """
    zone = resolve_zone(found.timezone, timezone)
    rows = []
    for hit in found.hits:
        day = format_moment(hit.at, zone)
        link = links.get(str(hit.key))
        day = f"[{day}]({link})" if link else day
        words = "".join(f"**{escape(part)}**" if sought else escape(part) for part, sought in hit.excerpt)
        rows.append(f"{day}, {texts.say(f'speaker_{hit.author}')}: {words}")
    rest = [texts.say("found_more")] if more and found.next is not None else []
    return "\n\n".join([texts.say("found_head"), number_lines(rows), *rest])


def render_said(said: SaidMessage, texts: Catalogue, timezone: str, *, whole: bool) -> Markdown:
    """Return time and author of a message as Markdown; with `whole`, also its text as it was written.

    `timezone` applies if the person's is unknown.
    """
    day = format_moment(said.at, resolve_zone(said.timezone, timezone))
    head = f"{day}, {texts.say(f'speaker_{said.author}')}"
    return f"**{head}**\n\n{said.text}" if whole else f"⬆️ {head}"
