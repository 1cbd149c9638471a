"""Commands: their names, what is near one that nobody knows, arguments that can be used."""

from __future__ import annotations

from typing import get_args

import pytest

from shared.core.commands.commands import (
    COMMANDS,
    FOCUS_CHARS,
    BadArguments,
    CommandSection,
    CompactArguments,
    commands_for,
    compact_arguments,
    may_in_group,
    nearest_commands,
)
from shared.locales import catalogue

NAMES = [command.name for command in COMMANDS]


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("forgt", ("forget",)),
        ("sep", ("separator",)),
        ("nwe", ("new",)),
        ("comapct", ("compact",)),
        ("re", ("retry", "remember", "reminders")),
        ("etc", ()),
        ("x", ()),
    ],
)
def test_what_may_have_been_meant_is_near(typed: str, nearest: tuple[str, ...]) -> None:
    assert nearest_commands(typed, NAMES) == nearest


def test_nothing_is_near_that_is_not_offered() -> None:
    offered = [command.name for command in commands_for(channel="web", audience="public")]
    assert nearest_commands("compact", offered) == ()


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
    ("args", "reason"), [("--frce", "--frce"), ("x" * (FOCUS_CHARS + 1), "301 characters")]
)
def test_arguments_that_cannot_be_used_are_refused_with_advice(args: str, reason: str) -> None:
    with pytest.raises(BadArguments) as refused:
        compact_arguments(args)
    assert reason in refused.value.advice


def test_names_are_unique_and_described() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    assert all(command.describe() for command in COMMANDS)


def test_visitors_of_a_public_page_see_only_the_plain_ones() -> None:
    names = [command.name for command in commands_for(channel="web", audience="public")]
    assert names == ["help", "new", "stop", "feedback", "search", "forget", "human", "export"]
    names = [command.name for command in commands_for(channel="telegram", audience="public")]
    assert names == ["help", "new", "stop", "feedback", "search", "forget", "human", "export"]
    assert len(commands_for(channel="telegram", audience="personal", speaks=True)) == len(COMMANDS) - 1


def test_only_the_page_of_the_demo_plays_a_sample() -> None:
    demo = commands_for(channel="web", audience="personal", demo=True, speaks=True)
    assert {one.name for one in COMMANDS} == {one.name for one in demo}
    elsewhere = (
        *commands_for(channel="telegram", audience="personal", demo=True),
        *commands_for(channel="rest", audience="personal", demo=True),
        *commands_for(channel="web", audience="public", demo=True),
    )
    assert "sample" not in {one.name for one in elsewhere}


def test_where_nothing_speaks_there_is_no_voice() -> None:
    for speaks in (True, False):
        names = {one.name for one in commands_for(channel="web", audience="personal", speaks=speaks)}
        assert ("voice" in names) is speaks


def test_a_person_can_do_the_same_on_every_channel() -> None:
    web = {command.name for command in commands_for(channel="web", audience="personal")}
    telegram = {command.name for command in commands_for(channel="telegram", audience="personal")}
    assert telegram == web


def test_in_groups_only_admins_change_what_all_others_see() -> None:
    for_admins = {command.name for command in COMMANDS if not may_in_group(command.name, admin=False)}
    expected = {
        "compact",
        "undo",
        "pin",
        "unpin",
        "forget",
        "human",
        "goal",
        "mode",
        "model",
        "settings",
        "voice",
    }
    assert for_admins == expected
    assert all(may_in_group(command.name, admin=True) for command in COMMANDS)


def test_every_command_stands_in_a_section_that_has_a_title() -> None:
    assert {command.section for command in COMMANDS} == set(get_args(CommandSection))
    assert all(catalogue("commands", "").say(f"section_{name}") for name in get_args(CommandSection))
