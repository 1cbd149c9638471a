"""A visitor's data by REST: their own, as a file, and nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientError

from shared.core.values.errors import StorageUnavailable
from shared.services.privacy.export import DataExporter
from tests.kit.web.fixtures import Server

LONG = 2_500
"""More than two pages."""


async def get(server: Server, query: str, token: str = "") -> tuple[int, Any, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with server.client.get(f"{server.url}/api/v1/export{query}", headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


async def filled(server: Server, public_id: str) -> None:
    session_id = await server.session_id(public_id)
    await server.services.pool.execute(
        """INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
           SELECT $1, n, 'user', 'person', jsonb_build_array(jsonb_build_object('type', 'text',
                  'text', 'Message number ' || n || ': "quoted" – ½')), 3 FROM generate_series(1, $2) n""",
        session_id, LONG,
    )  # fmt: skip
    await server.services.pool.execute(
        "UPDATE sessions SET next_seq = $2 + 1, goal = 'to the moon' WHERE id = $1", session_id, LONG
    )
    await server.services.pool.execute(
        """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger,
                              summary_text, ledger)
           VALUES ($1, 'summary', 1, 2, 1, 4, 'limit', 'They met: "twice".', $2)""",
        session_id,
        {
            "narrative": "They met: “twice”.",
            "items": [
                {"id": "D1", "kind": "decision", "text": "Go to Lisbon", "sources": [2]},
                {"id": "Q1", "kind": "question", "text": "When?", "sources": [3]},
            ],
        },
    )


@pytest.mark.control("S41")
async def test_json_is_whole_in_order_and_has_a_version(server: Server) -> None:
    _, welcome = await server.greet()
    await filled(server, welcome["session"])
    status, headers, text = await get(server, "?format=json", welcome["token"])
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Disposition"].startswith('attachment; filename="conversation-')
    exported = json.loads(text)
    assert (exported["schema"], exported["version"]) == ("evertalk-export", 1)
    (talk,) = exported["conversations"]
    assert [message["seq"] for message in talk["messages"]] == list(range(1, LONG + 1))
    assert talk["goal"] == "to the moon"
    assert talk["summaries"][0]["decisions"] == ["Go to Lisbon"]
    assert talk["usage"]["total_tokens"] == 0


async def test_markdown_begins_with_the_newest_summary_as_front_matter(server: Server) -> None:
    _, welcome = await server.greet()
    await filled(server, welcome["session"])
    status, headers, text = await get(server, "", welcome["token"])
    assert (status, headers["Content-Type"]) == (200, "text/markdown; charset=utf-8")
    opening, front, body = text.split("---\n", 2)
    assert opening == ""
    values = {
        name: json.loads(value) for name, _, value in (line.partition(": ") for line in front.splitlines())
    }
    assert values["decisions"] == ["Go to Lisbon"]
    assert values["open_questions"] == ["When?"]
    assert (values["key_facts"], values["action_items"]) == ([], [])
    assert values["summary_text"] == "They met: “twice”."
    assert body.count("Message number") == LONG


@pytest.mark.control("S41")
async def test_only_ones_own_and_nothing_that_opens_doors(server: Server) -> None:
    _, mine = await server.greet()
    _, other = await server.greet()
    await filled(server, other["session"])
    assert (await get(server, "?format=json"))[0] == 401
    assert (await get(server, "?format=json", "A" * 43))[0] == 401
    assert (await get(server, "?format=xml", mine["token"]))[0] == 400
    _, _, text = await get(server, "?format=json", mine["token"])
    assert "Message number" not in text
    assert other["session"] not in text
    assert mine["token"] not in text
    assert "token_hash" not in text


async def test_opinions_and_their_words_are_in_the_file(server: Server) -> None:
    screen, welcome = await server.greet()
    await screen.say("Hello?")
    answer = await screen.until("msg", role="assistant")
    await screen.send(
        {"t": "feedback", "cid": "f1", "mid": answer["mid"], "value": -1, "text": "Not what I asked"}
    )
    await screen.until("feedback")
    _, _, text = await get(server, "?format=json", welcome["token"])
    (told,) = json.loads(text)["feedback"]
    assert (told["conversation"], told["turn"]) == (welcome["session"], 1)
    assert (told["opinion"], told["words"]) == ("bad", "Not what I asked")
    _, _, text = await get(server, "", welcome["token"])
    assert "## Feedback" in text
    assert "Not what I asked" in text


async def test_a_reader_who_hangs_up_is_no_error(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, welcome = await server.greet()
    gone = asyncio.Event()

    async def endless(_: DataExporter, session_id: int, kind: str, *, language: str) -> AsyncIterator[str]:
        while not gone.is_set():
            yield "x" * 100_000

    monkeypatch.setattr(DataExporter, "stream", endless)
    headers = {"Authorization": f"Bearer {welcome['token']}"}
    answer = await server.client.get(f"{server.url}/api/v1/export", headers=headers)
    await answer.content.readany()
    answer.close()
    told = ""
    async with asyncio.timeout(20):
        while "export_client_disconnected" not in told:
            await asyncio.sleep(0.01)
            told += capsys.readouterr().out
    gone.set()
    assert "error" not in told


async def test_a_file_that_cannot_be_finished_is_cut_off_and_not_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, welcome = await server.greet()

    async def broken(_: DataExporter, session_id: int, kind: str, *, language: str) -> AsyncIterator[str]:
        yield "the beginning"
        raise StorageUnavailable("away")

    monkeypatch.setattr(DataExporter, "stream", broken)
    with pytest.raises(ClientError):
        await get(server, "", welcome["token"])
