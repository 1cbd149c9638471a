"""Document 003, Arawn: a context tracker, a compactor and commands everywhere, under the preset `arawn`.

Its terminal client is the widget and the shell here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, expect

from shared.adapters.models.catalog import build_card, read_entries
from shared.cli.command import CommandOutput, run_command
from shared.core.compaction.jobs import next_job
from shared.core.compaction.plan import CompactionPlan, plan_compaction
from shared.core.context.overrides import agent_policy
from shared.core.presets.catalog import preset
from shared.core.session.budget import Status, budget_for, gauge, pressure
from tests.kit.app_driver import Visit, visit, working
from tests.kit.builders import entry, exchanges, view
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.web.callers import bearer
from tests.kit.web.fixtures import Frame
from tests.kit.web.rest_calls import events_of
from tests.seeds.lines import seed
from tests.seeds.scenes import (
    FACTS,
    FILLER,
    Front,
    House,
    Shelf,
    command,
    first_words,
    house_on,
    in_front_of,
    newest,
    requests,
    said,
)

ARAWN = preset("arawn")
BUDGET = budget_for(ARAWN, 200_000, 8_192, 1_000)
SMALL = {"preset": "arawn", "context_window": 12_000, "max_output": 1_000}
EVENTS = {"Accept": "text/event-stream"}


async def filled(who: Visit | Front, turns: int = 6) -> None:
    for number in range(turns):
        await who.ask(f"Message {number} about the piano. {FILLER}")


# ---- the tracker


@seed("003", 39, 127, 131, 133, 141, 142, 147, 148, 149, 311, 313)
@pytest.mark.parametrize(
    ("used", "status"),
    [
        (0, "ok"),
        (139_999, "ok"),
        (140_000, "warning"),
        (179_999, "warning"),
        (180_000, "critical"),
        (190_000, "critical"),
    ],
)
def test_the_status_turns_at_70_and_90_percent_of_the_models_window(used: int, status: Status) -> None:
    shown = gauge(BUDGET, used)
    assert (shown.status, shown.limit, shown.percent) == (status, 200_000, round(used / 2_000, 1))


@seed("003", 32, 39, 350, 351)
@pytest.mark.parametrize(
    ("used", "status"), [(99_999, "ok"), (100_000, "warning"), (119_999, "warning"), (120_000, "critical")]
)
def test_both_thresholds_can_be_configured(used: int, status: Status) -> None:
    own = agent_policy(ARAWN, {"context": {"warning_at": 0.5, "critical_at": 0.6}})
    assert gauge(budget_for(own, 200_000, 8_192, 1_000), used).status == status


@seed("003", 33, 40, 133, 143)
@pytest.mark.parametrize(("used", "due"), [(179_999, False), (180_000, True), (180_001, True)])
def test_a_compaction_is_due_when_the_context_is_critical(used: int, due: bool) -> None:
    assert (pressure(BUDGET, used) == "compact") is due
    state = view(exchanges(40, tokens=2_250), flushed_turn=40)
    wish = next_job(state, budget=BUDGET, policy=ARAWN, context_tokens=used)
    assert (wish is not None and wish.kind == "compact") is due


@seed("003", 138, 153, 160, 163, 276, 307, 308)
@pytest.mark.parametrize(("name", "limit"), [("claude-sonnet", 200_000), ("llama-70b", 32_000)])
def test_a_models_limit_comes_from_the_operators_models_file(tmp_path: Path, name: str, limit: int) -> None:
    path = tmp_path / "models.json"
    path.write_text(
        json.dumps([{"name": "claude-sonnet", "window": 200_000}, {"name": "llama-70b", "window": 32_000}])
    )
    card = next(build_card(entry) for entry in read_entries(path) if entry.name == name)
    made = budget_for(ARAWN, card.window, card.max_output, 1_000)
    assert gauge(made, limit // 2).limit == limit
    assert gauge(made, limit // 2).percent == 50.0


@seed("003", 276, 308)
async def test_the_limit_follows_the_model_that_answers(start: House, tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text(json.dumps([{"name": "claude-haiku-4-5", "window": 64_000}]))
    async with start(preset="arawn", models_file=str(path)) as guest:
        limits = []
        for model in ("claude-sonnet-5-5", "claude-haiku-4-5"):
            await guest.app.pool.execute("UPDATE agents SET config = $1", {"model": model})
            await guest.ask("Hello")
            shown = await guest.app.sessions.measure_context(guest.session_id)
            assert shown is not None
            limits.append(shown.limit)
        assert limits == [1_000_000, 64_000]


@seed("003", 129, 140, 339)
async def test_the_number_moves_with_every_turn(start: House, provider: RunningFake) -> None:
    async with start(preset="arawn") as guest:
        seen = []
        for number in range(3):
            await guest.ask(f"Message {number}. {FILLER}")
            shown = await guest.app.sessions.measure_context(guest.session_id)
            assert shown is not None
            seen.append(shown.used)
            last = await newest(provider)
            assert shown.used == pytest.approx(last["input_tokens"], rel=0.05)
        assert seen == sorted(set(seen))


@seed("003", 122, 274, 312)
async def test_each_session_is_tracked_separately(start: House) -> None:
    async with start(preset="arawn") as guest:
        other = await visit(guest.app)
        await guest.ask(f"Hello. {FILLER * 3}")
        await other.ask("Hello.")
        shown = [await guest.app.sessions.measure_context(one.session_id) for one in (guest, other)]
        assert shown[0] is not None
        assert shown[1] is not None
        assert shown[0].used > shown[1].used + 1_000


@seed("003", 122, 166, 274)
async def test_a_helper_is_tracked_apart_from_the_session(start: House, provider: RunningFake) -> None:
    async with start(Shelf(20_000), preset="arawn") as guest:
        await guest.ask("Hello.")
        delegates = {"tool_use": [{"name": "delegate", "input": {"task": "Read the shelf.", "context": ""}}]}
        reads = {"tool_use": [{"name": "read_shelf", "input": {"shelf": "S-1"}}]}
        actions = (delegates, reads, {"text": "One book."}, {"text": "There is one book."})
        await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": one} for one in actions])
        await guest.ask("What is on the shelf?")
        *_, helped, last = await requests(provider)
        assert "Shelf S-1 holds" in said(helped)
        used = await guest.one("SELECT context_tokens FROM sessions")
        assert used == pytest.approx(last["input_tokens"], rel=0.05)
        assert "Shelf S-1 holds" not in said(last)


@seed("003", 48)
async def test_sessions_of_different_people_share_nothing(start: House, provider: RunningFake) -> None:
    """Corrected: sessions of one person share memory, see 001:19; nobody sees another person's."""
    async with start(preset="arawn") as guest:
        await guest.ask("Please remember that my safe is behind the painting of the harbour.")
        other = await visit(guest.app)
        await other.ask("What do you know of me?")
        assert "painting" not in json.dumps((await newest(provider))["body"])


