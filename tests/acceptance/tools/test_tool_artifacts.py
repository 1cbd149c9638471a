"""A long tool result on its whole way: spilled, opened, shortened when it is old, replayed as sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from shared.adapters.files.web_pages import FETCH_URL
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_request_body
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.bootstrap.from_settings import build_policy
from shared.core.context.memory_tools import (
    FORGET_MEMORY,
    SAVE_MEMORY,
    SEARCH_MEMORY,
    UPDATE_MEMORY,
)
from shared.core.context.recall_query import RECALL, RECALLS_PER_TURN
from shared.core.session.artifacts import artifact_id, artifact_of
from shared.core.session.turns import Caps, Claim, JobOrder
from shared.core.values.errors import LeaseLost
from shared.core.values.messages import ToolResult, ToolSpec, ToolUse, tool_results
from shared.ports import Tool, ToolContext, ToolFailed
from shared.services.tools.calculator import CALCULATE
from shared.services.tools.current_time import CURRENT_TIME
from shared.services.tools.reminders import REMIND_ME
from shared.services.tools.send_file import SEND_FILE
from shared.services.turns.delegate_tool import DELEGATE
from shared.services.turns.model_caller import render_runtime_facts
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.request_replay import rebuild_request
from shared.services.turns.toolbox import Toolbox
from tests.acceptance.tools.report_tool import REPORT, SECRET, ReadReport
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake

ASKED = "Read the report. What is the code word of chapter seven?"
NO_CAPS = Caps(total=None, person=None, visitor=None, session=None)

MEMORY = (SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY, FORGET_MEMORY, RECALL)
HANDY = (
    CALCULATE, CURRENT_TIME, FETCH_URL, DELEGATE, REMIND_ME, SEND_FILE,
)  # fmt: skip
OTHER_TOOLS = {spec.name: spec for spec in (*MEMORY, *HANDY)}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"preset": "spec008"}


@pytest.fixture
def app_tools() -> list[Tool]:
    return [ReadReport()]


def _reads(*, opens: Mapping[str, Any] | None = None, times: int = 1) -> list[dict[str, Any]]:
    """The model reads the report, and then a portion of it if asked to."""
    read = {"name": "read_report", "input": {}}
    rules = [{"match": {"contains": "Read the report"}, "times": 1, "action": {"tool_use": [read]}}]
    if opens is not None:
        call = {"name": RECALL.name, "input": dict(opens)}
        match = {"anywhere": "Kept whole as"}
        rules.append({"match": match, "times": 1, "action": {"tool_use": [call] * times}})
    return rules


async def _results(guest: Visit) -> list[ToolResult]:
    entries = await guest.app.stores.turns.load(guest.session_id, base_turn=0, through_turn=1_000)
    return [result for entry in entries for result in tool_results(entry.blocks)]


async def test_a_long_result_is_spilled_opened_shortened_and_replayed(
    guest: Visit, provider: RunningFake
) -> None:
    assert len(REPORT) > 100_000
    await provider.script(_reads(opens={"artifact": artifact_id(REPORT), "query": "code word"}))
    assert "MERIDIAN" in await guest.ask(ASKED)
    shown, portion = [result.text for result in await _results(guest)]
    assert artifact_id(REPORT) in shown
    assert SECRET not in shown
    assert SECRET in portion
    assert await guest.one("SELECT body FROM artifacts") == REPORT
    assert await guest.one(
        "SELECT a.seq = e.seq FROM artifacts a JOIN entries e ON e.author = 'tool' LIMIT 1"
    )
    for number in range(4):
        await guest.ask(f"Something else, number {number}.")
    assert await guest.one("SELECT array_agg(form) FROM prune_decisions") == ["trim", "trim"]
    fifth = (await provider.requests())[-1]["body"]
    await _replays(guest, fifth, turn=5)
    for number in range(7):
        await guest.ask(f"Another thing, number {number}.")
    assert await guest.one("SELECT array_agg(form ORDER BY turn_no) FROM prune_decisions") == [
        "trim", "trim", "clear", "clear",
    ]  # fmt: skip
    newest = (await provider.requests())[-1]["body"]
    assert "[Tool result cleared]" in str(newest["messages"])
    assert artifact_id(REPORT) in str(newest["messages"])
    await _replays(guest, newest, turn=12)
    await _replays(guest, fifth, turn=5)
    assert {record["status"] for record in await provider.requests()} == {200}
    assert not await provider.warnings()


async def _replays(guest: Visit, sent: Mapping[str, Any], *, turn: int) -> None:
    """What the log and its decisions give is what was sent, byte for byte."""
    app, settings = guest.app, guest.app.settings
    entries = await app.stores.turns.load(guest.session_id, base_turn=0, through_turn=turn)
    state = await app.stores.jobs.load_state(guest.session_id)
    batch = await guest.one(f"SELECT array_agg(seq) FROM prune_decisions WHERE turn_no = {turn}") or ()
    entries = tuple(replace(e, pruned_now=e.seq in batch) for e in entries[:-1])  # the answer came after
    view = replace(state.view, entries=entries, open_turn=turn)
    card = await app.models.load_card(app.models.chat)
    requests = RequestBuilder(
        policy=build_policy(settings), chat_model=app.models.chat, summary_model=app.models.summary,
        max_output=build_policy(settings).max_output, counter=VocabularyCounter(),
        timezone=settings.timezone,
    )  # fmt: skip
    tools = Toolbox([ReadReport(), *map(_Named, OTHER_TOOLS)]).specs
    prepared = requests.build(
        view, card=card, agent_config=state.agent_config, tools=tools, token_ratio=1.0,
        runtime_facts=render_runtime_facts(view, ZoneInfo(settings.timezone), channel="web"),
    )  # fmt: skip
    body = build_request_body(prepared.request, card, sent["model"])
    assert body["messages"] == sent["messages"]
    assert (body["system"], body["tools"]) == (sent["system"], sent["tools"])


@dataclass(frozen=True)
class _Named:
    """Stands where only a tool's description matters."""

    name: str
    idempotent: bool = True
    timeout_seconds: float = 1.0

    @property
    def spec(self) -> ToolSpec:
        return OTHER_TOOLS[self.name]

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        raise ToolFailed("nobody runs this")


