"""The description of REST holds: what it allows and what it forbids is asked, and the answers are judged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.commands.commands import COMMANDS
from shared.core.identity.api_keys import SCOPES
from tests.kit.web.callers import Crowd, crowd, make_key
from tests.kit.web.fixtures import Server, Starter
from tests.kit.web.table import ROWS
from web.rest.openapi import document
from web.rest.operation import Operation
from web.routes import OPERATIONS

EXAMPLES = 3
"""Of each operation, caller and kind of data."""
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
SECONDS = 500.0
FORMER_AGENT = """INSERT INTO agent_versions (agent_id, version)
SELECT id, 9999 FROM agents WHERE name = 'default'"""
LEFT_BEHIND = """DELETE FROM operator_sessions s USING operators o
                  WHERE o.id = s.operator_id AND o.disabled_at IS NOT NULL"""
ENDLESS = {"openStream", "followChanges", "pollFrames"}
"""Their own tests read them; here they are asked by those whom they do not let in."""

UNSTORED = {"showAnswerMemory"}
"""Its own tests read it: the answers here store no request."""


async def description(server: Server) -> dict[str, Any]:
    async with server.client.get(f"{server.url}/api/v1/openapi.json") as answer:
        assert answer.status == 200
        told: dict[str, Any] = await answer.json()
    return told


@pytest.mark.timeout(600)
async def test_whatever_the_description_allows_is_answered_as_it_says(starter: Starter) -> None:
    server = await starter.start()
    people, told = await crowd(server), await description(server)
    # The crowd's locked admin was locked by hand: nothing of ours leaves such a login behind.
    await server.services.pool.execute(LEFT_BEHIND)
    await server.services.pool.execute(FORMER_AGENT)
    key = await make_key(server.services.pool, *SCOPES)
    said = f"{server.url}/api/v1/sessions/{people.visitor.session_public_id}/messages"
    async with server.client.post(said, headers=key, json={"text": "Hello"}) as answer:
        assert (await answer.json())["mid"] == "m1"
    callers = {"key": key, "admin": people.headers["admin"], "nobody": {}}

    worked: set[str] = set()

    def ask() -> list[str]:
        schema = schemathesis.openapi.from_dict(told)
        schema.config.update(base_url=server.url)
        table = {(each.method.lower(), each.path): each for each in ROWS}
        wrong = []
        for result in schema.get_all_operations():
            operation: Any = result.ok()  # type: ignore[union-attr]
            one = table[operation.method, operation.path]
            for name in _who(one):
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    found = _exercise(operation, one, people, callers[name], mode, worked)
                    wrong += [f"{one.name} as {name}, {mode.value}: {found}"] if found else []
        return wrong

    async with asyncio.timeout(SECONDS):
        wrong = await asyncio.to_thread(ask)
    assert not wrong, "\n\n".join(wrong)
    assert {one.name for one in ROWS if one.method == "GET"} - ENDLESS - UNSTORED <= worked
    assert await _broken(starter.database_url) == []


def _who(one: Operation) -> Iterator[str]:
    if one.scope is not None:
        yield "key"
    if one.role is not None:
        yield "nobody" if one.name in ENDLESS else "admin"
    if one.anyone or one.visitor:
        yield "nobody"


def _exercise(
    operation: Any,
    one: Operation,
    people: Crowd,
    headers: Mapping[str, str],
    mode: GenerationMode,
    worked: set[str],
) -> str:
    """What is wrong with the first answer that is."""
    session = str(people.visitor.session_public_id)

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), ours=st.booleans())
    def check(case: Any, ours: bool) -> None:
        if ours or mode is GenerationMode.POSITIVE:
            case.path_parameters.update(_known(one, people))
            if isinstance(case.body, dict) and "session_id" in case.body:
                case.body["session_id"] = session
            if one.names_session:
                case.query = {**(case.query or {}), "session_id": session}
            if isinstance(case.query, dict):
                case.query.pop("cursor", None)  # of a page that nobody was given
        if isinstance(case.query, dict) and "wait" in case.query:
            case.query["wait"] = 0
        case.headers = {
            name: value for name, value in (case.headers or {}).items()
            if name.lower() not in ("authorization", "cookie")
        }  # fmt: skip
        case.cookies = {}
        answer = case.call_and_validate(headers=dict(headers), checks=CHECKS, timeout=20)
        if answer.status_code < 400:
            worked.add(one.name)

    try:
        check()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "nothing can be sent wrongly where nothing is sent"
    except FailureGroup as failure:
        return "; ".join(map(_told, failure.exceptions))
    except Failure as failure:
        return _told(failure)
    return ""


def _known(one: Operation, people: Crowd) -> dict[str, str]:
    """What the places of an address are called here."""
    if "sites/" in one.path:
        return {"name": "default"}
    if "agents/" in one.path:
        return {"name": "default", **({"version": "9999"} if "{version}" in one.path else {})}
    if "/memory/" in one.path:
        return {"id": f"n{people.note[:8]}"}
    if "{id}" not in one.path:
        return {}
    known = {
        "compactions/": people.summary,
        "attachments/": people.file,
        "people/": people.person,
        "notes/": people.note,
    }
    ids = (each for part, each in known.items() if part in one.path)
    more = {"mid": "m1"} if "{mid}" in one.path else {}
    return {"id": next(ids, str(people.visitor.session_public_id)), **more}


def _told(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {failure}"


async def _broken(database_url: str) -> list[str]:
    """After the flood: numbers without a gap, nothing of one person at another's."""
    connection = await asyncpg.connect(database_url)
    try:
        found = await check_invariants(connection)
    finally:
        await connection.close()
    return [str(each) for each in found if each.code in ("I3", "I7")]