# ---- the compactor


@seed("003", 176, 317, 352)
@pytest.mark.parametrize(("keeps", "through"), [(3, 37), (7, 33)])
def test_the_last_turns_are_kept_three_unless_an_agent_wants_others(keeps: int, through: int) -> None:
    own = agent_policy(ARAWN, {"context": {"keep_turns": keeps}})
    made = plan_compaction(view(exchanges(40, tokens=2_250)), budget=BUDGET, policy=own, now_tokens=180_000)
    assert isinstance(made, CompactionPlan)
    assert made.through_turn == through


@seed("003", 47)
def test_the_turn_that_is_being_answered_is_never_compacted() -> None:
    state = view([*exchanges(40, tokens=2_250), entry(999, 41, "now", tokens=2_000)], open_turn=41)
    made = plan_compaction(state, budget=BUDGET, policy=ARAWN, now_tokens=182_000)
    assert isinstance(made, CompactionPlan)
    assert made.through_turn == 37
    assert 999 not in {e.seq for e in made.entries}


@seed("003", 47, 55)
async def test_a_compaction_between_two_tool_rounds_shows_only_in_the_next_turn(
    start: House, provider: RunningFake
) -> None:
    async with start(Shelf(1_000), **SMALL) as guest:
        await filled(guest, 7)
        slow = {"tool_use": [{"name": "read_shelf", "input": {"shelf": "S-1"}}], "latency": 1.0}
        await provider.script([
            {"match": {"kind": "chat"}, "times": 1, "action": slow},
            {"match": {"kind": "chat"}, "times": 1, "action": {"text": "One book.", "latency": 1.0}},
        ])  # fmt: skip
        answering = asyncio.ensure_future(guest.ask("Please read shelf S-1."))
        await asyncio.sleep(0.2)
        await command(guest, "compact", "--force")
        assert await guest.one("SELECT count(*) FROM compactions WHERE active") == 1
        assert await answering == "One book."
        first, second = (await requests(provider))[-2:]
        begun = first["body"]["messages"]
        assert len(second["body"]["messages"]) == len(begun) + 2
        assert "<conversation_summary" not in said(second)
        await guest.ask("And now?")
        assert "<conversation_summary" in first_words(await newest(provider))


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A long session under `arawn`: what was said, sent, hidden and answered."""

    before: int
    after: int
    """Tokens around the compaction that came by itself."""
    link: dict[str, Any]
    chat_model: str
    next_request: Any
    said: int
    stored: int
    words: str
    """The answer to a message that came while the compaction ran."""


@pytest.fixture(scope="module")
async def session(module_database_url: str, module_redis_url: str, provider: RunningFake) -> Session:
    await provider.reset()
    house = house_on(module_database_url, module_redis_url, provider)
    async with house(**SMALL) as guest:
        said_so_far = 0
        while not await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'"):
            fact = FACTS[said_so_far] if said_so_far < len(FACTS) else ""
            await guest.ask(f"{fact} Message {said_so_far}. {FILLER}")
            said_so_far += 1
        before = await guest.one("SELECT context_tokens FROM sessions")
        await provider.script([{"match": {"kind": "summary"}, "times": 1, "action": {"latency": 1.0}}])
        job = asyncio.ensure_future(guest.run_due_jobs())
        await asyncio.sleep(0.3)
        answer = await guest.ask("Are you still there while you tidy up?")
        await job
        after = await guest.one("SELECT context_tokens FROM sessions")
        await guest.ask("And now?")
        link = await guest.app.pool.fetchrow("SELECT * FROM compactions WHERE active")
        assert link is not None
        return Session(
            before=before,
            after=after,
            link=dict(link),
            chat_model=guest.app.models.chat,
            next_request=await newest(provider),
            said=said_so_far + 2,
            stored=await guest.one("SELECT count(*) FROM entries WHERE author = 'person'"),
            words=answer,
        )


@seed("003", 33, 40, 55, 342)
def test_long_session_is_compacted_automatically_while_it_continues(session: Session) -> None:
    assert session.link["trigger"] in ("limit", "overflow")
    assert session.words
    assert session.after < session.before


@seed("003", 27)
def test_old_turns_are_not_dropped_but_summarised_and_stored(session: Session) -> None:
    assert session.stored == session.said
    assert "PX-4471" in session.link["summary_text"]


@seed("003", 29, 170, 316)
def test_session_is_compacted_halfway_by_the_shared_compressor(
    session: Session,
) -> None:
    assert first_words(session.next_request).startswith("<conversation_summary through_seq=")
    assert session.link["kind"] == "summary"
    assert session.link["through_turn"] < session.said - 2


@seed("003", 343)
def test_the_newest_turns_before_it_stay_word_for_word(session: Session) -> None:
    for number in range(session.link["through_turn"], session.said - 2):
        assert f"Message {number}. Then we talked" in said(session.next_request)


@seed("003", 180, 181, 318)
def test_its_row_says_what_it_came_to(session: Session) -> None:
    link = session.link
    assert 0 < link["tokens_after"] < link["tokens_before"]
    assert link["duration_ms"] > 0
    assert link["cost_micro"] > 0


@seed("003", 353)
async def test_the_sessions_own_model_writes_unless_an_agent_names_the_cheap_one(
    start: House, session: Session
) -> None:
    assert session.link["model"] == session.chat_model
    async with start(**SMALL) as guest:
        await guest.app.pool.execute("UPDATE agents SET config = $1", {"context": {"summariser": "cheap"}})
        await filled(guest)
        await command(guest, "compact", "--force")
        assert await guest.one("SELECT model FROM compactions WHERE active") == guest.app.models.summary


@seed("003", 287, 288)
async def test_ordinary_turns_cost_no_call_of_a_summariser(start: House, provider: RunningFake) -> None:
    async with start(preset="arawn") as guest:
        await filled(guest, 8)
        await guest.run_due_jobs()
        assert {record["kind"] for record in await provider.requests()} == {"chat"}


# ---- commands over REST, as events, over the socket, from the shell


@pytest.fixture
async def front(start: House) -> AsyncIterator[Front]:
    async with start(**SMALL) as guest, in_front_of(guest) as front:
        yield front


@asynccontextmanager
async def talked(front: Front) -> AsyncIterator[None]:
    """Something to compact, and a worker that does it."""
    await filled(front)
    async with working(front.guest):
        yield


@seed("003", 42, 96, 113, 188, 189, 205, 206, 216, 278, 321)
async def test_the_server_lists_its_commands_with_their_descriptions(front: Front) -> None:
    status, told = await front.call("GET", "/commands")
    assert status == 200
    listed = {one["name"]: one for one in told["commands"]}
    assert {"compact", "help"} <= set(listed)
    assert all(one["description"] for one in listed.values())
    status, document = await front.call("GET", "/openapi.json")
    assert status == 200
    assert any("/commands" in path for path in document["paths"]), "documented"
    unknown, _ = await front.call("POST", "/commands/nonsense", json={"session_id": front.session})
    assert unknown == 404, "what the server does not define, nobody runs"


@seed("003", 34, 41, 113, 115, 191, 192, 208, 209, 210, 220, 280, 322, 344)
async def test_compact_is_run_by_rest_without_any_socket(front: Front) -> None:
    async with talked(front):
        body = {"session_id": front.session, "force": True}
        status, told = await front.call("POST", "/commands/compact", json=body)
    assert (status, told["success"], told["error"]) == (200, True, None)
    assert await front.guest.one("SELECT trigger FROM compactions WHERE active") == "manual"


@seed("003", 192)
async def test_compact_without_force_says_why_it_would_not_be_worth_it(front: Front) -> None:
    await front.ask("Hello")
    body = {"session_id": front.session, "force": False}
    status, told = await front.call("POST", "/commands/compact", json=body)
    assert status == 200
    assert told["success"]
    assert told["result"]
    assert await front.guest.one("SELECT count(*) FROM jobs") == 0


@seed("003", 193, 211, 212, 282, 323, 324)
async def test_progress_and_then_the_result_are_streamed_as_events(front: Front) -> None:
    async with talked(front):
        url, body = f"{front.url}/api/v1/commands/compact", {"session_id": front.session, "force": True}
        headers = {**bearer(front.token), **EVENTS}
        async with front.http.post(url, json=body, headers=headers) as answer:
            told = await events_of(answer)
    names = [name for name, _ in told]
    assert set(names[:-1]) == {"progress"}
    assert names[-1] == "result"
    assert {"command", "message", "percent"} <= set(told[0][1])
    assert told[-1][1]["success"]


@seed("003", 195, 196, 197, 221)
async def test_help_explains_all_commands_or_one(front: Front) -> None:
    _, every = await front.call("POST", "/commands/help", json={"session_id": front.session})
    body = {"session_id": front.session, "command": "compact"}
    _, one = await front.call("POST", "/commands/help", json=body)
    assert "/undo" in every["result"]
    assert "/compact [focus] [--force]" in one["result"]
    assert "/undo" not in one["result"]


@seed("003", 114, 116, 228, 229, 230, 234, 235, 236, 237, 280, 282, 327, 328, 329, 344)
async def test_over_the_socket_the_same_command_runs_with_progress(front: Front) -> None:
    async with talked(front):
        screen = await front.screen()
        result = await front.send(screen, "compact", {"force": True})
    progress = [frame for frame in screen.frames if frame["t"] == "command.progress"]
    assert progress
    assert {"command", "message", "percent"} <= set(progress[0])
    assert progress[0]["command"] == "compact"
    assert (result["command"], result["success"]) == ("compact", True)
    assert await front.guest.one("SELECT trigger FROM compactions WHERE active") == "manual"


@seed("003", 241, 242, 243, 244, 245)
async def test_a_result_over_the_socket_says_what_came_of_it(front: Front) -> None:
    screen = await front.screen()
    done = await front.send(screen, "status", cid="k1")
    failed = await front.send(screen, "undo", cid="k2")
    assert (done["command"], done["success"], done.get("error")) == ("status", True, None)
    assert done["result"]
    assert (failed["command"], failed["success"]) == ("undo", False)
    assert failed["error"]


@seed("003", 114, 280)
async def test_socket_and_rest_run_one_and_the_same_command(front: Front) -> None:
    screen = await front.screen()
    by_socket = await front.send(screen, "help", {"command": "compact"})
    body = {"session_id": front.session, "command": "compact"}
    _, by_rest = await front.call("POST", "/commands/help", json=body)
    assert by_socket["result"] == by_rest["result"]


@seed("003", 42, 115, 280)
async def test_shell_runs_one_command(front: Front) -> None:
    results: list[str] = []
    notes: list[str] = []
    wish = argparse.Namespace(name="compact", session=UUID(front.session), arg=["force=true"], json=True)
    async with talked(front):
        shell = CommandOutput(write_result=results.append, write_note=notes.append)
        assert await run_command(wish, settings=front.guest.app.settings, shell=shell) == 0
    assert json.loads(results[0])["success"]
    assert any("%" in note for note in notes), "progress is told"


@seed("003", 60)
async def test_a_person_who_compacts_gets_room(front: Front) -> None:
    async with talked(front):
        before = await front.guest.app.sessions.measure_context(front.guest.session_id)
        screen = await front.screen()
        result = await front.send(screen, "compact", "--force")
    after = await front.guest.app.sessions.measure_context(front.guest.session_id)
    assert before is not None
    assert after is not None
    assert after.used < before.used - 500
    assert "tokens" in result["result"]


@seed("003", 299, 300)
async def test_every_screen_sees_a_compaction_by_any_requester(front: Front) -> None:
    watching = await front.screen()
    async with talked(front):
        body = {"session_id": front.session, "force": True}
        await front.call("POST", "/commands/compact", json=body)
        seen: Frame = await watching.until("compaction")
    assert seen["after"] < seen["before"]


# ---- what a person sees


@pytest.fixture(scope="module")
async def shown(
    module_database_url: str, module_redis_url: str, provider: RunningFake, browser: Browser
) -> AsyncIterator[tuple[Page, Front]]:
    """A page of the widget on the real server, and the way to the conversation behind it."""
    await provider.reset()
    house = house_on(module_database_url, module_redis_url, provider)
    async with house(preset="arawn") as guest, in_front_of(guest) as front:
        own = await browser.new_context(locale="en-US")
        page = await own.new_page()
        await page.goto(f"{front.url}/chat")
        box = page.get_by_role("textbox", name="Message")
        await box.fill("Hello there")
        await box.press("Enter")
        of_page = """SELECT s.id, a.id AS address FROM sessions s JOIN addresses a ON a.session_id = s.id
                      WHERE s.answered_turn = 1"""
        async with asyncio.timeout(60):
            while (row := await guest.app.pool.fetchrow(of_page)) is None:
                await asyncio.sleep(0.05)
        theirs = Visit(app=guest.app, session_id=row["id"], address_id=row["address"])
        yield page, replace(front, guest=theirs)
        await own.close()


@seed("003", 43, 65, 255, 261, 262, 263, 337, 338)
@pytest.mark.browser
@pytest.mark.parametrize(
    ("used", "percent", "status", "colour"),
    [
        (690_000, "69", "ok", "--ok"),
        (720_000, "72", "warning", "--warn"),
        (910_000, "91", "critical", "--crit"),
    ],
)
async def test_the_gauge_says_how_full_it_is_in_green_yellow_or_red(
    shown: tuple[Page, Front], used: int, percent: str, status: str, colour: str
) -> None:
    page, front = shown
    await front.guest.app.pool.execute(
        "UPDATE sessions SET context_tokens = $2 WHERE id = $1", front.guest.session_id, used
    )
    await page.reload()
    button = page.locator(".gauge")
    await expect(button).to_have_attribute("data-status", status)
    await expect(button).to_contain_text(percent)
    told = await button.get_attribute("title") or ""
    assert told.startswith(f"Context: {percent}")
    assert f"~{used // 1_000}k/1" in told
    drawn, wanted = await page.evaluate(
        """name => {
            const gauge = document.querySelector('#evertalk').shadowRoot.querySelector('.gauge');
            const probe = gauge.appendChild(document.createElement('i'));
            probe.style.color = `var(${name})`;
            const arc = getComputedStyle(gauge.querySelector('.arc'));
            const seen = [arc.stroke, getComputedStyle(probe).color];
            probe.remove();
            return seen;
        }""",
        colour,
    )
    assert drawn == wanted


@seed("003", 267, 268, 269, 270, 332, 333)
@pytest.mark.browser
async def test_a_slash_opens_a_list_of_the_servers_commands(shown: tuple[Page, Front]) -> None:
    page, front = shown
    _, told = await front.call("GET", "/commands")
    box = page.get_by_role("textbox", name="Message")
    await box.fill("")
    await box.press_sequentially("/")
    options = page.get_by_role("option")
    await expect(options).to_have_count(len(told["commands"]))
    text = " ".join(await options.all_inner_texts())
    assert "/compact" in text
    assert "/help" in text
    await box.press_sequentially("compa")
    await expect(options).to_have_count(1)
    await box.press("Enter")
    await expect(box).to_have_value("/compact ")
    await box.fill("")


@seed("003", 278, 332, 334)
@pytest.mark.browser
async def test_what_begins_with_a_slash_is_run_and_not_said(shown: tuple[Page, Front]) -> None:
    page, front = shown
    before = await front.guest.one("SELECT count(*) FROM entries")
    box = page.get_by_role("textbox", name="Message")
    await box.fill("/help compact")
    await box.press("Enter")
    await expect(page.locator(".result").last).to_contain_text("/compact [focus] [--force]")
    assert await front.guest.one("SELECT count(*) FROM entries") == before


@seed("003", 339)
@pytest.mark.browser
async def test_the_gauge_moves_after_every_answer(shown: tuple[Page, Front]) -> None:
    page, front = shown
    await front.guest.app.pool.execute("UPDATE sessions SET context_tokens = 500000")
    await page.reload()
    await expect(page.locator(".gauge")).to_contain_text("50")
    box = page.get_by_role("textbox", name="Message")
    await box.fill("Hello again")
    await box.press("Enter")
    await expect(page.locator("article.assistant")).to_have_count(2)
    await expect(page.locator(".gauge")).not_to_have_attribute("title", "Context: 50% · ~500k/1M")
