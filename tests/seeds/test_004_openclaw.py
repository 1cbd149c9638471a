"""Document 004: how OpenClaw keeps its context, and what GoClaw adds; the presets `openclaw` and `goclaw`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.files import workspace_files
from shared.adapters.files.workspace_files import WorkspaceFiles, read_workspace
from shared.adapters.postgres.people.agents import PostgresAgents
from shared.config.settings import load_settings
from shared.core.compaction.jobs import due_threshold
from shared.core.compaction.plan import (
    CompactionPlan,
    find_oversized,
    plan_compaction,
    portions,
    source_tokens,
)
from shared.core.context.build_context import build_context, select
from shared.core.context.prompts import default_layers
from shared.core.presets.catalog import preset
from shared.core.session.budget import budget_for, pressure
from shared.core.session.summary import render_summary
from shared.core.values.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, repair, text_of
from shared.core.values.tokens import estimate_blocks, estimate_by_script, estimate_messages
from shared.ports import ModelRequest
from tests.kit.app_driver import Visit
from tests.kit.builders import entry, exchange, exchanges, tool_turn, view, words
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.scripted_model import ScriptedModel, plan_of, split_in, write
from tests.seeds.lines import seed
from tests.seeds.scenes import (
    FACTS,
    FILLER,
    House,
    Shelf,
    command,
    first_words,
    house_on,
    newest,
    newest_words,
    read_shelf,
    requests,
    said,
    words_of,
)

OPENCLAW, GOCLAW = preset("openclaw"), preset("goclaw")
SMALL = {"preset": "openclaw", "context_window": 12_000, "max_output": 1_000}
TOO_LONG = {"status": 400, "message": "prompt is too long: 12500 tokens > 12000 maximum"}
LOCAL = "qwen2.5:7b"


# ---- what is sent with every turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation with a tool that was compacted once, and the requests around that."""

    before: Any
    """The last request before the compaction."""
    after: Any
    """The first request after it."""
    base: int
    asked: int
    link: dict[str, Any]
    first_kept: int
    """The lowest seq that is still live."""
    thought: str
    """Words of the model's thinking as they are stored."""
    statuses: set[int]


@pytest.fixture(scope="module")
async def talk(module_database_url: str, module_redis_url: str, provider: RunningFake) -> Talk:
    await provider.reset()
    house = house_on(module_database_url, module_redis_url, provider)
    async with house(Shelf(400), preset="openclaw", context_window=40_000, max_output=1_000) as guest:
        for fact in FACTS[1:]:
            await guest.ask(fact)
        thinks = {"thinking": "Perhaps they want tea.", "text": "Would you like tea?"}
        await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": thinks}])
        await guest.ask("I am thirsty.")
        for number in range(7):
            await guest.ask(f"Message {number}. {FILLER}")
        await read_shelf(guest, provider, "S-1")
        before = await newest(provider)
        await command(guest, "compact", "--force")
        await guest.ask("And now?")
        base, link = await base_and_link(guest)
        return Talk(
            before=before,
            after=await newest(provider),
            base=base,
            asked=12,
            link=link,
            first_kept=await guest.one(
                "SELECT min(seq) FROM turn_entries WHERE session_id = $1 AND turn_no > $2",
                guest.session_id,
                base,
            ),
            thought=await guest.one(
                "SELECT string_agg(blocks::text, ' ') FROM entries WHERE blocks::text LIKE '%want tea%'"
            ),
            statuses={record["status"] for record in await provider.requests()},
        )


async def base_and_link(guest: Visit) -> tuple[int, dict[str, Any]]:
    """The module's scenes share a database."""
    base = await guest.one("SELECT base_turn FROM sessions WHERE id = $1", guest.session_id)
    sql = "SELECT * FROM compactions WHERE active AND session_id = $1"
    link = await guest.app.pool.fetchrow(sql, guest.session_id)
    assert link is not None
    return base, dict(link)


@seed("004", 5, 24, 28, 231, 252, 355)
def test_the_whole_history_is_sent_in_its_order(talk: Talk) -> None:
    people = [words_of(m) for m in talk.before["body"]["messages"] if m["role"] == "user"]
    order = [FACTS[1], FACTS[2], "I am thirsty.", *(f"Message {number}." for number in range(7))]
    found = [next(at for at, text in enumerate(people) if one in text) for one in order]
    assert found == list(range(len(order)))