async def test_long_failure_with_binary_text_is_stored(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        cap_total_per_day_usd="100",
    )  # fmt: skip
    odd = ReadReport(text="\x00 traceback \ud800 " * 200_000, fails=True)
    async with running_app(settings, tools=[odd]) as app:
        guest = await visit(app)
        await provider.script(_reads())
        assert await guest.ask(ASKED)
        assert await guest.one("SELECT state FROM turns") == "answered"
        assert await guest.one("SELECT count(*) FROM artifacts") == 1
        assert (await _results(guest))[0].is_error


async def test_an_agents_own_rules_keep_the_results_of_a_tool_whole(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.app.pool.execute(
        """UPDATE agents SET config = config || '{"pruning": {"deny": ["read_*"]}}'"""
    )
    await provider.script(_reads())
    await guest.ask(ASKED)
    for number in range(12):
        await guest.ask(f"Something else, number {number}.")
    assert await guest.one("SELECT count(*) FROM prune_decisions") == 0


async def test_invalid_agent_tool_rules_do_not_stop_a_turn(guest: Visit) -> None:
    await guest.app.pool.execute("""UPDATE agents SET config = config || '{"pruning": {"tools": 3}}'""")
    assert await guest.ask("Hello?")
    assert await guest.one("SELECT state FROM turns") == "answered"


async def test_texts_of_a_tools_own_rule_are_stored_with_the_decision(
    guest: Visit, provider: RunningFake
) -> None:
    rule = {"match": "read_*", "over_chars": 300, "head_chars": 150, "tail_chars": 20}
    config = {"pruning": {"tools": [rule]}}
    await guest.app.pool.execute("UPDATE agents SET config = config || $1::jsonb", config)
    await provider.script(_reads())
    await guest.ask(ASKED)
    for number in range(4):
        await guest.ask(f"Something else, number {number}.")
    (text,) = (await guest.one("SELECT shown FROM prune_decisions")).values()
    assert len(text) == 150 + 3 + 20
    await guest.app.pool.execute("UPDATE agents SET config = '{}'")
    await guest.ask("And one more.")
    sent = (await provider.requests())[-1]["body"]["messages"]
    assert text in str([block for message in sent for block in message["content"]]).replace("\\n", "\n")


async def test_tool_result_lost_with_its_process_is_fetched_again(guest: Visit) -> None:
    await guest.say(ASKED)
    claim = await _claimed(guest)
    call = ToolUse(id="toolu_lost", name="read_report", input={})
    await guest.app.stores.turns.record_tool_calls(claim, blocks=[call], tokens=10, calls=[call], spent=())
    await guest.app.stores.turns.postpone(claim, seconds=0, fault=False, notice=None)
    assert await guest.answered()
    assert await guest.one("SELECT state FROM turns") == "answered"
    assert await guest.one("SELECT count(*) FROM artifacts") == 1
    address = guest.app.settings.database_url
    assert address is not None
    connection = await asyncpg.connect(address.get_secret_value(), timeout=60)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close(timeout=30)


async def _retriever(guest: Visit, provider: RunningFake, *wishes: Mapping[str, Any]) -> list[ToolResult]:
    """What the model hears when it reads the report and then recalls."""
    read, calls = _reads()[0], [{"name": RECALL.name, "input": dict(wish)} for wish in wishes]
    match = {"anywhere": "Kept whole as"}
    await provider.script([read, {"match": match, "times": 1, "action": {"tool_use": calls}}])
    await guest.ask(ASKED)
    return (await _results(guest))[1:]


async def test_recall_opens_an_artifact_and_goes_to_the_words_of_its_query(
    guest: Visit, provider: RunningFake
) -> None:
    artifact = artifact_id(REPORT)
    found, later = await _retriever(
        guest,
        provider,
        {"artifact": artifact, "query": "code word"},
        {"artifact": artifact, "offset": 90_000},
    )
    assert SECRET in found.text
    assert later.text.startswith(f"{artifact}, characters 90,000 to ")
    assert await guest.one("SELECT count(*) FROM artifacts") == 1


@pytest.mark.control("S22")
async def test_recall_opens_limited_portions_of_its_own_session(guest: Visit, provider: RunningFake) -> None:
    wish = {"artifact": artifact_id(REPORT)}
    opened = await _retriever(guest, provider, *[wish] * (RECALLS_PER_TURN + 2))
    assert len([result for result in opened if not result.is_error]) == RECALLS_PER_TURN
    stranger = await visit(guest.app)
    call = {"name": RECALL.name, "input": wish}
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [call]}}])
    await stranger.ask("Open it for me.")
    (refused,) = await _results(stranger)
    assert refused.is_error
    assert "has no artifact" in refused.text


