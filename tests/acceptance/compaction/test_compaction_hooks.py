"""The compaction hook on the running system: it hears of each summary, and may put one off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.app import App
from shared.bootstrap.settings_change import follow_settings
from tests.kit.app_driver import Visit, running_app, settings_for, visit, working
from tests.kit.deployment.person import WALK
from tests.kit.fakes.hook_receiver import HookProcess, hook_process
from tests.kit.fakes.messages_api.harness import RunningFake

pytestmark = pytest.mark.timeout(300)
SECRET = "s" * 32
SUMMARIES = "SELECT count(*) FROM compactions WHERE kind IN ('summary', 'digest')"
MOST_TURNS = 80
SKIP = {"body": '{"skip": true}'}


@pytest.fixture
async def hook_server() -> AsyncIterator[HookProcess]:
    async with hook_process(SECRET) as running:
        yield running


@pytest.fixture
def with_summary() -> bool:
    return False


@pytest.fixture
def app_options(hook_server: HookProcess, with_summary: bool) -> dict[str, Any]:
    return {
        "context_window": 12_000, "max_output": 1_000, "compaction_hook_url": hook_server.url,
        "compaction_hook_secret": SECRET, "compaction_hook_summary": with_summary,
    }  # fmt: skip


async def command(guest: Visit, name: str, args: str = "") -> str:
    found = guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, language=""
    )
    async with working(guest):
        return (await asyncio.wait_for(found, 60)).result


async def say(guest: Visit, number: int) -> None:
    await guest.ask(f"Number {number}: {WALK}")
    await guest.run_due_jobs()


async def talk_until(guest: Visit, sql: str, *, first: int = 0) -> int:
    """Talk until the statement is true; return the number of the last message."""
    for number in range(first, first + MOST_TURNS):
        await say(guest, number)
        if await guest.one(sql):
            return number
    raise AssertionError(sql)


async def deliver(guest: Visit) -> None:
    """Send everything that is due, now and after every wait."""
    hooks = guest.app.compaction_hooks
    while await hooks.send_due() or await guest.one(
        "SELECT count(*) FROM compaction_hooks WHERE state = 'due' OR awaits_end"
    ):
        await guest.app.pool.execute("UPDATE compaction_hooks SET due_at = now() WHERE state = 'due'")


async def test_hook_hears_of_a_summary_before_and_after_it(app: App, hook_server: HookProcess) -> None:
    guest = await visit(app)
    await talk_until(guest, f"SELECT ({SUMMARIES}) > 0")
    before_end, _ = await hook_server.list_told()
    assert [one["type"] for one in before_end] == ["compaction.before"], "asked before the summary is there"
    await deliver(guest)

    messages, faults = await hook_server.list_told()
    assert faults == []
    before, after = messages
    link = await app.pool.fetchrow("SELECT * FROM compactions WHERE kind = 'summary'")
    assert link is not None
    public = str(await guest.one("SELECT public_id FROM sessions WHERE id = $1", guest.session_id))
    assert (before["session"], after["session"], after["job"]) == (public, public, before["job"])
    assert (before["trigger"], before["may_skip"], before["turns"]) == ("limit", True, after["turns"])
    assert before["from_message"] == f"m{link['from_seq']}"
    assert 0 < before["tokens"] <= before["hard_limit"]
    assert before["limit"] < before["hard_limit"]
    assert {name: after[name] for name in ("type", "outcome", "kind", "summary")} == {
        "type": "compaction.after", "outcome": "done", "kind": "summary", "summary": str(link["public_id"])
    }  # fmt: skip
    assert (after["tokens_before"], after["tokens_after"]) == (link["tokens_before"], link["tokens_after"])
    assert "summary_text" not in after
    assert WALK[:30] not in json.dumps(messages)


async def test_hook_puts_an_automatic_summary_off_once(
    app: App, hook_server: HookProcess, provider: RunningFake, database_url: str
) -> None:
    guest = await visit(app)
    await hook_server.plan(SKIP, *[SKIP] * 20)
    put_off = "SELECT count(*) > 0 FROM jobs WHERE outcome ->> 'nothing' = 'hook'"
    reached = await talk_until(guest, put_off)
    assert await guest.one(SUMMARIES) == 0
    assert "put the summary off once" in await command(guest, "context")

    await talk_until(guest, f"SELECT ({SUMMARIES}) > 0", first=reached + 1)
    assert "put the summary off once" not in await command(guest, "context")
    await deliver(guest)
    messages, faults = await hook_server.list_told()
    assert faults == []
    told = [(one["type"].partition(".")[2], one.get("may_skip"), one.get("outcome")) for one in messages]
    assert told[0] == ("before", True, None)
    assert ("before", False, None) in told
    # Both ends are due together here, and messages that are due together are sent at once.
    assert sorted(str(one[2]) for one in told if one[0] == "after") == ["done", "skipped"]
    assert await guest.one("SELECT count(*) FROM jobs WHERE outcome ->> 'nothing' = 'hook'") == 1
    assert await guest.one("SELECT count(*) FROM turns WHERE state <> 'answered'") == 0
    assert [one for one in await provider.requests() if one["outcome"] not in ("answered", "open")] == []
    connection = await asyncpg.connect(database_url)
    found = await check_invariants(connection)
    await connection.close()
    assert not found


async def test_hook_cannot_put_off_a_summary_that_a_person_asks_for(
    app: App, hook_server: HookProcess
) -> None:
    guest = await visit(app)
    for number in range(8):
        await say(guest, number)
    await hook_server.plan(SKIP, SKIP)
    await command(guest, "compact", "--force")
    assert await guest.one(SUMMARIES) == 1
    (before, *_), _ = await hook_server.list_told()
    assert (before["trigger"], before["may_skip"]) == ("manual", False)


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 500},
        {"status": 503, "body": '{"skip": true}'},
        {"status": 429},
        {"seconds": 7, "body": '{"skip": true}'},
    ],
    ids=["broken", "busy", "throttled", "slow"],
)
async def test_summary_is_made_although_its_hook_fails(
    app: App, hook_server: HookProcess, answer: dict[str, Any]
) -> None:
    guest = await visit(app)
    await hook_server.plan(answer)
    await talk_until(guest, f"SELECT ({SUMMARIES}) > 0")
    await deliver(guest)
    messages, faults = await hook_server.list_told()
    assert faults == [], "a repeated message has the same key and the same text"
    before = [one for one in messages if one["type"] == "compaction.before"]
    assert len(before) == 2
    assert before[0] == before[1]
    assert await guest.one("SELECT count(*) FROM compaction_hooks WHERE state = 'sent'") == 2


async def test_refused_hook_is_not_sent_again(app: App, hook_server: HookProcess) -> None:
    guest = await visit(app)
    await hook_server.plan({"status": 302, "location": hook_server.url}, {"status": 404})
    await talk_until(guest, f"SELECT ({SUMMARIES}) > 0")
    await deliver(guest)
    messages, _ = await hook_server.list_told()
    assert [one["type"] for one in messages] == ["compaction.before", "compaction.after"]
    rows = await app.pool.fetch("SELECT state, error FROM compaction_hooks ORDER BY id")
    assert [tuple(row) for row in rows] == [("failed", "http_302"), ("failed", "http_404")]


@pytest.mark.parametrize("with_summary", [True])
async def test_hook_gets_the_summary_if_the_operator_asks_for_it(app: App, hook_server: HookProcess) -> None:
    guest = await visit(app)
    await talk_until(guest, f"SELECT ({SUMMARIES}) > 0")
    await deliver(guest)
    messages, _ = await hook_server.list_told()
    text = await guest.one("SELECT summary_text FROM compactions WHERE kind = 'summary'")
    assert [one.get("summary_text") for one in messages] == [None, text]


async def test_job_that_is_repeated_after_a_crash_keeps_its_key(app: App, hook_server: HookProcess) -> None:
    """The first attempt stored the message and died before it was sent."""
    guest = await visit(app)
    await hook_server.plan({"status": 500})
    crash, calls = app.compaction_hooks._crash_point, []

    class Died(Exception):
        pass

    def die(name: str) -> None:
        calls.append(name)
        if calls == ["before_hook_send"]:
            raise Died

    app.compaction_hooks._crash_point = die
    try:
        await talk_until(guest, "SELECT count(*) > 0 FROM jobs WHERE kind = 'compact' AND attempt > 0")
        await app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")
        await guest.run_due_jobs()
    finally:
        app.compaction_hooks._crash_point = crash
    assert await guest.one(SUMMARIES) == 1
    await deliver(guest)
    messages, faults = await hook_server.list_told()
    assert faults == []
    assert len({one["id"] for one in messages if one["type"] == "compaction.before"}) == 1
    assert [one["outcome"] for one in messages if one["type"] == "compaction.after"] == ["done"]


@pytest.mark.parametrize("preset", ["lobechat"])
async def test_message_that_waits_for_a_summary_does_not_wait_for_the_hook(
    database_url: str, redis_url: str, provider: RunningFake, hook_server: HookProcess, preset: str
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        preset=preset, context_window=12_000, max_output=1_000, cap_total_per_day_usd="1000",
        compaction_hook_url=hook_server.url, compaction_hook_secret=SECRET,
    )  # fmt: skip
    await hook_server.plan({"seconds": 60})
    async with running_app(settings) as app:
        guest = await visit(app)
        async with working(guest):
            for number in range(MOST_TURNS):
                await guest.ask(f"Number {number}: {WALK}")
                if await guest.one(SUMMARIES):
                    break
        row = await app.pool.fetchrow("SELECT phase, state, attempts, skip FROM compaction_hooks")
        assert row is not None
        assert tuple(row) == ("before", "due", 0, False)
        assert (await hook_server.list_told())[0] == []


async def test_running_process_follows_a_hook_that_is_set_later(
    database_url: str, redis_url: str, provider: RunningFake, hook_server: HookProcess
) -> None:
    await provider.reset()
    given: dict[str, Any] = {
        "anthropic_api_key": "test-key", "anthropic_base_url": provider.base_url, "context_window": 12_000,
        "max_output": 1_000, "cap_total_per_day_usd": "1000",
    }  # fmt: skip
    hook = {"compaction_hook_url": hook_server.url, "compaction_hook_secret": SECRET}
    async with running_app(settings_for(database_url, redis_url, **given)) as app:
        guest = await visit(app)
        for number in range(8):
            await say(guest, number)
        await command(guest, "compact", "--force")
        assert await guest.one("SELECT count(*) FROM compaction_hooks") == 0
        await follow_settings(app, settings_for(database_url, redis_url, **given, **hook))
        for number in range(8):
            await say(guest, number)
        await command(guest, "compact", "--force")
        await deliver(guest)
    messages, faults = await hook_server.list_told()
    assert faults == []
    assert [one["type"] for one in messages] == ["compaction.before", "compaction.after"]
