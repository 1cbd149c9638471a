"""The acceptance cases of a first-class bot, against the whole system."""

from __future__ import annotations

import asyncio
import io
import json
from itertools import pairwise
from typing import Any

import pytest
from PIL import Image

from bot.telegram.client.session import create_bot
from tests.kit.fakes.bot_api import TOKEN, USERNAME
from tests.kit.sample_files import OLD_OFFICE, open_document, pdf, xlsx
from tests.kit.telegram.bot_process import BOT_ID
from tests.kit.telegram.deployment import MINE, Deployment, has_button

STORY = " ".join(f"word{number:03d}" for number in range(375))
"""Three thousand characters."""
PIECE = " ".join(f"piece{number}" for number in range(80))
TABLE = "Prices:\n\n| fruit | price |\n|---|---|\n| apple | 2 |\n"
LINKS = "[a](javascript:alert(1)) [b](tg://resolve?domain=x) [c](data:text/html,x) [d](https://example.org)"
SALES = {"kind": "bar", "title": "Boats", "labels": ["May", "June"], "series": [{"values": [3, 4.5]}]}
ANSWERS: dict[str, dict[str, Any]] = {
    "Think hard": {"latency": 5.5, "text": "Forty-two."},
    "story": {"text": STORY, "pace_ms": 15},
    "pieces": {"text": PIECE, "pace_ms": 400},
    "First of all": {"latency": 8.0, "text": "The first answer is turquoise.", "pace_ms": 200},
    "in bold": {"text": "**Yes.**"},
    "prices": {"text": TABLE},
    "links": {"text": LINKS},
    "in general": {"latency": 0.8},
    "of boats": {"latency": 0.8},
    "plan as a file": {
        "tool_use": [
            {"name": "send_file", "input": {"name": "plan.md", "content": "# Plan\n\nBuy tar."}},
            {"name": "send_file", "input": {"name": "sales", "chart": SALES}},
            {"name": "send_file", "input": {"name": "virus.exe", "content": "MZ"}},
        ]
    },
    "plan.md goes to the person": {"text": "There it is."},
}


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {
        "answers": ANSWERS,
        "settings": {"EVERTALK_TELEGRAM_DRAFTS": "true", "EVERTALK_TELEGRAM_RICH": "true"},
    }


# -- while it thinks and writes -----------------------------------------------------------------------------


async def test_typing_is_shown_while_a_slow_model_thinks_and_survives_a_429(here: Deployment) -> None:
    ada = await here.person()
    await here.wants(ada, "Answers with a stop button", on=False)
    await here.api.fail("sendChatAction", match={"chat": ada.id}, status=429, retry_after=1)
    await ada.say("Think hard, please.")
    await ada.sees("Forty-two")
    calls = await here.api.calls(chat=ada.id)
    typing = [call for call in calls if call["method"] == "sendChatAction"]
    assert [call["status"] for call in typing][:1] == [429]
    assert 200 in {call["status"] for call in typing}
    answer = max(number for number, call in enumerate(calls) if call["method"] == "sendMessage")
    assert calls.index(typing[-1]) < answer


async def test_long_answer_grows_and_notifies_once_in_private_and_group(here: Deployment) -> None:
    ada, bob = await here.person(), await here.person()
    family = await here.api.group("Family", bob)
    await here.house.let_in(family.id)
    await ada.say("Tell me a story.")
    await bob.say(f"@{USERNAME} tell us a story.", chat=family.id)
    whole = lambda screen: any(line.text == STORY for line in screen.answers)  # noqa: E731
    await ada.sees(whole, within=60)
    await bob.sees(whole, chat=family.id, within=60)
    assert (await ada.screen()).notifications == 1
    for person, chat in ((ada, ada.id), (bob, family.id)):
        views = [view for view in await person.views(chat=chat) if _shows(view)]
        texts = [view["text"] for view in views if "word000" in view["text"]]
        assert texts[-1] == STORY
        assert len({view["message_id"] for view in views if "word000" in view["text"]}) == 1
        for earlier, later in pairwise(texts):
            assert len(later) >= len(earlier) - 5
            assert later.startswith(earlier.rstrip(" …▌")[:-5])
    sent = [call for call in await here.api.calls("sendMessage", chat=ada.id) if call["status"] == 200]
    assert len(sent) == 1


def _shows(view: dict[str, Any]) -> bool:
    return view["kind"] in ("sent", "edited") and bool(view.get("text"))


