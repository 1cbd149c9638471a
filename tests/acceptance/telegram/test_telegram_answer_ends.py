"""Ends of answers on Telegram: a line below what was cut, and a button that goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.telegram.texts import get_texts
from shared.adapters.models.catalog import Wire
from tests.kit.dialects.endings import CUT, ENDINGS, NATURAL, WIRES, ending, last_words, write_models
from tests.kit.dialects.server import Answer, DialectServer, Json, dialect_server
from tests.kit.fakes.bot_api import Person, running_bot_api
from tests.kit.fakes.bot_api.sight import Line, Screen
from tests.kit.telegram.bot_process import TelegramHouse, telegram_house

REST = "arrive on Monday."
ENGLISH = get_texts("en")
GO_ON = ENGLISH.say("longer")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    telegram: TelegramHouse
    server: DialectServer

    async def count_turns(self) -> int:
        found: int = await self.telegram.one("SELECT count(*) FROM turns WHERE ended_at IS NOT NULL")
        return found


@asynccontextmanager
async def house_on(wire: Wire, database_url: str, redis_url: str, folder: Path) -> AsyncIterator[House]:
    """A bot whose model ends each answer as the question says, and any other by itself."""

    def reply(body: Json) -> Answer:
        said = last_words(body)
        end = next((end for end in ENDINGS if f"answer: {end}" in said), None)
        return ending(wire, NATURAL[wire], REST) if end is None else ending(wire, ENDINGS[end][wire])

    async with (
        dialect_server(reply) as server,
        running_bot_api() as api,
        telegram_house(
            api, database_url, redis_url, folder,
            EVERTALK_MODELS_FILE=str(write_models(folder, server.url, wire)),
            EVERTALK_MODEL="odd", EVERTALK_SUMMARY_MODEL="odd",
        ) as telegram,
    ):  # fmt: skip
        yield House(telegram=telegram, server=server)


async def newest_answer(person: Person, answers: int) -> Line:
    """Return the last of so many answers, once its final buttons are below it."""
    stop = ENGLISH.say("stop")

    def is_there(screen: Screen) -> bool:
        lines = screen.answers
        return len(lines) == answers and bool(lines[-1].buttons) and stop not in lines[-1].buttons

    return (await person.sees(is_there)).answers[-1]


@pytest.mark.parametrize("wire", WIRES)
async def test_answer_end_is_shown_on_telegram(
    wire: Wire, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    usual = [ENGLISH.say(key) for key in ("regenerate", "shorter", "longer")]
    expected = {
        "stop": (CUT, usual),
        "length": (f"{CUT}\n\n{ENGLISH.say('cut_length')}", [GO_ON, ENGLISH.say("regenerate")]),
        "filter": (f"{CUT}\n\n{ENGLISH.say('cut_filter')}", usual),
    }
    async with house_on(wire, database_url, redis_url, tmp_path) as house:
        ada = await house.telegram.person(first_name="Ada")
        for answers, end in enumerate(ENDINGS, 1):
            await ada.say(f"answer: {end}")
            line = await newest_answer(ada, answers)
            assert (line.text, line.buttons) == expected[end]


async def test_button_continues_a_cut_answer_once(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with house_on("openai", database_url, redis_url, tmp_path) as house:
        ada = await house.telegram.person(first_name="Ada")
        await ada.say("answer: length")
        cut = await newest_answer(ada, 1)
        address = await house.telegram.one("SELECT address_id FROM turns")
        await ada.tap(GO_ON, message_id=cut.message_id)
        assert (await newest_answer(ada, 2)).text == REST
        assert CUT in str(house.server.requests[-1]), "the model reads what it goes on from"
        await ada.forge_tap(cut.message_id, f"v1:more:{address}:1")
        await house.telegram.handled()
        assert await house.count_turns() == 2, "an answer is continued once"


async def test_button_of_an_answer_with_later_messages_is_out_of_date(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with house_on("openai", database_url, redis_url, tmp_path) as house:
        ada = await house.telegram.person(first_name="Ada")
        await ada.say("answer: length")
        cut = await newest_answer(ada, 1)
        address = await house.telegram.one("SELECT address_id FROM turns")
        await ada.say("Thank you.")
        await newest_answer(ada, 2)
        await ada.forge_tap(cut.message_id, f"v1:more:{address}:1")
        await ada.sees(lambda screen: ENGLISH.say("unknown_button") in str(screen.raw["toasts"]))
        assert await house.count_turns() == 2
