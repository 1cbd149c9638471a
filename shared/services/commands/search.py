"""What was said in a conversation, found by its words: `/search`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from shared.core.commands.texts import CommandTexts, FoundShown, Markdown
from shared.core.memory.search import MessagesFound, SaidMessage
from shared.core.tools.reminders import shown_moment
from shared.core.values.local_time import resolve_zone
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply, Ephemeral


class MessageSearchStore(Protocol):
    async def search(self, session_id: int, text: str, *, linked: bool = True) -> MessagesFound: ...


class SearchCommand:
    def __init__(self, store: MessageSearchStore, *, timezone: str) -> None:
        """`timezone` is for people whose own nobody knows."""
        self._store = store
        self._timezone = timezone

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"search": self._search}

    async def _search(self, call: CommandInvocation) -> CommandReply:
        """Not stored: what is found may be erased later, and must not stand here then."""
        if not call.args:
            return False, Ephemeral(call.texts.search_what)
        found = await self._store.search(call.session_id, call.args, linked=call.audience == "personal")
        if not found.hits:
            return True, Ephemeral(call.texts.nothing_found(words=call.args))
        return True, Ephemeral(render_found(found, call.texts, self._timezone))


def render_found(
    found: MessagesFound,
    texts: CommandTexts,
    timezone: str,
    *,
    links: Mapping[str, str] = MappingProxyType({}),
    more: bool = True,
) -> Markdown:
    """`links` by the keys of hits lead to messages; `more` says in words that there are older ones."""
    zone = resolve_zone(found.timezone, timezone)
    shown = []
    for hit in found.hits:
        day = shown_moment(hit.at, zone)
        link = links.get(str(hit.key))
        day = f"[{day}]({link})" if link else day
        shown.append(FoundShown(day=day, author=hit.author, excerpt=hit.excerpt))
    return texts.found(shown, more=more and found.next is not None)


def render_said(said: SaidMessage, texts: CommandTexts, timezone: str, *, whole: bool) -> Markdown:
    """When something was said and by whom; with `whole` the words, too, as they were written."""
    head = f"{shown_moment(said.at, resolve_zone(said.timezone, timezone))}, {texts.speakers[said.author]}"
    return f"**{head}**\n\n{said.text}" if whole else f"⬆️ {head}"
