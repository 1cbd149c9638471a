"""Servers on this machine are found and missed without fuss; a named one says what it has, or why not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from shared.adapters.models import find_local_servers, list_models
from shared.adapters.models.model_lists import KNOWN, KeyRefused, ModelListUnavailable

# As each program answers, but for the names.
OLLAMA = {
    "object": "list",
    "data": [
        {"id": "nomic-embed-text:latest", "object": "model", "created": 1_790_000_003, "owned_by": "library"},
        {"id": "qwen3:8b", "object": "model", "created": 1_790_000_001, "owned_by": "library"},
        {"id": "gpt-oss:120b-cloud", "object": "model", "created": 1_790_000_002, "owned_by": "library"},
    ],
}
LM_STUDIO = {
    "data": [{"id": "qwen3-8b", "object": "model", "owned_by": "organization_owner"}],
    "object": "list",
}
LLAMA_CPP = {
    "models": [{"name": "model.gguf", "type": "model"}],
    "object": "list",
    "data": [
        {"id": "model.gguf", "created": 1_790_000_000, "owned_by": "llamacpp", "meta": {"n_ctx_train": 8_192}}
    ],
}
VLLM = {
    "object": "list",
    "data": [{"id": "org/model", "created": 1, "owned_by": "vllm", "max_model_len": 4_096}],
}


def serving(
    answer: Any, *, status: int = 200, key: str = "", asked: list[Mapping[str, str]] | None = None
) -> TestServer:
    async def models(request: web.Request) -> web.Response:
        if asked is not None:
            asked.append(request.headers)
        if key and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": {"message": "Incorrect API key"}}, status=401)
        if answer is None:
            await asyncio.sleep(5)
        if isinstance(answer, str):
            return web.Response(text=answer, status=status)
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    return TestServer(app, host="127.0.0.1")


def url_of(server: BaseTestServer) -> str:
    return str(server.make_url("")).rstrip("/")


async def test_each_program_is_known_by_its_own_list() -> None:
    told = {"Ollama": OLLAMA, "LM Studio": LM_STUDIO, "llama.cpp": LLAMA_CPP, "vLLM": VLLM}
    async with (
        serving(OLLAMA) as ollama,
        serving(LM_STUDIO) as studio,
        serving(LLAMA_CPP) as cpp,
        serving(VLLM) as vllm,
    ):
        servers = dict(zip(told, (ollama, studio, cpp, vllm), strict=True))
        known = [
            replace(one, base_url=url_of(servers[one.name]) + ("" if one.wire == "messages" else "/v1"))
            for one in KNOWN
        ]
        found = await find_local_servers(known, seconds=30)
    assert [(one.name, one.wire, one.models) for one in found] == [
        ("Ollama", "messages", ("gpt-oss:120b-cloud", "qwen3:8b")),
        ("LM Studio", "openai", ("qwen3-8b",)),
        ("llama.cpp", "openai", ("model.gguf",)),
        ("vLLM", "openai", ("org/model",)),
    ]
    assert [one.base_url for one in found] == [one.base_url for one in known]


@pytest.mark.parametrize(
    "answer", ["hello", [1], {"data": "x"}, {"data": [1, {"id": 7}, {"id": ""}]}, {}, None]
)
async def test_what_else_listens_at_such_a_port_is_no_server(answer: Any) -> None:
    async with serving(answer) as server:
        known = [replace(KNOWN[1], base_url=f"{url_of(server)}/v1")]
        assert await find_local_servers(known, seconds=0.5) == ()
    assert await find_local_servers([replace(KNOWN[1], base_url="http://127.0.0.1:9/v1")]) == ()


async def test_a_key_goes_with_the_question_and_is_refused_by_name() -> None:
    asked: list[Mapping[str, str]] = []
    async with serving(VLLM, key="k", asked=asked) as server:
        assert await list_models(f"{url_of(server)}/v1/", "k") == ("org/model",)
        with pytest.raises(KeyRefused, match="knows no such key"):
            await list_models(f"{url_of(server)}/v1", "wrong")
        await find_local_servers([replace(KNOWN[1], base_url=f"{url_of(server)}/v1")], seconds=30)
    assert "Authorization" not in asked[-1], "whoever happens to listen on this machine gets no key"


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [({}, 404, "answered 404"), ("<html>", 200, "did not answer"), ({}, 200, "no list")],
)
async def test_who_has_no_list_says_why(answer: Any, status: int, why: str) -> None:
    async with serving(answer, status=status) as server:
        with pytest.raises(ModelListUnavailable, match=why):
            await list_models(f"{url_of(server)}/v1", "k")
