"""A picture is looked at once, described in a sentence, and remembered by that sentence."""

from __future__ import annotations

import asyncio
import base64
import json
from itertools import pairwise
from typing import Any, cast

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.core.context.prompts import PICTURE_SCHEMA
from shared.core.session.turns import Inbound, JobOrder
from shared.core.values.messages import Image
from tests.acceptance.turns.pictures import PICTURE
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake

LOOK = "Describe this picture in one sentence"
SEEN = "A receipt of the bakery Kaffebønna over 84 kroner."


def slowly(seconds: float) -> dict[str, Any]:
    """Whoever looks at the picture takes so long."""
    return {"match": {"contains": LOOK}, "times": -1, "action": {"text": SEEN, "latency": seconds}}


@pytest.fixture
async def teller(guest: Visit) -> Visit:
    """Whose agent is told of pictures from their second turn on."""
    await guest.app.pool.execute("""UPDATE agents SET config = '{"context": {"picture_turns": 0}}'""")
    return guest


async def shows(guest: Visit, words: str) -> None:
    attachments = PostgresAttachments(guest.app.pool)
    ids = [await attachments.store(guest.session_id, body=PICTURE, mime="image/png") for _ in range(2)]
    assert ids[0] == ids[1]
    await guest.app.sessions.accept(
        Inbound(
            session_id=guest.session_id,
            address_id=guest.address_id,
            text=words,
            dedupe_key="picture",
            more=(Image(attachment_id=ids[0], mime="image/png"),),
        )
    )
    await guest.answered()


async def described(guest: Visit) -> str:
    """What the picture shows, as soon as somebody has said so."""
    async with asyncio.timeout(20):
        while not (words := await guest.one("SELECT description FROM attachments")):
            await asyncio.sleep(0.02)
    return str(words)


async def promises_hold(guest: Visit) -> None:
    async with guest.app.pool.acquire() as connection:
        broken = list(await check_invariants(cast("asyncpg.Connection[asyncpg.Record]", connection)))
    assert broken == [], "\n".join(map(str, broken))


def looks(requests: list[dict[str, Any]]) -> int:
    return sum(LOOK in str(request["body"]["messages"][-1]) for request in requests)


