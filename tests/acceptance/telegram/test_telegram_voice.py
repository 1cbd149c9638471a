"""Voice messages on Telegram: heard, shown, answered, corrected, kept for another try, and held by caps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.fakes.bot_api import Person, Screen
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import opus, recording
from tests.kit.telegram.deployment import MINE, Deployment, deployment

TOO_LONG = "too long: I can listen to up to 10 minutes"
ANSWERS = {"cat Miso": {"text": "What a fine name."}, "dog Bertil": {"text": "And a fine dog."}}


@pytest.fixture(scope="module")
def bot_options(module_transcriptions: RunningTranscriptions) -> dict[str, Any]:
    more = {"EVERTALK_CAP_PERSON_PER_DAY_USD": "0.05", "EVERTALK_TRANSCRIBE_MOST_MB": "1"}
    return {"answers": ANSWERS, "settings": module_transcriptions.settings | more}


@pytest.fixture(autouse=True)
async def fresh_transcriptions(module_transcriptions: RunningTranscriptions) -> None:
    await module_transcriptions.next()
    await module_transcriptions.requests()


def texts(screen: Screen) -> list[str]:
    return [line.text for line in screen.answers]


async def booked(here: Deployment, person: Person) -> list[tuple[object, ...]]:
    sql = "SELECT coalesce(json_agg(json_build_array(t.purpose, t.cost_micro)), '[]')::text FROM usage t"
    rows = await here.house.one(f"{sql} {MINE} AND t.purpose = 'transcribe'", str(person.id))
    return [tuple(row) for row in json.loads(rows)]


@pytest.mark.parametrize(
    ("folder", "name", "kind", "media_type"),
    [
        ("voice", "voice.oga", "ogg", "audio/ogg"),
        ("video_notes", "note.mp4", "mp4", "video/mp4"),
        ("music", "memo.m4a", "mp4", "audio/mp4"),
        ("documents", "memo.wav", "wav", "audio/wav"),
    ],
)
async def test_a_recording_is_heard_shown_and_answered(
    folder: str,
    name: str,
    kind: str,
    media_type: str,
    here: Deployment,
    module_transcriptions: RunningTranscriptions,
) -> None:
    ann = await here.person(first_name="Ann", language_code="de")
    content = recording("My cat Miso is hungry.", kind=kind, seconds=30)
    await ann.send_file(name, content, media_type=media_type, folder=folder)
    screen = await ann.sees("What a fine name.")
    assert texts(screen) == ["Ich habe verstanden: My cat Miso is hungry.", "What a fine name."]
    [asked] = await module_transcriptions.requests()
    assert (asked["language"], asked["size"]) == ("de", len(content))
    [prompt] = (await here.prompts(holding="Miso"))[-1:]
    assert "🎤 My cat Miso is hungry." in json.dumps(prompt["messages"][-1], ensure_ascii=False)
    assert await booked(here, ann) == [("transcribe", 3_000)]
    assert await here.house.one(
        f"""SELECT f.words FROM attachments f JOIN entries t ON t.session_id = f.session_id
              AND t.blocks @> jsonb_build_array(jsonb_build_object('attachment_id', f.id)) {MINE}""",
        str(ann.id),
    ) == "My cat Miso is hungry."  # fmt: skip


async def test_the_bot_shows_that_it_listens(
    here: Deployment, module_transcriptions: RunningTranscriptions
) -> None:
    ann = await here.person(first_name="Ann")
    await module_transcriptions.next({"latency": 4})
    await ann.send_voice(recording("My cat Miso purrs."))
    await ann.sees("What a fine name.")
    calls = [one for one in await here.api.calls() if one["params"].get("chat_id") == ann.id]
    assert next(one["method"] for one in calls) == "sendChatAction"


async def test_what_was_misheard_is_corrected_by_editing_the_caption(here: Deployment) -> None:
    ann = await here.person(first_name="Ann")
    sent = await ann.send_voice(recording("My cat Miso barks."))
    await ann.sees("What a fine name.")
    await ann.edit(sent.message_id, "My dog Bertil barks.")
    await ann.sees("answer")
    await ann.tap("Answer again")
    await ann.sees("And a fine dog.")
    [prompt] = (await here.prompts(holding="Bertil"))[-1:]
    assert "🎤" not in json.dumps(prompt["messages"][-1], ensure_ascii=False)


async def test_a_failure_is_said_and_retry_hears_it_and_answers(
    here: Deployment, module_transcriptions: RunningTranscriptions
) -> None:
    ann = await here.person(first_name="Ann")
    await module_transcriptions.next({"status": 500}, {"status": 500})
    await ann.send_voice(recording("My cat Miso is back."), caption="Listen:")
    screen = await ann.sees("/retry")
    assert texts(screen)[-1].startswith("I could not listen to this just now.")
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ann.id)) == 0
    await ann.command("retry")
    screen = await ann.sees("What a fine name.")
    assert texts(screen)[-2:] == ["I heard: My cat Miso is back.", "What a fine name."]
    [prompt] = (await here.prompts(holding="is back"))[-1:]
    assert "Listen:" in json.dumps(prompt["messages"][-1])
    await here.answered(ann.id, 1)
    await ann.command("retry")
    await here.answered(ann.id, 2)
    asked = "SELECT t.blocks FROM entries t JOIN addresses a USING (session_id) WHERE a.chat = $1"
    asked += " AND t.author = 'person' ORDER BY t.seq DESC LIMIT 1"
    block, spoken = json.loads(await here.house.one(asked, str(ann.id)))
    assert spoken["text"] == "[voice message]"
    assert block["text"] == "Listen:\n\n🎤 My cat Miso is back."


async def test_what_was_not_heard_no_longer_waits_behind_a_newer_message(
    here: Deployment, module_transcriptions: RunningTranscriptions
) -> None:
    ann = await here.person(first_name="Ann")
    await module_transcriptions.next({"status": 500}, {"status": 500})
    await ann.send_voice(recording("My cat Miso is lost."))
    await ann.sees("/retry")
    await ann.say("My dog Bertil is here.")
    await here.answered(ann.id, 1)
    await ann.command("retry")
    await here.answered(ann.id, 2)
    assert not await here.prompts(holding="is lost")


@pytest.mark.parametrize(
    ("content", "duration", "size", "said", "asked"),
    [
        (b"", 3, None, "I cannot read voice", 0),
        (b"<html><body>hello</body></html>", 3, None, "I cannot read voice", 0),
        (b"\x00" * 5_000, 3, None, "I cannot read voice", 0),
        (recording("three hours"), 10_800, None, TOO_LONG, 0),
        (
            opus("three hours", header_seconds=10_800),
            3,
            None,
            TOO_LONG,
            0,
        ),
        (opus("ages", header_seconds=2**40), 3, None, TOO_LONG, 0),
        (recording("large"), 3, 2_000_000, "voice is too large: I can read files of up to 1 MB.", 0),
        (recording("three hours", seconds=10_800), 3, None, TOO_LONG, 1),
        (recording(""), 3, None, "I could not hear any words in this.", 1),
    ],
)
async def test_hostile_recordings_are_refused_in_a_sentence(
    content: bytes,
    duration: int,
    size: int | None,
    said: str,
    asked: int,
    here: Deployment,
    module_transcriptions: RunningTranscriptions,
) -> None:
    ann = await here.person(first_name="Ann")
    await ann.send_voice(content, duration=duration, size=size)
    screen = await ann.sees(said)
    assert len(screen.answers) == 1
    assert len(await module_transcriptions.requests()) == asked
    await here.house.handled()
    assert await here.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ann.id)) == 0


async def test_a_cap_holds_before_the_service_is_asked(
    here: Deployment, module_transcriptions: RunningTranscriptions
) -> None:
    """Five cents are eight minutes."""
    ann = await here.person(first_name="Ann")
    await ann.send_voice(recording("nine minutes", seconds=540), duration=540)
    await ann.sees("limit")
    assert await module_transcriptions.requests() == []
    assert await booked(here, ann) == []


async def test_without_a_service_voice_messages_are_declined(
    database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("deaf")
    async with deployment({}, database_url, redis_url, folder) as here:
        ann = await here.person(first_name="Ann")
        await ann.send_voice(recording("Hello"))
        await ann.sees("I cannot listen to voice messages yet.")