@pytest.mark.parametrize(
    ("wish", "words"),
    [({"artifact": "nonsense"}, "is not the id"), ({"query": "report", "offset": 5}, "give its id"),
     ({"artifact": artifact_id(REPORT), "offset": 10**9}, "`offset` is"), ({}, "id of an artifact"),
     ({"artifact": artifact_id(REPORT), "offset": "x"}, "whole number")],
)  # fmt: skip
async def test_recall_of_unknown_artifact_fails_with_advice(
    guest: Visit, provider: RunningFake, wish: dict[str, Any], words: str
) -> None:
    (result,) = await _retriever(guest, provider, wish)
    assert result.is_error
    assert words in result.text


async def test_a_ghost_turn_reads_an_artifact_by_recall_and_only_so_often(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script(_reads())
    await guest.ask(ASKED)
    call = {"name": RECALL.name, "input": {"artifact": artifact_id(REPORT), "query": "code word"}}
    calls = [call] * (RECALLS_PER_TURN + 1)
    await provider.script([{"match": {"kind": "flush"}, "times": 1, "action": {"tool_use": calls}}])
    pressed = JobOrder(kind="flush", key="now", trigger="pressure", payload={"threshold": "pressure"})
    await guest.app.commands._store.request_job(guest.session_id, pressed)
    await guest.run_due_jobs()
    heard = [
        block["content"]
        for request in await provider.requests() if request["kind"] == "flush"
        for block in request["body"]["messages"][-1]["content"] if block["type"] == "tool_result"
    ]  # fmt: skip
    assert [SECRET in str(one) for one in heard] == [True] * RECALLS_PER_TURN + [False]
    assert "the most" in str(heard[-1])
    assert await guest.one("SELECT count(*) FROM turn_steps WHERE tool = 'recall'") == 0


async def _claimed(guest: Visit) -> Claim:
    claim = await guest.app.stores.turns.claim(
        guest.session_id, channel="web", worker_id=guest.app.worker_id, caps=NO_CAPS,
        micro_per_input_token=0.0, micro_output=0.0,
    )  # fmt: skip
    assert claim is not None
    return claim


async def test_keeping_the_same_whole_again_changes_nothing(guest: Visit) -> None:
    accepted = await guest.say("A giant message")
    claim = await _claimed(guest)
    whole = artifact_of("A giant message", len)
    for _ in range(2):
        await guest.app.stores.turns.keep_artifacts(claim, [(accepted.seq, whole)])
    assert await guest.one("SELECT count(*) FROM artifacts") == 1
    assert await guest.app.stores.turns.open_artifact(guest.session_id, whole.id) == "A giant message"


async def test_a_process_that_lost_its_turn_keeps_no_artifact(guest: Visit) -> None:
    accepted = await guest.say("A giant message")
    claim = await _claimed(guest)
    with pytest.raises(LeaseLost):
        await guest.app.stores.turns.keep_artifacts(
            replace(claim, epoch=claim.epoch - 1), [(accepted.seq, artifact_of("A giant message", len))]
        )
    assert await guest.one("SELECT count(*) FROM artifacts") == 0


async def test_partly_fitting_message_is_stored_whole_and_can_be_opened(
    guest: Visit, provider: RunningFake
) -> None:
    numbers = " ".join(str(number * 7_919) for number in range(1_000))[:7_900]
    giant = f"{numbers[:4_000]} {SECRET} {numbers[4_000:7_000]}"
    await provider.set_window("claude-sonnet-5-5", 8_000)
    call = {"name": RECALL.name, "input": {"artifact": artifact_id(giant), "query": "code word"}}
    await provider.script(
        [{"match": {"anywhere": "Kept whole as"}, "times": 1, "action": {"tool_use": [call]}}]
    )
    assert await guest.ask(giant)
    await provider.set_window("claude-sonnet-5-5", 1_000_000)
    assert await guest.one("SELECT body FROM artifacts") == giant
    assert await guest.one("SELECT a.seq = e.seq FROM artifacts a, entries e WHERE e.author = 'person'")
    assert SECRET in (await _results(guest))[0].text
    chats = [r for r in await provider.requests() if r["kind"] == "chat" and r["status"] == 200]
    assert SECRET not in str(chats[0]["body"]["messages"])
    stored = await PostgresReplays(guest.app.pool).load_turn(guest.session_id, 1)
    assert stored is not None
    assert stored.audit.recipe["fit"]
    card = await guest.app.models.load_card(guest.app.models.chat)
    again = build_request_body(
        rebuild_request(stored, count=VocabularyCounter().count_tokens), card, chats[-1]["body"]["model"]
    )
    assert again["messages"] == chats[-1]["body"]["messages"]


@dataclass(frozen=True)
class ReadPage(ReadReport):
    """Says something else in each turn, too little to be spilled."""

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        return "\n".join(f"Page {context.turn}, line {number}: quiet all day." for number in range(300))


async def test_claude_code_clears_old_results_above_its_limit_and_needs_no_summary(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        preset="claude-code", context_window=40_000, max_output=1_000, cap_total_per_day_usd="100",
    )  # fmt: skip
    page = [{"name": "read_report", "input": {}}]
    async with running_app(settings, tools=[ReadPage()]) as app:
        guest = await visit(app)
        for number in range(14):
            await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": page}}])
            await guest.ask(f"Read page {number}.")
            await guest.run_due_jobs()
        assert await guest.one("SELECT count(*) FROM prune_decisions WHERE form = 'clear'") >= 3
        assert await guest.one("SELECT count(*) FROM artifacts") == 0
        assert await guest.one("SELECT count(*) FROM compactions") == 0
        assert await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'") == 0
        batches = await guest.one("SELECT count(DISTINCT turn_no) FROM prune_decisions")
        assert batches <= 4
        over = "SELECT count(*) FROM turn_context_audit WHERE reported_input_tokens > hard_limit"
        assert await guest.one(over) == 0
    assert {record["status"] for record in await provider.requests()} == {200}


@dataclass(frozen=True)
class ReadPages(ReadReport):
    """One long page, and then short ones."""

    read: list[str] = field(default_factory=list)

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        self.read.append(context.call_id)
        return LONG_PAGE if len(self.read) == 1 else f"Page {len(self.read)} is empty."


LONG_PAGE = "\n".join(f"Line {number}: quiet all day." for number in range(900))


async def test_tool_result_is_cleared_within_its_turn_when_cheaper(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        preset="steady", cap_total_per_day_usd="100",
    )  # fmt: skip
    page = [{"name": "read_report", "input": {}}]
    async with running_app(settings, tools=[ReadPages()]) as app:
        guest = await visit(app)
        await app.pool.execute(
            """UPDATE agents SET config = config || '{"context": {"prune_clear_after_assistants": 3}}'"""
        )
        await provider.script([{"match": {"kind": "chat"}, "times": 7, "action": {"tool_use": page}}])
        await guest.ask("Read all pages.")
        chats = [r for r in await provider.requests() if r["kind"] == "chat"]
        whole = ["Line 899" in str(chat["body"]["messages"]) for chat in chats]
        assert whole == [False, True, True, True, False, False, False, False]
        assert await guest.one("SELECT array_agg(form || turn_no) FROM prune_decisions") == ["clear1"]
        assert LONG_PAGE in [result.text for result in await _results(guest)]
        stored = await PostgresReplays(app.pool).load_turn(guest.session_id, 1)
        assert stored is not None
        card = await app.models.load_card(app.models.chat)
        request = rebuild_request(stored, count=VocabularyCounter().count_tokens)
        again = build_request_body(request, card, chats[-1]["body"]["model"])
        assert again["messages"] == chats[-1]["body"]["messages"]
    assert {record["status"] for record in await provider.requests()} == {200}
    assert not await provider.warnings()
