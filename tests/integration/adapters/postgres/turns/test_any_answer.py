"""Whatever a model says, in whatever pieces: Postgres keeps it, Telegram takes it, a browser reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.telegram.markup.entity_text import render, split
from bot.telegram.markup.rich_blocks import build_rich_blocks
from shared.adapters.models.stream_parser import AnswerParser, BrokenAnswer
from shared.adapters.postgres.db.pool import open_pool
from shared.core.values.messages import Block, Text, ToolUse, blocks_from_json, blocks_to_json, text_of

ANY_CHARACTER = st.characters(exclude_categories=()) | st.sampled_from("\x00\ud83d\ude00\udfff`*|\n")
PIECES = st.lists(st.text(ANY_CHARACTER, max_size=8), min_size=1, max_size=8)
EXAMPLES = 150


def streamed(pieces: list[str], arguments: Mapping[str, str]) -> tuple[str, tuple[Block, ...]]:
    """What is shown while it is written, and all that was said."""
    reading = AnswerParser()
    told = json.dumps(arguments, ensure_ascii=False)
    halves = [told[:9], told[9:17], told[17:]]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(_delta(0, {"type": "text_delta", "text": piece}) for piece in pieces),
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
        },
        *(_delta(1, {"type": "input_json_delta", "partial_json": piece}) for piece in halves),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    return "".join([reading.take(event) for event in events]), reading.build_blocks()


def _delta(index: int, delta: dict[str, str]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


@given(told=st.lists(st.tuples(PIECES, st.text(ANY_CHARACTER, max_size=20)), min_size=1, max_size=20))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_passes_the_providers_door_can_be_kept_and_sent(
    told: list[tuple[list[str], str]], database_url: str
) -> None:
    answers = []
    for pieces, words in told:
        try:
            answers.append(streamed(pieces, {"words": words}))
        except BrokenAnswer:
            raise AssertionError((pieces, words)) from None
    for shown, blocks in answers:
        said = text_of(blocks)
        assert said in (shown, shown + "\ufffd"), "what was read while it was written stays"
        for part in split(render(said)):
            json.dumps({"text": part.text, "entities": [one.to_api() for one in part.entities]}).encode()
            part.text.encode()
        build_rich_blocks(said)
        json.dumps({"t": "delta", "text": shown}, ensure_ascii=False).encode()
    asyncio.run(_kept([blocks for _, blocks in answers], database_url))


async def _kept(answers: list[tuple[Block, ...]], database_url: str) -> None:
    pool = await open_pool(database_url, size=1)
    try:
        sent = [blocks_to_json(blocks) for blocks in answers]
        words = [text_of(blocks) for blocks in answers]
        row = await pool.fetchrow("SELECT $1::jsonb AS blocks, $2::text[] AS words", sent, words)
        assert row is not None
        assert [tuple(blocks_from_json(one)) for one in row["blocks"]] == answers
        assert row["words"] == words
    finally:
        await pool.close()


async def test_every_character_that_there_is(database_url: str) -> None:
    """In texts and in the arguments of tools, each of them alone between two others."""
    pool = await open_pool(database_url, size=1)
    try:
        for start in range(0, 0x110000, 0x8000):
            chars = [chr(number) for number in range(start, start + 0x8000)]
            shown, blocks = streamed(["".join(f"a{char}z" for char in chars)], {"words": "-".join(chars)})
            kept = blocks_from_json(await pool.fetchval("SELECT $1::jsonb", blocks_to_json(blocks)))
            text, call = kept
            assert isinstance(text, Text)
            assert isinstance(call, ToolUse)
            lost = "".join(char for char in chars if char == "\x00" or "\ud800" <= char <= "\udfff")
            assert text.text.count("\ufffd") == len(lost) + ("\ufffd" in chars)
            assert text.text == shown
            assert await pool.fetchval("SELECT length($1::text)", text.text) == len(text.text)
    finally:
        await pool.close()
