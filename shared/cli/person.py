"""`evertalk person`: the list of people, an export of a person's data, and erasure."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.adapters.postgres.people.people_directory import PersonRow
from shared.bootstrap.foundation import SystemClock
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import open_stores
from shared.cli.pairing import strip_unprintable
from shared.core.identity.operators import COMMAND_LINE
from shared.core.privacy.erasure import COUNTED
from shared.core.privacy.export import ExportFormat
from shared.core.values.errors import OnHold
from shared.services.admin.person_service import PersonNotFound, PersonService
from shared.services.privacy.export import DataExporter

_COUNT_LABELS: Mapping[str, tuple[str, str]] = {
    "entries": ("message", "messages"),
    "compactions": ("summary", "summaries"),
    "notes": ("note", "notes"),
    "artifacts": ("artifact", "artifacts"),
    "attachments": ("file", "files"),
    "pins": ("pin", "pins"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonTerminal:
    """Terminal of an operator: `say` prints a line, `ask` reads an answer, `write` writes bytes of an
    export.
    """

    say: Callable[[str], None]
    ask: Callable[[str], str]
    write: Callable[[bytes], Any]


def read_person_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk person", description="List people; export, erase or hold their data."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listed = verbs.add_parser("list", help="list people")
    listed.add_argument("search", metavar="SEARCH", nargs="?", default="", help="part of a name or id")
    export = verbs.add_parser("export", help="write all data of a person to standard output")
    export.add_argument("--format", choices=("md", "json"), default="json")
    erase = verbs.add_parser("erase", help="erase all data of a person, after confirmation")
    hold = verbs.add_parser("hold", help="place a legal hold: the person's data cannot be deleted")
    release = verbs.add_parser("release", help="lift a legal hold")
    for verb in (export, erase, hold, release):
        verb.add_argument("id", metavar="ID", type=UUID)
    return parser.parse_args(arguments)


async def run_person(wish: argparse.Namespace, *, database_url: str, terminal: PersonTerminal) -> int:
    """Run `evertalk person`; return exit status 0, or 1 after a line with the reason.

    Export, erasure and legal holds are recorded in the audit log. An erasure needs the person's id typed
    again.
    """
    async with open_stores(database_url) as stores:
        if wish.verb == "list":
            return _list(await stores.people_directory.find(wish.search), terminal.say)
        people = build_operator_services(stores).people
        try:
            if wish.verb in ("hold", "release"):
                return await _set_legal_hold(people, wish.id, wish.verb == "hold", terminal.say)
            if wish.verb == "export":
                exporter = DataExporter(store=stores.export, clock=SystemClock())
                return await _export(people, exporter, wish, terminal)
            return await _erase(people, wish.id, terminal)
        except PersonNotFound:
            terminal.say(_describe_unknown(wish.id))
            return 1


def _list(rows: Sequence[PersonRow], say: Callable[[str], None]) -> int:
    if not rows:
        say("Nobody was found.")
        return 0
    for row in rows:
        name = strip_unprintable(row.name) or ("a group" if row.kind == "group" else "–")
        places = ", ".join(map(strip_unprintable, row.places)) or "–"
        said = _number(row.messages, "message", "messages")
        talks = f"{said} in {_number(row.conversations, 'conversation', 'conversations')}"
        say(f"{row.public_id}  {name[:40]}  {places}  {talks}, last {row.last_active_at:%Y-%m-%d}")
    return 0


def _number(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


async def _set_legal_hold(people: PersonService, person: UUID, on: bool, say: Callable[[str], None]) -> int:
    if not await people.hold_person(person, on=on, by=COMMAND_LINE):
        say("They are on hold already." if on else "They are not on hold.")
    elif on:
        say("On hold: neither a rule nor anybody deletes what is kept of them, until")
        say(f"  ./evertalk person release {person}")
    else:
        say("The hold is lifted: what is older than its time goes with the next sweep.")
    return 0


def _describe_unknown(person: UUID) -> str:
    return f"Nobody has the id {person}; ./evertalk person list shows who has which."


async def _export(
    people: PersonService, exporter: DataExporter, wish: argparse.Namespace, terminal: PersonTerminal
) -> int:
    kind: ExportFormat = "md" if wish.format == "md" else "json"
    session_id = await people.begin_export(wish.id, by=COMMAND_LINE)
    async for piece in exporter.stream(session_id, kind):
        terminal.write(piece.encode())
    return 0


async def _erase(people: PersonService, person: UUID, terminal: PersonTerminal) -> int:
    preview = await people.preview_erasure(person)
    terminal.say(
        f"This would be gone for good: {_amounts(preview.counts)}, and all else that holds their words."
    )
    if (await asyncio.to_thread(terminal.ask, "Type the id again to go on: ")).strip() != str(person):
        terminal.say("That is not the id. Nothing was erased.")
        return 1
    try:
        report = await people.erase_person(person, by=COMMAND_LINE, actor=COMMAND_LINE)
    except OnHold as error:
        terminal.say(error.advice)
        return 1
    if not report.finished:
        terminal.say(f"Erasure {report.erasure_id} has begun; a worker goes on with it.")
        return 0
    terminal.say(
        f"Erased: {_amounts(report.counts)}. Erasure {report.erasure_id} is in the log, without content."
    )
    terminal.say(
        "Backups made before today still contain it: read docs/data.md, Restore, before you restore one."
    )
    return 0


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(_number(counts.get(name, 0), *_COUNT_LABELS[name]) for name in COUNTED)