def pictures_in(request: dict[str, Any]) -> list[str]:
    return [
        block["source"]["data"]
        for message in request["body"]["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "image"
    ]


async def test_a_picture_is_seen_once_and_described_for_later(teller: Visit, provider: RunningFake) -> None:
    told = json.dumps({"description": SEEN})
    await provider.script([{"match": {"contains": LOOK}, "times": 1, "action": {"text": told}}])
    await shows(teller, "What did I pay here?")
    await described(teller)
    requests = await provider.requests()
    assert [len(pictures_in(request)) for request in requests] == [1, 1]
    assert [request["body"].get("output_config") for request in requests] == [
        None, {"format": {"type": "json_schema", "schema": PICTURE_SCHEMA}},
    ]  # fmt: skip
    assert pictures_in(requests[0])[0] == base64.b64encode(PICTURE).decode()
    assert await described(teller) == SEEN
    assert await teller.one("SELECT count(*) FROM usage") == 2
    await teller.ask("And what was it called?")
    later = (await provider.requests())[-1]
    assert pictures_in(later) == []
    assert SEEN in str(later["body"]["messages"])
    spent = await teller.one("SELECT spent_micro FROM spend_days WHERE scope = 'total'")
    assert spent == await teller.one("SELECT sum(cost_micro) FROM usage")


async def test_an_answer_is_stored_before_its_picture_is_described(
    teller: Visit, provider: RunningFake
) -> None:
    """And who asks again at once is answered by somebody who knows what it shows."""
    await provider.script([slowly(4.0)])
    await shows(teller, "What did I pay here?")
    assert await teller.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 1
    assert await teller.one("SELECT description FROM attachments") == ""
    assert await teller.one("SELECT count(*) FROM usage") == 1
    await teller.ask("And what was it called?")
    assert await described(teller) == SEEN
    requests = await provider.requests()
    assert SEEN in str(requests[-1]["body"]["messages"])
    assert looks(requests) == 1
    assert await teller.one("SELECT count(*) FROM usage WHERE purpose = 'chat'") == 3
    assert await teller.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    await promises_hold(teller)


@pytest.mark.parametrize("needed_by", ["a turn", "a job"])
async def test_what_a_crash_left_undescribed_is_described_when_it_is_needed(
    database_url: str, redis_url: str, provider: RunningFake, needed_by: str
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url
    )
    await provider.script([slowly(60)])
    async with running_app(settings) as app:
        before = await visit(app)
        await shows(before, "What did I pay here?")
        while not looks(await provider.requests()):
            await asyncio.sleep(0.02)
    await provider.script([slowly(0)])
    async with running_app(settings) as app:
        await app.pool.execute("""UPDATE agents SET config = '{"context": {"picture_turns": 0}}'""")
        guest = Visit(app=app, session_id=before.session_id, address_id=before.address_id)
        assert await guest.one("SELECT description FROM attachments") == ""
        if needed_by == "a turn":
            await guest.ask("And what was it called?")
        else:
            order = JobOrder(kind="flush", key="flush:now", trigger="pressure")
            job = await app.stores.jobs.request_job(guest.session_id, order)
            assert job is not None
            await app.job_runner.run(job)
        assert await guest.one("SELECT description FROM attachments") == SEEN
        assert SEEN in str((await provider.requests())[-1]["body"]["messages"])
        await promises_hold(guest)


async def test_a_picture_that_no_model_will_describe_goes_by_its_words(
    teller: Visit, provider: RunningFake
) -> None:
    refused = {"status": 400, "message": "this picture cannot be read"}
    await provider.script([{"match": {"contains": LOOK}, "times": -1, "action": refused}])
    await shows(teller, "What did I pay here?")
    assert await described(teller) == "sent with the words “What did I pay here?”"
    await teller.ask("And what was it called?")
    assert looks(await provider.requests()) == 1
    await promises_hold(teller)


async def test_a_picture_may_come_without_a_word(guest: Visit) -> None:
    await shows(guest, "")
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 1


async def test_a_picture_can_be_asked_about_in_later_turns(guest: Visit, provider: RunningFake) -> None:
    """It stays where it is, so that the provider has it in its cache; a description takes its place later."""
    await provider.script([slowly(0)])
    await shows(guest, "What did I pay here?")
    await described(guest)
    for turn in range(2, 12):
        await guest.ask(f"And what else, number {turn}?")
    chats = [r for r in await provider.requests() if r["kind"] == "chat" and LOOK not in str(r["body"])]
    shown = [len(pictures_in(request)) for request in chats]
    assert shown == [1] * 8 + [0] * 3
    for before, after in pairwise(chats[:8]):
        assert pictures_in(before) == pictures_in(after)
    number = await guest.one("SELECT id FROM attachments")
    assert f"(picture {number}: {SEEN})" in str(chats[-1]["body"]["messages"])
    audits = await guest.app.pool.fetch(
        "SELECT estimated_input_tokens_after_prune AS said, reported_input_tokens AS was "
        "FROM turn_context_audit "
        "ORDER BY id OFFSET 2"
    )
    assert all(abs(row["said"] - row["was"]) <= 0.1 * row["was"] for row in audits), audits
    await promises_hold(guest)


async def test_an_older_picture_is_looked_at_again(guest: Visit, provider: RunningFake) -> None:
    await guest.app.pool.execute("""UPDATE agents SET config = '{"context": {"picture_turns": 0}}'""")
    await provider.script([slowly(0)])
    await shows(guest, "What did I pay here?")
    await described(guest)
    number = await guest.one("SELECT id FROM attachments")
    calls = [{"name": "look_at_picture", "input": {"picture": number + more}} for more in (0, 1)]
    await provider.script(
        [{"match": {"contains": "the third line"}, "times": 1, "action": {"tool_use": calls}}]
    )
    await guest.ask("What does the third line say?")
    last = (await provider.requests())[-1]
    assert pictures_in(last) == [base64.b64encode(PICTURE).decode()]
    assert f"There is no picture {number + 1} in this conversation any more." in str(last["body"])
    assert await guest.one("SELECT count(*) FROM attachments") == 1
    await promises_hold(guest)


async def test_a_picture_that_was_looked_at_again_is_forgotten_with_its_message(
    guest: Visit, provider: RunningFake
) -> None:
    await test_an_older_picture_is_looked_at_again(guest, provider)
    await guest.app.erasure.erase_messages(guest.session_id, [1], "person")
    assert await guest.one("SELECT count(*) FROM attachments") == 0


async def test_spec008_keeps_pictures_until_they_are_summarised(guest: Visit, provider: RunningFake) -> None:
    await guest.app.pool.execute("""UPDATE agents SET config = '{"preset": "spec008"}'""")
    await shows(guest, "What did I pay here?")
    for turn in range(2, 14):
        await guest.ask(f"And what else, number {turn}?")
    assert len(pictures_in((await provider.requests())[-1])) == 1
