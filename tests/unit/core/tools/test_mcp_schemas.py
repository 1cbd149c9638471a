"""What an `mcp.json` may say, and how tools of others become tools that a provider takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.core.tools.mcp import (
    DESCRIPTION_CHARS,
    TOOLS_PER_SERVER,
    OfferedTool,
    borrow_tools,
    resolve_collisions,
    servers_in,
    usable_schema,
)

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
ENVIRONMENT = {"KEY": "s3cret", "HOME": "/home/ada"}


def offered(name: str, schema: Any = OBJECT, description: str = "Does it.") -> OfferedTool:
    return OfferedTool(name=name, description=description, schema=schema)


def test_a_file_names_programs_and_addresses_with_values_of_the_environment() -> None:
    text = json.dumps({"mcpServers": {
        "web": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        "files": {
            "command": "serve", "args": ["${HOME}/x", "$KEY"], "env": {"A": "${KEY}!"}, "cwd": "${HOME}",
        },
    }})  # fmt: skip
    (files, web), problems = servers_in(text, ENVIRONMENT)
    assert problems == ()
    assert (files.command, files.args, files.env, files.cwd) == (
        "serve", ("/home/ada/x", "$KEY"), {"A": "s3cret!"}, "/home/ada",
    )  # fmt: skip
    assert (web.url, web.headers) == ("https://x.example/mcp", {"Authorization": "Bearer s3cret"})
    assert "s3cret" not in web.fingerprint
    assert web.fingerprint != files.fingerprint


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({}, "either"),
        ({"command": "a", "url": "https://b"}, "either"),
        ([], "no object"),
        ({"url": "file:///x"}, "http"),
        ({"command": "a", "args": "b"}, "args"),
        ({"command": "a", "env": {"A": 1}}, "env"),
        ({"command": "a", "cwd": 3}, "cwd"),
        ({"command": "${MISSING}"}, "no MISSING"),
    ],
)
def test_one_server_that_cannot_be_used_leaves_the_others(server: Any, reason: str) -> None:
    text = json.dumps({"mcpServers": {"bad": server, "good": {"command": "x"}, "no name": {"command": "x"}}})
    servers, problems = servers_in(text, ENVIRONMENT)
    assert [found.name for found in servers] == ["good"]
    assert len(problems) == 2
    assert problems[0].startswith("bad: ")
    assert reason in problems[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"servers": {}}', "\x00"])
def test_a_file_that_is_none_is_one_problem(text: str) -> None:
    assert servers_in(text, {})[0] == ()
    assert len(servers_in(text, {})[1]) == 1


def test_names_are_made_legal_short_and_different() -> None:
    names = ["read file", "read.file", "x" * 100, "x" * 101, "ok"]
    tools, _ = borrow_tools("files", [offered(name) for name in names])
    found = [tool.spec.name for tool in tools]
    assert found == sorted(set(found))
    assert len(found) == 5
    assert all(len(name) <= 64 and name.startswith("mcp_files_") for name in found)
    again, _ = borrow_tools("files", [offered(name) for name in reversed(names)])
    assert again == tools


def test_two_servers_never_share_a_name() -> None:
    one, _ = borrow_tools("a_b", [offered("c")])
    two, _ = borrow_tools("a", [offered("b_c")])
    found = resolve_collisions([*one, *two])
    assert len({tool.spec.name for tool in found}) == 2
    assert found == resolve_collisions([*two, *one])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "no object"),
        ({"type": "array"}, "no object"),
        ({"oneOf": [OBJECT]}, "choice"),
        ({"$ref": "https://x.example/s.json"}, "elsewhere"),
        ({"$ref": "#/$defs/X"}, "elsewhere"),
        ({"type": "object", "properties": []}, "broken"),
        ({"type": "object", "properties": {"a b": {}}}, "field"),
        ({"type": "object", "properties": {"a": {"description": "x" * 20_000}}}, "characters"),
    ],
)
def test_a_tool_that_no_provider_takes_is_left_out_with_a_reason(schema: Any, reason: str) -> None:
    tools, left_out = borrow_tools("s", [offered("bad", schema), offered("good")])
    assert [tool.name for tool in tools] == ["good"]
    assert [tool.name for tool in left_out] == ["bad"]
    assert reason in left_out[0].reason


def test_schemas_are_brought_into_the_form_that_providers_take() -> None:
    assert usable_schema({}) == {"type": "object", "properties": {}}
    assert "anyOf" not in usable_schema({**OBJECT, "anyOf": [{"required": ["a"]}], "$schema": "x"})
    pointed = usable_schema({"$ref": "#/$defs/X", "$defs": {"X": OBJECT}})
    assert (pointed["type"], pointed["properties"]) == ("object", OBJECT["properties"])


def test_descriptions_are_short_and_hold_no_marks() -> None:
    long = "<runtime_facts>\x00\ud800" + "x" * 9_000
    (tool,), _ = borrow_tools("s", [offered("t", description=long)])
    assert len(tool.spec.description) == DESCRIPTION_CHARS + 1
    assert "<" not in tool.spec.description
    tool.spec.description.encode()
    (named,), _ = borrow_tools("s", [offered("t", description=" ")])
    assert named.spec.description == "t of the server s."


def test_a_server_may_not_offer_without_end() -> None:
    tools, left_out = borrow_tools("s", [offered(f"t{number:03}") for number in range(TOOLS_PER_SERVER + 3)])
    assert (len(tools), len(left_out)) == (TOOLS_PER_SERVER, 3)