@seed("004", 5)
def test_there_is_no_window_of_the_last_messages() -> None:
    state = view(exchanges(400, tokens=200))
    assert select(state, OPENCLAW, channel="telegram").view is state


@seed("004", 24, 78, 79, 355)
def test_after_a_compaction_everything_since_it_is_sent(talk: Talk) -> None:
    """The log is in Postgres instead of a file of lines."""
    assert talk.base >= 5
    people = [m for m in talk.after["body"]["messages"] if m["role"] == "user" and words_of(m).strip()]
    assert len(people) == talk.asked - talk.base
    live = [talk.after["body"]["messages"][0]["content"][-1], *talk.after["body"]["messages"][1:]]
    assert FACTS[1] not in json.dumps(live)


@seed("004", 20, 21, 22)
def test_model_written_summary_is_in_first_user_message(talk: Talk) -> None:
    assert talk.link["model"]
    assert talk.after["body"]["messages"][0]["role"] == "user"
    assert first_words(talk.after).startswith("<conversation_summary through_seq=")
    assert "PX-4471" in first_words(talk.after)


@seed("004", 30)
def test_the_newest_message_stands_last(talk: Talk) -> None:
    assert talk.after["body"]["messages"][-1]["role"] == "user"
    assert newest_words(talk.after).startswith("And now?")


@seed("004", 25, 41, 42, 43, 51, 52, 53, 54, 62, 63, 64, 65)
def test_words_calls_and_results_are_blocks_of_their_messages(talk: Talk) -> None:
    *_, asked, call, result = talk.before["body"]["messages"]
    assert (asked["role"], asked["content"][0]["type"]) == ("user", "text")
    (use,) = [block for block in call["content"] if block["type"] == "tool_use"]
    assert (call["role"], use["name"], use["input"]) == ("assistant", "read_shelf", {"shelf": "S-1"})
    (block,) = [block for block in result["content"] if block["type"] == "tool_result"]
    assert result["role"] == "user"
    assert block["tool_use_id"] == use["id"]
    assert "Shelf S-1 holds a book." in json.dumps(block["content"])


@seed("004", 26, 27)
def test_calls_and_results_of_earlier_turns_are_part_of_the_history(talk: Talk) -> None:
    told = said(talk.after)
    assert '"tool_use"' in told
    assert "Shelf S-1 holds a book." in told


@seed("004", 25)
def test_pictures_are_part_of_the_history() -> None:
    picture = Image(attachment_id=7, mime="image/png", description="a red boat")
    log = [entry(1, 1, picture, "What is this?"), entry(2, 1, "A boat.", author="assistant", step=1)]
    made = build_context(
        view([*log, entry(3, 2, "Red?")], open_turn=2), policy=OPENCLAW, system=default_layers(), count=words
    )
    assert made.messages[0].blocks == (picture, Text(text="What is this?"))


@seed("004", 58)
def test_thinking_is_stored_and_not_sent_again(talk: Talk) -> None:
    assert "Perhaps they want tea." in talk.thought
    assert "Would you like tea?" in said(talk.before)
    assert "Perhaps they want tea." not in json.dumps(talk.before["body"])


@seed("004", 58)
def test_only_thinking_of_the_open_turn_is_sent() -> None:
    """Between its tool rounds the provider wants it back."""
    thought = Thinking(text="hm", signature="s")
    asks = ToolUse(id="a", name="f", input={})
    log = [entry(1, 1, "hi"), entry(2, 1, thought, "ho", author="assistant", step=1), entry(3, 2, "now")]
    log += [
        entry(4, 2, thought, asks, author="assistant", step=1),
        entry(5, 2, ToolResult(tool_use_id="a", text="b"), author="tool", step=2),
    ]
    made = build_context(view(log, open_turn=2), policy=OPENCLAW, system=default_layers(), count=words)
    sent = [thought in message.blocks for message in made.messages]
    assert sent == [False, False, False, True, False]


@seed("004", 14, 16)
def test_the_system_prompt_has_identity_and_rules_and_the_tools_are_defined(talk: Talk) -> None:
    system = json.dumps(talk.before["body"]["system"])
    assert "You are Evertalk" in system
    assert "Never repeat passwords, keys or other secrets." in system
    tools = {tool["name"]: tool for tool in talk.before["body"]["tools"]}
    assert tools["read_shelf"]["description"] == "Reads a shelf."
    assert tools["read_shelf"]["input_schema"]["required"] == ["shelf"]


