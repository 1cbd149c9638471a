"""Entries of a models file for the forms in which clouds offer models, at strict servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from shared.adapters.models.catalog import ModelsFileBroken, parse_entries
from shared.adapters.models.routing import Models, open_models
from shared.core.values.messages import text_of
from tests.kit.dialects.server import GOOD, Answer, Json, completion, dialect_server, messages_answer, refusal
from tests.kit.model_makers import WordCounter, asking, impatient


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One entry, and what its server takes: path, query, and headers, None for one that must not come."""

    entry: Mapping[str, Any]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str | None]


FORMS: dict[str, Form] = {
    "Azure, version 1": Form(
        entry={"wire": "openai", "base_url": "/openai/v1", "model": "gpt-5.6"},
        path="/openai/v1/chat/completions", headers={"authorization": "Bearer secret"},
    ),
    "Azure, Responses": Form(
        entry={"wire": "responses", "base_url": "/openai/v1?api-version=preview", "model": "gpt-5.6"},
        path="/openai/v1/responses", query={"api-version": "preview"},
        headers={"authorization": "Bearer secret"},
    ),
    "Azure, a deployment": Form(
        entry={
            "wire": "openai", "base_url": "/openai/deployments/chat?api-version=2024-10-21",
            "headers": {"api-key": "{key}", "Authorization": ""},
        },
        path="/openai/deployments/chat/chat/completions", query={"api-version": "2024-10-21"},
        headers={"api-key": "secret", "authorization": None},
    ),
    "Azure, Claude": Form(
        entry={
            "wire": "messages", "base_url": "/anthropic", "model": "claude-sonnet-5-5",
            "headers": {"x-api-key": "{key}", "Authorization": ""},
        },
        path="/anthropic/v1/messages", headers={"x-api-key": "secret", "authorization": None},
    ),
    "Bedrock, Chat Completions": Form(
        entry={"wire": "openai", "base_url": "/openai/v1", "model": "openai.gpt-oss-120b-1:0"},
        path="/openai/v1/chat/completions", headers={"authorization": "Bearer secret"},
    ),
    "Bedrock, Messages": Form(
        entry={"wire": "messages", "base_url": "/anthropic", "model": "anthropic.claude-sonnet-5-5"},
        path="/anthropic/v1/messages", headers={"authorization": "Bearer secret", "x-api-key": None},
    ),
    "Gemini": Form(
        entry={"wire": "openai", "base_url": "/v1beta/openai", "model": "gemini-3-flash"},
        path="/v1beta/openai/chat/completions", headers={"authorization": "Bearer secret"},
    ),
    "Vertex, by a token": Form(
        entry={
            "wire": "openai", "base_url": "/v1/projects/p/locations/global/endpoints/openapi",
            "model": "google/gemini-3-flash",
        },
        path="/v1/projects/p/locations/global/endpoints/openapi/chat/completions",
        headers={"authorization": "Bearer secret"},
    ),
    "a gateway with a key of its own": Form(
        entry={
            "wire": "openai", "base_url": "/v1/a/g/compat",
            "headers": {"cf-aig-authorization": "Bearer {key}"},
        },
        path="/v1/a/g/compat/chat/completions", headers={"cf-aig-authorization": "Bearer secret"},
    ),
}  # fmt: skip
RESPONSE = "".join(
    f"data: {json.dumps(event)}\n\n"
    for event in (
        {"type": "response.output_text.delta", "delta": GOOD},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 60, "output_tokens": 5}}},
    )
)
ANSWERS = {"openai": completion(), "messages": messages_answer(), "responses": Answer(body=RESPONSE)}


def open_one(entry: Mapping[str, Any], url: str) -> Models:
    told = {"name": "m", "key_env": "CLOUD_KEY", "window": 100_000, **entry}
    told["base_url"] = url + told["base_url"]
    return open_models(
        api_key=None, base_url=None, entries=parse_entries(json.dumps([told]), "models.json"),
        counter=WordCounter(), environ={"CLOUD_KEY": "secret"}, patience=impatient(), chat_model="m",
    )  # fmt: skip


def find_faults(form: Form, path: str, headers: Mapping[str, str]) -> list[str]:
    asked = urlsplit(path)
    faults = [] if asked.path == form.path else [f"path {asked.path}"]
    if dict(parse_qsl(asked.query)) != form.query:
        faults.append(f"query {asked.query}")
    return faults + [f"header {name}" for name, value in form.headers.items() if headers.get(name) != value]


@pytest.mark.parametrize("name", FORMS)
async def test_entry_reaches_the_form_of_a_provider(name: str) -> None:
    form = FORMS[name]

    def reply(_: Json) -> Answer:
        faults = find_faults(form, *server.asked[-1])
        return (
            refusal(401, {"error": {"message": "; ".join(faults)}}) if faults else ANSWERS[form.entry["wire"]]
        )

    async with dialect_server(reply) as server:
        models = open_one(form.entry, server.url)
        try:
            answer = await models.reply(asking("When does it open?", model="m"))
        finally:
            await models.close()
    assert text_of(answer.blocks) == GOOD


async def test_list_of_models_is_asked_with_the_entrys_headers_and_query() -> None:
    form = FORMS["Azure, a deployment"]
    async with dialect_server(lambda _: completion()) as server:
        models = open_one({**form.entry, "window": None}, server.url)
        try:
            await models.load_card("m")
        finally:
            await models.close()
    path, headers = server.asked[0]
    assert parse_qsl(urlsplit(path).query) == [("api-version", "2024-10-21")]
    assert (headers.get("api-key"), headers.get("authorization")) == ("secret", None)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other.example"}, {"Content-Length": "0"}, {"a b": "x"}, {"a": "x\r\ny: z"}, {"a": "é"},
        {"": "x"}, {"a": "x" * 501}, {f"a{n}": "x" for n in range(11)}, {"a": 1}, "text",
    ],
)  # fmt: skip
def test_header_that_is_none_is_refused(headers: object) -> None:
    told = [{"name": "m", "base_url": "https://models.example", "headers": headers}]
    with pytest.raises(ModelsFileBroken, match=r"model 1 \(m\)"):
        parse_entries(json.dumps(told), "models.json")
