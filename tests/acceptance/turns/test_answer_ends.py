"""Ends of answers on every wire: stored with their turn, and told to people and programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.adapters.models.catalog import Wire
from shared.core.session.turns import Stored
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.dialects.endings import CUT, ENDINGS, NATURAL, WIRES, ending, last_words, write_models
from tests.kit.dialects.server import Answer, DialectServer, Json, dialect_server

TOLD = "SELECT stop_reason FROM turns ORDER BY turn_no DESC LIMIT 1"


@asynccontextmanager
async def guest_on(
    wire: Wire, database_url: str, redis_url: str, tmp_path: Path, reply: Callable[[Json], Answer]
) -> AsyncIterator[tuple[Visit, DialectServer]]:
    async with dialect_server(reply) as server:
        models = write_models(tmp_path, server.url, wire)
        settings = settings_for(database_url, redis_url, models_file=models, model="odd", summary_model="odd")
        async with running_app(settings) as app:
            yield await visit(app), server


def newest(guest: Visit) -> Stored:
    return [event for event in guest.heard if isinstance(event, Stored)][-1]


@pytest.mark.parametrize("wire", WIRES)
async def test_answer_end_is_stored_and_shown(
    wire: Wire, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    def reply(body: Json) -> Answer:
        end = next(end for end in ENDINGS if end in last_words(body))
        return ending(wire, ENDINGS[end][wire])

    async with guest_on(wire, database_url, redis_url, tmp_path, reply) as (guest, _):
        for end in ENDINGS:
            assert await guest.ask(f"answer: {end}") == CUT
            assert await guest.one(TOLD) == end
            live = newest(guest)
            assert live.payload["stop"] == end
            (read,) = await guest.app.stores.events.list_after(guest.session_id, live.event_seq - 1)
            assert read.payload["stop"] == end, "screens that come later read the same"


@pytest.mark.parametrize("wire", WIRES)
async def test_tool_is_called_after_a_natural_end(
    wire: Wire, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    answers = [ending(wire, NATURAL[wire], "", "current_time"), ending(wire, NATURAL[wire], "It is nine.")]
    async with guest_on(wire, database_url, redis_url, tmp_path, lambda _: answers.pop(0)) as (guest, server):
        assert await guest.ask("What time is it?") == "It is nine."
        assert len(server.requests) == 2
        assert await guest.one("SELECT count(*) FROM turn_steps WHERE status = 'done'") == 1
        assert await guest.one(TOLD) == "stop"


@pytest.mark.parametrize("wire", WIRES)
async def test_half_a_call_is_left_out_of_a_cut_answer(
    wire: Wire, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    cut = ending(wire, ENDINGS["length"][wire], CUT, "current_time")
    async with guest_on(wire, database_url, redis_url, tmp_path, lambda _: cut) as (guest, server):
        assert await guest.ask("What time is it?") == CUT
        assert len(server.requests) == 1
        assert await guest.one(TOLD) == "length"


async def test_message_that_continues_an_answer_is_accepted_once(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    def reply(body: Json) -> Answer:
        word = "stop" if "go on" in last_words(body) else "length"
        return ending("openai", word, "arrive on Monday." if word == "stop" else CUT)

    async with guest_on("openai", database_url, redis_url, tmp_path, reply) as (guest, server):
        await guest.ask("When does it come?")
        cid = f"go-on-{newest(guest).payload['mid']}"
        first, second = await guest.say("Please go on.", cid=cid), await guest.say("Please go on.", cid=cid)
        assert (first.repeated, second.repeated) == (False, True)
        assert await guest.answered() == "arrive on Monday."
        assert await guest.one("SELECT count(*) FROM turns") == 2
        assert CUT in str(server.requests[-1]["messages"]), "the model reads what it goes on from"