@seed("004", 17)
async def test_clock_and_name_of_the_person_are_in_the_request(start: House, provider: RunningFake) -> None:
    """Corrected: the clock stands behind the newest words, so that the provider's cache holds."""
    async with start(preset="openclaw") as guest:
        await guest.app.pool.execute("UPDATE contacts SET display_name = 'Grace' WHERE true")
        await guest.ask("Hello")
        sent = await newest(provider)
        year = str((await guest.one("SELECT now()")).year)
        assert f", {year}-" in newest_words(sent).split("<runtime_facts>")[1]
        assert "Grace" in json.dumps(sent["body"]["system"])


@seed("004", 84)
def test_a_history_is_put_right_before_it_is_sent() -> None:
    log = (
        Message(role="assistant", blocks=(Text(text="I begin."),)),
        Message(role="user", blocks=(Text(text="one"),)),
        Message(role="user", blocks=(Text(text="two"),)),
        Message(role="assistant", blocks=(ToolUse(id="a", name="f", input={}),)),
        Message(role="user", blocks=(ToolResult(tool_use_id="other", text="stray"), Text(text="three"))),
    )
    made = repair(log)
    assert [message.role for message in made] == ["user", "assistant", "user", "assistant", "user"]
    answered = [b.tool_use_id for m in made for b in m.blocks if isinstance(b, ToolResult)]
    assert answered == ["a"], "a call has its answer at once, and a stray answer goes"
    assert text_of(made[2].blocks).split() == ["one", "two"]


# ---- turns of history by channel


@seed("004", 89, 90, 204, 210, 218, 219, 223, 256)
def test_a_channel_may_be_limited_to_its_newest_turns() -> None:
    limited = OPENCLAW.with_settings(history_turns=(("telegram", 50),))
    state = view([*exchanges(80, tokens=9_000), entry(999, 81, "now")], open_turn=81)
    assert len(select(state, limited, channel="telegram").view.entries) == 101, "turns, not tokens"
    assert select(state, limited, channel="web").view is state


@seed("004", 204, 210)
async def test_the_limit_is_a_setting_by_channel(start: House, provider: RunningFake) -> None:
    async with start(preset="openclaw", history_turns="telegram=1,web=2") as guest:
        for number in range(5):
            await guest.ask(f"Message {number}.")
        sent = (await newest(provider))["body"]["messages"]
        assert len(sent) == 5
        assert words_of(sent[0]).startswith("Message 2.")


# ---- the system prompt and its files


@pytest.fixture
async def ada_in_folder(start: House, tmp_path: Path) -> AsyncIterator[tuple[Visit, Path]]:
    """A visitor of an agent with a folder."""
    place = tmp_path / "workspaces" / "ada"
    place.mkdir(parents=True)
    async with start(preset="openclaw", data_dir=tmp_path) as guest:
        agents = PostgresAgents(guest.app.pool)
        row = await agents.find("default")
        assert row is not None
        assert await agents.change("default", {"workspace": "ada"}, seen=row.version, by="test")
        yield guest, place


async def system_of(guest: Visit, provider: RunningFake) -> str:
    await guest.ask("Hello")
    return json.dumps((await newest(provider))["body"]["system"], ensure_ascii=False)


@seed("004", 15, 95, 96, 101, 233, 253, 345, 346, 348, 356, 365)
async def test_the_prompt_is_rebuilt_each_turn_from_the_agents_files(
    ada_in_folder: tuple[Visit, Path], provider: RunningFake
) -> None:
    guest, place = ada_in_folder
    (place / "SOUL.md").write_text("I am patient and dry.")
    (place / "AGENTS.md").write_text("Answer in one sentence.")
    told = await system_of(guest, provider)
    assert "[SOUL.md]\\nI am patient and dry." in told
    assert "[AGENTS.md]\\nAnswer in one sentence." in told
    (place / "SOUL.md").write_text("I am loud.")
    async with asyncio.timeout(60):
        while "I am loud." not in await system_of(guest, provider):
            await asyncio.sleep(0.1)
    assert "patient" not in await system_of(guest, provider)
    assert len((await newest(provider))["body"]["messages"]) > 3, "history goes on under the new prompt"