def test_the_description_is_itself_well_formed() -> None:
    told = document(OPERATIONS)
    assert told["openapi"] == "3.1.0"
    for name, schema in told["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert name
    named = set(_refs(told))
    assert named == {f"#/components/schemas/{name}" for name in told["components"]["schemas"]} - {
        f"#/components/schemas/{name}" for name in _only_in_events()
    }
    for path in told["paths"].values():
        for operation in path.values():
            assert operation["summary"].endswith(".")
            assert operation["description"]


def _only_in_events() -> set[str]:
    """Schemas that a stream's description names in words."""
    answered = {kind.__name__ for one in OPERATIONS for kind in one.answers.values() if kind}
    return (
        {kind.__name__ for one in OPERATIONS for kind in one.events.values()} - answered - {"Error", "Event"}
    )


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from _refs(each)
    elif isinstance(value, list):
        for each in value:
            yield from _refs(each)


def test_the_arguments_of_every_command_are_in_the_description() -> None:
    call = document(OPERATIONS)["components"]["schemas"]["CommandCall"]["properties"]
    for command in COMMANDS:
        if "web" in command.channels and command.who == "person":
            assert {argument.name for argument in command.arguments} <= set(call)
    assert call["force"]["type"] == "boolean"


async def test_wrong_methods_and_unknown_addresses_are_refused_in_the_one_shape(server: Server) -> None:
    for one in ROWS:
        path = one.path.replace("{id}", "n00000000").replace("{name}", "help")
        path = re.sub(r"\{\w+\}", "x", path)
        known = {each.method for each in ROWS if each.path == one.path}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - known:
            async with server.client.request(method, server.url + path) as answer:
                told = await answer.json()
                assert (answer.status, told["code"]) == (405, "method_not_allowed"), (method, path)
                assert {"code", "message", "request_id"} <= set(told)
                assert "Allow" in answer.headers
    async with server.client.get(f"{server.url}/api/v1/nothing") as answer:
        assert (answer.status, (await answer.json())["code"]) == (404, "not_found")
