"""Verdicts: twenty bad answers in one conversation change nothing for the others, on any wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shared.adapters.models import ModelEntry
from shared.adapters.models.catalog import Wire
from shared.adapters.models.openai_provider import OpenAIProvider, ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.core.values.errors import ModelError, ModelRefusedAccount
from shared.core.values.messages import Image, Message, Text, text_message, text_of
from shared.core.verdicts.evidence import SESSIONS
from shared.ports import ModelReply, ModelRequest, PictureContent, SystemPart
from tests.kit.dialects.server import (
    GOOD,
    Answer,
    DialectServer,
    completion,
    dialect_server,
    events,
    messages_answer,
    refusal,
    response_answer,
)
from tests.kit.model_makers import SAVE, HandClock, WordCounter, asking, impatient

Json = dict[str, Any]
WIRES: dict[Wire, tuple[type[Provider], Callable[[str], Answer]]] = {
    "messages": (Provider, messages_answer),
    "openai": (OpenAIProvider, completion),
    "responses": (ResponsesProvider, response_answer),
}
PICTURE = PictureContent(mime="image/png", body=b"png", description="a lighthouse")
BAD, OTHERS = "the odd conversation", (2, 3, 4, 5)
TIMES = 20


def request_of(session: int, text: str = "When does it open?", *, turn: int = 1) -> ModelRequest:
    """Return a request that uses every ability."""
    return asking(
        Message(
            role="user",
            blocks=(Text(text=text), Image(attachment_id=1, mime="image/png", description="a lighthouse")),
        ),
        text_message("assistant", "Welcome."),
        text_message("user", "And on Sunday?"),
        system=(SystemPart(text="Be brief."),),
        tools=(SAVE,),
        pictures={1: PICTURE},
        json_schema={"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}},
        max_output_tokens=4_000,
        about=(session, turn),
    )


def error(status: int, message: str) -> Answer:
    return refusal(status, {"error": {"message": message}})


BAD_ANSWERS: dict[str, Callable[[Json], Answer]] = {
    "tools": lambda _: error(400, "m does not support tools"),
    "images": lambda _: error(400, "image input is not supported"),
    "schema": lambda _: error(400, "This model does not support response format `json_schema`."),
    "system role": lambda _: error(400, "System role not supported"),
    "limit of the answer": lambda _: error(
        400, "Invalid max_tokens value, the valid range of max_tokens is [1, 2048]"
    ),
    "alternation": lambda _: error(400, "Conversation roles must alternate user/assistant/user/assistant"),
    "window that the person named": lambda _: error(
        400, "This model's maximum context length is 5454 tokens. However, you requested 9000 tokens."
    ),
    "window without a number": lambda _: error(400, "the request exceeds the available context size"),
    "account": lambda _: error(403, "Your request was blocked by our firewall"),
    "credit": lambda _: error(402, "Insufficient credits"),
    "content": lambda _: error(400, "The response was filtered by our content management policy"),
    "request": lambda _: error(400, "messages.3: no such call"),
    "fault of the server": lambda _: error(500, "internal error"),
    "overload": lambda _: error(529, "overloaded"),
    "page": lambda _: Answer(body="<html>Bad gateway</html>", content_type="text/html"),
    "half a stream": lambda _: Answer(body=events({"choices": [{"delta": {"content": "Ni"}}]}, done=False)),
}


@dataclass(slots=True)
class Place:
    model: RemoteModel
    provider: Provider
    server: DialectServer
    clock: HandClock

    async def ask(self, session: int, text: str = "When does it open?", *, turn: int = 1) -> ModelReply:
        return await self.model.reply(request_of(session, text, turn=turn))

    async def body_of(self, session: int) -> Json:
        """Return the body that the server gets of a session."""
        assert text_of((await self.ask(session)).blocks) == GOOD
        return self.server.requests[-1]


@asynccontextmanager
async def place(wire: Wire, answer: Callable[[Json], Answer | None]) -> AsyncIterator[Place]:
    """A model whose server answers well where `answer` returns None."""
    kind, good = WIRES[wire]

    async with dialect_server(lambda body: answer(body) or good(GOOD)) as server:
        clock = HandClock()
        provider = kind(base_url=server.url, api_key="k", foreign=True, clock=clock)
        able = {"images": True, "cache": wire == "messages", "json": True}
        entry = ModelEntry(name="m", wire=wire, window=100_000, max_output=8_000, able=able)
        model = RemoteModel(entry, provider, WordCounter(), patience=impatient())
        try:
            yield Place(model, provider, server, clock)
        finally:
            await model.close()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_twenty_bad_answers_in_one_session_change_nothing_for_others(wire: Wire, name: str) -> None:
    def answer(body: Json) -> Answer | None:
        return BAD_ANSWERS[name](body) if BAD in json.dumps(body) else None

    async with place(wire, answer) as at:
        card, before = await at.model.load_card("m"), await at.body_of(2)
        for turn in range(TIMES):
            with suppress(ModelError):
                await at.ask(1, f"{BAD}: my window has 5454 tokens", turn=turn)
            at.clock.now += 1
        for session in OTHERS:
            assert await at.body_of(session) == before
        assert await at.model.load_card("m") == card
        assert not at.provider.breaker.get_state().open


@pytest.mark.parametrize("wire", WIRES)
async def test_refused_ability_holds_for_all_after_three_sessions(wire: Wire) -> None:
    refuses = [True]

    def answer(body: Json) -> Answer | None:
        return error(400, "m does not support tools") if refuses[0] and "tools" in body else None

    async with place(wire, answer) as at:
        for session in range(1, SESSIONS + 1):
            await at.body_of(session)
            await at.body_of(session)
        assert ["tools" in body for body in at.server.requests] == [True, False, False] * SESSIONS
        assert "tools" not in await at.body_of(9)
        (lesson,) = at.model.list_learned()
        assert (lesson.for_all, lesson.sessions) == (True, (3, 2, 1))
        assert "tools" not in (await at.model.load_card("m")).capabilities
        at.clock.now += 60
        refused = len(at.server.requests)
        await at.body_of(10)
        assert "tools" in at.server.requests[refused], "one request probes the ability"
        assert "tools" not in await at.body_of(11)
        refuses[0] = False
        at.clock.now += 120
        assert "tools" in await at.body_of(12)
        assert "tools" in await at.body_of(13), "the probe has healed it for all"
        assert at.model.list_learned() == ()


@pytest.mark.parametrize("wire", WIRES)
async def test_probe_waits_for_a_request_that_uses_the_ability(wire: Wire) -> None:
    def answer(body: Json) -> Answer | None:
        return error(400, "m does not support tools") if "tools" in body else None

    async with place(wire, answer) as at:
        for session in range(1, SESSIONS + 1):
            await at.body_of(session)
        at.clock.now += 60
        await at.model.reply(replace(request_of(8), tools=()))
        assert at.model.list_learned() != (), "an answer without tools proves nothing"


@pytest.mark.parametrize("wire", WIRES)
async def test_account_pauses_for_all_after_three_sessions(wire: Wire) -> None:
    refuses = [True]

    async with place(wire, lambda _: error(402, "Insufficient credits") if refuses[0] else None) as at:
        for session in (1, 2, 3):
            for _ in range(3):
                with pytest.raises(ModelRefusedAccount):
                    await at.ask(session)
        assert len(at.server.requests) == 3, "a session that was refused does not ask again"
        with pytest.raises(ModelRefusedAccount):
            await at.ask(4)
        assert len(at.server.requests) == 3
        state = at.provider.breaker.get_state()
        assert (state.open, state.account_refused, state.sessions) == (True, True, (3, 2, 1))
        refuses[0] = False
        at.clock.now += 10
        await at.ask(4)
        await at.ask(1)
        assert not at.provider.breaker.get_state().account_refused


@pytest.mark.parametrize("wire", WIRES)
async def test_window_of_the_server_is_believed_from_the_second_refusal(wire: Wire) -> None:
    message = "This model's maximum context length is 5454 tokens. However, you requested 9000 tokens."

    async with place(wire, lambda body: error(400, message) if BAD in json.dumps(body) else None) as at:
        windows = []
        for turn in (1, 2):
            with suppress(ModelError):
                await at.ask(1, BAD, turn=turn)
            windows.append((await at.model.load_card("m")).window)
        assert windows == [100_000, 5_454]


@pytest.mark.parametrize("wire", ["messages", "openai"])
async def test_thought_in_the_prompt_is_hidden_for_its_session_only(wire: Wire) -> None:
    _, good = WIRES[wire]
    odd = good(f"I think.\n</think>\n\n{GOOD}")

    async with place(wire, lambda body: odd if BAD in json.dumps(body) else None) as at:
        for turn in range(TIMES):
            assert text_of((await at.ask(1, BAD, turn=turn)).blocks) == GOOD
        assert at.provider.get_verdicts("m").abilities.begins_in_thought(1)
        assert not at.provider.get_verdicts("m").abilities.begins_in_thought(2)


async def test_rejections_name_every_session_that_met_them() -> None:
    async with place("openai", lambda body: error(400, "messages.3: no such call")) as at:
        for session in (1, 2, 2):
            with suppress(ModelError):
                await at.ask(session)
        rejection = at.model.find_rejection()
        assert rejection is not None
        assert (rejection.count, rejection.sessions) == (3, (2, 1))


async def test_answer_ends_the_rejections_of_its_session_only() -> None:
    def answer(body: Json) -> Answer | None:
        return error(400, "messages.3: no such call") if BAD in json.dumps(body) else None

    async with place("openai", answer) as at:
        for session in (1, 2):
            with suppress(ModelError):
                await at.ask(session, BAD)
        await at.ask(2)
        rejection = at.model.find_rejection()
        assert rejection is not None
        assert rejection.sessions == (1,)
