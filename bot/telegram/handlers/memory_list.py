"""Shows the list of notes, with buttons that archive and restore them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from aiogram.types import CallbackQuery

from bot.telegram.inbound.bot_context import BotContext
from bot.telegram.outbound.buttons import ButtonPress, build_note_buttons
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import Markdown, escape_markdown, get_chat_texts, get_command_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.texts import excerpt, group_by_subject, note_list
from shared.core.context.memory import search_stems
from shared.core.context.notes import KeptNote, NoteResult, NoteSource
from shared.ports import Announcer

NOTES_PER_PAGE = 8
"""Notes on one page, and maximum notes of a search result."""
MAX_PAGES = 50
"""Maximum pages of the list; older notes are not shown."""
SEARCH_MARK = "found"
"""Mark in callback data of buttons below a search result; the query itself does not fit there."""
_MAX_QUERY_CHARS = 300


class MemoryList:
    """List of notes of one bot's chats; the caller has checked that a press came from the given chat."""

    def __init__(self, context: BotContext, *, notifier: Notifier, announcer: Announcer) -> None:
        self._notifier = notifier
        self._notes = context.stores.notes
        self._announcer = announcer

    async def show(self, chat: ChatRow, query_text: str) -> None:
        """Send the first page of notes, or at most `NOTES_PER_PAGE` notes that match `query_text`.

        Also stores the order of the listed notes, by which `/forget 3` finds one.
        """
        if not query_text:
            await self._show_page(chat, None, page=0)
            return
        found = await self._notes.find(
            await self._notes.load_owner(chat.session_id),
            search_stems(query_text[:_MAX_QUERY_CHARS]),
            limit=NOTES_PER_PAGE,
        )
        if not found.notes:
            text = get_command_texts(chat).say("memory_nothing_about", words=excerpt(query_text))
            await self._notifier.send(get_chat_target(chat), text)
            return
        await self._store_list(chat, found.notes)
        body = self._format_list(chat, found.notes, more=found.total - len(found.notes))
        buttons = build_note_buttons(chat, _number_notes(found.notes), mark=SEARCH_MARK)
        await self._notifier.send(get_chat_target(chat), body, keyboard=buttons)

    async def show_page(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Show page `press.subject`, counted from 0, in place of the message with the pressed button."""
        await self._notifier.answer_callback(query.id)
        await self._show_page(chat, query, page=press.subject)

    async def archive(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Archive the note of a button and show the list again, with a button that restores the note.

        Repeating the press has no further effect. A note of another owner or a deleted note counts as
        outdated. Other clients of the session are notified.
        """
        texts, source = get_chat_texts(chat), await self._load_source(chat)
        note = await self._notes.load_note(press.subject, source)
        result = await self._notes.archive(note.short_id, source) if note else None
        if note is None or result is None or result.outcome != "forgotten":
            await self._answer_outdated(query, chat, press)
            return
        await self._announce(chat, result)
        await self._notifier.answer_callback(query.id, texts.say("note_deleted"))
        await self._redraw(
            chat,
            press,
            query,
            texts.say("deleted", words=escape_markdown(note.text, most=200)),
            undo=note.id,
        )

    async def restore(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        """Restore the archived note of a button, show the list again, and notify other clients of the
        session.
        """
        texts, source = get_chat_texts(chat), await self._load_source(chat)
        note = await self._notes.load_note(press.subject, source)
        result = await self._notes.restore(note.short_id, source) if note else None
        if note is None or result is None or result.outcome not in ("restored", "known"):
            await self._answer_outdated(query, chat, press)
            return
        await self._announce(chat, result)
        await self._notifier.answer_callback(query.id, texts.say("restored"))
        await self._redraw(chat, press, query, None, undo=None)

    async def _answer_outdated(self, query: CallbackQuery, chat: ChatRow, press: ButtonPress) -> None:
        await self._notifier.answer_callback(query.id, get_chat_texts(chat).say("unknown_button"))
        if press.word != SEARCH_MARK:
            await self._show_page(chat, query, page=_parse_page(press))

    async def _redraw(
        self,
        chat: ChatRow,
        press: ButtonPress,
        query: CallbackQuery,
        line: Markdown | None,
        *,
        undo: int | None,
    ) -> None:
        """Show the page of the press again with `line` below.

        After a search show only `line`, as its query is unknown. `undo` is the id of a note for the button
        that restores it, None for no such button.
        """
        if press.word != SEARCH_MARK or line is None:
            await self._show_page(chat, query, page=_parse_page(press), line=line, undo=undo)
            return
        buttons = build_note_buttons(chat, (), mark=SEARCH_MARK, undo=undo, all_notes=True)
        await self._notifier.send_or_edit(chat, query, line, keyboard=buttons)

    async def _show_page(
        self,
        chat: ChatRow,
        query: CallbackQuery | None,
        *,
        page: int,
        line: Markdown | None = None,
        undo: int | None = None,
    ) -> None:
        """Show page `page`, counted from 0, or the last one if it is gone, with `line` below the list.

        `undo` is the id of a note that a button restores, or None; `query` None sends a new message.
        """
        owner = await self._notes.load_owner(chat.session_id)
        asked = min(page, MAX_PAGES - 1)
        found = await self._notes.find(owner, (), limit=(asked + 1) * NOTES_PER_PAGE)
        pages = min(-(-found.total // NOTES_PER_PAGE), MAX_PAGES)
        at = max(min(asked, pages - 1), 0)
        grouped = [
            group_by_subject(found.notes[first : first + NOTES_PER_PAGE])
            for first in range(0, len(found.notes), NOTES_PER_PAGE)
        ]
        await self._store_list(chat, [*chain.from_iterable(grouped)])
        shown = grouped[at] if grouped else ()
        body = self._format_list(chat, shown, first=at * NOTES_PER_PAGE + 1, by_subject=True)
        body = f"{body}\n\n{line}" if line else body
        buttons = build_note_buttons(
            chat, _number_notes(shown, first=at * NOTES_PER_PAGE + 1), mark=f"p{at}", undo=undo,
            back=at - 1 if at else None, on=at + 1 if at + 1 < pages else None,
        )  # fmt: skip
        await self._notifier.send_or_edit(chat, query, body, keyboard=buttons)

    def _format_list(
        self,
        chat: ChatRow,
        notes: Sequence[KeptNote],
        *,
        first: int = 1,
        more: int = 0,
        by_subject: bool = False,
    ) -> Markdown:
        texts = get_command_texts(chat)
        if not notes:
            return texts.say("memory_nothing")
        title = texts.say("memory_title")
        return note_list(title, notes, texts, first=first, more=more, by_subject=by_subject)

    async def _store_list(self, chat: ChatRow, notes: Sequence[KeptNote]) -> None:
        """Store the ids of the listed notes, so that `/forget 3` means the third note of the list."""
        ids = [note.id for note in notes]
        if ids:
            await self._notes.store_list(chat.session_id, chat.address_id, "list", ids)

    async def _announce(self, chat: ChatRow, result: NoteResult) -> None:
        """Announce a changed note, so that other clients of the session refresh."""
        if result.event_seq is not None:
            await self._announcer.announce(chat.session_id, {"event_seq": result.event_seq})

    async def _load_source(self, chat: ChatRow) -> NoteSource:
        return replace(await self._notes.load_owner(chat.session_id), by_person=True)


def _number_notes(notes: Sequence[KeptNote], *, first: int = 1) -> list[tuple[int, int]]:
    return [(number, note.id) for number, note in enumerate(notes, first)]


def _parse_page(press: ButtonPress) -> int:
    """Return the page of a button, counted from 0; 0 for a search or an invalid mark."""
    return int(press.word[1:]) if press.word[:1] == "p" and press.word[1:].isdecimal() else 0
