"""REST of imports: who may, what is refused, and whose it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.adapters.postgres.memory.past_imports import PostgresPastImports
from shared.core.memory.past import MOST_FILE_BYTES, PIECE_BYTES, PastLine, PastTurn
from tests.kit.web.fixtures import Frame, Server

CHAT = json.dumps(
    {
        "name": "Ben", "type": "personal_chat", "id": 42,
        "messages": [
            {"id": 1, "type": "message", "date_unixtime": "1614852000", "from_id": "user1", "text": "Hi"}
        ],
    }
).encode()  # fmt: skip


async def ask(
    server: Server, method: str, path: str, welcome: Frame | None, body: Any = None, data: bytes | None = None
) -> tuple[int, Any]:
    headers = {} if welcome is None else {"Authorization": f"Bearer {welcome['token']}"}
    async with server.client.request(
        method, f"{server.url}/api/v1/imports{path}", json=body, data=data, headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def begin(server: Server, welcome: Frame, size: int = len(CHAT), mark: str = "a") -> Any:
    status, file = await ask(server, "POST", "", welcome, {"size": size, "mark": mark})
    assert status == 201, file
    return file


async def allow(server: Server, value: object) -> None:
    await server.services.pool.execute(
        "UPDATE sites SET config = config || jsonb_build_object('imports', $1::jsonb)", value
    )
    server.process.visitors.forget_sites()


@pytest.mark.control("S23")
async def test_upload_belongs_to_its_person(server: Server) -> None:
    _, mine = await server.greet()
    _, other = await server.greet()
    file = await begin(server, mine)
    path = f"/{file['id']}"
    assert (await ask(server, "PUT", f"{path}?start=0", other, data=CHAT))[0] == 404
    assert (await ask(server, "POST", f"{path}/start", other, {}))[0] == 404
    assert (await ask(server, "DELETE", path, other))[0] == 404
    assert (await ask(server, "PUT", f"{path}?start=0", None, data=CHAT))[0] == 401
    assert (await ask(server, "GET", "", other))[1]["file"] is None
    status, stored = await ask(server, "PUT", f"{path}?start=0", mine, data=CHAT)
    assert (status, stored) == (200, {"received": len(CHAT), "state": "looking"})
    assert (await ask(server, "POST", f"{path}/start", mine, {}))[0] == 409
    assert (await ask(server, "GET", "", mine))[1]["file"]["state"] == "looking"
    assert (await ask(server, "DELETE", path, mine))[0] == 200
    assert (await ask(server, "DELETE", path, mine))[0] == 404
    assert await server.services.pool.fetchval("SELECT count(*) FROM import_pieces") == 0


async def test_interrupted_upload_resumes(server: Server) -> None:
    _, mine = await server.greet()
    file = await begin(server, mine, size=PIECE_BYTES + 4)
    path = f"/{file['id']}"
    piece = b"x" * PIECE_BYTES
    assert (await ask(server, "PUT", f"{path}?start=0", mine, data=piece))[1]["received"] == PIECE_BYTES
    assert (await ask(server, "PUT", f"{path}?start=0", mine, data=piece))[1]["received"] == PIECE_BYTES
    again = await begin(server, mine, size=PIECE_BYTES + 4)
    assert (again["id"], again["received"]) == (file["id"], PIECE_BYTES)
    assert (await ask(server, "PUT", f"{path}?start={PIECE_BYTES}", mine, data=b"four"))[1][
        "state"
    ] == "looking"


async def test_too_large_files_and_pieces_are_refused(server: Server) -> None:
    _, mine = await server.greet()
    for size in (MOST_FILE_BYTES + 1, 2 * 2**30):
        status, told = await ask(server, "POST", "", mine, {"size": size, "mark": "a"})
        assert (status, told["code"]) == (413, "file_too_large")
    assert (await ask(server, "POST", "", mine, {"size": 0, "mark": "a"}))[0] == 400
    assert (await ask(server, "POST", "", mine, {"size": 5, "mark": "a" * 101}))[0] == 400
    path = f"/{(await begin(server, mine, size=3 * PIECE_BYTES))['id']}?start=0"
    status, told = await ask(server, "PUT", path, mine, data=b"x" * (PIECE_BYTES + 1))
    assert (status, told["code"]) == (413, "piece_too_large")
    assert (await ask(server, "PUT", path, mine, data=b""))[0] == 400
    assert (await ask(server, "GET", "", mine))[1]["file"]["received"] == 0


async def test_site_decides_who_may_import(server: Server) -> None:
    _, mine = await server.greet()
    assert mine["limits"]["imports"] is True
    await server.services.pool.execute("UPDATE sites SET audience = 'public'")
    await allow(server, value=False)
    _, refused = await server.greet()
    assert "imports" not in refused["limits"]
    status, told = await ask(server, "POST", "", refused, {"size": 5, "mark": "a"})
    assert (status, told["code"]) == (403, "imports_not_allowed")
    assert (await ask(server, "GET", "", refused))[0] == 403
    await allow(server, value=None)
    _, anonymous = await server.greet()
    assert "imports" not in anonymous["limits"]
    await allow(server, value=True)
    _, allowed = await server.greet()
    assert allowed["limits"]["imports"] is True
    assert (await ask(server, "GET", "", allowed))[0] == 200


async def whole_import(server: Server, welcome: Frame) -> str:
    """Store an import of one turn for the visitor, and return its id."""
    store, at = PostgresPastImports(server.services.pool), datetime(2021, 3, 4, 10, tzinfo=UTC)
    session_id = await server.services.pool.fetchval(
        "SELECT id FROM sessions WHERE public_id = $1::text::uuid", welcome["session"]
    )
    begun = await store.begin(session_id, source="telegram", digest=b"x")
    line = PastLine(author="person", text="Hello", at=at)
    assert await store.add(begun.session_id, [PastTurn(lines=(line,), messages=1)], after=0)
    await store.end(begun.session_id)
    return begun.id


@pytest.mark.control("S23")
async def test_person_alone_switches_the_summaries_of_an_import(server: Server) -> None:
    _, mine = await server.greet()
    _, other = await server.greet()
    path = f"/{await whole_import(server, mine)}/summaries"
    [made] = (await ask(server, "GET", "", mine))[1]["imports"]
    assert (made["summaries"], made["summarised_percent"], made["cost_micro"]) == ("due", 0, 0)
    assert (await ask(server, "POST", path, other, {"on": False}))[0] == 404
    for _ in range(2):
        assert (await ask(server, "POST", path, mine, {"on": False}))[0] == 200
    assert (await ask(server, "GET", "", mine))[1]["imports"][0]["summaries"] == "stopped"
    assert (await ask(server, "POST", path, mine, {"on": True}))[0] == 200
    assert (await ask(server, "GET", "", mine))[1]["imports"][0]["summaries"] == "due"
    assert (await ask(server, "POST", path, mine, {"on": "perhaps"}))[0] == 400
