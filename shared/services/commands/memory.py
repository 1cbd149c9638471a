"""Commands on a person's memory notes: `/memory`, `/remember` and `/forget`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from shared.core.commands.texts import NOTE_SHOWN, excerpt, group_by_subject, note_list
from shared.core.context.memory import note_from, search_stems
from shared.core.context.notes import NewNote, NoteResult, NotesFound, NoteSource
from shared.services.commands.command_call import (
    Choice,
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Offering,
)

LISTED = 20
"""Most notes in one list."""
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
_NOTES = re.compile(r"#[0-9]{1,18}( #[0-9]{1,18})*")
"""Argument of a preview's button: ids of notes, which stay valid when the list changes."""
_YES = frozenset({"yes", "ja"})
_OWN_IMPORTANCE = 8
_WHAT_CHARS = 300


class NoteCommandStore(Protocol):
    """Store of notes, and of the numbered lists that a person was shown.

    `save` returns in `outcome` whether the note is new. `erase` deletes notes and rows with their text, and
    returns their number; raises OnHold. `store_list` keeps a list for ten minutes; `take_list` deletes it and
    returns the id at a position from 1, for None all ids, and None without such a list.
    """

    async def load_owner(self, session_id: int) -> NoteSource: ...
    async def find(
        self, whose: NoteSource, stems: Sequence[str], *, limit: int, everything: bool = False
    ) -> NotesFound: ...
    async def save(self, note: NewNote, source: NoteSource) -> NoteResult: ...
    async def erase(self, whose: NoteSource, note_ids: Sequence[int]) -> int: ...
    async def store_list(
        self, session_id: int, address_id: int, purpose: str, note_ids: Sequence[int]
    ) -> None: ...
    async def take_list(
        self, session_id: int, address_id: int, *, number: int | None
    ) -> tuple[int, ...] | None: ...


class MemoryCommands:
    """Handlers of `/memory`, `/remember` and `/forget`."""

    def __init__(self, notes: NoteCommandStore, *, everything: CommandHandler) -> None:
        """Set up the commands; `everything` handles `/forget everything` and its confirmation."""
        self._notes = notes
        self._everything = everything

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handlers of `/memory`, `/remember` and `/forget` by command name."""
        return {"memory": self._memory, "remember": self._remember, "forget": self._forget}

    async def _memory(self, call: CommandInvocation) -> CommandReply:
        texts, whose = call.texts, await self._notes.load_owner(call.session_id)
        stems = search_stems(_quote_words(call)) if call.args else []
        found = await self._notes.find(whose, stems, limit=LISTED)
        if not found.notes:
            return True, _say_nothing_found(call) if call.args else texts.say("memory_nothing")
        if not call.args:
            found = replace(found, notes=group_by_subject(found.notes))
        await self._store_shown(call, "list", found)
        more = found.total - len(found.notes)
        body = note_list(texts.say("memory_title"), found.notes, texts, more=more, by_subject=not call.args)
        return True, f"{body}\n\n{texts.say('memory_how_to_forget')}"

    async def _remember(self, call: CommandInvocation) -> CommandReply:
        if not call.args:
            return False, call.texts.say("remember_what")
        note = note_from({"text": call.args, "importance": _OWN_IMPORTANCE})
        whose = await self._notes.load_owner(call.session_id)
        result = await self._notes.save(note, _by_person(whose))
        if result.outcome == "known":
            return True, call.texts.say("known_before")
        keys = ["noted", *(["secret_left_out"] if note.redacted else [])]
        return True, " ".join(call.texts.say(key, words=excerpt(note.text, most=NOTE_SHOWN)) for key in keys)

    async def _forget(self, call: CommandInvocation) -> CommandReply:
        words = call.args.casefold().split()
        match words:
            case []:
                return False, call.texts.say("forget_what")
            case ["everything", *_]:
                return await self._everything(call)
            case [yes] if yes in _YES:
                return await self._erase_listed(call, number=None)
            case [number] if _NUMBER.fullmatch(number):
                return await self._erase_listed(call, number=int(number))
            case _ if _NOTES.fullmatch(call.args):
                return await self._erase(call, [int(one[1:]) for one in words])
            case _:
                return await self._preview(call)

    async def _preview(self, call: CommandInvocation) -> CommandReply:
        """Show which notes would be erased, outdated and archived ones included."""
        texts, whose = call.texts, await self._notes.load_owner(call.session_id)
        found = await self._notes.find(whose, search_stems(_quote_words(call)), limit=LISTED, everything=True)
        if not found.notes:
            return False, _say_nothing_found(call)
        await self._store_shown(call, "forget", found)
        marks = [f"#{note.id}" for note in found.notes]
        choices = [Choice(label=f"{number}", args=mark) for number, mark in enumerate(marks, 1)]
        every = Choice(label=texts.say("erase_these"), args=" ".join(marks))
        words = note_list(texts.say("forget_title"), found.notes, texts, more=found.total - len(found.notes))
        confirm = texts.say("forget_confirm" if len(found.notes) == 1 else "forget_confirm_all")
        return True, Offering(f"{words}\n\n{confirm}", [*(choices if len(choices) > 1 else []), every])

    async def _erase_listed(self, call: CommandInvocation, *, number: int | None) -> CommandReply:
        ids = await self._notes.take_list(call.session_id, call.address_id or 0, number=number)
        return (False, call.texts.say("forget_no_list")) if ids is None else await self._erase(call, ids)

    async def _erase(self, call: CommandInvocation, ids: Sequence[int]) -> CommandReply:
        erased = await self._notes.erase(await self._notes.load_owner(call.session_id), ids)
        if not erased:
            return False, call.texts.say("forget_no_list")
        keys = ("notes_erased", "notes_erased_stays", "notes_erased_everything_too")
        return True, " ".join(call.texts.say(key, count=erased) for key in keys)

    async def _store_shown(self, call: CommandInvocation, purpose: str, found: NotesFound) -> None:
        await self._notes.store_list(
            call.session_id, call.address_id or 0, purpose, [note.id for note in found.notes]
        )


def _quote_words(call: CommandInvocation) -> str:
    return call.args[:_WHAT_CHARS]


def _by_person(whose: NoteSource) -> NoteSource:
    return NoteSource(
        session_id=whose.session_id, contact_id=whose.contact_id, scope=whose.scope, by_person=True
    )


def _say_nothing_found(call: CommandInvocation) -> str:
    return call.texts.say("memory_nothing_about", words=excerpt(call.args))
