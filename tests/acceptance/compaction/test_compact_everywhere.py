"""`/compact` is one thing: over a socket, REST, its events, a shell and Telegram it hides the same range."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from aiohttp import ClientSession

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.visitors import VisitorRow
from shared.locales import catalogue
from tests.kit.free_ports import free_port
from tests.kit.telegram.bot_process import ROOT, HatchedProgram
from tests.kit.telegram.deployment import Deployment, deployment
from tests.kit.web.callers import bearer, make_visitor
from tests.kit.web.fixtures import hello
from tests.kit.web.http_client import browsing
from tests.kit.web.rest_calls import events_of

ANSWERS = {"along the river": {"text": "I see."}}
FILLER = "We walked along the river and talked of this and that. " * 40
TURNS = 6
SECONDS = 90.0
pytestmark = pytest.mark.timeout(300)
SIZES = re.compile(r"Summarised (\d+) turns?, ([^ ]+) → ([^ ]+) tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """Every process there is, on one database."""

    here: Deployment
    url: str
    pool: asyncpg.Pool[asyncpg.Record]
    http: ClientSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation of the web that has gone on for a while."""

    town: Town
    row: VisitorRow
    token: str

    @property
    def session(self) -> str:
        return str(self.row.session_public_id)


@pytest.fixture(scope="module")
async def town(
    module_database_url: str, module_redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Town]:
    settings = {
        "EVERTALK_CONTEXT_WINDOW": "12000",
        "CONTEXT_MAX_OUTPUT_TOKENS": "1000",
        "EVERTALK_KEEP_TURNS": "2",
        "EVERTALK_CAP_TOTAL_PER_DAY_USD": "100",
    }
    folder = tmp_path_factory.mktemp("everywhere")
    async with deployment(
        ANSWERS, module_database_url, module_redis_url, folder, worker=True, settings=settings
    ) as here:
        port = free_port()
        web = HatchedProgram("web", {**here.house.settings, "EVERTALK_HTTP_PORT": str(port)})
        await web.start()
        pool = await open_pool(module_database_url, size=2)
        try:
            await web.said("web_ready")
            async with browsing() as http:
                yield Town(here=here, url=f"http://127.0.0.1:{port}", pool=pool, http=http)
        finally:
            await pool.close()
            assert await web.terminate() == 0, web.words()


async def talk_on_the_web(town: Town) -> Talk:
    row, token = await make_visitor(town.pool)
    talk = Talk(town=town, row=row, token=token)
    for number in range(TURNS):
        url = f"{town.url}/api/v1/sessions/{talk.session}/messages?wait=60"
        body = {"text": f"Number {number}. {FILLER}"}
        async with town.http.post(url, json=body, headers=bearer(token)) as answer:
            assert answer.status == 200, await answer.text()
    return talk


async def by_socket(talk: Talk) -> str:
    async with talk.town.http.ws_connect(f"{talk.town.url}/ws", headers={"Origin": talk.town.url}) as socket:
        await socket.send_json(hello(token=talk.token))
        assert (await socket.receive_json(timeout=SECONDS))["t"] == "welcome"
        asked = {"t": "command", "cid": "k1", "command": "compact", "args": {"force": True}}
        await socket.send_json(asked)
        result: dict[str, Any] = {"t": ""}
        while result["t"] != "command.result":
            result = await socket.receive_json(timeout=SECONDS)
    assert result["success"]
    return str(result["result"])


async def by_rest(talk: Talk) -> str:
    url, body = f"{talk.town.url}/api/v1/commands/compact", {"session_id": talk.session, "force": True}
    async with talk.town.http.post(url, json=body, headers=bearer(talk.token)) as answer:
        told = await answer.json()
        assert (answer.status, told["success"], told["error"]) == (200, True, None), told
    return str(told["result"])


async def by_events(talk: Talk) -> str:
    url, body = f"{talk.town.url}/api/v1/commands/compact", {"session_id": talk.session, "force": True}
    headers = {**bearer(talk.token), "Accept": "text/event-stream"}
    async with talk.town.http.post(url, json=body, headers=headers) as answer:
        told = await events_of(answer)
    assert told[0][0] == "progress"
    assert told[-1][0] == "result"
    return str(told[-1][1]["result"])


async def by_shell(talk: Talk) -> str:
    settings = talk.town.here.house.settings
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared", "command", "compact", "--session", talk.session,
        "--arg", "force=true", "--json",
        cwd=ROOT, env=dict(settings), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "0 %" in err.decode()
    told: dict[str, Any] = json.loads(out)
    assert told["success"]
    return str(told["result"])


async def on_the_web(town: Town, way: Callable[[Talk], Awaitable[str]]) -> tuple[int, str]:
    talk = await talk_on_the_web(town)
    async with asyncio.timeout(SECONDS):
        return talk.row.session_id, await way(talk)


async def on_telegram(town: Town) -> tuple[int, str]:
    ada = await town.here.person(first_name="Ada")
    for number in range(TURNS):
        await ada.say(f"Number {number}. {FILLER}")
        await town.here.answered(ada.id, number + 1)
    await ada.command("compact", "--force")
    screen = await ada.sees("Summarised")
    said = next(line.text for line in screen.answers if "Summarised" in line.text)
    session_id = await town.pool.fetchval("SELECT session_id FROM addresses WHERE chat = $1", str(ada.id))
    return session_id, said


@pytest.mark.parametrize("way", [by_socket, by_rest, by_events, by_shell, None])
async def test_one_summary_hides_the_same_turns_and_tells_its_sizes(
    town: Town, way: Callable[[Talk], Awaitable[str]] | None
) -> None:
    session_id, said = await (on_telegram(town) if way is None else on_the_web(town, way))
    links = await town.pool.fetch("SELECT * FROM compactions WHERE session_id = $1", session_id)
    (link,) = links
    assert (link["kind"], link["trigger"], link["active"]) == ("summary", "manual", True)
    assert (link["from_turn"], link["through_turn"]) == (1, TURNS - 2)
    sizes = SIZES.search(said)
    assert sizes is not None, said
    assert int(sizes[1]) == TURNS - 2
    assert thousands(link["tokens_before"]) == sizes[2]
    assert thousands(link["tokens_after"]) == sizes[3]
    assert link["tokens_after"] < link["tokens_before"]


def thousands(tokens: int) -> str:
    return catalogue("commands", "en").thousands(tokens)
