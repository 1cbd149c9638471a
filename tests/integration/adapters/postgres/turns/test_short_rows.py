"""Messages are stored in the shortest form that reads the same, by whichever version of the program."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest

from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.session.turns import Inbound
from shared.core.values.messages import Image, Text
from tests.integration.adapters.postgres.db.schemas import downgrade
from tests.kit.app_driver import running_app, settings_for, visit

FIRST = "0044"
"""The schema that the history of migrations begins with."""
WHOLE = "SELECT seq, role, author, blocks, tokens, dedupe_key, cid, replaces_seq FROM entries ORDER BY seq"
LIFE = """
INSERT INTO contacts DEFAULT VALUES;
INSERT INTO sessions (contact_id, agent_id, next_seq, next_turn)
SELECT p.id, a.id, 5, 2 FROM contacts p, agents a;
INSERT INTO addresses (channel, account, chat, contact_id, session_id)
SELECT 'web', 'default', 'x', p.id, s.id
  FROM contacts p, sessions s;
INSERT INTO turns (session_id, turn_no, channel, address_id)
SELECT s.id, 1, 'web', a.id FROM sessions s, addresses a;
INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, cid, replaces_seq)
SELECT s.id, x.* FROM sessions s, (VALUES
  (1, 'user', 'person', '[{"type": "text", "text": "Hi \\" there"}]'::jsonb, 3, 'web:one', 'one',
   NULL::bigint),
  (2, 'user', 'person', '[{"type": "text", "text": "A file", "attachment_id": 7}]', 3, 'tg:1:2', 'other', 1),
  (3, 'assistant', 'assistant', '[{"type": "text", "text": ""}, {"type": "text", "text": "b"}]', 3, NULL,
   NULL, NULL),
  (4, 'assistant', 'operator', '[]', 3, 'operator:two', 'two', NULL)) x;
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT session_id, seq, 1, seq FROM entries;
"""
WHOLE_LIFE = LIFE.replace("INSERT INTO entries", "INSERT INTO entry_rows")
"""As versions stored it that knew no short rows."""


def said(text: str, key: str = "web:one", cid: str | None = "one") -> Inbound:
    return Inbound(session_id=1, address_id=1, text=text, dedupe_key=key, cid=cid)


@pytest.mark.row("F52")
async def test_rows_of_before_and_of_the_version_before_read_the_same(database_url: str) -> None:
    """The same statements wrote them whole into the table, and write them short through the view."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(WHOLE_LIFE)
    rows = await connection.fetch(WHOLE)
    assert await connection.fetchval("SELECT count(*) FROM entry_rows WHERE words IS NOT NULL") == 0
    await connection.execute("TRUNCATE contacts, entry_rows, turns, turn_entries RESTART IDENTITY CASCADE")
    await connection.execute(LIFE)
    assert await connection.fetch(WHOLE) == rows
    short = await connection.fetch("SELECT words, blocks IS NULL, role, cid FROM entry_rows ORDER BY seq")
    assert [tuple(row) for row in short] == [
        ('Hi " there', True, None, None), (None, False, None, "other"), (None, False, None, None),
        (None, False, "assistant", None),
    ]  # fmt: skip
    await connection.close()


async def test_a_message_that_was_stored_before_is_known_when_it_comes_again(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(WHOLE_LIFE)
    pool = await open_pool(database_url, size=1)
    accepted = await PostgresTurns(pool).accept(said("Hi"), channel="web", tokens=1)
    assert (accepted.repeated, accepted.seq) == (True, 1)
    assert await connection.fetchval("SELECT count(*) FROM entries") == 4
    with pytest.raises(asyncpg.UniqueViolationError):
        # A process of the version before that looked at the same moment.
        await connection.execute(
            """INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, cid)
               VALUES (1, 9, 'user', 'person', '[{"type": "text", "text": "Hi"}]', 1, 'web:one', 'one')"""
        )
    await pool.close()
    await connection.close()


async def test_current_message_row_is_text_readable_by_former_version(database_url: str) -> None:
    pool = await open_pool(database_url, size=1)
    turns, visitors = PostgresTurns(pool), PostgresVisitors(pool)
    visitor = await visitors.create(generate_token(), site="default")
    assert visitor is not None
    await turns.accept(said("Hi"), channel="web", tokens=1)
    await turns.accept(said("Yes", key="tg:1:2", cid=None), channel="web", tokens=1)
    stored = await pool.fetch("SELECT words, blocks, role, cid FROM entry_rows ORDER BY seq")
    assert [tuple(row) for row in stored] == [("Hi", None, None, None), ("Yes", None, None, None)]
    whole = await pool.fetch("SELECT role, blocks, cid FROM entries ORDER BY seq")
    assert [tuple(row) for row in whole] == [
        ("user", [{"type": "text", "text": "Hi"}], "one"),
        ("user", [{"type": "text", "text": "Yes"}], None),
    ]
    known = "SELECT EXISTS (SELECT FROM entries WHERE session_id = 1 AND dedupe_key = $1)"
    assert await pool.fetchval(known, "web:one")
    loaded = await turns.load(1, base_turn=0, through_turn=9)
    assert [(entry.role, entry.author, entry.blocks) for entry in loaded] == [
        ("user", "person", (Text(text="Hi"),)), ("user", "person", (Text(text="Yes"),)),
    ]  # fmt: skip
    await pool.close()


async def test_what_is_more_than_words_stays_whole(database_url: str) -> None:
    pool = await open_pool(database_url, size=1)
    visitor = await PostgresVisitors(pool).create(generate_token(), site="default")
    assert visitor is not None
    shown = (Text(text="Look", attachment_id=3), Image(attachment_id=4, mime="image/png"))
    for number, blocks in enumerate((shown, shown[:1], (Text(text="a"), Text(text="b")))):
        inbound = replace(said("", key=f"web:{number}", cid=str(number)), more=blocks)
        await PostgresTurns(pool).accept(inbound, channel="web", tokens=1)
    assert await pool.fetchval("SELECT count(*) FROM entry_rows WHERE words IS NULL") == 3
    loaded = await PostgresTurns(pool).load(1, base_turn=0, through_turn=9)
    assert [entry.blocks for entry in loaded] == [shown, shown[:1], (Text(text="a"), Text(text="b"))]
    await pool.close()


async def test_a_message_has_words_or_blocks_and_never_both_or_neither(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(LIFE)
    for words, blocks in (("'x'", "'[]'"), ("NULL", "NULL")):
        with pytest.raises(asyncpg.CheckViolationError, match="entry_is_words_or_blocks"):
            await connection.execute(
                f"""INSERT INTO entry_rows (session_id, seq, author, words, blocks, tokens)
                    VALUES (1, 9, 'person', {words}, {blocks}, 1)"""
            )
    await connection.close()


async def test_a_conversation_survives_the_way_back_and_forth(database_url: str, redis_url: str) -> None:
    settings = settings_for(database_url, redis_url)
    async with running_app(settings) as app:
        guest = await visit(app)
        await guest.ask("My cat is called Miso.")
        await guest.ask("What is 6 times 7?")
        rows = await app.pool.fetch(WHOLE)
    connection = await asyncpg.connect(database_url)
    await downgrade(database_url, FIRST)
    assert [tuple(row) for row in await connection.fetch(WHOLE.replace("blocks", "blocks::text AS x"))]
    await migrate(database_url)
    assert [str(line) for line in await check_invariants(connection)] == []
    await connection.close()
    async with running_app(settings) as app:
        assert await app.pool.fetch(WHOLE) == rows
