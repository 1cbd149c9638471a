"""Pictures that the model has made for a person: sent with the answer, paid for, held by the caps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.session.turns import Stored
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.images.harness import RunningImages
from tests.kit.fakes.messages_api import RunningFake

PROMPT = "A boat in the morning fog, in watercolour."


@pytest.fixture
async def images() -> AsyncIterator[RunningImages]:
    async with RunningImages() as server:
        yield server


@pytest.fixture
def app_options(images: RunningImages, request: Any) -> dict[str, Any]:
    """`request.param` is the price of a picture in dollars."""
    price = getattr(request, "param", "0.04")
    caps = {"cap_total_per_day_usd": "5", "cap_visitor_per_day_usd": "5"}
    return {**images.settings, **caps, "picture_usd": price}


async def ask(guest: Visit, provider: RunningFake, **more: str) -> str:
    """The model calls the tool once; its result as the model read it."""
    call = {"name": "make_picture", "input": {"description": PROMPT, **more}}
    await provider.script([{"times": 1, "action": {"tool_use": [call]}}])
    await guest.ask("Draw me a boat.")
    (result,) = [
        block
        for message in (await provider.requests())[-1]["body"]["messages"][-1:]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    content = result["content"]
    return content if isinstance(content, str) else str(content)


async def spent(guest: Visit) -> list[tuple[int | None, str]]:
    rows = await guest.app.pool.fetch("SELECT cost_micro, model FROM usage WHERE purpose = 'picture'")
    return [(row["cost_micro"], row["model"]) for row in rows]


async def test_a_picture_comes_with_the_answer_and_stands_in_the_ledger(
    guest: Visit, provider: RunningFake, images: RunningImages
) -> None:
    await ask(guest, provider, name="boat.exe")
    (asked,) = await images.requests()
    assert (asked["prompt"], asked["n"]) == (PROMPT, 1)
    stored = [event for event in guest.heard if isinstance(event, Stored)][-1]
    (file,) = stored.payload["attachments"]
    assert file["name"].startswith("boat.")
    assert file["mime"].startswith("image/")
    assert (file["width"], file["height"]) == (64, 48)
    assert await spent(guest) == [(40_000, "gpt-image-2")]
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    await guest.ask("Thank you.")
    assert await spent(guest) == [(40_000, "gpt-image-2")]


@pytest.mark.parametrize(
    ("action", "told", "paid"),
    [
        (
            {"status": 400, "message": "rejected by the safety system"},
            "refuses this",
            False,
        ),
        ({"status": 500}, "did not make one", False),
        ({"status": 401}, "did not make one", False),
        ({"by_address": True}, "did not make one", True),
        ({"body": "{"}, "did not make one", True),
        ({"body": '{"data": [{"b64_json": "bm8gcGljdHVyZQ=="}]}'}, "is no picture", True),
        ({"body": '{"data": [{"b64_json": "bm8*gcGljdHVyZQ=="}]}'}, "did not make one", True),
    ],
)
async def test_failed_picture_is_returned_to_model_and_charged_if_billed(
    guest: Visit, provider: RunningFake, images: RunningImages, action: dict[str, Any], told: str, paid: bool
) -> None:
    await images.next(action, action)
    assert told in await ask(guest, provider)
    assert bool(await spent(guest)) is paid
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    assert "attachments" not in [event for event in guest.heard if isinstance(event, Stored)][-1].payload


async def test_aborted_picture_is_charged_because_it_may_exist(
    guest: Visit, provider: RunningFake, images: RunningImages
) -> None:
    await images.next({"latency": 30})
    call = {"name": "make_picture", "input": {"description": PROMPT}}
    await provider.script([{"times": 1, "action": {"tool_use": [call]}}])
    await guest.say("Draw me a boat.")
    answering = asyncio.create_task(guest.answered())
    async with asyncio.timeout(20):
        while not await images.requests():
            await asyncio.sleep(0.02)
    assert await guest.app.sessions.stop(guest.session_id)
    await answering
    assert await spent(guest) == [(40_000, "gpt-image-2")]
    assert await guest.one("SELECT bool_and(status = 'aborted') FROM usage WHERE purpose = 'picture'")
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0


async def stop_after_picture(guest: Visit, provider: RunningFake) -> None:
    """Stop the turn while the model is asked again after the tool."""
    call = {"name": "make_picture", "input": {"description": PROMPT}}
    await provider.script([
        {"times": 1, "action": {"tool_use": [call]}}, {"times": 1, "action": {"latency": 30}},
    ])  # fmt: skip
    await guest.say("Draw me a boat.")
    answering = asyncio.create_task(guest.answered())
    async with asyncio.timeout(60):
        while len(await provider.requests()) < 2:
            await asyncio.sleep(0.02)
    assert await guest.app.sessions.stop(guest.session_id)
    await answering
    assert await guest.one("SELECT state FROM turns") == "stopped"


async def test_stopped_turn_sends_the_picture_that_it_has_made(
    guest: Visit, provider: RunningFake, images: RunningImages
) -> None:
    await stop_after_picture(guest, provider)
    notice = [event for event in guest.heard if isinstance(event, Stored)][-1]
    assert notice.payload["role"] == "notice"
    assert [file["mime"] for file in notice.payload["attachments"]] == ["image/jpeg"]


async def test_erasing_the_question_of_a_stopped_turn_deletes_its_picture(
    guest: Visit, provider: RunningFake, images: RunningImages
) -> None:
    await stop_after_picture(guest, provider)
    asked = await guest.one("SELECT seq FROM entries WHERE author = 'person'")
    await guest.app.erasure.erase_messages(guest.session_id, [asked], "person")
    assert await guest.one("SELECT count(*) FROM attachments") == 0
    assert await guest.one("SELECT count(*) FROM events WHERE payload ? 'attachments'") == 0


async def test_refused_turn_sends_the_picture_that_it_has_made(
    guest: Visit, provider: RunningFake, images: RunningImages
) -> None:
    call = {"name": "make_picture", "input": {"description": PROMPT}}
    long = {"status": 400, "message": "prompt is too long: 9 tokens > 2 maximum"}
    await provider.script([{"times": 1, "action": {"tool_use": [call]}}, {"times": -1, "action": long}])
    await guest.ask("Draw me a boat.")
    assert await guest.one("SELECT state FROM turns") == "refused"
    notice = [event for event in guest.heard if isinstance(event, Stored)][-1]
    assert [file["mime"] for file in notice.payload["attachments"]] == ["image/jpeg"]


@pytest.mark.parametrize("app_options", ["6"], indirect=True)
async def test_a_cap_holds_pictures_too(guest: Visit, provider: RunningFake, images: RunningImages) -> None:
    assert "spending limit" in await ask(guest, provider)
    assert await images.requests() == []


async def test_without_a_server_there_is_no_such_tool(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url
    )
    async with running_app(settings) as app:
        guest = await visit(app)
        await guest.ask("Draw me a boat.")
    assert "make_picture" not in str((await provider.requests())[-1]["body"]["tools"])
