"""One conversation as a file: whole, of nobody else, for whoever may read it, and written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientError

from shared.adapters.postgres.privacy.export import PostgresExport
from shared.core.identity.operators import Role
from shared.core.values.errors import StorageUnavailable
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.dashboard.people_seed import a_note
from tests.kit.web.callers import make_operator

TURNS = 1_400
"""More than two pages of messages."""


@pytest.fixture
async def talks(dashboard: Dashboard) -> tuple[seed.Seeded, seed.Seeded]:
    """A long conversation, and another one of the same person."""
    async with dashboard.pool.acquire() as connection:
        talk = await seed.a_session(connection, person="Maria", turns=TURNS)
        await seed.talk(connection, talk, turns=TURNS)
        other = await seed.a_session(connection, person="Maria too", turns=2)
        await connection.execute(
            "UPDATE sessions SET contact_id = $2 WHERE id = $1", other.session_id, talk.contact_id
        )
        await connection.execute("UPDATE sessions SET goal = 'elsewhere' WHERE id = $1", other.session_id)
        await a_note(connection, talk, "Plans a trip to Lisbon")
        elsewhere = seed.Seeded(
            session_id=other.session_id, public_id=other.public_id, contact_id=talk.contact_id,
            address_id=other.address_id,
        )  # fmt: skip
        await a_note(connection, elsewhere, "Said elsewhere that she sails")
        for one in (talk, other):
            await connection.execute(
                "INSERT INTO feedback (session_id, turn_no, opinion, words) VALUES ($1, 1, 'good', $2)",
                one.session_id, f"words of {one.session_id}",
            )  # fmt: skip
    return talk, other


async def exported(
    dashboard: Dashboard, talk: seed.Seeded, form: str, headers: Mapping[str, str] | None = None
) -> tuple[Any, str]:
    async with dashboard.http.get(
        f"{dashboard.url}/api/v1/sessions/{talk.public_id}/export?format={form}", headers=headers
    ) as response:
        assert response.status == 200, await response.text()
        return response.headers, await response.text()


@pytest.mark.control("S41")
async def test_json_holds_the_whole_conversation_and_no_other(
    dashboard: Dashboard, talks: tuple[seed.Seeded, seed.Seeded]
) -> None:
    talk, other = talks
    headers, text = await exported(dashboard, talk, "json")
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert headers["Content-Disposition"].startswith(
        f'attachment; filename="conversation-{str(talk.public_id)[:8]}-'
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    found = json.loads(text)
    (only,) = found["conversations"]
    assert only["id"] == str(talk.public_id)
    rows = await dashboard.pool.fetch(
        "SELECT seq, author, blocks FROM entries WHERE session_id = $1 ORDER BY seq", talk.session_id
    )
    assert [(one["seq"], one["author"], one["text"]) for one in only["messages"]] == [
        (row["seq"], row["author"], row["blocks"][0]["text"]) for row in rows
    ]
    assert [note["text"] for note in found["notes"]] == ["Plans a trip to Lisbon"]
    assert [one["words"] for one in found["feedback"]] == [f"words of {talk.session_id}"]
    for alien in ("elsewhere", str(other.public_id)):
        assert alien not in text


async def test_markdown_says_everything_word_for_word(
    dashboard: Dashboard, talks: tuple[seed.Seeded, seed.Seeded]
) -> None:
    headers, text = await exported(dashboard, talks[0], "md")
    assert headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert text.count("**person** · ") == text.count("**assistant** · ") == TURNS
    assert f"```text\n{seed.HOSTILE}\n```" in text
    assert "` Plans a trip to Lisbon `" in text


@pytest.mark.control("S13")
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
async def test_conversation_export_needs_read_access_and_is_audited(
    dashboard: Dashboard, talks: tuple[seed.Seeded, seed.Seeded], role: Role
) -> None:
    headers = await make_operator(dashboard.pool, role, name="grace")
    dashboard.http.cookie_jar.clear()
    await exported(dashboard, talks[0], "md", headers)
    rows = await dashboard.pool.fetch("SELECT actor, object, detail FROM audit WHERE action = 'read.export'")
    assert [tuple(row) for row in rows] == [("grace", str(talks[0].public_id), {"format": "md"})]


async def test_what_is_not_there_or_means_nothing_is_refused_and_no_reading(dashboard: Dashboard) -> None:
    async with dashboard.pool.acquire() as connection:
        talk = await seed.a_session(connection)
    assert await dashboard.status("GET", f"/api/v1/sessions/{uuid4()}/export") == 404
    assert await dashboard.status("GET", "/api/v1/sessions/7/export") == 404
    assert await dashboard.status("GET", f"/api/v1/sessions/{talk.public_id}/export?format=csv") == 400
    assert await dashboard.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'read.export'") == 0


async def test_a_database_that_goes_away_cuts_the_file_off(
    dashboard: Dashboard, talks: tuple[seed.Seeded, seed.Seeded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with an end would be taken for whole."""
    page = PostgresExport.load_page

    async def goes_away(self: PostgresExport, session: Any, *, after_seq: int) -> Any:
        if after_seq:
            raise StorageUnavailable("gone")
        return await page(self, session, after_seq=after_seq)

    monkeypatch.setattr(PostgresExport, "load_page", goes_away)
    async with asyncio.timeout(30):
        with pytest.raises(ClientError):
            await exported(dashboard, talks[0], "json")
