"""Command `/search`: finds messages of a conversation by their words."""

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
    async def search(self, session_id: int, text: str, *, linked: bool = True) -> MessagesFound: ...


class SearchCommand:
    def __init__(self, store: MessageSearchStore, *, timezone: str) -> None:
        """`timezone` is for people whose timezone is unknown."""
        self._store = store
        self._timezone = timezone

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"search": self._search}

    async def _search(self, call: CommandInvocation) -> CommandReply:
        """Not stored: what is found may be erased later, and must not stand here then."""
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
    """`links` by the keys of hits lead to messages; `more` says in words that there are older ones."""
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
    """When something was said and by whom; with `whole` the words, too, as they were written."""
    day = format_moment(said.at, resolve_zone(said.timezone, timezone))
    head = f"{day}, {texts.say(f'speaker_{said.author}')}"
    return f"**{head}**\n\n{said.text}" if whole else f"⬆️ {head}"
