"""Everybody on Telegram is spoken to in the language of their app, or in the one that they choose."""

from __future__ import annotations

import asyncio
import re

import pytest

from bot.telegram.client.command_menus import list_menu_languages
from bot.telegram.markup.entity_text import render
from shared.locales import catalogue, list_languages, name_language
from tests.kit.night import rest_at_night
from tests.kit.telegram.deployment import Deployment

TRANSLATED = list_languages()[1:]
SOME = {"ar", "de", "zh-hans"}
"""By day: one that is written from the right, one without spaces. All are as whole, another test says."""


@pytest.mark.parametrize("language", rest_at_night(TRANSLATED, by_day=SOME))
async def test_a_person_hears_their_own_language_from_the_first_word(here: Deployment, language: str) -> None:
    bot, answers = catalogue("telegram", language), catalogue("commands", language)
    ada = await here.person(first_name="Ada", language_code=language)
    await ada.command("start")
    await ada.sees(render(bot.say("hello_name", name="Ada")).text)
    await ada.command("help")
    await ada.sees(answers.say("command_undo"))
    await ada.command("status")
    await ada.sees(render(answers.say("status_turns", turns=0, count=0)).text)
    await ada.command("retry")
    screen = await ada.sees(render(answers.say("nothing_to_retry")).text)
    english = catalogue("telegram", "en")
    assert english.say("see_help") not in "\n".join(screen.texts)


async def test_a_language_is_chosen_from_a_list_of_all(here: Deployment) -> None:
    eve = await here.person(first_name="Eve", language_code="xx")
    await eve.command("settings")
    await eve.sees("Settings of this chat")
    await eve.tap("Language: English")
    listed = await eve.sees(lambda screen: "Deutsch" in screen.answers[-1].buttons)
    assert listed.answers[-1].buttons == [name_language(language) for language in list_languages()]
    await eve.tap("Deutsch")
    screen = await eve.sees("Einstellungen dieses Chats")
    assert screen.answers[-1].buttons[-2:] == ["Sprache: Deutsch", "Schließen"]
    await eve.command("pins")
    await eve.sees("Nichts ist angeheftet.")


async def test_menus_and_descriptions_are_there_for_every_language(here: Deployment) -> None:
    """Telegram knows languages by two letters; whose app speaks none of them reads English."""
    wanted = set(list_menu_languages())
    assert all(re.fullmatch(r"[a-z]{2}|", language) for language in wanted)
    for method in ("setMyCommands", "setMyDescription", "setMyShortDescription"):
        async with asyncio.timeout(30):
            while {
                call["params"].get("language_code", "") for call in await here.api.calls(method)
            } != wanted:
                await asyncio.sleep(0.1)
