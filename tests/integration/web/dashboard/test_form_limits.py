"""What an admin's form cannot do: read the answers of internal servers, or name a folder outside of ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.bootstrap.from_settings import WORKSPACES_FOLDER
from tests.integration.web.dashboard.agent_api import opened
from tests.kit.app_driver import running_app, settings_for

SECRET = "internal-secret-of-another-service"
KEY = "sk-typed-in-a-form"
ANSWERS = {
    "page": (200, "text/html", f"<html><body>{SECRET}</body></html>"),
    "error page": (500, "text/html", f"<html><body>{SECRET}</body></html>"),
    "text": (404, "text/plain", SECRET),
    "other JSON": (400, "application/json", f'{{"users": ["{SECRET}"]}}'),
    "JSON text": (400, "application/json", f'"{SECRET}"'),
    "other JSON that worked": (200, "application/json", f'{{"users": ["{SECRET}"]}}'),
    "long error": (400, "application/json", json.dumps({"error": {"message": "no " * 200 + SECRET}})),
    "events": (200, "text/event-stream", f"data: {SECRET}\n\n"),
}
TESTS = {
    "messages": ("model", {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "URL"}),
    "openai": ("model", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "URL/v1", "EVERTALK_MODEL": "m"}),
    "voice": ("voice", {"EVERTALK_TRANSCRIBE_URL": "URL", "EVERTALK_TRANSCRIBE_KEY": KEY}),
    "recall": ("recall", {"EVERTALK_RERANK_URL": "URL", "EVERTALK_RERANK_KEY": KEY}),
}


@asynccontextmanager
async def answering(status: int, kind: str, body: str) -> AsyncIterator[str]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, content_type=kind, text=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as running:
        yield str(running.make_url("/")).rstrip("/")


@pytest.mark.control("S54")
@pytest.mark.parametrize("answer", ANSWERS)
async def test_settings_test_shows_no_answer_of_another_server(
    database_url: str, redis_url: str, tmp_path: Path, answer: str
) -> None:
    settings = settings_for(database_url, redis_url, data_dir=tmp_path)
    async with running_app(settings) as app, opened(app) as api, answering(*ANSWERS[answer]) as url:
        for name, (what, changes) in TESTS.items():
            typed = {key: value.replace("URL", url) for key, value in changes.items()}
            status, told = await api.ask("POST", "/settings/test", what=what, changes=typed)
            assert status == 200, (name, told)
            assert SECRET not in str(told), (name, told)
            assert len(told["reason"]) <= 400


async def test_settings_test_shows_the_message_of_a_json_error(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    settings = settings_for(database_url, redis_url, data_dir=tmp_path)
    body = '{"error": {"message": "this key is of another project"}}'
    async with (
        running_app(settings) as app,
        opened(app) as api,
        answering(401, "application/json", body) as url,
    ):
        typed = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url}
        _, told = await api.ask("POST", "/settings/test", what="model", changes=typed)
    assert told["reason"] == "401: this key is of another project"


@pytest.mark.control("S55")
async def test_form_takes_no_workspace_outside_of_the_data_folder(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "data"
    (root / WORKSPACES_FOLDER / "ada").mkdir(parents=True)
    settings = settings_for(database_url, redis_url, data_dir=root)
    said = [{"role": "user", "text": "Hello"}]
    async with running_app(settings) as app, opened(app) as api:
        for outside in ("/etc", str(tmp_path), "~/x", str(root), f"{root}/{WORKSPACES_FOLDER}/../.."):
            config = {"workspace": outside}
            _, told = await api.ask("POST", "/agents/default/check", config=config)
            assert "workspace: must be" in told["problems"][0], outside
            assert (await api.ask("PUT", "/agents/default", match=1, config=config))[0] == 422
            tried = await api.ask("POST", "/agents/default/try", config=config, messages=said)
            assert tried[0] == 422
        inside = {"workspace": str(root / WORKSPACES_FOLDER / "ada")}
        assert (await api.ask("PUT", "/agents/default", match=1, config=inside))[0] == 200
        assert (await api.ask("PUT", "/agents/default", match=2, config={"workspace": "ada"}))[0] == 200


async def test_form_keeps_a_workspace_that_a_shell_has_set(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    outside = str(tmp_path / "elsewhere")
    settings = settings_for(database_url, redis_url, data_dir=tmp_path / "data")
    async with running_app(settings) as app, opened(app) as api:
        await app.pool.execute("UPDATE agents SET config = $1", {"workspace": outside})
        _, found = await api.ask("GET", "/agents/default")
        assert found["problems"] == []
        config = {"workspace": outside, "persona": "You are Ada."}
        assert (await api.ask("PUT", "/agents/default", match=found["version"], config=config))[0] == 200
