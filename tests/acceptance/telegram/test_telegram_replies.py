"""What a message replies to, and files that could not be read: the request names both."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from PIL import Image

from tests.kit.fakes.bot_api import TOKEN, USERNAME, Person
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import recording
from tests.kit.sample_files import words_docx
from tests.kit.telegram.deployment import Deployment

BOT = int(TOKEN.partition(":")[0])
PLACE = {"latitude": 59.91, "longitude": 10.75}
POLL = {
    "id": "1", "question": "Which day?", "total_voter_count": 0, "is_closed": False, "is_anonymous": True,
    "type": "regular", "allows_multiple_answers": False, "allows_revoting": False, "members_only": False,
    "options": [
        {"persistent_id": day, "text": day, "voter_count": 0} for day in ("Monday", "Tuesday")
    ],
}  # fmt: skip
STICKER = {
    "file_id": "s", "file_unique_id": "u", "type": "regular", "width": 512, "height": 512,
    "is_animated": False, "is_video": False, "emoji": "🦩",
}  # fmt: skip
CHECKLIST = {
    "title": "Shopping",
    "tasks": [
        {"id": 1, "text": "Milk", "completion_date": 1_790_000_000},
        {"id": 2, "text": "Bread"},
    ],
}
CONTENTS: dict[str, tuple[dict[str, Any], str]] = {
    "location": ({"location": PLACE}, "59.91000, 10.75000"),
    "contact": ({"contact": {"phone_number": "+4712345", "first_name": "Grace"}}, "Grace +4712345"),
    "poll": ({"poll": POLL}, "Which day? – Monday | Tuesday"),
    "sticker": ({"sticker": STICKER}, "(a sticker: 🦩)"),
    "checklist": ({"checklist": CHECKLIST}, "Shopping – [x] Milk | [ ] Bread"),
}


def photo() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def bot_options(module_transcriptions: RunningTranscriptions) -> dict[str, Any]:
    return {"settings": module_transcriptions.settings}


async def question(here: Deployment, holding: str) -> str:
    """The newest message of the newest request that holds these words."""
    return json.dumps((await here.prompts(holding=holding))[-1]["messages"][-1], ensure_ascii=False)


async def group_of(here: Deployment, ada: Person, bob: Person, title: str) -> int:
    crew = await here.api.group(title, ada, members=(bob,))
    await here.house.let_in(crew.id)
    return crew.id


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("place", ["private", "group", "elsewhere"])
async def test_content_of_replied_message_is_read(here: Deployment, kind: str, place: str) -> None:
    ada, bob = await here.person(), await here.person()
    content, wanted = CONTENTS[kind]
    words = f"What of it, {kind} {place}?"
    chat = ada.id
    if place == "elsewhere":
        origin = {"type": "user", "sender_user": {"id": 77, "is_bot": False, "first_name": "Bob"}, "date": 1}
        await ada.send_content({"text": words, "external_reply": {"origin": origin, **content}})
    elif place == "group":
        chat = await group_of(here, ada, bob, f"Crew {kind}")
        words = f"@{USERNAME} {words}"
        said = await bob.send_content(content, chat=chat)
        await ada.say(words, chat=chat, reply_to=said.message_id)
    else:
        said = await ada.send_content(content)
        await here.house.handled()
        await ada.say(words, reply_to=said.message_id)
    await here.house.until(
        """SELECT count(*) > 0 FROM turns t JOIN addresses a ON a.session_id = t.session_id
            WHERE a.chat = $1 AND t.ended_at IS NOT NULL""",
        str(chat),
    )
    await here.house.handled()
    await here.answered(chat, 2 if place == "private" and kind != "sticker" else 1)
    assert wanted in await question(here, words)


@pytest.mark.parametrize("kind", ["photo", "document", "voice"])
async def test_file_of_replied_message_is_read_in_group(here: Deployment, kind: str) -> None:
    ada, bob = await here.person(), await here.person()
    chat = await group_of(here, ada, bob, f"Club {kind}")
    match kind:
        case "photo":
            said = await bob.send_photo(photo(), chat=chat)
        case "document":
            lease = words_docx("The rent is 900 euros.")
            said = await bob.send_file("lease.docx", lease, caption="The lease", chat=chat)
        case _:
            said = await bob.send_voice(recording("The boat is leaking."), chat=chat)
    words = f"@{USERNAME} what is in this {kind}?"
    await ada.say(words, chat=chat, reply_to=said.message_id)
    await here.answered(chat, 1)
    body = await question(here, f"what is in this {kind}?")
    wanted = {
        "photo": '"type": "image"',
        "document": "The rent is 900 euros.",
        "voice": "The boat is leaking.",
    }
    assert wanted[kind] in body
    assert "of the message replied to" in body


@pytest.mark.parametrize("kind", ["photo", "document", "voice"])
async def test_file_of_message_in_another_chat_is_read(here: Deployment, kind: str) -> None:
    ada, bob = await here.person(), await here.person()
    match kind:
        case "photo":
            await bob.send_photo(photo())
        case "document":
            await bob.send_file("lease.docx", words_docx("The rent is 900 euros."))
        case _:
            await bob.send_voice(recording("The boat is leaking."))
    await here.house.handled()
    sql = """SELECT body -> 'message' -> $1 FROM telegram_updates
              WHERE body -> 'message' -> 'chat' ->> 'id' = $2 ORDER BY update_id DESC LIMIT 1"""
    file = json.loads(await here.house.one(sql, kind, str(bob.id)))
    origin = {"type": "user", "sender_user": {"id": 77, "is_bot": False, "first_name": "Bob"}, "date": 1}
    words = f"What is in that {kind}?"
    await ada.send_content({"text": words, "external_reply": {"origin": origin, kind: file}})
    await here.answered(ada.id, 1)
    wanted = {
        "photo": '"type": "image"',
        "document": "The rent is 900 euros.",
        "voice": "The boat is leaking.",
    }
    assert wanted[kind] in await question(here, words)


async def test_quoted_part_is_marked_beside_the_whole(here: Deployment) -> None:
    ada, bob = await here.person(first_name="Ada"), await here.person(first_name="Bob")
    chat = await group_of(here, ada, bob, "Painters")
    said = await bob.say("The boat is blue and the house is red.", chat=chat)
    words = f"@{USERNAME} who painted it?"
    await ada.say(words, chat=chat, reply_to=said.message_id, quote="the house is red")
    await here.answered(chat, 1)
    body = await question(here, "who painted it?")
    assert "[In reply to Bob]\\n> The boat is blue and the house is red." in body
    assert "[Quoting Bob]\\n> the house is red" in body


async def test_own_inline_answer_is_no_question(here: Deployment) -> None:
    ada = await here.person()
    bot = {"id": BOT, "is_bot": True, "first_name": "Evertalk", "username": USERNAME}
    await ada.send_content({"text": "An answer that was sent inline.", "via_bot": bot})
    await ada.say("A question of my own.")
    await here.answered(ada.id, 1)
    assert await here.prompts(holding="sent inline") == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken.docx", "it is damaged or not what its name says"),
        ("film.pdf", "it is larger than the 20 MB that can be read"),
        ("gone.txt", "Telegram did not hand it over"),
    ],
)
async def test_request_names_file_that_could_not_be_read(here: Deployment, name: str, reason: str) -> None:
    ada = await here.person()
    words = f"What does {name} say?"
    match name:
        case "broken.docx":
            await ada.send_file(name, words_docx("Words.")[:300], caption=words)
        case "film.pdf":
            await ada.send_file(name, size=20 * 1024 * 1024 + 1, media_type="application/pdf", caption=words)
        case _:
            await here.api.fail("getFile", times=3, status=500)
            await ada.send_file(name, b"The code is 4711.", media_type="text/plain", caption=words)
    await here.answered(ada.id, 1)
    body = await question(here, words)
    assert name in body.replace(words, "")
    assert reason in body
    assert "not read" in body


async def test_retry_brings_in_file_that_was_not_there(here: Deployment) -> None:
    ada = await here.person()
    await here.api.fail("getFile", times=3, status=500)
    await ada.send_file("codes.txt", b"The code is 4711.", media_type="text/plain", caption="Which code?")
    await here.answered(ada.id, 1)
    assert "4711" not in await question(here, "Which code?")
    await ada.command("retry")
    await here.answered(ada.id, 2)
    body = await question(here, "Which code?")
    assert "The code is 4711." in body
    assert "not read" not in body
