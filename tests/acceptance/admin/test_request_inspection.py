"""Operators see what a model was sent: each call of each turn, byte for byte, and what was kept out of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.ports import Tool
from shared.services.turns.request_builder import choose_token_ratio, find_learned_ratio
from tests.acceptance.sent_requests import CHAT, FILLER, Sent, sorted_keys
from tests.kit.app_driver import LookUp, Visit, working
from tests.kit.dashboard.fixtures import SAME_ORIGIN
from tests.kit.dashboard.serve import served
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
def app_options() -> dict[str, Any]:
    """Choose a window that a few results of tools fill."""
    return {"max_output": 1_000, "soft_budget": 25_000}


@pytest.fixture
def app_tools() -> list[Tool]:
    return [LookUp()]


class Screen:
    """An operator's browser without a screen."""

    def __init__(self, http: aiohttp.ClientSession, url: str, session: str) -> None:
        self._http, self._url, self._session = http, url, session

    async def see(self, rest: str) -> Any:
        async with self._http.get(f"{self._url}/api/v1/sessions/{self._session}{rest}") as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def do(self, what: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        return await self.post(f"/sessions/{self._session}/{what}", body)

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        async with self._http.post(f"{self._url}/api/v1{path}", json=body, headers=SAME_ORIGIN) as response:
            return response.status, await response.json()


@asynccontextmanager
async def screen(guest: Visit, database_url: str) -> AsyncIterator[Screen]:
    app = guest.app
    session = str(await guest.one("SELECT public_id FROM sessions WHERE id = $1", guest.session_id))
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        served(
            web.Application(), pool=app.pool, settings=app.settings, commands=app.commands,
            inspecting=app.context_inspector,
        ) as url,
        aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as http,
    ):  # fmt: skip
        form = {"token": await create_login_link(database_url)}
        await http.post(f"{url}/dashboard/login", data=form, headers=SAME_ORIGIN, allow_redirects=False)
        yield Screen(http, url, session)


async def by_turn(provider: RunningFake, guest: Visit) -> dict[int, list[str]]:
    """The bodies that were answered, as the provider received them, by the turn they were made for."""
    chats = [r for r in await provider.requests() if r["kind"] == "chat" and r["status"] == 200]
    found: dict[int, list[str]] = {}
    turn = 0
    for record in chats:
        last = record["body"]["messages"][-1]["content"]
        turn += not any(block["type"] == "tool_result" for block in last)
        found.setdefault(turn, []).append(sorted_keys(json.dumps(record["body"])))
    return found


async def test_each_call_of_each_turn_is_shown_as_the_provider_received_it(
    guest: Visit, provider: RunningFake, database_url: str
) -> None:
    """Plain and tool turns, shortened results, summaries, requests that had to be made to fit."""
    sent = Sent(guest, provider)
    for number in range(8):
        await sent.ask(f"Please look up {number}.", f"first {number}", f"second {number}")
    for number in range(8):
        await sent.ask(f"Message {number}. {FILLER}")
        await guest.run_due_jobs()
    await provider.set_window(CHAT, 9_000)
    for number in range(3):
        await sent.ask(f"Late message {number}. {FILLER}")
    received = await by_turn(provider, guest)
    assert len(received) == len(sent.bodies) == 19
    exact = shortened = 0
    async with screen(guest, database_url) as page:
        for turn, bodies in received.items():
            for call, body in enumerate(bodies, start=1):
                seen = await page.see(f"/replay?turn={turn}&call={call}&sent=1")
                assert (seen["turn"], seen["call"], seen["calls"]) == (turn, call, len(bodies))
                assert seen["same"], (turn, call, seen["differs"])
                assert sorted_keys(json.dumps(seen["body"])) == body, (turn, call)
                assert_whole(seen)
                exact += 1
                shortened += sum(
                    1 for piece in seen["pieces"] if piece["how"] in ("trim", "clear", "duplicate")
                )
    assert exact == 8 * 2 + 8 + 3
    assert shortened > 0
    read = await guest.app.pool.fetch(
        "SELECT object, detail FROM audit WHERE action = 'read.replay' ORDER BY id"
    )
    assert len(read) == exact
    assert read[-1]["detail"] == {"turn": 19}


def assert_whole(seen: Mapping[str, Any]) -> None:
    """What is drawn holds every word of the body, in its order, and says what it left out."""
    body = seen["body"]
    drawn = [piece for piece in seen["pieces"] if piece["sent"]]
    assert [p["text"] for p in drawn if p["part"] == "system"] == [part["text"] for part in body["system"]]
    assert [p["name"] for p in drawn if p["part"] == "tools"] == [tool["name"] for tool in body["tools"]]
    said = [block for message in body["messages"] for block in message["content"]]
    told = [piece for piece in drawn if piece["part"] == "messages"]
    assert len(said) == len(told)
    for block, piece in zip(said, told, strict=True):
        match block["type"]:
            case "text":
                assert piece["text"] == block["text"]
            case "tool_result":
                assert piece["text"] == block["content"]
                assert piece["seq"] is not None
                assert (piece["whole"] != "") == (piece["how"] != "")
            case "tool_use":
                assert (piece["name"], json.loads(piece["text"])) == (block["name"], block["input"])
            case "thinking":
                assert piece["text"] == block["thinking"]
    kept_out = [piece for piece in seen["pieces"] if not piece["sent"]]
    assert all(piece["how"] and not piece["text"] for piece in kept_out)


