"""A picture is looked at once, described in a sentence, and remembered by that sentence."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.adapters.postgres.attachments import PostgresAttachments
from shared.core.exchange import Inbound
from shared.core.messages import Image
from tests.fakes.messages_api import running_fake
from tests.fakes.messages_api.harness import RunningFake
from tests.journeys.house import Visit, running_app, settings_for, visit

PICTURE = b"\x89PNG\r\n\x1a\n not a real one, but nobody here looks"
SEEN = "A receipt of the bakery Kaffebønna over 84 kroner."


@pytest.fixture(scope="module")
def provider() -> Any:
    fake = running_fake()
    fake.start()
    yield fake
    fake.close()


@pytest.fixture
async def guest(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Visit]:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url
    )
    async with running_app(settings) as app:
        yield await visit(app)


async def shows(guest: Visit, words: str) -> None:
    attachments = PostgresAttachments(guest.app.pool)
    ids = [await attachments.store(guest.session_id, body=PICTURE, mime="image/png") for _ in range(2)]
    assert ids[0] == ids[1]
    await guest.app.conversation.accept(
        Inbound(
            session_id=guest.session_id,
            address_id=guest.address_id,
            text=words,
            dedupe_key="picture",
            more=(Image(attachment_id=ids[0], mime="image/png"),),
        )
    )
    await guest.answered()


def pictures_in(request: dict[str, Any]) -> list[str]:
    return [
        block["source"]["data"]
        for message in request["body"]["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "image"
    ]


async def test_a_picture_is_seen_once_and_described_for_later(guest: Visit, provider: RunningFake) -> None:
    await provider.script(
        [{"match": {"contains": "Say in one sentence"}, "times": 1, "action": {"text": SEEN}}]
    )
    await shows(guest, "What did I pay here?")
    requests = await provider.requests()
    assert [len(pictures_in(request)) for request in requests] == [1, 1]
    assert pictures_in(requests[0])[0] == base64.b64encode(PICTURE).decode()
    assert await guest.one("SELECT description FROM attachments") == SEEN
    assert await guest.one("SELECT count(*) FROM usage") == 2
    await guest.ask("And what was it called?")
    later = (await provider.requests())[-1]
    assert pictures_in(later) == []
    assert SEEN in str(later["body"]["messages"])
    spent = await guest.one("SELECT spent_micro FROM spend_days WHERE scope = 'total'")
    assert spent == await guest.one("SELECT sum(cost_micro) FROM usage")


async def test_a_picture_may_come_without_a_word(guest: Visit) -> None:
    await shows(guest, "")
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 1
