"""`evertalk command`: runs one command for a conversation from a shell, as any channel would."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.bootstrap.app import App, open_app
from shared.bootstrap.from_settings import resolve_server_urls
from shared.bootstrap.stored_settings import load_in_force
from shared.config.settings import Settings
from shared.core.commands.arguments import RAW, read_value
from shared.core.commands.commands import (
    ONLY_IN_PERSON,
    BadArguments,
    Command,
    command_named,
    commands_for,
)
from shared.core.identity.operators import COMMAND_LINE
from shared.services.commands.command_service import COMMAND_SECONDS, CommandResult

BEAT_SECONDS = 1.0
"""Seconds between two checks of leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """Functions that print: `write_result` the result, `write_note` what a person reads beside it."""

    write_result: Callable[[str], None]
    write_note: Callable[[str], None]
    language: str = ""


def read_command_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    names = ", ".join(command.name for command in _list_offered())
    parser = argparse.ArgumentParser(
        prog="evertalk command",
        description="Run a command in a conversation.",
        epilog=f"commands: {names}. GET /api/v1/commands lists their arguments.",
    )
    parser.add_argument("name", metavar="NAME", type=lambda name: name.removeprefix("/"))
    parser.add_argument(
        "--session", metavar="ID", type=UUID, required=True, help="public id of the conversation"
    )
    parser.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"argument of the command; {RAW}=TEXT passes the text as a person types it",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    return parser.parse_args(arguments)


async def run_command(wish: argparse.Namespace, *, settings: Settings, shell: CommandOutput) -> int:
    """Run a command in a conversation, as recorded in the audit log; return exit status 0, or 1 if it failed.

    Status 2 means that its name or arguments are wrong, or that only the person may use it. Raises what
    opening the services raises.
    """
    if wish.name in ONLY_IN_PERSON:
        shell.write_note("Only the person whose conversation it is may do that.")
        return 2
    command = command_named(wish.name)
    if command is None or command not in _list_offered():
        shell.write_note(f"There is no command {wish.name}; ./evertalk command --help names all.")
        return 2
    try:
        words = command.words(dict(_argument(command, given) for given in wish.arg))
    except BadArguments as error:
        shell.write_note(error.advice)
        return 2
    # The role `worker` starts no tool servers.
    in_force = await load_in_force(resolve_server_urls(settings)[0], settings)
    app = await open_app(in_force, role="worker")
    beating = asyncio.create_task(beat(app))
    try:
        return await _run(app, wish, words, shell)
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await app.close()


async def _run(app: App, wish: argparse.Namespace, words: str, shell: CommandOutput) -> int:
    reached = await app.stores.api_sessions.find(wish.session)
    if reached is None:
        shell.write_note(f"No conversation has the id {wish.session}. The dashboard shows which has which.")
        return 1

    async def progress(message: str, percent: int | None) -> None:
        shell.write_note(message if percent is None else f"{message} {percent} %")

    await app.stores.people_directory.record_audit(
        f"command.{wish.name}", about=f"session:{wish.session}", by=COMMAND_LINE
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            result = await app.commands.run(
                session_id=reached.session_id,
                address_id=None,
                name=wish.name,
                args=words,
                progress=progress,
                language=shell.language,
            )
    except TimeoutError:
        shell.write_note("That takes longer than usual. It goes on by itself; look again in a while.")
        return 1
    _show(result, shell, as_json=wish.json)
    return 0 if result.success else 1


def _show(result: CommandResult, shell: CommandOutput, *, as_json: bool) -> None:
    if as_json:
        shown = {
            "command": result.command,
            "success": result.success,
            "result": result.result,
            "error": result.error,
            "event_seq": result.event_seq,
        }
        shell.write_result(json.dumps(shown, ensure_ascii=False))
    elif result.success:
        shell.write_result(result.result)
    else:
        shell.write_note(result.error or result.result)


def _argument(command: Command, given: str) -> tuple[str, object]:
    name, _, value = given.partition("=")
    for argument in command.arguments:
        if argument.name == name:
            return name, read_value(argument, value)
    return name, value


def _list_offered() -> tuple[Command, ...]:
    offered = commands_for(channel="rest", audience="personal", operator=True, speaks=True)
    return tuple(command for command in offered if command.name not in ONLY_IN_PERSON)


async def beat(app: App) -> None:
    """Check the leases of the process every second until cancelled; errors are raised."""
    while True:
        await app.sessions.check_leases()
        await asyncio.sleep(BEAT_SECONDS)