@seed("004", 347)
async def test_the_provider_is_asked_to_cache_the_system_prompt(
    ada_in_folder: tuple[Visit, Path], provider: RunningFake
) -> None:
    guest, place = ada_in_folder
    (place / "SOUL.md").write_text("I am patient and dry.")
    await system_of(guest, provider)
    system = (await newest(provider))["body"]["system"]
    assert system[-1]["cache_control"]["type"] == "ephemeral"
    await guest.ask("Again?")
    assert await guest.one("SELECT max(cache_read_tokens) FROM usage") > 0


@seed("004", 319, 324, 325, 326)
@pytest.mark.parametrize(
    "name",
    [
        "AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md", "BOOTSTRAP.md",
        "MEMORY.md", "memory/2026-11-20.md",
    ],
)  # fmt: skip
def test_every_file_of_a_folder_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / name).write_text(f"words of {name}")
    (tmp_path / "README.md").write_text("not for the model")
    assert read_workspace(tmp_path).files == ((name, f"words of {name}"),)


async def until(files: WorkspaceFiles, text: str) -> None:
    async with asyncio.timeout(20):
        while files.load("ada").text("SOUL.md") != text:
            await asyncio.sleep(0.02)


@pytest.fixture
def soul(tmp_path: Path) -> Path:
    path = tmp_path / "workspaces" / "ada" / "SOUL.md"
    path.parent.mkdir(parents=True)
    path.write_text("one")
    return path


