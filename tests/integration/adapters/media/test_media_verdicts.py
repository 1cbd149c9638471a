"""Verdicts on media services: twenty bad answers in one conversation change nothing for the others."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from shared.adapters.media.drawing import HttpPictureMaker
from shared.adapters.media.speech import HttpSpeaker
from shared.adapters.media.transcriptions import HttpTranscriber
from shared.adapters.models.embeddings import HttpEncoder
from shared.adapters.models.reranker import HttpReranker
from shared.core.values.errors import ModelError, ModelUnavailable
from shared.core.values.recordings import Recording
from shared.core.verdicts.evidence import SESSIONS
from tests.kit.fakes.transcriptions.recordings import recording

BAD, OTHERS, TIMES = "xyzzy", (2, 3, 4, 5), 20
_NAMES = re.compile(rb'name="(\w+)"')
GOOD: Mapping[str, Any] = {
    "speech": b"OggS-sound",
    "transcriptions": {"text": "Good day."},
    "generations": {"data": [{"b64_json": base64.b64encode(b"picture").decode()}]},
    "rerank": {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]},
    "embeddings": {"data": [{"index": at, "embedding": [1.0] * 64} for at in range(16)]},
}


def refuse(status: int, message: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"error": {"message": message}}, status=status)


BAD_ANSWERS: dict[str, Callable[[], web.Response]] = {
    "fault of the server": refuse(500, "internal error"),
    "overload": refuse(503, "overloaded"),
    "key": refuse(401, "Incorrect API key provided"),
    "credit": refuse(402, "Insufficient credits"),
    "content": refuse(400, "Your request was rejected by our safety system: content policy"),
    "field": refuse(400, "response_format is not supported"),
    "page": lambda: web.Response(text="<html>Bad gateway</html>", content_type="text/html"),
    "empty answer": lambda: web.Response(body=b""),
    "wrong file": lambda: web.json_response({"data": []}),
}


@dataclass(slots=True)
class MediaServer:
    """Answers badly to requests with the word `BAD`, or to all."""

    bad: Callable[[], web.Response]
    is_down: bool = False
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(body)
        if self.is_down or BAD.encode() in body:
            return self.bad()
        service = request.path.rpartition("/")[2]
        good = GOOD[service]
        if service == "embeddings":
            good = {"data": good["data"][: len(json.loads(body)["input"])]}
        return web.Response(body=good) if isinstance(good, bytes) else web.json_response(good)

    def list_fields(self) -> set[bytes]:
        """Return the names of the newest request's fields, whatever its form."""
        newest = self.bodies[-1]
        return {*_NAMES.findall(newest), *re.findall(rb'"(\w+)":', newest)}


@asynccontextmanager
async def media_server(service: str, bad: str) -> AsyncIterator[tuple[MediaServer, Ask]]:
    server = MediaServer(BAD_ANSWERS[bad])
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    ask, close = SERVICES[service](server.url)
    try:
        yield server, ask
    finally:
        await close()
        await runner.cleanup()


Ask = Callable[[str, int], Awaitable[Any]]
Service = tuple[Ask, Callable[[], Awaitable[None]]]
"""Asks a service within a session, and closes it."""


async def keep_open() -> None:
    """Close nothing: the service has no connection of its own."""


def speech(url: str) -> Service:
    speaker = HttpSpeaker(url=url, key="k", model="m", voice="nova")

    async def ask(words: str, session: int) -> Any:
        return await speaker.speak(words, form="opus", session=session)

    return ask, keep_open


def hearing(url: str) -> Service:
    transcriber = HttpTranscriber(url=url, key="k", model="m")
    mime = "audio/ogg"

    async def ask(words: str, session: int) -> Any:
        return await transcriber.transcribe(
            Recording(body=recording(words, kind="ogg", seconds=2.0), mime=mime),
            language="en",
            session=session,
        )

    return ask, keep_open


def drawing(url: str) -> Service:
    maker = HttpPictureMaker(url=url, key="k", model="m")

    async def ask(words: str, session: int) -> Any:
        return await maker.make(words, session=session)

    return ask, keep_open


def reranking(url: str) -> Service:
    reranker = HttpReranker(url=url, key="k", model="m", seconds=10)

    async def ask(words: str, session: int) -> Any:
        return await reranker.rank(words, ("one", "two"), session=session)

    return ask, reranker.close


def embedding(url: str) -> Service:
    encoder = HttpEncoder(url=url, key="k", model="m", seconds=10)

    async def ask(words: str, session: int) -> Any:
        return await encoder.encode((words,), question=True, session=session)

    return ask, encoder.close


SERVICES: dict[str, Callable[[str], Service]] = {
    "speech": speech, "transcriptions": hearing, "pictures": drawing, "rerank": reranking,
    "embeddings": embedding,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""

    async def no_sleep(_: float) -> None: ...

    monkeypatch.setattr("shared.adapters.media.media_service.asyncio.sleep", no_sleep)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_twenty_bad_answers_in_one_session_change_nothing_for_others(service: str, name: str) -> None:
    async with media_server(service, name) as (server, ask):
        assert await ask("Good day.", 2) is not None
        before = server.list_fields()
        for number in range(TIMES):
            with suppress(ModelError):
                await ask(f"{BAD} {number}", 1)
        for session in OTHERS:
            asked = len(server.bodies)
            assert await ask(f"Good evening, {session}.", session) is not None
            assert len(server.bodies) == asked + 1
            assert server.list_fields() == before


@pytest.mark.parametrize("service", SERVICES)
async def test_failing_session_pauses_alone(service: str) -> None:
    async with media_server(service, "fault of the server") as (server, ask):
        for number in range(TIMES):
            with suppress(ModelError):
                await ask(f"{BAD} {number}", 1)
        assert 5 <= len(server.bodies) < TIMES


async def test_service_that_is_down_pauses_for_all_after_several_sessions() -> None:
    async with media_server("speech", "fault of the server") as (server, ask):
        server.is_down = True
        for session in range(1, 9):
            with pytest.raises(ModelUnavailable):
                await ask("Good day.", session)
        asked = len(server.bodies)
        with pytest.raises(ModelUnavailable, match="not asked again so soon"):
            await ask("Good day.", 99)
        assert len(server.bodies) == asked


async def test_refused_field_is_left_out_for_all_after_three_sessions() -> None:
    async with media_server("transcriptions", "field") as (server, ask):
        for session in range(1, SESSIONS + 1):
            with suppress(ModelError):
                await ask(BAD, session)
        await ask("Good day.", 9)
        assert b"verbose_json" not in server.bodies[-1]