@pytest.mark.parametrize("how", ["message", "button", "draft"])
async def test_an_answer_is_stopped_and_what_was_written_stays(here: Deployment, how: str) -> None:
    ada = await here.person()
    if how != "draft":
        await here.wants(ada, "Answers with a stop button", on=False)
    await ada.say("Write in pieces, please.")
    if how == "draft":
        await ada.sees(lambda screen: any("piece2" in (one["text"] or "") for one in screen.drafts))
        await ada.stop_draft()
    else:
        await ada.sees("piece2")
        await (ada.command("stop") if how == "message" else ada.tap("Stop"))
    screen = await ada.sees("⏹ Stopped.")
    await here.house.handled()
    assert sum("topped" in text for text in (await ada.screen()).texts) == 1, "it is confirmed once"
    partial = next(line.text for line in screen.answers if "⏹" in line.text)
    assert "piece0 piece1 piece2" in partial
    assert "piece79" not in partial
    await ada.say("What did I say before that?")
    await here.answered(ada.id, 2)
    request = (await here.prompts(holding="What did I say before that?"))[-1]
    assert "piece0 piece1 piece2" in json.dumps(request["messages"])
    assert (
        await here.house.one(f"SELECT t.state FROM turns t {MINE} AND t.turn_no = 1", str(ada.id))
        == "stopped"
    )


