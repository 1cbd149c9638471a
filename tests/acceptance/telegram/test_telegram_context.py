"""Compaction as people on Telegram see it, and two bots with different people in one deployment."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.read_models import Insights
from tests.kit.fakes.bot_api import Person
from tests.kit.telegram.deployment import MINE, Deployment

SHOP_TOKEN = "700002:FAKE-token-of-the-shop-for-everybody_012"
SHOP = int(SHOP_TOKEN.partition(":")[0])
SHORT = {"the weather, the garden": {"text": "I see."}}
TURNS = 6
FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 36


@pytest.fixture(scope="module")
def bot_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Choose a small window and a real worker; the second bot is a shop's, open to everybody."""
    bots = tmp_path_factory.mktemp("bots") / "bots.json"
    bots.write_text(json.dumps([{"token_env": "SHOP_TOKEN", "audience": "public", "access": "open"}]))
    settings = {
        "EVERTALK_CONTEXT_WINDOW": "9000",
        "CONTEXT_MAX_OUTPUT_TOKENS": "1000",
        "EVERTALK_CAP_TOTAL_PER_DAY_USD": "100",
        "EVERTALK_TELEGRAM_BOTS_FILE": str(bots),
        "SHOP_TOKEN": SHOP_TOKEN,
    }
    return {"answers": SHORT, "worker": True, "settings": settings, "bots": {SHOP_TOKEN: "the_shop_bot"}}


RESTS = f"""SELECT count(*) = 0 FROM jobs t {MINE}
 AND (t.state = 'running' OR t.state = 'due' AND t.due_at <= now())"""
HEAD = "SELECT s.head FROM sessions s JOIN addresses a ON a.session_id = s.id WHERE a.chat = $1"


async def talk(here: Deployment, person: Person, turns: int) -> None:
    for number in range(turns):
        fact = "My dog Bertil is allergic to chicken." if number == 0 else ""
        await person.say(f"{fact} Message {number}. {FILLER}")
        await here.answered(person.id, number + 1)


@pytest.fixture(scope="module")
async def summarised(here: Deployment) -> Person:
    """Somebody whose older messages were summarised."""
    ada = await here.person(first_name="Ada")
    await talk(here, ada, TURNS)
    summarised = f"SELECT count(*) > 0 FROM compactions t {MINE} AND t.active AND t.kind = 'summary'"
    await here.house.until(summarised, str(ada.id))
    # Until nothing has been summarised since the newest note came.
    for number in range(TURNS + 1, TURNS + 5):
        await here.house.until(RESTS, str(ada.id))
        head = await here.house.one(HEAD, str(ada.id))
        await ada.say("And how are you?")
        await here.answered(ada.id, number)
        await here.house.until(RESTS, str(ada.id))
        if await here.house.one(HEAD, str(ada.id)) == head:
            break
    await ada.sees("I summarised")
    # The note may have come with an earlier answer: this one is still to be seen.
    await ada.sees(lambda screen: screen.notifications >= number)
    return ada


async def test_a_summary_is_noted_once_and_silently(here: Deployment, summarised: Person) -> None:
    screen = await summarised.screen()
    notes = [line for line in screen.answers if "I summarised" in line.text]
    noted = f"SELECT count(*) FROM compactions t {MINE} AND t.kind = 'summary'"
    assert len(notes) <= await here.house.one(noted, str(summarised.id))
    assert all(line.silent for line in notes)
    assert notes[-1].buttons == ["View", "Undo"]
    assert re.search(r"I summarised \d+ older messages", notes[-1].text)
    answered = f"SELECT count(*) FROM turns t {MINE} AND t.state = 'answered'"
    assert screen.notifications == await here.house.one(answered, str(summarised.id)), "one for each answer"
    assert not any("SILENT" in text or "narrative" in text for text in screen.texts)


async def test_summary_is_announced_once_and_silently_where_a_person_asks_for_it(here: Deployment) -> None:
    bo = await here.person(first_name="Bo")
    await bo.command("settings")
    button = "Tell me before older messages are summarised"
    shown = await bo.sees("Settings of this chat")
    (label,) = [name for name in shown.answers[-1].buttons if name.startswith(button)]
    assert label.endswith("off"), "quiet until somebody asks for it"
    await bo.tap(label)
    await bo.sees(lambda screen: any(f"{button}: on" in name for name in screen.answers[-1].buttons))
    await talk(here, bo, TURNS)
    summarised = f"SELECT count(*) > 0 FROM compactions t {MINE} AND t.active AND t.kind = 'summary'"
    await here.house.until(summarised, str(bo.id))
    screen = await bo.sees("will soon be summarised")
    told = [line for line in screen.answers if "will soon be summarised" in line.text]
    summaries = await here.house.one(
        f"SELECT count(*) FROM compactions t {MINE} AND t.kind = 'summary'", str(bo.id)
    )
    assert 1 <= len(told) <= summaries + 1
    assert all(line.silent for line in told)


