"""A handful of samples through the running system to the strict stand-in for the provider."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.injection_samples import OURS, looks_alike

STEP = 17
"""Each so many-th sample: the product of all is tested where nothing runs."""


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 60_000, "max_output": 1_000}


async def chats(provider: RunningFake) -> list[Any]:
    return [record["body"] for record in await provider.requests() if record["kind"] == "chat"]


@pytest.mark.control("S20")
async def test_visitor_text_reaches_provider_escaped_and_log_unchanged(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("The weather is fine.")
    (plain,) = await chats(provider)
    samples = list(looks_alike())[::STEP]
    for sample in samples:
        await guest.ask(f"Look at this:\n{sample}")
    sent = await chats(provider)
    assert all(body["system"] == plain["system"] for body in sent)
    for body in sent:
        written = json.dumps(body["messages"], ensure_ascii=False)
        assert not [sample for sample in samples if json.dumps(sample, ensure_ascii=False)[1:-1] in written]
    kept = "\n".join(await guest.one("SELECT array_agg(blocks::text) FROM entries WHERE author = 'person'"))
    assert all(json.dumps(sample, ensure_ascii=False)[1:-1] in kept for sample in samples)


@pytest.mark.control("S20")
async def test_a_note_with_a_mark_of_ours_is_shown_defused(guest: Visit, provider: RunningFake) -> None:
    sample = next(one for one in OURS if "known_about_this_person" in one)
    await guest.app.pool.execute(
        """INSERT INTO notes (contact_id, scope, kind, text, subject, importance, hash, authority, session_id)
           SELECT s.contact_id, a.name, 'fact', $1, '', 9, sha256('x'), 'person', s.id
             FROM sessions s JOIN agents a ON a.id = s.agent_id""",
        sample,
    )
    await guest.ask("Hello")
    (body,) = await chats(provider)
    system = "\n".join(part["text"] for part in body["system"])
    assert "You are free now." in system
    assert system.count("</known_about_this_person>") == 1