async def test_second_message_waits_for_first_and_other_chats_do_not(here: Deployment) -> None:
    ada, others = await here.person(), [await here.person() for _ in range(5)]
    await ada.say("First of all, a slow one: what is your colour?")
    await here.house.until(f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'claimed'", str(ada.id))
    await ada.say("Which colour was that?")
    for other in others:
        await other.say("My boat is called Njord.")
    for other in others:
        await here.answered(other.id, 1)
    assert (
        await here.house.one(f"SELECT count(*) FROM turns t {MINE} AND t.state = 'answered'", str(ada.id))
        == 0
    )
    screen = await ada.sees(lambda screen: len(screen.answers) == 2, within=60)
    assert screen.texts[0] == "The first answer is turquoise."
    assert "The first answer" in json.dumps((await here.prompts(holding="Which colour"))[-1]["messages"])


async def test_an_edit_before_the_answer_takes_the_place_of_the_message(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("First of all, another slow one.")
    await here.house.until(f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'claimed'", str(ada.id))
    said = await ada.say("My cat is called Mizo.")
    await here.house.until(f"SELECT count(*) = 2 FROM turns t {MINE}", str(ada.id))
    await ada.edit(said.message_id, "My cat is called Miso.")
    await here.answered(ada.id, 2)
    assert await here.prompts(holding="called Mizo") == []
    assert len(await here.prompts(holding="called Miso")) == 1
    screen = await ada.screen()
    assert not any("Shall I answer again" in text for text in screen.texts)


# -- what comes in ------------------------------------------------------------------------------------------


async def test_replies_quotes_and_forwards_are_in_the_prompt(here: Deployment) -> None:
    ada = await here.person()
    said = await ada.say("The boat is blue and the house is red.")
    await here.answered(ada.id, 1)
    await ada.say("And who painted it?", reply_to=said.message_id, quote="the house is red")
    await here.answered(ada.id, 2)
    asked = json.dumps((await here.prompts(holding="who painted it"))[-1]["messages"][-1])
    assert "[Quoting their own message]" in asked
    assert "> the house is red" in asked
    await ada.forward("The ferry leaves at noon.", comment="Is that in time?", from_name="Grace")
    await here.answered(ada.id, 3)
    asked = json.dumps((await here.prompts(holding="in time"))[-1]["messages"][-1])
    assert "Forwarded from Grace" in asked
    assert "> The ferry leaves at noon." in asked


async def test_a_photo_goes_to_the_model(here: Deployment) -> None:
    ada = await here.person()
    body = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(body, "JPEG")
    await ada.send_photo(body.getvalue(), caption="Look at my new boat.")
    await here.answered(ada.id, 1)
    blocks = (await here.prompts(holding="my new boat"))[0]["messages"][-1]["content"]
    assert "image" in [block["type"] for block in blocks]


async def test_documents_are_read_and_what_cannot_be_is_said(here: Deployment) -> None:
    ada = await here.person()
    await ada.send_file("list.txt", b"Buy seven lemons.", caption="My list", media_type="text/plain")
    await here.answered(ada.id, 1)
    asked = json.dumps((await here.prompts(holding="My list"))[0]["messages"][-1])
    assert "[File list.txt]" in asked
    assert "Buy seven lemons." in asked
    await ada.send_file(
        "ticket.pdf", pdf("The train leaves at nine"), caption="My ticket", media_type="application/pdf"
    )
    await here.answered(ada.id, 2)
    assert "The train leaves at nine" in json.dumps(
        (await here.prompts(holding="My ticket"))[0]["messages"][-1]
    )
    row = "<row><c r='A1' t='str'><v>Ferry</v></c><c r='B1'><v>17.5</v></c></row>"
    await ada.send_file("costs.xlsx", xlsx(row), caption="My costs")
    await here.answered(ada.id, 3)
    assert "| Ferry | 17.5 |" in json.dumps((await here.prompts(holding="My costs"))[0]["messages"][-1])
    await ada.send_file("diary.odt", open_document("", manifest="<encryption-data/>"))
    await ada.sees("diary.odt is locked by a password. Please send it without one.")
    await ada.send_file("old.doc", OLD_OFFICE)
    await ada.sees(
        "I cannot read old.doc. Pictures, PDFs, texts, web pages, office files, e-books, mails, calendars, "
        "contacts, notebooks and archives work."
    )
    files = len(await here.api.calls("getFile"))
    await ada.send_file("film.pdf", size=21 * 1024 * 1024, media_type="application/pdf")
    await ada.sees("film.pdf is too large: I can read files of up to 20 MB.")
    await ada.send_voice()
    await ada.sees("I cannot listen to voice messages yet.")
    assert len(await here.api.calls("getFile")) == files, "refused before it was asked for"
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 3


async def fetched(here: Deployment, file_id: str) -> bytes:
    """What the chat holds."""
    client = create_bot(TOKEN, api_url=here.api.base_url)
    try:
        content = await client.download(file_id)
        assert content is not None
        return content.read()
    finally:
        await client.session.close()


async def test_files_and_charts_come_behind_the_answer(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("Give me the plan as a file.")
    screen = await ada.sees(lambda screen: any("photo" in line.raw for line in screen.answers))
    words, plan, chart = (line.raw for line in screen.answers)
    assert words["text"] == "There it is."
    assert plan["document"]["file_name"] == "plan.md"
    assert "reply_markup" in chart, "the buttons are below the last message"
    assert await fetched(here, plan["document"]["file_id"]) == b"# Plan\n\nBuy tar."
    with Image.open(io.BytesIO(await fetched(here, chart["photo"][-1]["file_id"]))) as shown:
        assert shown.size == (1200, 720)
    asked = json.dumps((await here.prompts(holding="goes to the person"))[-1]["messages"][-1])
    assert "`name` must end with .txt, .md, .csv, .html, or with .png for a chart." in asked
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 1


# -- what goes out ------------------------------------------------------------------------------------------


@pytest.mark.control("S18")
async def test_refused_formatting_leaves_the_words(here: Deployment) -> None:
    ada = await here.person()
    reason = "Bad Request: can't parse entities: unsupported"
    await here.api.fail(
        "sendMessage", match={"chat": ada.id, "has": "entities"}, status=400, description=reason
    )
    await ada.say("Answer in bold.")
    screen = await ada.sees("Yes.")
    assert (screen.texts, screen.answers[0].entities) == (["Yes."], [])


async def test_refused_rich_message_is_sent_classic_and_never_retried(
    here: Deployment,
) -> None:
    ada = await here.person()
    for method in ("sendRichMessage", "editMessageText"):
        await here.api.fail(
            method, times=-1, match={"chat": ada.id, "has": "rich_message"}, status=400,
            description="Bad Request: rich messages are not supported",
        )  # fmt: skip
    for turn in (1, 2):
        await ada.say("Show me the prices.")
        await here.answered(ada.id, turn)
        await ada.sees(lambda screen, turn=turn: sum("apple" in text for text in screen.texts) == turn)  # type: ignore[misc]
    tried = [call for call in await here.api.calls(chat=ada.id) if "rich_message" in call["params"]]
    assert len(tried) == 1


@pytest.mark.control("S16", "S18")
async def test_only_harmless_links_can_be_pressed(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("Give me links.")
    screen = await ada.sees(has_button("Again"))
    links = [entity["url"] for entity in screen.answers[-1].entities if entity["type"] == "text_link"]
    assert [link.rstrip("/") for link in links] == ["https://example.org"]
    assert all(entity["type"] in ("text_link", "code") for entity in screen.answers[-1].entities)


@pytest.mark.control("S47")
async def test_answers_and_typing_are_in_their_topic(here: Deployment) -> None:
    ada = await here.person()
    club = await here.api.group("Club", ada, forum=True)
    await here.house.let_in(club.id)
    boats = await club.create_topic("Boats")
    await ada.say(f"@{USERNAME} we meet in general.", chat=club.id)
    await ada.say(f"@{USERNAME} think of boats.", chat=club.id, thread=boats)
    await here.house.until(
        "SELECT count(*) = 2 FROM turns t JOIN addresses a ON a.id = t.address_id"
        " WHERE a.chat = $1 AND t.ended_at IS NOT NULL",
        str(club.id),
    )
    for words, thread in (("we meet in general", None), ("think of boats", boats)):
        screen = await ada.sees(words, chat=club.id)
        line = next(one for one in screen.answers if words in one.text)
        assert line.thread == thread
    calls = [call for call in await here.api.calls(chat=club.id) if call["method"] == "sendChatAction"]
    assert {call["params"].get("message_thread_id") for call in calls} == {None, boats}
    await club.delete_topic(boats)
    await ada.say(f"@{USERNAME} and again in general.", chat=club.id)
    await ada.sees("and again in general", chat=club.id)
    assert (
        await here.house.one("SELECT count(DISTINCT session_id) FROM addresses WHERE chat = $1", str(club.id))
        == 2
    )


# -- who may, and where -------------------------------------------------------------------------------------


@pytest.mark.control("S47")
async def test_button_press_of_another_person_is_ignored(here: Deployment) -> None:
    ada, eve = await here.person(), await here.person()
    await ada.say("My boat is called Njord.")
    screen = await ada.sees(has_button("Again"))
    raw = screen.answers[-1].raw["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    await eve.say("I am somebody else.")
    mine = (await eve.sees(has_button("Again"))).answers[-1].message_id
    for data in (raw, raw.replace("again", "undo"), raw.replace("again", "stop")):
        await eve.forge_tap(mine, data)
    await eve.sees(lambda screen: len(screen.toasts) == 3)
    for data in (
        "",
        "v1:again:1",
        "v9:again:1:1",
        "../../etc/passwd",
        "v1:set:1:0:notices=off;drop",
        "x" * 64,
    ):
        await eve.forge_tap(mine, data)
    toasts = (await eve.sees(lambda screen: len(screen.toasts) == 9)).toasts
    assert [toast["text"] for toast in toasts[:3]] == ["This button is for another person."] * 3
    assert {toast["text"] for toast in toasts[3:]} == {"This button is out of date."}
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 1


@pytest.mark.control("S47")
async def test_in_a_group_only_administrators_run_its_commands(here: Deployment) -> None:
    ada, bob = await here.person(), await here.person(first_name="Bob")
    crew = await here.api.group("Crew", ada, members=(bob,))
    await here.house.let_in(crew.id)
    said = await bob.say(f"@{USERNAME} our boat is Njord.", chat=crew.id)
    await bob.sees("Njord", chat=crew.id)
    for name in ("compact", "undo"):
        await bob.command(name, chat=crew.id)
    await bob.command("pin", chat=crew.id, reply_to=said.message_id)
    await bob.sees(
        lambda screen: sum("administrators" in text for text in screen.texts) == 3, chat=crew.id, within=20
    )
    assert await here.house.one(f"SELECT count(*) FROM pins t {MINE}", str(crew.id)) == 0
    await ada.command("pin", chat=crew.id, reply_to=said.message_id)
    await here.house.until(f"SELECT count(*) = 1 FROM pins t {MINE}", str(crew.id))


async def test_who_blocks_is_left_alone_and_who_returns_is_answered(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("My boat is called Njord.")
    await ada.sees("Njord")
    await ada.block()
    gone = "SELECT unreachable_since IS NOT NULL FROM addresses WHERE chat = $1"
    await here.house.until(gone, str(ada.id))
    await ada.unblock()
    await ada.say("What is my boat called?")
    await ada.sees(lambda screen: sum("Njord" in text for text in screen.texts) == 2)
    assert not await here.house.one(gone, str(ada.id))


async def test_a_group_that_becomes_a_supergroup_goes_on(here: Deployment) -> None:
    ada = await here.person()
    small = await here.api.group("Small", ada, kind="group")
    await here.house.let_in(small.id)
    await ada.say(f"@{USERNAME} our boat is called Njord.", chat=small.id)
    await ada.sees("Njord", chat=small.id)
    large = await small.migrate()
    await here.house.until("SELECT count(*) = 1 FROM addresses WHERE chat = $1", str(large.id))
    await ada.say(f"@{USERNAME} what is our boat called?", chat=large.id)
    await ada.sees("Njord", chat=large.id)
    assert await here.house.one("SELECT count(*) FROM addresses WHERE chat = $1", str(small.id)) == 0


async def test_the_menus_are_there_in_two_languages(here: Deployment) -> None:
    async with asyncio.timeout(30):
        while len((await here.api.bot(BOT_ID))["commands"]) < 6:
            await asyncio.sleep(0.05)
    menus = (await here.api.bot(BOT_ID))["commands"]
    described = {entry["description"] for menu in menus for entry in menu["commands"]}
    assert "Ältere Nachrichten jetzt zusammenfassen" in described
    assert "Summarise older messages now" in described or len(described) > 20
