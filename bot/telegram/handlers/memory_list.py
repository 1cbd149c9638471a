"""The list of what is remembered, with a button to put each note away, and one to have it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from bot.telegram.inbound.bot_context import BotContext, get_chat_texts, get_command_texts
from bot.telegram.inbound.updates import CallbackQuery
from bot.telegram.outbound.buttons import ButtonPress, build_note_buttons
from bot.telegram.outbound.notifier import Notifier, get_chat_target
from bot.telegram.texts import Markdown, escape_markdown
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.commands.texts import excerpt, note_list
from shared.core.context.memory import search_stems
from shared.core.context.notes import KeptNote, NoteResult, NotesFound, NoteSource

NOTES_PER_PAGE = 8
MAX_PAGES = 50
SEARCH_MARK = "found"
"""In a button: it stands under the answer to a search, whose words no button can hold."""
_MAX_QUERY_CHARS = 300


class MemoryListStore(Protocol):
    async def load_owner(self, session_id: int) -> NoteSource: ...
    async def find(self, whose: NoteSource, stems: Sequence[str], *, limit: int) -> NotesFound: ...
    async def by_id(self, note_id: int, whose: NoteSource) -> KeptNote | None: ...
    async def archive(self, short_id: str, source: NoteSource) -> NoteResult: ...
    async def bring_back(self, short_id: str, source: NoteSource) -> NoteResult: ...
    async def store_list(
        self, session_id: int, address_id: int, purpose: str, note_ids: Sequence[int]
    ) -> None: ...


class NoteAnnouncer(Protocol):
    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...


class MemoryList:
    """For one bot. Whoever calls has checked that the place is in the chat which the press came from."""

    def __init__(
        self, desk: BotContext, *, voice: Notifier, notes: MemoryListStore, announcer: NoteAnnouncer
    ) -> None:
        self._desk = desk
        self._voice = voice
        self._notes = notes
        self._announcer = announcer

    async def show(self, place: ChatRow, words: str) -> None:
        """`/memory`: page by page, or the few that the words find."""
        if not words:
            await self._draw(place, None, page=0)
            return
        found = await self._notes.find(
            await self._notes.load_owner(place.session_id),
            search_stems(words[:_MAX_QUERY_CHARS]),
            limit=NOTES_PER_PAGE,
        )
        if not found.notes:
            told = get_command_texts(place).say("memory_nothing_about", words=excerpt(words))
            await self._voice.send(get_chat_target(place), told)
            return
        await self._keep(place, found.notes)
        body = self._listed(place, found.notes, more=found.total - len(found.notes))
        buttons = build_note_buttons(place, _numbered(found.notes), mark=SEARCH_MARK)
        await self._voice.send(get_chat_target(place), body, keyboard=buttons)

    async def show_page(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        await self._voice.answer_callback(pressed.callback_id)
        await self._draw(place, pressed, page=press.subject)

    async def archive(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        """Pressed twice is once. A note of somebody else, or one that is no more, is not there."""
        texts, source = get_chat_texts(place), await self._source(place)
        note = await self._notes.by_id(press.subject, source)
        result = await self._notes.archive(note.short_id, source) if note else None
        if note is None or result is None or result.outcome != "forgotten":
            await self._out_of_date(place, press, pressed)
            return
        await self._told(place, result)
        await self._voice.answer_callback(pressed.callback_id, texts.say("note_deleted"))
        await self._after(
            place,
            press,
            pressed,
            texts.say("deleted", words=escape_markdown(note.text, most=200)),
            undo=note.id,
        )

    async def restore(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        texts, source = get_chat_texts(place), await self._source(place)
        note = await self._notes.by_id(press.subject, source)
        result = await self._notes.bring_back(note.short_id, source) if note else None
        if note is None or result is None or result.outcome not in ("restored", "known"):
            await self._out_of_date(place, press, pressed)
            return
        await self._told(place, result)
        await self._voice.answer_callback(pressed.callback_id, texts.say("restored"))
        await self._after(place, press, pressed, None, undo=None)

    async def _out_of_date(self, place: ChatRow, press: ButtonPress, pressed: CallbackQuery) -> None:
        await self._voice.answer_callback(pressed.callback_id, get_chat_texts(place).say("unknown_button"))
        if press.word != SEARCH_MARK:
            await self._draw(place, pressed, page=_page_in(press))

    async def _after(
        self,
        place: ChatRow,
        press: ButtonPress,
        pressed: CallbackQuery,
        line: Markdown | None,
        *,
        undo: int | None,
    ) -> None:
        """The same page anew; where a search stood, one line, for its words are gone."""
        if press.word != SEARCH_MARK or line is None:
            await self._draw(place, pressed, page=_page_in(press), line=line, undo=undo)
            return
        buttons = build_note_buttons(place, (), mark=SEARCH_MARK, undo=undo, all_notes=True)
        await self._put(place, pressed, line, buttons)

    async def _draw(
        self,
        place: ChatRow,
        pressed: CallbackQuery | None,
        *,
        page: int,
        line: Markdown | None = None,
        undo: int | None = None,
    ) -> None:
        """A page that is not there any more is the last one that is."""
        whose = await self._notes.load_owner(place.session_id)
        asked = min(page, MAX_PAGES - 1)
        found = await self._notes.find(whose, (), limit=(asked + 1) * NOTES_PER_PAGE)
        pages = min(-(-found.total // NOTES_PER_PAGE), MAX_PAGES)
        at = max(min(asked, pages - 1), 0)
        shown = found.notes[at * NOTES_PER_PAGE :]
        await self._keep(place, found.notes)
        body = self._listed(place, shown, first=at * NOTES_PER_PAGE + 1)
        body = f"{body}\n\n{line}" if line else body
        buttons = build_note_buttons(
            place, _numbered(shown, first=at * NOTES_PER_PAGE + 1), mark=f"p{at}", undo=undo,
            back=at - 1 if at else None, on=at + 1 if at + 1 < pages else None,
        )  # fmt: skip
        await self._put(place, pressed, body, buttons)

    async def _put(
        self, place: ChatRow, pressed: CallbackQuery | None, words: Markdown, buttons: Any
    ) -> None:
        """Into the message whose button was pressed; else a message of its own."""
        if pressed is not None and pressed.message_id is not None and pressed.accessible:
            await self._voice.edit(get_chat_target(place), pressed.message_id, words, keyboard=buttons)
        else:
            await self._voice.send(
                get_chat_target(place), words, keyboard=buttons, silent=pressed is not None
            )

    def _listed(
        self, place: ChatRow, notes: Sequence[KeptNote], *, first: int = 1, more: int = 0
    ) -> Markdown:
        texts = get_command_texts(place)
        if not notes:
            return texts.say("memory_nothing")
        return note_list(texts.say("memory_title"), notes, texts, first=first, more=more)

    async def _keep(self, place: ChatRow, notes: Sequence[KeptNote]) -> None:
        """So that `/forget 3` means the third of what is seen."""
        ids = [note.id for note in notes]
        if ids:
            await self._notes.store_list(place.session_id, place.address_id, "list", ids)

    async def _told(self, place: ChatRow, result: NoteResult) -> None:
        """Other screens of the conversation learn of it."""
        if result.event_seq is not None:
            await self._announcer.announce(place.session_id, {"event_seq": result.event_seq})

    async def _source(self, place: ChatRow) -> NoteSource:
        return replace(await self._notes.load_owner(place.session_id), by_person=True)


def _numbered(notes: Sequence[KeptNote], *, first: int = 1) -> list[tuple[int, int]]:
    return [(number, note.id) for number, note in enumerate(notes, first)]


def _page_in(press: ButtonPress) -> int:
    return int(press.word[1:]) if press.word[:1] == "p" and press.word[1:].isdecimal() else 0