@seed("004", 313, 314, 315, 340, 364)
async def test_a_change_is_seen_by_the_watcher_alone(soul: Path) -> None:
    files = WorkspaceFiles(soul.parents[1], poll_seconds=0)
    await until(files, "one")
    soul.write_text("two")
    await until(files, "two")
    await files.close()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher sees nothing, as on file systems of a network."""

    async def never(self: WorkspaceFiles) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(WorkspaceFiles, "_watch", never)


@seed("004", 313, 314, 315, 316, 341, 342, 364)
async def test_what_the_watcher_misses_the_poll_finds(soul: Path, blind: None) -> None:
    files = WorkspaceFiles(soul.parents[1], poll_seconds=0.05)
    await until(files, "one")
    soul.write_text("two")
    await until(files, "two")
    await files.close()


@seed("004", 332, 337)
async def test_poll_interval_is_60_seconds_and_0_disables_it(soul: Path, blind: None) -> None:
    assert load_settings().workspace_poll_seconds == 60
    assert load_settings(workspace_poll_seconds=5).workspace_poll_seconds == 5
    files = WorkspaceFiles(soul.parents[1], poll_seconds=0)
    await until(files, "one")
    soul.write_text("two")
    await asyncio.sleep(0.3)
    assert files.load("ada").text("SOUL.md") == "one"
    await files.close()


@seed("004", 306, 364)
async def test_files_that_have_not_changed_are_not_read_again(
    soul: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    usual = workspace_files.read_workspace

    def counted(folder: Path, *more: Any, **named: Any) -> Any:
        read.append(folder)
        return usual(folder, *more, **named)

    monkeypatch.setattr(workspace_files, "read_workspace", counted)
    files = WorkspaceFiles(soul.parents[1], poll_seconds=0)
    for _ in range(50):
        assert files.load("ada").text("SOUL.md") == "one"
    assert len(read) == 1
    await files.close()


# ---- counting, overflow, compaction


@seed("004", 188, 232, 254, 357)
def test_the_estimate_of_a_history_is_the_sum_of_its_messages() -> None:
    log = exchanges(9)
    messages = [e.message for e in log]
    parts = sum(estimate_blocks(e.blocks, estimate_by_script) for e in log)
    assert estimate_messages(messages, estimate_by_script) == parts > 0


@seed("004", 232, 357)
async def test_before_each_call_it_is_known_how_near_the_limit_is(start: House) -> None:
    async with start(**SMALL) as guest:
        for number in range(3):
            await guest.ask(f"Message {number}. {FILLER}")
        rows = await guest.app.pool.fetch("SELECT * FROM turn_context_audit ORDER BY id")
        for row in rows[1:]:
            assert row["estimated_input_tokens_before"] == pytest.approx(
                row["reported_input_tokens"], rel=0.1
            )
            assert row["estimated_input_tokens_before"] < row["input_budget"]


@seed("004", 119, 198)
@pytest.mark.parametrize(("tokens", "due"), [(191_999, False), (192_000, False), (192_001, True)])
def test_compaction_is_due_at_96_percent_before_window_is_full(tokens: int, due: bool) -> None:
    made = budget_for(OPENCLAW, 200_000, 64_000, 1_000)
    assert (pressure(made, tokens) in ("compact", "overflow")) is due
    assert made.compact_at < made.window


@seed("004", 196, 197)
def test_estimates_have_a_margin_of_a_fifth_where_a_summariser_must_fit() -> None:
    log = exchanges(40, tokens=2_000)
    size = source_tokens(log)
    for policy, parts in ((OPENCLAW, 2), (OPENCLAW.with_settings(summary_margin=1.0), 1)):
        made = portions(log, whole=size, limit=24_000, ratio=policy.writing.summary_margin, even=True)
        assert (len(made) > 1) is (parts > 1)
    assert OPENCLAW.writing.summary_margin == 1.2


@seed("004", 106, 112, 122, 123, 182, 237)
async def test_window_refusal_is_recognised_and_the_message_sent_again(
    start: House, provider: RunningFake
) -> None:
    async with start(**SMALL) as guest:
        for number in range(6):
            await guest.ask(f"Message {number}. {FILLER}")
        before = len(await requests(provider))
        await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": TOO_LONG}])
        assert await guest.ask("Are you still there?")
        refused, again = (await requests(provider))[before:]
        assert (refused["status"], again["status"]) == (400, 200)
        assert again["input_tokens"] < refused["input_tokens"]
        assert newest_words(again) == newest_words(refused)
        assert await guest.one("SELECT count(*) FROM entries WHERE author = 'person'") == 7


@seed("004", 112, 125, 238, 255, 358)
async def test_overflow_triggers_a_compaction(start: House, provider: RunningFake) -> None:
    """Corrected: the answer does not wait for it; a digest stands in until the summary is written."""
    async with start(**SMALL) as guest:
        for number in range(6):
            await guest.ask(f"Message {number}. {FILLER}")
        await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": TOO_LONG}])
        await guest.ask("Are you still there?")
        assert await guest.one("SELECT trigger FROM jobs WHERE kind = 'compact'") == "overflow"
        await guest.run_due_jobs()
        assert await guest.one("SELECT kind FROM compactions WHERE active") == "summary"
        await guest.ask("And now?")
        assert first_words(await newest(provider)).startswith("<conversation_summary")


@seed("004", 106)
async def test_what_fits_is_answered_without_any_compaction(start: House, provider: RunningFake) -> None:
    async with start(preset="openclaw") as guest:
        for number in range(6):
            await guest.ask(f"Message {number}. {FILLER}")
        assert await guest.one("SELECT count(*) FROM jobs") == 0
        assert {record["kind"] for record in await provider.requests()} == {"chat"}


@seed("004", 137, 141, 156, 359)
def test_a_long_history_is_cut_into_portions_of_about_the_same_size() -> None:
    log = exchanges(60, tokens=900)
    made = portions(log, whole=24_000, limit=24_000, even=True)
    sizes = [source_tokens(portion) for portion in made]
    assert len(made) > 1
    assert max(sizes) <= 1.1 * min(sizes)
    assert [e for portion in made for e in portion] == log


@seed("004", 155)
def test_message_list_is_counted_as_it_will_be_shown() -> None:
    log = [*exchanges(3, tokens=100), *tool_turn(9, "word " * 9_000, seq=90)]
    assert source_tokens(log[:6]) == 600
    assert source_tokens(log) < 600 + 1_000, "a long result is shown by head and tail"


def patch(*facts: tuple[int, str]) -> str:
    add = [{"kind": "fact", "text": text, "sources": [seq], "author": "person"} for seq, text in facts]
    return json.dumps({"narrative": "They talk about tea.", "add": add, "replace": [], "close": []})


def of_portion(request: ModelRequest) -> str:
    """A fact for each question that is read."""
    text = text_of(request.messages[0].blocks)
    if "joined_record" in text:
        return json.dumps({"narrative": "They talk about tea again and again.", "add": []})
    found = re.findall(r"\[#(\d+)\] person: (question \d+ about tea)", text)
    return patch(*((int(seq), f"There was {what}.") for seq, what in found))


def about_tea(count: int) -> list[Any]:
    return [e for n in range(1, count + 1) for e in exchange(n, f"question {n} about tea", "tea is good")]


@seed("004", 144, 145, 149, 150, 157, 359)
async def test_each_portion_is_summarised_and_the_model_merges_the_parts() -> None:
    assert OPENCLAW.writing.summary_merged
    model = ScriptedModel(say=of_portion)
    made = await write(model, split_in(plan_of(about_tea(6), merged=True), 4, 8))
    assert len(model.asked) == 4
    assert "joined_record" in model.words[-1]
    assert made.ledger.narrative == "They talk about tea again and again."
    for number in range(1, 7):
        assert f"There was question {number} about tea." in render_summary(made.ledger)


@seed("004", 149)
async def test_a_single_portion_is_merged_with_nothing() -> None:
    model = ScriptedModel(say=of_portion)
    await write(model, plan_of(about_tea(3), merged=True))
    assert len(model.asked) == 1


@seed("004", 157)
async def test_a_merge_that_fails_is_done_by_code() -> None:
    def say(request: ModelRequest) -> str:
        return "no" if "joined_record" in text_of(request.messages[0].blocks) else of_portion(request)

    made = await write(ScriptedModel(say=say), split_in(plan_of(about_tea(6), merged=True), 4, 8))
    assert made.kind == "summary"
    assert "question 1 about tea" in render_summary(made.ledger)
    assert "question 6 about tea" in render_summary(made.ledger)


@seed("004", 158)
async def test_a_message_that_is_too_large_to_be_read_is_named() -> None:
    giant = exchange(2, "Here is my novel about Tromsø: " + "word " * 5_000, "Thank you.")
    log = [*about_tea(1), *giant]
    assert find_oversized(log, 8_192) == {giant[0].seq}
    model = ScriptedModel(say=of_portion, window=8_192)
    made = await write(model, plan_of(log, window=8_192))
    assert "word word word word word word word word" not in model.words[0]
    assert 'it begins: "Here is my novel about Tromsø:' in model.words[0]
    assert "novel about Tromsø" in render_summary(made.ledger)


@seed("004", 162, 163, 164, 165, 166, 360)
@pytest.mark.parametrize("turns", [60, 96, 192])
def test_afterwards_history_takes_half_of_the_window_at_most(turns: int) -> None:
    made = plan_compaction(
        view(exchanges(turns, tokens=96_000 // turns)),
        budget=budget_for(OPENCLAW, 200_000, 64_000, 1_000),
        policy=OPENCLAW,
        now_tokens=193_000,
    )
    assert isinstance(made, CompactionPlan)
    assert made.expected_after - 1_000 <= 0.5 * 192_000


@seed("004", 172, 173, 174, 175, 176, 177, 239)
def test_a_compaction_leaves_a_record_of_itself(talk: Talk) -> None:
    link = talk.link
    assert link["kind"] == "summary"
    assert link["public_id"]
    assert link["created_at"]
    assert "PX-4471" in link["summary_text"]
    assert link["through_seq"] + 1 == talk.first_kept
    assert link["tokens_before"] == pytest.approx(talk.before["input_tokens"], rel=0.05)


@seed("004", 182)
def test_nothing_of_all_that_was_refused(talk: Talk) -> None:
    assert talk.statuses == {200}


# ---- GoClaw


@seed("004", 243)
@pytest.mark.parametrize(
    ("tokens", "mark"),
    [
        (99_999, None),
        (100_000, "at_50"),
        (149_999, "at_50"),
        (150_000, "at_75"),
        (179_999, "at_75"),
        (180_000, "at_90"),
    ],
)
def test_goclaw_saves_memory_at_50_75_and_90_percent(tokens: int, mark: str | None) -> None:
    made = budget_for(GOCLAW, 200_000, 64_000, 1_000)
    state = view(exchanges(40, tokens=2_000))
    assert due_threshold(state, budget=made, policy=GOCLAW, context_tokens=tokens) == mark


@seed("004", 243)
async def test_at_a_mark_the_assistant_is_asked_to_save(start: House, provider: RunningFake) -> None:
    async with start(preset="goclaw", context_window=12_000, max_output=1_000) as guest:
        while not await guest.one("SELECT count(*) FROM jobs WHERE trigger = 'at_50'"):
            await guest.ask(f"{FACTS[1]} {FILLER}")
        await guest.run_due_jobs()
        assert "save_memory" in newest_words((await requests(provider, "flush"))[0])
        assert await guest.one("SELECT threshold FROM flushes") == "at_50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Locally:
    """A conversation of `goclaw` whose summaries are written by a model next door."""

    checkpoints: list[dict[str, Any]]
    link: dict[str, Any]
    asked: list[Any]
    """The requests for checkpoint and summary."""
    chats: set[str]
    """Models that answered."""
    costs: set[int]
    """Of the calls of the model next door."""


@pytest.fixture(scope="module")
async def locally(
    module_database_url: str,
    module_redis_url: str,
    provider: RunningFake,
    tmp_path_factory: pytest.TempPathFactory,
) -> Locally:
    path = tmp_path_factory.mktemp("models") / "models.json"
    free = {"input": 0.0, "output": 0.0, "cache_read": 0.0, "dated": "2026-11"}
    served = {"name": LOCAL, "base_url": provider.base_url, "key_env": "LOCAL_KEY", "window": 32_000}
    path.write_text(json.dumps([{**served, "prices": free}]))
    await provider.reset()
    house = house_on(module_database_url, module_redis_url, provider)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOCAL_KEY", "none-needed")
        await provider.set_window(LOCAL, 32_000)
        settings = {"preset": "goclaw", "context_window": 12_000, "max_output": 1_000}
        async with house(**settings, models_file=str(path), summary_model=LOCAL) as guest:
            while not await guest.one("SELECT count(*) FROM jobs WHERE trigger = 'at_50'"):
                await guest.ask(f"{FACTS[1]} {FILLER}")
            await guest.run_due_jobs()
            checkpoints = await guest.app.pool.fetch("SELECT * FROM checkpoints ORDER BY id")
            for number in range(3):
                await guest.ask(f"Message {number}. {FILLER}")
            await command(guest, "compact", "--force")
            _, link = await base_and_link(guest)
            return Locally(
                checkpoints=[dict(row) for row in checkpoints],
                link=link,
                asked=await requests(provider, "summary"),
                chats={record["model"] for record in await requests(provider)},
                costs=set(await guest.one("SELECT array_agg(cost_micro) FROM usage WHERE model = $1", LOCAL)),
            )


@seed("004", 244)
def test_summaries_roll_on_in_checkpoints_before_they_are_needed(locally: Locally) -> None:
    (early,) = locally.checkpoints
    assert early["created_at"] < locally.link["created_at"]
    assert {item["id"] for item in early["ledger"]["items"]} <= {
        item["id"] for item in locally.link["ledger"]["items"]
    }, "the summary goes on from it"
    assert "PX-4471" in json.dumps(early["ledger"])


@seed("004", 276, 284, 285, 293, 294, 295, 363)
def test_checkpoints_and_summaries_are_written_by_the_local_model(locally: Locally) -> None:
    assert len(locally.asked) >= 2
    assert {record["model"] for record in locally.asked} == {LOCAL}
    assert locally.link["model"] == LOCAL
    assert locally.checkpoints[0]["model"] == LOCAL


@seed("004", 300)
def test_the_chat_model_writes_none_of_them(locally: Locally) -> None:
    assert LOCAL not in locally.chats


@seed("004", 301, 363)
def test_a_local_model_costs_nothing(locally: Locally) -> None:
    assert locally.costs == {0}


@seed("004", 296)
async def test_when_the_small_model_cannot_the_main_one_writes(start: House, provider: RunningFake) -> None:
    """Corrected: where no model is named, the provider's cheap one is asked first, as in every preset."""
    async with start(preset="goclaw", context_window=12_000, max_output=1_000) as guest:
        for number in range(7):
            await guest.ask(f"{FACTS[1]} Message {number}. {FILLER}")
        cheap, main = guest.app.models.summary, guest.app.models.chat
        unusable = {"match": {"kind": "summary", "model": cheap}, "times": -1, "action": {"prose": True}}
        await provider.script([unusable])
        await command(guest, "compact", "--force")
        assert await guest.one("SELECT kind FROM compactions WHERE active") == "summary"
        assert await guest.one("SELECT model FROM compactions WHERE active") == main
