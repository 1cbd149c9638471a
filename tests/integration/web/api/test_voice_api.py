"""Recordings over the web: taken as files, heard once, said by their message, and refused when hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.adapters.media.transcriptions import HttpTranscriber
from shared.core.session.turns import Caps
from shared.core.values.recordings import RecordingLimits, silence
from shared.runtime import ignore_crash_point
from shared.services.voice.hearing import HearingService
from tests.integration.web.api.sent_files import fetch, send, visitor
from tests.kit.fakes.scripted_api import KEY
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import opus, recording
from tests.kit.web.fixtures import Frame, Screen, Server

NO_CAPS = Caps(
    total=None, person=None, visitor=None, session=None, network=None, visitors_hour=None, timezone="UTC"
)


@pytest.fixture
def hearing(server: Server, transcriptions: RunningTranscriptions) -> RunningTranscriptions:
    """A fake that the server hears with."""
    hears(server, transcriptions, NO_CAPS)
    return transcriptions


def hears(server: Server, transcriptions: RunningTranscriptions, caps: Caps) -> None:
    stores = server.services.stores
    server.process.uploads.hearing = HearingService(
        transcriber=HttpTranscriber(url=transcriptions.url, key=KEY, model="whisper-1"),
        store=stores.attachments,
        spend=stores.turns,
        caps=caps,
        limits=RecordingLimits(minutes=10, bytes=1_000_000, micro_per_minute=6_000),
        crash_point=ignore_crash_point,
    )


async def say(screen: Screen, text: str, file: str) -> Frame:
    await screen.send({"t": "msg", "cid": "c1", "text": text, "attachments": [file]})
    return await screen.until("msg", role="person")


async def stored(server: Server) -> list[dict[str, Any]]:
    rows = await server.services.pool.fetch("SELECT blocks FROM entries ORDER BY seq")
    return [block for row in rows for block in row["blocks"]]


async def test_a_recording_is_heard_and_its_message_says_so(
    server: Server, hearing: RunningTranscriptions
) -> None:
    screen, welcome, token = await visitor(server)
    assert welcome["limits"]["files"]["voice"] == {"seconds": 600, "bytes": 1_000_000}
    content = recording("Good morning.", kind="webm", seconds=30)
    status, told = await send(
        server, token, content, name="recording.webm", **{"Accept-Language": "de-AT,de;q=0.9"}
    )
    assert (status, told["heard"], told["mime"]) == (200, "Good morning.", "audio/webm")
    again = await send(server, token, content, name="recording.webm")
    assert again == (200, told)
    [asked] = await hearing.requests()
    assert asked["language"] == "de"
    said = await say(screen, "", told["id"])
    assert (said["text"], said["attachments"][0]["id"]) == ("🎤 Good morning.", told["id"])
    words, file, *_ = await stored(server)
    assert words["text"] == "🎤 Good morning."
    assert (file["text"], "attachment_id" in file) == ("[voice message]", True)
    status, body_back, headers = await fetch(server, token, told["id"])
    assert (status, body_back, headers["Content-Type"]) == (200, content, "audio/webm")
    assert headers["Content-Disposition"].startswith("attachment")
    assert await server.services.pool.fetchval("SELECT cost_micro FROM usage") == 3_000


@pytest.mark.parametrize("text", ["Listen:", "Listen:\n\n🎤 Good morning."])
async def test_words_that_a_screen_says_itself_are_not_said_twice(
    text: str, server: Server, hearing: RunningTranscriptions
) -> None:
    screen, _, token = await visitor(server)
    _, told = await send(server, token, recording("Good morning."))
    said = await say(screen, text, told["id"])
    assert said["text"] == "Listen:\n\n🎤 Good morning."
    assert (await stored(server))[0]["text"] == "Listen:\n\n🎤 Good morning."


async def test_a_failure_is_said_and_the_same_bytes_go_on(
    server: Server, hearing: RunningTranscriptions
) -> None:
    screen, _, token = await visitor(server)
    await hearing.next({"status": 500}, {"status": 500})
    status, told = await send(server, token, recording("Good morning."))
    assert (status, told["code"]) == (503, "not_heard")
    kept = await server.services.pool.fetchval("SELECT public_id FROM attachments")
    await screen.send({"t": "msg", "cid": "c1", "text": "", "attachments": [kept.hex]})
    assert (await screen.until("error"))["code"] == "unknown_file"
    status, told = await send(server, token, recording("Good morning."))
    assert (status, told["id"], told["heard"]) == (200, kept.hex, "Good morning.")


async def test_a_cap_holds_before_the_service_is_asked(
    server: Server, hearing: RunningTranscriptions
) -> None:
    hears(server, hearing, replace(NO_CAPS, total=2_999))
    _, _, token = await visitor(server)
    status, told = await send(server, token, opus("half a minute", header_seconds=30))
    assert (status, told["code"]) == (429, "cap_reached")
    assert await hearing.requests() == []
    hears(server, hearing, NO_CAPS)
    status, told = await send(server, token, opus("half a minute", header_seconds=30))
    assert (status, told["heard"]) == (200, "half a minute")


@pytest.mark.parametrize(
    ("content", "status", "code", "asked"),
    [
        (b"", 422, "file_empty", 0),
        (b"\x00" * 5_000, 422, "file_unknown_kind", 0),
        (b"MZ\x00\x01" * 50, 422, "file_unknown_kind", 0),
        (opus("three hours", header_seconds=10_800), 422, "recording_too_long", 0),
        (opus("ages", header_seconds=2**40), 422, "recording_too_long", 0),
        (recording("large", size=1_000_001), 413, "file_too_large", 0),
        (recording("three hours", seconds=10_800), 422, "recording_too_long", 1),
        (recording(""), 422, "recording_empty", 1),
        (silence(), 422, "recording_empty", 1),
    ],
)
async def test_hostile_recordings_are_refused(
    content: bytes, status: int, code: str, asked: int, server: Server, hearing: RunningTranscriptions
) -> None:
    _, _, token = await visitor(server)
    found: tuple[int, Frame] = await send(server, token, content, name="recording.webm")
    assert (found[0], found[1]["code"]) == (status, code)
    assert len(await hearing.requests()) == asked


async def test_a_server_that_hears_nothing_takes_no_recordings(server: Server) -> None:
    _, welcome, token = await visitor(server)
    assert "voice" not in welcome["limits"]["files"]
    status, told = await send(server, token, recording("Good morning.\x00\x01"))
    assert (status, told["code"]) == (422, "file_unknown_kind")


async def test_a_recording_is_of_its_conversation_alone(
    server: Server, hearing: RunningTranscriptions
) -> None:
    _, _, token = await visitor(server)
    _, told = await send(server, token, recording("Good morning."))
    screen, _, other = await visitor(server)
    await screen.send({"t": "msg", "cid": "c1", "text": "", "attachments": [told["id"]]})
    assert (await screen.until("error"))["code"] == "unknown_file"
    assert (await fetch(server, other, told["id"]))[0] in (401, 404)
