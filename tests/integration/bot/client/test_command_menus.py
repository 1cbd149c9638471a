"""Command menus: within Telegram's limits, in every language, and only what each person may do."""

from __future__ import annotations

import re

import pytest

from bot.telegram.client.command_menus import DESCRIPTION_CHARS, MAX_COMMANDS, NAME_CHARS, build_command_menus
from shared.core.commands.commands import Audience
from shared.locales import list_languages
from tests.kit.fakes.bot_api import TOKEN, local_bot_api


def names(audience: Audience, scope: str) -> list[str]:
    (menu,) = [menu for menu in build_command_menus(audience) if (menu.scope, menu.language) == (scope, "")]
    return [name for name, _ in menu.commands]


@pytest.mark.parametrize("audience", ["personal", "public"])
def test_every_menu_keeps_telegrams_limits(audience: Audience) -> None:
    for menu in build_command_menus(audience):
        assert 0 < len(menu.commands) <= MAX_COMMANDS
        for name, description in menu.commands:
            assert re.fullmatch(rf"[a-z0-9_]{{1,{NAME_CHARS}}}", name)
            assert 3 <= len(description) <= DESCRIPTION_CHARS


def test_there_is_a_menu_for_each_kind_of_chat_and_each_language() -> None:
    kinds = {"all_private_chats", "all_group_chats", "all_chat_administrators"}
    found = [(menu.scope, menu.language) for menu in build_command_menus("personal")]
    two_letters = {"", *(language[:2] for language in list_languages()[1:])}
    assert sorted(found) == sorted((kind, language) for kind in kinds for language in two_letters)


@pytest.mark.control("S47")
def test_members_of_a_group_see_less_than_its_admins() -> None:
    members, admins = names("personal", "all_group_chats"), names("personal", "all_chat_administrators")
    assert set(admins) - set(members) == {
        "compact", "undo", "pin", "unpin", "forget", "human", "goal", "mode", "model", "settings",
    }  # fmt: skip
    assert set(members) < set(admins)
    assert set(names("personal", "all_private_chats")) - set(admins) == {"start"}


def test_where_anyone_may_talk_the_menu_is_short() -> None:
    shown = names("public", "all_private_chats")
    assert shown == ["help", "new", "stop", "feedback", "search", "forget", "human", "export"]


@pytest.mark.parametrize("audience", ["personal", "public"])
def test_human_command_is_hidden_when_no_operator_is_available(audience: Audience) -> None:
    offered, here = build_command_menus(audience, humans=False), build_command_menus(audience)
    assert "human" not in {name for menu in offered for name, _ in menu.commands}
    assert {name for name, _ in here[0].commands} - {name for name, _ in offered[0].commands} == {"human"}


async def test_telegram_takes_every_menu() -> None:
    import aiohttp

    async with local_bot_api() as fake, aiohttp.ClientSession() as session:
        for menu in (*build_command_menus("personal"), *build_command_menus("public")):
            wish = {
                "commands": [{"command": name, "description": words} for name, words in menu.commands],
                "scope": {"type": menu.scope},
                "language_code": menu.language,
            }
            async with session.post(f"{fake.base_url}/bot{TOKEN}/setMyCommands", json=wish) as answer:
                assert (await answer.json())["ok"], wish
        assert await fake.violations() == []
