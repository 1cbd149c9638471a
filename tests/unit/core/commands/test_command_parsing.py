"""Commands: a whole message, a known name, arguments that can be used."""

from __future__ import annotations

import pytest

from shared.core.commands.commands import (
    COMMANDS,
    FOCUS_CHARS,
    BadArguments,
    CommandCall,
    CompactArguments,
    check_arguments,
    commands_for,
    compact_arguments,
    help_text,
    may_in_group,
    parse_command,
)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("/help", CommandCall(name="help")),
        ("  /HELP \n", CommandCall(name="help")),
        ("/compact the trip --force", CommandCall(name="compact", args="the trip --force")),
        ("/undo@evertalk_bot", CommandCall(name="undo")),
        ("/nonsense", None),
        ("/", None),
        ("/ help", None),
        ("please /help", None),
        ("//help", None),
        ("/help/me", None),
        ("/etc/passwd is a file", None),
        ("", None),
    ],
)
def test_only_a_whole_message_with_a_known_name_is_a_command(text: str, call: CommandCall | None) -> None:
    assert parse_command(text) == call


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", CompactArguments()),
        ("--force", CompactArguments(force=True)),
        ("our  trip to --force Rome", CompactArguments(focus="our trip to Rome", force=True)),
        ("—force", CompactArguments(force=True)),
        ("well-known facts", CompactArguments(focus="well-known facts")),
    ],
)
def test_compact_takes_a_focus_and_force_in_any_order(args: str, expected: CompactArguments) -> None:
    assert compact_arguments(args) == expected


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (CommandCall(name="compact", args="--frce"), "--frce"),
        (CommandCall(name="compact", args="x" * (FOCUS_CHARS + 1)), "301 characters"),
        (CommandCall(name="undo", args="all"), "/undo takes no words"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_with_advice(call: CommandCall, reason: str) -> None:
    with pytest.raises(BadArguments) as refused:
        check_arguments(call)
    assert reason in refused.value.advice


def test_names_are_unique_and_described() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    assert all(command.description for command in COMMANDS)


def test_visitors_of_a_public_page_see_only_the_plain_ones() -> None:
    names = [command.name for command in commands_for(channel="web", audience="public")]
    assert names == ["help", "new", "stop", "feedback", "forget", "human", "export"]
    names = [command.name for command in commands_for(channel="telegram", audience="public")]
    assert names == ["help", "new", "stop", "feedback", "forget", "human", "export"]
    assert len(commands_for(channel="telegram", audience="personal")) == len(COMMANDS)


def test_a_person_can_do_the_same_on_every_channel() -> None:
    web = {command.name for command in commands_for(channel="web", audience="personal")}
    telegram = {command.name for command in commands_for(channel="telegram", audience="personal")}
    assert telegram == web


def test_in_groups_only_admins_change_what_all_others_see() -> None:
    for_admins = {command.name for command in COMMANDS if not may_in_group(command.name, admin=False)}
    expected = {"compact", "undo", "pin", "unpin", "forget", "human", "goal", "mode", "model", "settings"}
    assert for_admins == expected
    assert all(may_in_group(command.name, admin=True) for command in COMMANDS)


def test_help_has_a_line_for_each() -> None:
    assert "/compact [focus] [--force] – Summarise" in help_text(COMMANDS)
