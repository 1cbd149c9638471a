"""Where one model does both, notes and summary come in one answer; each is safe when the other fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.long_talks import talk
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

CHAT = "claude-sonnet-5-5"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 12_000, "max_output": 1_000, "summary_model": CHAT}


async def of_kind(provider: RunningFake, kind: str) -> list[dict[str, Any]]:
    return [record for record in await provider.requests() if record["kind"] == kind]


async def talk_until_compacted(guest: Visit) -> None:
    for number in range(40):
        await talk(guest, 1, first=number)
        await guest.run_due_jobs()
        if await guest.one("SELECT count(*) FROM compactions WHERE active"):
            return
    raise AssertionError("nothing was compacted")


def answered_with(answer: dict[str, Any], *, times: int = 1) -> list[dict[str, Any]]:
    return [{"match": {"kind": "summary"}, "times": times, "action": {"text": json.dumps(answer)}}]


async def test_one_request_behind_the_chat_brings_notes_and_summary(
    guest: Visit, provider: RunningFake
) -> None:
    await talk_until_compacted(guest)
    assert await of_kind(provider, "flush") == []
    (asked,) = await of_kind(provider, "summary")
    chat = (await of_kind(provider, "chat"))[-1]
    assert asked["body"]["tools"] == chat["body"]["tools"]
    assert asked["body"]["system"] == chat["body"]["system"]
    assert asked["usage"]["cache_read_input_tokens"] > asked["usage"]["input_tokens"]
    assert await guest.one("SELECT kind FROM compactions WHERE active") == "summary"
    assert await guest.one("SELECT flushed_turn = base_turn FROM sessions")
    assert await guest.one("SELECT outcome = 'saved' AND note_count > 0 FROM flushes")
    assert await guest.one("SELECT l.flush_id = f.id FROM compactions l, flushes f")
    assert await guest.one("SELECT bool_and(from_turn = through_turn) FROM notes")
    assert await guest.one("SELECT count(*) FROM usage WHERE purpose = 'flush'") == 0


async def test_summary_without_notes_is_committed_and_flush_runs_separately(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script(answered_with({"narrative": "They talk.", "add": [], "replace": [], "close": []}))
    await talk_until_compacted(guest)
    assert len(await of_kind(provider, "flush")) == 1
    assert await guest.one("SELECT flushed_turn >= base_turn FROM sessions")
    assert await guest.one("SELECT count(*) FROM notes") > 0


async def test_notes_are_kept_when_their_summary_cannot_be_used(guest: Visit, provider: RunningFake) -> None:
    notes = [{"kind": "fact", "text": "My dog Bertil is allergic to chicken.", "source": 7}]
    unusable = {"narrative": "I'm sorry, but I can't help with that.", "add": [], "notes": notes}
    await provider.script(answered_with(unusable, times=-1))
    await talk_until_compacted(guest)
    assert await guest.one("SELECT kind FROM compactions WHERE active") == "digest"
    assert await of_kind(provider, "flush") == []
    row = await guest.app.pool.fetchrow("SELECT text, from_turn, authority FROM notes")
    assert row is not None
    assert tuple(row) == ("My dog Bertil is allergic to chicken.", 4, "person")


@pytest.mark.parametrize("point", ["after_summary_model", "after_note", "after_flush_model", "after_flush"])
async def test_wherever_it_is_cut_off_nothing_is_lost_and_nothing_saved_twice(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    class Cut(Exception):
        pass

    cut: list[str] = []

    def crash(here: str) -> None:
        if here == point and not cut:
            cut.append(here)
            raise Cut

    runner = guest.app.job_runner
    for part in (runner._compactor, runner._flusher, runner._compactor._summariser):
        monkeypatch.setattr(part, "_crash_point", crash)
    for offer in runner._flusher._toolbox._offers.values():
        if hasattr(offer.tool, "_crash_point"):
            monkeypatch.setattr(offer.tool, "_crash_point", crash)
    for number in range(40):
        await talk(guest, 1, first=number)
        await guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")
        await guest.run_due_jobs()
        if await guest.one("SELECT count(*) FROM compactions WHERE active"):
            break
    assert cut == [point]
    assert await guest.one("SELECT flushed_turn >= base_turn AND base_turn > 0 FROM sessions")
    assert await guest.one("SELECT count(*) = count(DISTINCT text) AND count(*) > 0 FROM notes")
    assert await guest.one("SELECT count(*) FROM flushes WHERE outcome = 'running'") == 0
