"""What is remembered, for the person it is about: `/memory`, `/remember` and `/forget`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.context.memory import BadNote, note_from, search_stems
from shared.core.context.notes import NewNote, NoteResult, NotesFound, NoteSource
from shared.services.commands.command_call import (
    Choice,
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Offering,
)

LISTED = 20
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
_NOTES = re.compile(r"#[0-9]{1,18}( #[0-9]{1,18})*")
"""What a button below a preview says: a number below an older one would name another note."""
_YES = frozenset({"yes", "ja"})
_OWN_IMPORTANCE = 8
_WHAT_CHARS = 300


class NoteCommandStore(Protocol):
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
    def __init__(self, notes: NoteCommandStore, *, everything: CommandHandler) -> None:
        """`everything` does `/forget everything`, and hears the yes to it."""
        self._notes = notes
        self._everything = everything

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"memory": self._memory, "remember": self._remember, "forget": self._forget}

    async def _memory(self, call: CommandInvocation) -> CommandReply:
        texts, whose = call.texts.memory, await self._notes.load_owner(call.session_id)
        stems = search_stems(_what(call)) if call.args else []
        found = await self._notes.find(whose, stems, limit=LISTED)
        if not found.notes:
            return True, texts.nothing_about(call.args) if call.args else texts.nothing
        await self._shown(call, "list", found)
        return True, texts.listed(found.notes, total=found.total)

    async def _remember(self, call: CommandInvocation) -> CommandReply:
        texts = call.texts.memory
        if not call.args:
            return False, texts.remember_what
        try:
            note = note_from({"text": call.args, "importance": _OWN_IMPORTANCE})
        except BadNote as error:
            raise BadArguments(error.advice) from error
        whose = await self._notes.load_owner(call.session_id)
        result = await self._notes.save(note, _asked_by_person(whose))
        if result.outcome == "known":
            return True, texts.known_before
        return True, " ".join([texts.noted(note.text), *([texts.left_out] if note.redacted else [])])

    async def _forget(self, call: CommandInvocation) -> CommandReply:
        words = call.args.casefold().split()
        match words:
            case []:
                return False, call.texts.memory.forget_what
            case ["everything", *_]:
                return await self._everything(call)
            case [yes] if yes in _YES:
                return await self._confirmed(call, number=None)
            case [number] if _NUMBER.fullmatch(number):
                return await self._confirmed(call, number=int(number))
            case _ if _NOTES.fullmatch(call.args):
                return await self._erase(call, [int(one[1:]) for one in words])
            case _:
                return await self._preview(call)

    async def _preview(self, call: CommandInvocation) -> CommandReply:
        """Also what is out of date or put away: to erase is to erase all of it."""
        texts, whose = call.texts.memory, await self._notes.load_owner(call.session_id)
        found = await self._notes.find(whose, search_stems(_what(call)), limit=LISTED, everything=True)
        if not found.notes:
            return False, texts.nothing_about(call.args)
        await self._shown(call, "forget", found)
        marks = [f"#{note.id}" for note in found.notes]
        choices = [Choice(label=f"{number}", args=mark) for number, mark in enumerate(marks, 1)]
        every = Choice(label=call.texts.erase_these, args=" ".join(marks))
        words = texts.preview(found.notes, total=found.total)
        return True, Offering(words, [*(choices if len(choices) > 1 else []), every])

    async def _confirmed(self, call: CommandInvocation, *, number: int | None) -> CommandReply:
        ids = await self._notes.take_list(call.session_id, call.address_id or 0, number=number)
        return (False, call.texts.memory.no_list) if ids is None else await self._erase(call, ids)

    async def _erase(self, call: CommandInvocation, ids: Sequence[int]) -> CommandReply:
        texts = call.texts.memory
        erased = await self._notes.erase(await self._notes.load_owner(call.session_id), ids)
        return True, " ".join([texts.erased(erased), texts.stays, texts.everything_too])

    async def _shown(self, call: CommandInvocation, purpose: str, found: NotesFound) -> None:
        await self._notes.store_list(
            call.session_id, call.address_id or 0, purpose, [note.id for note in found.notes]
        )


def _what(call: CommandInvocation) -> str:
    return call.args[:_WHAT_CHARS]


def _asked_by_person(whose: NoteSource) -> NoteSource:
    return NoteSource(session_id=whose.session_id, party_id=whose.party_id, scope=whose.scope, by_person=True)
