"""The list of what is remembered, with a button to put each note away, and one to have it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from bot.telegram.arrivals import Pressed
from bot.telegram.buttons import under_notes
from bot.telegram.desk import Desk, texts_of
from bot.telegram.keyboards import Press
from bot.telegram.texts import Markdown
from bot.telegram.voice import Voice, spot
from shared.adapters.postgres.telegram.chats import PlaceRow
from shared.core.commands.texts import command_texts
from shared.core.context.memory import search_stems
from shared.core.context.notes import KeptNote, NoteResult, NotesFound, NoteSource

PER_PAGE = 8
MOST_PAGES = 50
FOUND = "found"
"""In a button: it stands under the answer to a search, whose words no button can hold."""
_WORDS_CHARS = 300


class Notes(Protocol):
    async def whose(self, session_id: int) -> NoteSource: ...
    async def find(self, whose: NoteSource, stems: Sequence[str], *, limit: int) -> NotesFound: ...
    async def by_id(self, note_id: int, whose: NoteSource) -> KeptNote | None: ...
    async def put_away(self, short_id: str, source: NoteSource) -> NoteResult: ...
    async def bring_back(self, short_id: str, source: NoteSource) -> NoteResult: ...
    async def remember_list(
        self, session_id: int, address_id: int, purpose: str, note_ids: Sequence[int]
    ) -> None: ...


class Announces(Protocol):
    async def announce(self, session_id: int, message: Mapping[str, Any]) -> None: ...


class Remembered:
    """For one bot. Whoever calls has checked that the place is in the chat which the press came from."""

    def __init__(self, desk: Desk, *, voice: Voice, notes: Notes, announcer: Announces) -> None:
        self._desk = desk
        self._voice = voice
        self._notes = notes
        self._announcer = announcer

    async def show(self, place: PlaceRow, words: str) -> None:
        """`/memory`: page by page, or the few that the words find."""
        texts = command_texts(texts_of(place).language).memory
        if not words:
            await self._draw(place, None, page=0)
            return
        found = await self._notes.find(
            await self._notes.whose(place.session_id), search_stems(words[:_WORDS_CHARS]), limit=PER_PAGE
        )
        if not found.notes:
            await self._voice.say(spot(place), texts.nothing_about(words))
            return
        await self._keep(place, found.notes)
        body = self._listed(place, found.notes, more=texts.and_more(found.total - len(found.notes)))
        buttons = under_notes(place, _numbered(found.notes), mark=FOUND)
        await self._voice.say(spot(place), body, keyboard=buttons)

    async def turn_to(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        await self._voice.nod(pressed.callback_id)
        await self._draw(place, pressed, page=press.subject)

    async def put_away(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        """Pressed twice is once. A note of somebody else, or one that is no more, is not there."""
        texts, source = texts_of(place), await self._source(place)
        note = await self._notes.by_id(press.subject, source)
        result = await self._notes.put_away(note.short_id, source) if note else None
        if note is None or result is None or result.outcome != "forgotten":
            await self._out_of_date(place, press, pressed)
            return
        await self._told(place, result)
        await self._voice.nod(pressed.callback_id, texts.forgotten)
        await self._after(place, press, pressed, texts.put_away(text=note.text), undo=note.id)

    async def bring_back(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        texts, source = texts_of(place), await self._source(place)
        note = await self._notes.by_id(press.subject, source)
        result = await self._notes.bring_back(note.short_id, source) if note else None
        if note is None or result is None or result.outcome not in ("restored", "known"):
            await self._out_of_date(place, press, pressed)
            return
        await self._told(place, result)
        await self._voice.nod(pressed.callback_id, texts.back_again)
        await self._after(place, press, pressed, None, undo=None)

    async def _out_of_date(self, place: PlaceRow, press: Press, pressed: Pressed) -> None:
        await self._voice.nod(pressed.callback_id, texts_of(place).unknown_button)
        if press.word != FOUND:
            await self._draw(place, pressed, page=_page_in(press))

    async def _after(
        self, place: PlaceRow, press: Press, pressed: Pressed, line: Markdown | None, *, undo: int | None
    ) -> None:
        """The same page anew; where a search stood, one line, for its words are gone."""
        if press.word != FOUND or line is None:
            await self._draw(place, pressed, page=_page_in(press), line=line, undo=undo)
            return
        buttons = under_notes(place, (), mark=FOUND, undo=undo, all_notes=True)
        await self._put(place, pressed, line, buttons)

    async def _draw(
        self,
        place: PlaceRow,
        pressed: Pressed | None,
        *,
        page: int,
        line: Markdown | None = None,
        undo: int | None = None,
    ) -> None:
        """A page that is not there any more is the last one that is."""
        texts = command_texts(texts_of(place).language).memory
        whose = await self._notes.whose(place.session_id)
        asked = min(page, MOST_PAGES - 1)
        found = await self._notes.find(whose, (), limit=(asked + 1) * PER_PAGE)
        pages = min(-(-found.total // PER_PAGE), MOST_PAGES)
        at = max(min(asked, pages - 1), 0)
        shown = found.notes[at * PER_PAGE :]
        await self._keep(place, found.notes)
        body = self._listed(place, shown, first=at * PER_PAGE + 1) if shown else texts.nothing
        body = f"{body}\n\n{line}" if line else body
        buttons = under_notes(
            place, _numbered(shown, first=at * PER_PAGE + 1), mark=f"p{at}", undo=undo,
            back=at - 1 if at else None, on=at + 1 if at + 1 < pages else None,
        )  # fmt: skip
        await self._put(place, pressed, body, buttons)

    async def _put(self, place: PlaceRow, pressed: Pressed | None, words: Markdown, buttons: Any) -> None:
        """Into the message whose button was pressed; else a message of its own."""
        if pressed is not None and pressed.message_id is not None and pressed.accessible:
            await self._voice.change(spot(place), pressed.message_id, words, keyboard=buttons)
        else:
            await self._voice.say(spot(place), words, keyboard=buttons, silent=pressed is not None)

    def _listed(
        self, place: PlaceRow, notes: Sequence[KeptNote], *, first: int = 1, more: Sequence[Markdown] = ()
    ) -> Markdown:
        texts = command_texts(texts_of(place).language).memory
        rows = "\n".join(f"{number}. {texts.row(note)}" for number, note in enumerate(notes, first))
        return "\n\n".join([texts.title, rows, *more])

    async def _keep(self, place: PlaceRow, notes: Sequence[KeptNote]) -> None:
        """So that `/forget 3` means the third of what is seen."""
        ids = [note.id for note in notes]
        if ids:
            await self._notes.remember_list(place.session_id, place.address_id, "list", ids)

    async def _told(self, place: PlaceRow, result: NoteResult) -> None:
        """Other screens of the conversation learn of it."""
        if result.event_seq is not None:
            await self._announcer.announce(place.session_id, {"event_seq": result.event_seq})

    async def _source(self, place: PlaceRow) -> NoteSource:
        return replace(await self._notes.whose(place.session_id), by_person=True)


def _numbered(notes: Sequence[KeptNote], *, first: int = 1) -> list[tuple[int, int]]:
    return [(number, note.id) for number, note in enumerate(notes, first)]


def _page_in(press: Press) -> int:
    return int(press.word[1:]) if press.word[:1] == "p" and press.word[1:].isdecimal() else 0