async def test_summary_is_not_announced_in_a_chat_that_did_not_ask(summarised: Person) -> None:
    assert not any("will soon be summarised" in text for text in (await summarised.screen()).texts)


async def test_context_tells_what_the_dashboard_tells(here: Deployment, summarised: Person) -> None:
    await summarised.command("context")
    screen = await summarised.sees("Context")
    words = screen.answers[-1].text
    async with insights(here) as dashboard:
        public_id = await here.house.one(
            "SELECT s.public_id FROM sessions s JOIN addresses a ON a.session_id = s.id WHERE a.chat = $1",
            str(summarised.id),
        )
        session = await dashboard.load_session(public_id)
    assert session is not None
    shown = re.search(r"Context: about ([\d,]+) of ([\d,]+) tokens\n+\S+ (\d+) %", words)
    assert shown is not None, words
    assert int(shown[1].replace(",", "")) == session["context_tokens"]
    # The command measures anew, with the ratio of tokens that the last answer has taught.
    assert int(shown[2].replace(",", "")) == pytest.approx(session["context_limit"], rel=0.01)
    assert int(shown[3]) == pytest.approx(session["context_pct"], abs=1)


async def test_a_summary_can_be_viewed_and_undone_and_undo_be_pressed_twice(
    here: Deployment, summarised: Person
) -> None:
    await summarised.tap("View")
    await summarised.sees("What I keep of our older messages")
    note = next(line for line in reversed((await summarised.screen()).answers) if "Undo" in line.buttons)
    data = note.raw["reply_markup"]["inline_keyboard"][0][1]["callback_data"]
    active = f"SELECT coalesce(max(t.id), 0) FROM compactions t {MINE} AND t.active AND t.kind = 'summary'"
    before = await here.house.one(active, str(summarised.id))
    await summarised.tap("Undo", message_id=note.message_id)
    await summarised.sees("The older messages are back, word for word:")
    assert await here.house.one(active, str(summarised.id)) < before
    await summarised.forge_tap(note.message_id, data)
    screen = await summarised.sees(lambda screen: len(screen.toasts) >= 3)
    assert screen.toasts[-1]["text"] == "This button is out of date."
    await summarised.say("What is my dog allergic to?")
    await summarised.sees("chicken")


async def test_the_public_sees_fewer_commands_and_no_context(here: Deployment) -> None:
    guest = await here.person(bot=SHOP, allowed=False, first_name="Gast", language_code="de")
    await guest.command("start")
    screen = await guest.sees("Hallo Gast!")
    assert "evertalk setup" not in screen.answers[-1].text
    await guest.command("help")
    screen = await guest.sees("/export")
    offered = set(re.findall(r"/[a-z]+", screen.answers[-1].text))
    assert not offered & {"/context", "/compact", "/undo", "/pin", "/status"}
    await guest.say("Mein Hund heißt Bertil.")
    screen = await guest.sees("Bertil")
    await guest.command("context")
    await guest.sees(lambda screen: len(screen.answers) == 4)
    screen = await guest.screen()
    assert not any("Token" in text or "tokens" in text for text in screen.texts)
    assert not any(label in ("View", "Ansehen", "Undo") for line in screen.answers for label in line.buttons)


async def test_a_german_is_spoken_to_in_german(here: Deployment) -> None:
    ada = await here.person(first_name="Ada", language_code="de")
    await ada.command("start")
    await ada.sees("Hallo Ada!")
    said = await ada.say("Mein Boot heißt Njord.")
    await ada.sees("Njord")
    await ada.command("pin", reply_to=said.message_id)
    await ada.sees("Angeheftet")
    await ada.send_voice()
    await ada.sees(lambda screen: len(screen.answers) == 4)
    assert "voice" not in (await ada.screen()).texts[-1]


async def test_a_stranger_may_talk_with_one_bot_and_not_with_the_other(here: Deployment) -> None:
    eve = await here.person(allowed=False)
    await eve.say("Hello?")
    await eve.sees("good for one hour")
    there = Person(here.api, eve.id, bot=SHOP)
    await there.say("I look for lemons.")
    await there.sees("lemons")
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(eve.id)) == 1


@asynccontextmanager
async def insights(here: Deployment) -> AsyncIterator[Any]:
    pool = await asyncpg.create_pool(here.house.database_url, min_size=1, max_size=1)
    try:
        yield Insights(pool)
    finally:
        await pool.close()