async def test_request_inspection_marks_erased_text_as_erased(
    guest: Visit, provider: RunningFake, database_url: str
) -> None:
    sent = Sent(guest, provider)
    await sent.ask("My dog is called Bruno.")
    await sent.ask("And my cat is Minka.")
    await guest.app.erasure.erase_everything(guest.session_id, "person")
    async with screen(guest, database_url) as page:
        seen = await page.see("/replay?turn=1&sent=1")
        none = await page.see("/replay?turn=99")
    assert not seen["pieces"]
    assert "body" not in seen
    assert seen["gone"]
    assert "Bruno" not in json.dumps(seen)
    assert none["gone"].startswith("No call of the model is on record")


async def test_context_now_is_what_the_next_request_is_built_from(
    guest: Visit, provider: RunningFake, database_url: str
) -> None:
    sent = Sent(guest, provider)
    async with screen(guest, database_url) as page:
        assert (await page.see("/now"))["used"] is None
        for number in range(8):
            await sent.ask(f"Message {number}. {FILLER}")
        await agrees(guest, page)
        expected = await page.see("/estimate?do=compact&force=1")
        assert expected["possible"]
        async with working(guest):
            status, told = await page.do("flush", {})
            assert (status, told["success"]) == (200, True), told
            assert await guest.one("SELECT flushed_turn FROM sessions") == 8
            left = await page.see("/estimate?do=flush")
            assert (left["possible"], left["reason"]) == (False, "all_read")
            former, expected = expected, await page.see("/estimate?do=compact&force=1")
            assert expected["before"] > former["before"], "the next request has the saved notes"
            status, told = await page.do("compact", {"force": True, "focus": "the river"})
            assert status == 200, told
        assert await guest.one("SELECT focus FROM compactions") == "the river"
        assert await guest.one("SELECT from_turn FROM compactions") == expected["from_turn"]
        assert await guest.one("SELECT through_turn FROM compactions") == expected["through_turn"]
        assert await guest.one("SELECT tokens_before FROM compactions") == expected["before"]
        await agrees(guest, page)
        parts = (await page.see("/now"))["parts"]
        assert parts["summary"] > 0
    done = await guest.app.pool.fetch("SELECT action FROM audit WHERE action LIKE 'session.%' ORDER BY id")
    assert [row["action"] for row in done] == ["session.flush", "session.compact"]
    shown = await guest.app.pool.fetch("SELECT payload FROM events WHERE kind = 'command.result'")
    assert [row["payload"]["command"] for row in shown] == ["compact"]


async def agrees(guest: Visit, page: Screen) -> None:
    app = guest.app
    told, facts = await page.see("/now"), await page.see("")
    state = await app.stores.jobs.load_state(guest.session_id)
    gauge = await app.sessions.measure_context(guest.session_id)
    assert gauge is not None
    assert told["used"] == gauge.used == facts["context_tokens"] == state.view.context_tokens
    assert told["limit"] == gauge.limit
    assert told["parts"] == dict(gauge.parts)
    assert sum(told["parts"].values()) == told["used"]
    assert told["used"] + told["free"] == told["limit"]
    assert told["limit"] + told["reserved"] + told["beyond"] + told["answer"] == told["window"]
    card = await app.models.load_card(told["model"])
    assert told["model_window"] == card.window
    assert choose_token_ratio(find_learned_ratio(state, card.name), card) > 0


async def test_a_note_that_an_operator_adds_is_in_the_next_request(
    guest: Visit, provider: RunningFake, database_url: str
) -> None:
    fact, sent = "Allergic to shellfish since childhood", Sent(guest, provider)
    await sent.ask("Hello.")
    person = await guest.one("SELECT p.public_id FROM contacts p JOIN sessions s ON s.contact_id = p.id")
    async with screen(guest, database_url) as page:
        status, told = await page.post("/notes", {"person": str(person), "text": fact})
        assert (status, told["changed"]) == (200, True)
        await sent.ask("What shall I eat?")
        seen = await page.see("/replay?sent=1")
    first, second = (body for bodies in (await by_turn(provider, guest)).values() for body in bodies)
    assert fact not in first
    assert fact in json.dumps(json.loads(second)["messages"][-1]), "what was sent before stays as it was"
    assert sorted_keys(json.dumps(seen["body"])) == second
    connection = await asyncpg.connect(database_url)
    assert await check_invariants(connection) == []
    await connection.close()
