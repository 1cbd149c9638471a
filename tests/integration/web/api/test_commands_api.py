"""Commands over REST: typed arguments, once per cid, as events, for visitors, keys and operators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from shared.core.values.errors import StorageUnavailable
from tests.kit.web.callers import bearer, make_key, make_operator, make_visitor
from tests.kit.web.fixtures import Frame, Server
from tests.kit.web.rest_calls import call, events_of

EVENTS = {"Accept": "text/event-stream"}


async def run(server: Server, name: str, headers: Any, **body: Any) -> tuple[int, Frame]:
    async with server.client.post(
        f"{server.url}/api/v1/commands/{name}", json=body, headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def test_unknown_arguments_are_answered_with_the_known_ones(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    session = str(row.session_public_id)
    status, told = await run(server, "compact", bearer(token), session_id=session, forced=True)
    assert (status, told["code"]) == (400, "bad_arguments")
    assert (
        told["details"]["advice"]
        == "/compact knows no `forced`: it takes `at`, `automatic`, `focus`, `force`."
    )
    status, told = await run(server, "undo", bearer(token), session_id=session, force=True)
    assert (status, told["details"]["advice"]) == (400, "/undo knows no `force`: it takes no arguments.")
    assert not server.services.commands.asked


@pytest.mark.parametrize(
    "given", [{"force": "yes"}, {"focus": 7}, {"focus": "x" * 301}, {"focus": "--force"}, {"args": 1}]
)
async def test_arguments_of_the_wrong_type_are_refused(server: Server, given: Frame) -> None:
    row, token = await make_visitor(server.services.pool)
    status, told = await run(server, "compact", bearer(token), session_id=str(row.session_public_id), **given)
    assert (status, told["code"]) == (400, "bad_arguments")


async def test_words_can_be_given_as_a_person_types_them(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    status, _ = await run(
        server, "compact", bearer(token), session_id=str(row.session_public_id), args="the dog --force"
    )
    assert status == 200
    assert server.services.commands.asked == [("compact", "the dog --force")]


async def test_help_is_asked_for_one_command_by_its_name(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    session = str(row.session_public_id)
    assert (await run(server, "help", bearer(token), session_id=session, command="compact"))[0] == 200
    assert server.services.commands.asked == [("help", "compact")]


async def test_a_repeated_cid_runs_once(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    asked = {"session_id": str(row.session_public_id), "cid": "k1"}
    first = await run(server, "status", bearer(token), **asked)
    again = await run(server, "status", bearer(token), **asked)
    assert first == again
    assert first[1]["cid"] == "k1"
    assert len(server.services.commands.asked) == 1
    status, told = await run(server, "usage", bearer(token), **asked)
    assert (status, told["code"]) == (409, "cid_used")


async def test_the_same_cid_at_the_same_moment_runs_once(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    asked = {"session_id": str(row.session_public_id), "cid": "k1"}
    told = await asyncio.gather(*(run(server, "status", bearer(token), **asked) for _ in range(5)))
    assert all(each == told[0] for each in told)
    assert len(server.services.commands.asked) == 1


async def test_progress_then_the_result_come_as_events(server: Server) -> None:
    row, token = await make_visitor(server.services.pool)
    url = f"{server.url}/api/v1/commands/compact"
    body = {"session_id": str(row.session_public_id)}
    async with server.client.post(url, json=body, headers={**bearer(token), **EVENTS}) as answer:
        assert answer.content_type == "text/event-stream"
        told = await events_of(answer)
    assert [name for name, _ in told] == ["progress", "result"]
    assert told[0][1] == {"command": "compact", "message": "Working", "percent": 50}
    assert (told[1][1]["success"], told[1][1]["result"]) == (True, "done")


async def test_a_failure_is_the_last_event(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    row, token = await make_visitor(server.services.pool)

    async def fail(**_: Any) -> None:
        raise StorageUnavailable("gone")

    monkeypatch.setattr(server.services.commands, "run", fail)
    url = f"{server.url}/api/v1/commands/compact"
    body = {"session_id": str(row.session_public_id)}
    async with server.client.post(url, json=body, headers={**bearer(token), **EVENTS}) as answer:
        told = await events_of(answer)
    assert [name for name, _ in told] == ["error"]
    assert told[0][1]["code"] == "storage_unavailable"
    assert told[0][1]["request_id"]
    assert told[0][1]["details"]["advice"]
    status, error = await run(server, "compact", bearer(token), **body)
    assert (status, error["code"]) == (503, "storage_unavailable")


async def test_hanging_up_does_not_end_a_command(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    row, token = await make_visitor(server.services.pool)
    go_on, ended = asyncio.Event(), asyncio.Event()
    usual = server.services.commands.run

    async def slow(**asked: Any) -> Any:
        await asked["progress"]("Working", 10)
        await go_on.wait()
        outcome = await usual(**asked)
        ended.set()
        return outcome

    monkeypatch.setattr(server.services.commands, "run", slow)
    url = f"{server.url}/api/v1/commands/compact"
    body = {"session_id": str(row.session_public_id), "cid": "k1"}
    answer = await server.client.post(url, json=body, headers={**bearer(token), **EVENTS})
    assert (await answer.content.readline()).startswith(b"event: progress")
    answer.close()
    go_on.set()
    async with asyncio.timeout(20):
        await ended.wait()
    assert (await run(server, "compact", bearer(token), **body))[1]["result"] == "done"


async def test_an_operator_runs_commands_for_anybody_and_it_is_on_record(server: Server) -> None:
    pool = server.services.pool
    row, _ = await make_visitor(pool)
    session = str(row.session_public_id)
    operator, viewer = await make_operator(pool, "operator"), await make_operator(pool, "viewer")
    assert (await run(server, "compact", viewer, session_id=session))[0] == 403
    assert (await run(server, "compact", operator, session_id=session))[0] == 200
    (audit,) = await pool.fetch("SELECT * FROM audit WHERE action = 'command.compact'")
    assert (audit["actor"], audit["object"]) == ("operator", f"session:{session}")
    assert (await run(server, "compact", operator, session_id="nobody"))[0] == 404
    foreign = {**operator, "Sec-Fetch-Site": "cross-site"}
    assert (await run(server, "compact", foreign, session_id=session))[0] == 403


async def test_a_keys_command_is_on_record(server: Server) -> None:
    pool = server.services.pool
    row, _ = await make_visitor(pool)
    key = await make_key(pool, "commands:run")
    assert (await run(server, "compact", key, session_id=str(row.session_public_id), force=True))[0] == 200
    (audit,) = await pool.fetch("SELECT * FROM audit WHERE actor LIKE 'key:%'")
    assert (audit["action"], audit["detail"]) == ("api.commands.run", {"command": "compact"})
    assert server.services.commands.asked == [("compact", "--force")]


@pytest.mark.parametrize("name", ["link", "unlink"])
async def test_only_the_person_links_their_channels(server: Server, name: str) -> None:
    pool = server.services.pool
    row, _ = await make_visitor(pool)
    session = str(row.session_public_id)
    for headers in (await make_key(pool, "commands:run"), await make_operator(pool, "operator")):
        status, told = await run(server, name, headers, session_id=session)
        assert (status, told["code"]) == (403, "only_in_person")
    assert not server.services.commands.asked


async def test_the_list_tells_the_types_of_arguments(server: Server) -> None:
    async with server.client.get(f"{server.url}/api/v1/commands") as answer:
        listed = {command["name"]: command for command in (await answer.json())["commands"]}
    assert listed["compact"]["arguments"]["force"]["type"] == "boolean"
    assert listed["compact"]["arguments"]["focus"]["maxLength"] == 300
    assert listed["remember"]["required"] == ["text"]
    assert listed["undo"]["arguments"] == {}


async def test_a_key_is_shown_the_commands_of_its_site(server: Server) -> None:
    pool = server.services.pool
    await pool.execute(
        """INSERT INTO sites (name, agent_id, audience, config)
           SELECT 'shop', agent_id, 'public', '{}'::jsonb FROM sites"""
    )
    server.process.visitors.forget_sites()

    async def names(key: Mapping[str, str]) -> set[str]:
        _, told = await call(server, "GET", "/commands", key)
        return {one["name"] for one in told["commands"]}

    shop = await names(await make_key(pool, "commands:run", site="shop"))
    everywhere = await names(await make_key(pool, "commands:run"))
    assert "compact" in everywhere - shop
    assert "help" in shop
    assert not everywhere & {"link", "unlink"}
    assert "link" in {one["name"] for one in (await call(server, "GET", "/commands", {}))[1]["commands"]}


@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["as JSON", "as events"])
async def test_retry_command_wakes_the_answering_process_once_per_cid(
    server: Server, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(server.process.replies, "answer", woken.append)
    row, token = await make_visitor(server.services.pool)
    body = {"session_id": str(row.session_public_id), "cid": "again"}
    for _ in range(2):
        async with server.client.post(
            f"{server.url}/api/v1/commands/retry", json=body, headers={**bearer(token), **headers}
        ) as answer:
            told = (
                [one for name, one in await events_of(answer) if name == "result"]
                if headers
                else [await answer.json()]
            )
        assert [(one["command"], one["success"], one["cid"]) for one in told] == [("retry", True, "again")]
    assert woken == [row.session_id]
    assert server.services.commands.asked == [("retry", "")]
