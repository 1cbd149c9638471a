"""REST of “Memory”: one's own notes, read, corrected, put away and had back."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.context.memory import gist_of, note_hash
from tests.kit.web.fixtures import Frame, Server, Starter


async def keep(server: Server, welcome: Frame, text: str, **values: Any) -> str:
    columns = {"kind": "fact", "importance": 5, "authority": "person", **values}
    public_id = await server.services.pool.fetchval(
        """INSERT INTO notes (contact_id, scope, kind, text, importance, authority, hash, gist, session_id)
           SELECT contact_id, 'default', $2, $3, $4, $5, $6, $7, id FROM sessions WHERE public_id = $1
           RETURNING public_id""",
        welcome["session"], columns["kind"], text, columns["importance"], columns["authority"],
        note_hash(text), list(gist_of(text)),
    )  # fmt: skip
    return f"n{public_id.hex[:8]}"


async def ask(
    server: Server, method: str, path: str, welcome: Frame | None, body: Any = None
) -> tuple[int, Any]:
    headers = {} if welcome is None else {"Authorization": f"Bearer {welcome['token']}"}
    async with server.client.request(
        method, f"{server.url}/api/v1/memory{path}", json=body, headers=headers
    ) as answer:
        return answer.status, await answer.json()


@pytest.mark.control("S23")
async def test_a_visitor_reads_their_own_notes(server: Server) -> None:
    _, mine = await server.greet()
    _, other = await server.greet()
    short_id = await keep(server, mine, "My dog is called Bertil.", importance=7)
    await keep(server, mine, "Tea is at five.")
    status, answer = await ask(server, "GET", "", mine)
    assert (status, answer["total"]) == (200, 2)
    shown = next(note for note in answer["notes"] if note["id"] == short_id)
    assert shown.pop("observed_at").endswith("Z")
    assert shown == {
        "id": short_id, "text": "My dog is called Bertil.", "kind": "fact", "subject": "", "importance": 7,
        "authority": "person", "event_date": None, "from_turn": None,
    }  # fmt: skip
    assert [note["id"] for note in (await ask(server, "GET", "?q=dogs", mine))[1]["notes"]] == [short_id]
    assert (await ask(server, "GET", "", other))[1]["notes"] == []
    for method, path in (("DELETE", ""), ("POST", "/restore"), ("PUT", "")):
        status, _ = await ask(server, method, f"/{short_id}{path}", other, {"text": "Mine now."})
        assert status == 404
    assert (await ask(server, "GET", "", None))[0] == 401


@pytest.mark.control("S23")
async def test_a_note_is_put_away_and_had_back(server: Server) -> None:
    screen, mine = await server.greet()
    short_id = await keep(server, mine, "My dog is called Bertil.")
    status, answer = await ask(server, "DELETE", f"/{short_id}", mine)
    assert status == 200
    assert answer["undo_until"].endswith("Z")
    told = await screen.until("memory")
    assert (told["id"], told["text"], told["change"]) == (short_id, "", "forgotten")
    assert (await ask(server, "GET", "", mine))[1]["notes"] == []
    assert await ask(server, "DELETE", f"/{short_id}", mine) == (200, answer)
    status, answer = await ask(server, "POST", f"/{short_id}/restore", mine)
    assert (status, answer["note"]["text"]) == (200, "My dog is called Bertil.")
    assert (await screen.until("memory"))["change"] == "restored"
    await ask(server, "DELETE", f"/{short_id}", mine)
    await server.services.pool.execute(
        "UPDATE notes SET text = '', subject = '', event_date = NULL, undo_until = NULL"
    )
    assert (await ask(server, "POST", f"/{short_id}/restore", mine))[0] == 410


@pytest.mark.control("S23")
async def test_a_corrected_note_is_a_newer_one(server: Server) -> None:
    screen, mine = await server.greet()
    short_id = await keep(server, mine, "My dog is called Bertil.", authority="tool", kind="relation")
    status, answer = await ask(server, "PUT", f"/{short_id}", mine, {"text": "My cat is called Bertil."})
    assert status == 200
    newer = answer["note"]
    assert newer["id"] != short_id
    assert (newer["kind"], newer["authority"]) == ("relation", "person")
    told = await screen.until("memory")
    assert (told["id"], told["replaces"], told["change"]) == (newer["id"], short_id, "changed")
    status, answer = await ask(server, "PUT", f"/{short_id}", mine, {"text": "My bird is called Bertil."})
    assert (status, answer["code"], answer["details"]["note"]["id"]) == (409, "replaced", newer["id"])


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": 7}, {"text": "x" * 601}, {"text": "password: hunter2!"}]
)
async def test_words_that_cannot_be_kept_are_refused(server: Server, body: dict[str, Any]) -> None:
    _, mine = await server.greet()
    short_id = await keep(server, mine, "My dog is called Bertil.")
    status, answer = await ask(server, "PUT", f"/{short_id}", mine, body)
    assert (status, answer["code"]) == (400, "bad_note")
    assert (await ask(server, "PUT", "/nonsense", mine, body))[0] == 404


async def test_on_public_pages_there_is_no_memory_to_see(starter: Starter) -> None:
    server = await starter.start(profile="public")
    _, welcome = await server.greet()
    assert (await ask(server, "GET", "", welcome))[0] == 404


async def test_a_page_that_embeds_the_widget_can_read_why_it_was_refused(starter: Starter) -> None:
    server = await starter.start(allowed_origins=("https://shop.example",))
    _, mine = await server.greet()
    for origin, seen in (("https://shop.example", "https://shop.example"), ("https://evil.example", None)):
        headers = {"Authorization": f"Bearer {mine['token']}", "Origin": origin}
        url = f"{server.url}/api/v1/memory/n00000000"
        async with server.client.delete(url, headers=headers) as answer:
            assert answer.status == (404 if seen else 403)
            assert answer.headers.get("Access-Control-Allow-Origin") == seen


async def list_versions(server: Server, welcome: Frame, short_id: str) -> list[dict[str, Any]]:
    status, answer = await ask(server, "GET", f"/{short_id}/versions", welcome)
    assert status == 200
    return list(answer["versions"])


@pytest.mark.control("S23")
async def test_each_change_of_a_note_is_listed_and_restored(server: Server) -> None:
    screen, mine = await server.greet()
    _, other = await server.greet()
    first = await keep(server, mine, "My dog is called Bertil.")
    status, answer = await ask(server, "PUT", f"/{first}", mine, {"text": "My dog is called Berta."})
    second = answer["note"]["id"]
    shown = await list_versions(server, mine, second)
    assert [(one["id"], one["text"], one["replaced"], one["current"], one["cause"]) for one in shown] == [
        (second, "My dog is called Berta.", "My dog is called Bertil.", True, "person"),
        (first, "My dog is called Bertil.", None, False, "person"),
    ]
    assert (await ask(server, "GET", f"/{second}/versions", other))[0] == 404
    path = f"/{second}/versions/{first}/restore"
    assert (await ask(server, "POST", path, other))[0] == 404
    status, answer = await ask(server, "POST", path, mine)
    assert (status, answer["note"]["id"], answer["note"]["text"]) == (200, first, "My dog is called Bertil.")
    await screen.until("memory")
    told = await screen.until("memory")
    assert (told["change"], told["replaces"]) == ("changed", second)
    assert (await ask(server, "POST", path, mine))[0] == 200
    assert [note["id"] for note in (await ask(server, "GET", "", mine))[1]["notes"]] == [first]
    shown = await list_versions(server, mine, first)
    assert [(one["id"], one["current"]) for one in shown] == [
        (first, True), (second, False), (first, True),
    ]  # fmt: skip


@pytest.mark.control("S23")
async def test_versions_of_a_note_are_erased_with_it(server: Server) -> None:
    _, mine = await server.greet()
    first = await keep(server, mine, "My dog is called Bertil.")
    _, answer = await ask(server, "PUT", f"/{first}", mine, {"text": "My dog is called Berta."})
    second, notes = answer["note"]["id"], server.services.stores.notes
    session_id = await server.services.pool.fetchval(
        "SELECT id FROM sessions WHERE public_id = $1", mine["session"]
    )
    whose = await notes.load_owner(session_id)
    kept = await notes.find_note(second, whose)
    assert kept is not None
    assert await notes.erase(whose, [kept.id]) == 2
    assert (await ask(server, "GET", f"/{second}/versions", mine))[0] == 404
    assert (await ask(server, "POST", f"/{second}/versions/{first}/restore", mine))[0] == 404
    assert await server.services.pool.fetchval("SELECT count(*) FROM notes WHERE text LIKE '%Ber%'") == 0


async def test_version_of_another_note_is_refused(server: Server) -> None:
    _, mine = await server.greet()
    dog = await keep(server, mine, "My dog is called Bertil.")
    tea = await keep(server, mine, "Tea is at five.")
    _, answer = await ask(server, "PUT", f"/{tea}", mine, {"text": "Tea is at four."})
    assert (await ask(server, "POST", f"/{dog}/versions/{tea}/restore", mine))[0] == 404
    newer = answer["note"]["id"]
    assert (await ask(server, "POST", f"/{newer}/versions/{dog}/restore", mine))[0] == 404
    await ask(server, "DELETE", f"/{newer}", mine)
    assert (await ask(server, "POST", f"/{newer}/versions/{tea}/restore", mine))[0] == 404


@pytest.mark.control("S23")
async def test_memory_of_an_answer_is_refused_to_others(server: Server) -> None:
    screen, mine = await server.greet()
    _, other = await server.greet()
    await screen.send({"t": "msg", "cid": "c1", "text": "Good morning."})
    answer = await screen.until("msg", role="assistant")
    path = f"{server.url}/api/v1/sessions/{mine['session']}/messages/{answer['mid']}/memory"

    async def show(welcome: Frame | None, url: str = path) -> tuple[int, str]:
        headers = {} if welcome is None else {"Authorization": f"Bearer {welcome['token']}"}
        async with server.client.get(url, headers=headers) as found:
            return found.status, (await found.json())["code"]

    # The scripted answer stored no request.
    assert await show(mine) == (410, "gone")
    assert (await show(other))[0] == 404
    assert (await show(None))[0] == 401
    assert (await show(mine, path.replace(answer["mid"], "m999")))[0] == 404
