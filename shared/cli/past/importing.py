"""`evertalk import`: messages of other programs as an archived conversation of a person."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from uuid import UUID

from shared.adapters.past.exports import read_past
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.stores import Stores, open_stores
from shared.cli.pairing import strip_unprintable
from shared.config.settings import Settings
from shared.core.identity.operators import COMMAND_LINE
from shared.core.memory.past import PastImport
from shared.core.values.errors import BadInput, OnHold
from shared.core.values.local_time import resolve_zone
from shared.runtime import CrashPoint
from shared.services.memory.past_importer import PastImporter
from shared.services.privacy.erasure import ErasureService

LINE_EVERY = 50_000
"""Messages between two lines about the progress of an import."""


async def run_import(
    wish: argparse.Namespace, *, database_url: str, settings: Settings, say: Callable[[str], None],
    crash_point: CrashPoint,
) -> int:  # fmt: skip
    """Import a file, or list, undo, summarise or stop imports; return exit status 0, or 1 after a line with
    the reason.

    Without `--person` the only person is meant. An import is recorded in the audit log.
    """
    async with open_stores(database_url) as stores:
        person = wish.person or await _find_only_person(stores, say)
        session_id = None if person is None else await _find_session(stores, person, say)
        if session_id is None:
            return 1
        eraser = ErasureService(store=stores.erasure, announcer=None, crash_point=crash_point)
        importer = PastImporter(store=stores.past_imports, eraser=eraser, crash_point=crash_point)
        try:
            if wish.verb == "list":
                return _list(await importer.list_imports(session_id), say)
            if wish.verb in ("summarise", "stop"):
                return await _switch(stores, session_id, wish, say)
            if wish.verb == "undo":
                return await _undo(importer, session_id, wish, say)
            await stores.people_directory.record_audit("person.import", about=str(person), by=COMMAND_LINE)
            return await _import(importer, session_id, wish, settings, say)
        except OnHold:
            say("This person is on legal hold: none of their data can be deleted.")
        except (BadInput, OSError) as error:
            advice = error.advice if isinstance(error, BadInput) else "Check the path of the file."
            say(f"{strip_unprintable(str(error))[:300]}. {advice}")
    return 1


async def _import(
    importer: PastImporter, session_id: int, wish: argparse.Namespace, settings: Settings,
    say: Callable[[str], None],
) -> int:  # fmt: skip
    zone = resolve_zone(settings.timezone, settings.timezone)
    messages = read_past(wish.verb, wish.file, zone=zone, now=SystemClock().now(), me=getattr(wish, "me", ""))

    made = await importer.import_past(
        session_id, wish.verb, _digest(wish), messages, on_stored=_Progress(say).show
    )
    say(
        f"{_describe(made)}. They can be found within minutes, and are summarised within a budget after that."
    )
    say(f"Undo it with ./evertalk import undo {made.id}")
    return 0


class _Progress:
    """Says how far an import is, a line for each 50,000 messages."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = LINE_EVERY

    def show(self, number: int) -> None:
        if number >= self._next:
            self._say(f"{number:,} messages …")
            self._next = number - number % LINE_EVERY + LINE_EVERY


async def _undo(
    importer: PastImporter, session_id: int, wish: argparse.Namespace, say: Callable[[str], None]
) -> int:
    gone = await importer.undo(session_id, str(wish.import_id), COMMAND_LINE)
    if gone is None:
        say("This person has no such import; ./evertalk import list shows all.")
        return 1
    say(f"Undone: {gone.messages:,} messages are erased.")
    return 0


async def _switch(
    stores: Stores, session_id: int, wish: argparse.Namespace, say: Callable[[str], None]
) -> int:
    on = wish.verb == "summarise"
    if not await stores.import_summaries.switch(session_id, str(wish.import_id), on=on):
        say("This person has no such complete import; ./evertalk import list shows all.")
        return 1
    say("The worker summarises this import." if on else "The summaries of this import are stopped.")
    return 0


def _list(imports: Sequence[PastImport], say: Callable[[str], None]) -> int:
    for one in imports:
        say(f"{one.id}  {_describe(one)}{'' if one.is_whole else ' (not whole: start it again)'}")
        if one.is_whole:
            say(f"    {_describe_summaries(one)}")
    if not imports:
        say("Nothing was imported for this person.")
    return 0


def _describe(one: PastImport) -> str:
    days = f", {one.first_at:%Y-%m-%d} to {one.last_at:%Y-%m-%d}" if one.first_at and one.last_at else ""
    return f"{one.messages:,} messages of {one.source}{days}"


_SUMMARIES = {
    "off": "not summarised",
    "due": "being summarised",
    "done": "summarised",
    "capped": "summarised until the budget was used up",
    "stopped": "summaries stopped",
}


def _describe_summaries(one: PastImport) -> str:
    return f"{_SUMMARIES[one.summaries]}: {one.summarised_percent} % for ${one.cost_micro / 1e6:.2f}"


def _digest(wish: argparse.Namespace) -> bytes:
    """Return the hash of the file and of who is meant, by which an import is resumed. Raises OSError."""
    digest = hashlib.sha256(f"{wish.verb}\0{getattr(wish, 'me', '')}\0".encode())
    with wish.file.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.digest()


async def _find_session(stores: Stores, person: UUID, say: Callable[[str], None]) -> int | None:
    """Return a conversation of the person; None after a line about it."""
    found = await stores.people_directory.find_session(person)
    if found is None:
        say(f"Nobody has the id {person}; ./evertalk person list shows who has which.")
    return found


async def _find_only_person(stores: Stores, say: Callable[[str], None]) -> UUID | None:
    """Return the id of the only person; None after a line about it."""
    people = [row for row in await stores.people_directory.find("") if row.kind == "person"]
    if len(people) == 1:
        return people[0].public_id
    say(
        "Say whose past it is with --person ID; ./evertalk person list shows the IDs."
        if people
        else "There is nobody yet: write a message first, in the browser or in Telegram."
    )
    return None
