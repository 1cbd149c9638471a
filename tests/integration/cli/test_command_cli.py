"""Commands from a shell: results apart from progress, exit codes that scripts can use, each on record."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from shared.cli.command import CommandOutput, read_command_arguments, run_command
from tests.kit.app_driver import Visit


async def command(guest: Visit, *words: str, language: str = "") -> tuple[int, str, str]:
    said: list[str] = []
    told: list[str] = []
    shell = CommandOutput(write_result=said.append, write_note=told.append, language=language)
    code = await run_command(read_command_arguments(words), settings=guest.app.settings, shell=shell)
    return code, "\n".join(said), "\n".join(told)


async def session_of(guest: Visit) -> str:
    return str(await guest.one("SELECT public_id FROM sessions WHERE id = $1", guest.session_id))


async def test_a_result_goes_to_the_output_and_the_event_to_every_screen(guest: Visit) -> None:
    await guest.ask("Hello")
    session = await session_of(guest)
    code, said, told = await command(guest, "/pin", "--session", session, "--json")
    assert (code, told) == (0, "")
    result = json.loads(said)
    assert (result["command"], result["success"], result["error"]) == ("pin", True, None)
    seen = await guest.one("SELECT kind FROM events WHERE event_seq = $1", result["event_seq"])
    assert seen == "command.result"
    assert await guest.one("SELECT object FROM audit WHERE action = 'command.pin'") == f"session:{session}"


async def test_a_command_that_does_not_work_ends_with_one(guest: Visit) -> None:
    code, said, told = await command(guest, "undo", "--session", await session_of(guest))
    assert (code, said) == (1, "")
    assert told


async def test_the_language_is_that_of_the_shell(guest: Visit) -> None:
    _, said, _ = await command(guest, "context", "--session", await session_of(guest), language="de_DE")
    assert "Was ich im Blick habe" in said or "leer" in said


@pytest.mark.parametrize(
    "words", [("nothing",), ("compact", "--arg", "forced"), ("compact", "--arg", "force=maybe")]
)
async def test_what_cannot_be_asked_ends_with_two(guest: Visit, words: tuple[str, ...]) -> None:
    code, said, told = await command(guest, *words, "--session", str(uuid4()))
    assert (code, said) == (2, "")
    assert told


@pytest.mark.parametrize("name", ["link", "unlink"])
async def test_command_for_the_person_alone_is_refused_as_over_rest(guest: Visit, name: str) -> None:
    await guest.ask("Hello")
    code, said, told = await command(guest, name, "--session", await session_of(guest))
    assert (code, said) == (2, "")
    assert told == "Only the person whose conversation it is may do that."
    assert await guest.one("SELECT count(*) FROM one_time_codes") == 0
    assert await guest.one("SELECT count(*) FROM audit") == 0


async def test_an_unknown_conversation_is_said(guest: Visit) -> None:
    session = str(uuid4())
    code, _, told = await command(guest, "status", "--session", session)
    assert code == 1
    assert session in told


def test_a_conversation_must_be_named() -> None:
    with pytest.raises(SystemExit) as ended:
        read_command_arguments(["compact"])
    assert ended.value.code == 2
