"""What a deployment keeps, measured from a shell: against the strict fake of the provider."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.cli.eval import EvalTerminal, read_eval_arguments, run_eval
from shared.config.settings import Settings
from shared.core.values.errors import BadInput
from tests.kit.app_driver import settings_for
from tests.kit.fakes.messages_api.harness import RunningFake

ROOT = Path(__file__).parents[3]
SHORT = ("--messages", "12", "--questions", "5", "--compactions", "2", "--yes")
LEFT = """
SELECT (SELECT count(*) FROM entry_rows WHERE coalesce(words, '') || blocks::text LIKE '%Bergen%'),
       (SELECT count(*) FROM agents WHERE name <> 'default'), (SELECT count(*) FROM notes)
"""


@pytest.fixture
async def eval_settings(database_url: str, redis_url: str, fake: RunningFake) -> Settings:
    return settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=fake.base_url
    )


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """At the end all that is promised of stored rows holds."""
    connection = await asyncpg.connect(database_url)
    yield connection
    assert await check_invariants(connection) == []
    await connection.close()


async def evaluate(settings: Settings, *words: str, answer: str | None = None) -> tuple[int, str, str]:
    said: list[str] = []
    told: list[str] = []
    ask = None if answer is None else lambda _question: answer
    terminal = EvalTerminal(say=said.append, tell=told.append, ask=ask)
    code = await run_eval(read_eval_arguments(words), settings=settings, terminal=terminal)
    return code, "\n".join(said), "\n".join(told)


async def chats(fake: RunningFake) -> int:
    return sum(request["kind"] == "chat" for request in await fake.requests())


async def test_every_preset_has_a_row_and_nothing_is_left_of_it(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record], tmp_path: Path
) -> None:
    picture = tmp_path / "kept.svg"
    code, said, told = await evaluate(
        eval_settings,
        *SHORT,
        "--messages",
        "45",
        "--preset",
        "steady,arawn",
        "--cap",
        "5",
        "--json",
        "--picture",
        str(picture),
    )
    assert code == 0
    found = json.loads(said)
    assert found["complete"] is True
    steady, arawn = found["rows"]
    assert (steady["preset"], arawn["preset"]) == ("steady", "arawn")
    for row in (steady, arawn):
        assert row["asked"] == 5
        assert row["kept"] >= 3
        assert row["compactions"] >= 1
        assert row["dollars"] > 0
        assert min(row["cached"], row["written"], row["out"]) > 0
    assert "about $" in told.partition("\n")[0]
    assert await chats(fake) == 2 * (45 + 5)
    assert "steady" in "".join(ET.parse(picture).getroot().itertext())
    assert tuple(await database.fetchrow(LEFT) or ()) == (0, 0, 0)


async def test_dry_run_prints_the_price_and_makes_no_call(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    code, said, told = await evaluate(eval_settings, "--dry-run")
    assert (code, said) == (0, "")
    assert "68 messages and 24 questions under steady" in told
    assert "about $" in told
    assert await chats(fake) == 0
    assert await database.fetchval("SELECT count(*) FROM sessions") == 0


async def test_preset_with_little_room_is_measured_and_without_is_refused(
    eval_settings: Settings, fake: RunningFake
) -> None:
    code, said, _ = await evaluate(eval_settings, *SHORT, "--preset", "langmem", "--cap", "5", "--json")
    assert (code, json.loads(said)["rows"][0]["asked"]) == (0, 5)
    before = await chats(fake)
    with pytest.raises(BadInput, match="under steady"):
        await evaluate(eval_settings, *SHORT, "--window", "1000", "--cap", "5")
    assert await chats(fake) == before


async def test_money_needs_a_cap_and_a_yes(eval_settings: Settings, fake: RunningFake) -> None:
    code, _, told = await evaluate(eval_settings, "--yes")
    assert (code, "--cap DOLLARS" in told) == (2, True)
    code, _, told = await evaluate(eval_settings, "--cap", "1")
    assert (code, "--yes" in told) == (1, True)
    assert (await evaluate(eval_settings, "--cap", "1", answer="n"))[0] == 1
    assert await chats(fake) == 0


async def test_it_stops_before_its_cap_and_goes_on_with_a_larger_one(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    code, _, told = await evaluate(eval_settings, *SHORT, "--cap", "0.03")
    assert code == 1
    assert "of $0.03 are spent" in told
    spent = await database.fetchval("SELECT sum(cost_micro) FROM usage")
    assert 0 < spent <= 30_000
    before = await chats(fake)
    assert before > 1
    code, said, _ = await evaluate(eval_settings, *SHORT, "--cap", "5", "--json", "--keep")
    assert code == 0
    answered = await database.fetchval("SELECT count(*) FROM turns WHERE state = 'answered'")
    assert answered == 12 + 5
    whole = await chats(fake)
    again, repeated, _ = await evaluate(eval_settings, *SHORT, "--cap", "5", "--json")
    assert (again, json.loads(repeated)["rows"]) == (0, json.loads(said)["rows"])
    assert await chats(fake) == whole, "what is kept is read, not asked again"


async def test_no_answer_is_so_long_that_it_breaks_the_cap(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The guess of the next call is too low; what is set aside for it is not."""
    await fake.script([{"match": {"kind": "chat"}, "times": -1, "action": {"text": "word " * 6_000}}])
    code, _, told = await evaluate(eval_settings, *SHORT, "--cap", "0.05")
    assert (code, "same command again" in told) == (1, True)
    assert await database.fetchval("SELECT sum(cost_micro) FROM usage") <= 50_000


async def test_a_run_that_was_killed_goes_on(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record], tmp_path: Path
) -> None:
    await fake.set_pace(20)
    first = await _process(eval_settings, tmp_path)
    async with asyncio.timeout(60):
        while await database.fetchval("SELECT count(*) FROM turns WHERE state = 'answered'") < 4:
            await asyncio.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    await fake.set_pace(0)
    second = await _process(eval_settings, tmp_path)
    async with asyncio.timeout(120):
        said, told = await second.communicate()
    assert second.returncode == 0, told.decode()
    (row,) = json.loads(said)["rows"]
    assert (row["asked"], row["kept"] >= 3) == (5, True)
    assert await database.fetchval("SELECT count(*) FROM turns WHERE state = 'answered'") == 12 + 5


async def _process(settings: Settings, data: Path) -> asyncio.subprocess.Process:
    assert settings.database_url is not None
    assert settings.redis_url is not None
    given = {
        "DATABASE_URL": settings.database_url.get_secret_value(),
        "REDIS_URL": settings.redis_url.get_secret_value(),
        "ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": str(settings.anthropic_base_url),
        "EVERTALK_DATA_DIR": str(data), "EVERTALK_TIMEZONE": settings.timezone,
    }  # fmt: skip
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared", "eval", *SHORT, "--cap", "5", "--json",
        cwd=ROOT, env={**os.environ, **given}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_a_judge_is_asked_and_paid(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    await fake.script([{"match": {"contains": "Answer to judge"}, "times": -1, "action": {"text": "Yes."}}])
    code, said, _ = await evaluate(
        eval_settings, *SHORT, "--cap", "5", "--json", "--judge", "claude-haiku-5-5"
    )
    assert code == 0
    (row,) = json.loads(said)["rows"]
    assert row["judged"] == 5
    paid = await database.fetchval("SELECT count(*) FROM usage WHERE purpose = 'delegate'")
    assert paid == 5


async def test_earlier_runs_can_be_erased(
    eval_settings: Settings, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    await evaluate(eval_settings, *SHORT, "--cap", "5", "--keep")
    assert await database.fetchval("SELECT count(*) FROM agents") == 2
    code, _, told = await evaluate(eval_settings, "--forget")
    assert (code, told) == (0, "Conversations erased: 1.")
    assert tuple(await database.fetchrow(LEFT) or ()) == (0, 0, 0)


async def test_recorded_talk_is_played_in_parts(eval_settings: Settings, tmp_path: Path) -> None:
    lines = [{"speaker": "Ann", "text": f"My parking place is number P{number}."} for number in range(80)]
    talk = {
        "sample_id": "one",
        "conversation": {"session_1": lines, "session_1_date_time": "8 May, 2023"},
        "qa": [
            {"question": "Which number has the first parking place of Ann?", "answer": "P0", "category": 4}
        ],
    }
    file = tmp_path / "talk.json"
    file.write_text(json.dumps([talk]))
    code, said, told = await evaluate(eval_settings, "--data", str(file), "--yes", "--cap", "5", "--json")
    assert code == 0
    assert json.loads(said)["rows"][0]["asked"] == 1
    assert "2 messages and 1 questions" in told


@pytest.mark.parametrize("text", ["{", "{}", '[{"conversation": {}, "qa": 3}]', "[]"])
async def test_a_file_that_is_no_talk_is_refused_with_advice(
    eval_settings: Settings, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "talk.json"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        await evaluate(eval_settings, "--data", str(file), "--yes", "--cap", "1")
    assert "LoCoMo" in refused.value.advice


async def test_a_model_without_a_price_cannot_be_capped(
    database_url: str, redis_url: str, fake: RunningFake, tmp_path: Path
) -> None:
    entries: list[dict[str, Any]] = [{"name": "house-model", "window": 200_000, "base_url": fake.base_url}]
    models = tmp_path / "models.json"
    models.write_text(json.dumps(entries))
    settings = settings_for(database_url, redis_url, models_file=models, model="house-model")
    code, _, told = await evaluate(settings, "--yes", "--cap", "1")
    assert code == 2
    assert "its price is unknown" in told
    assert "--cap cannot hold" in told


ABSTENTION = ("--unanswerable", "2", "--talks", "2", "--yes", "--cap", "5", "--json")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two recorded talks with an assistant, each with a question to which it holds no answer."""
    talks = []
    for name, thing, colour in (("one", "rowing boat", "green"), ("two", "garden shed", "violet")):
        said = [
            {"by": "person", "at": "2024-03-15T09:01:00+00:00", "text": f"My {thing} is painted {colour}."},
            {"by": "assistant", "at": "2024-03-15T09:02:00+00:00", "text": "That sounds lovely."},
        ]
        asked = [
            {"question": f"How is my {thing} painted?", "category": "fact", "answer": colour},
            {
                "question": f"Which engine drives my {thing} upstream?",
                "category": "abstention",
                "answer": "-",
            },
        ]
        talks.append({"name": name, "said": said, "questions": asked})
    file = tmp_path / "records.json"
    file.write_text(json.dumps({"conversations": talks}))
    return file


async def test_unanswerable_questions_are_abstained_from_after_one_recall(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record], records: Path
) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": -1, "action": {"read": True}}])
    code, said, told = await evaluate(eval_settings, "--data", str(records), *ABSTENTION, "--judge", "rules")
    assert (code, "6 questions about 2 imported conversations" in told) == (0, True)
    (row,) = json.loads(said)["rows"]
    assert (row["data"], row["preset"]) == ("records", "steady")
    assert row["unanswerable"] == {"asked": 4, "abstained": 4, "right": 0, "invented": 0}
    assert row["answerable"] == {"asked": 2, "abstained": 0, "right": 2, "invented": 0}
    assert row["abstained_without_recall"] == 0
    assert await chats(fake) == 4 * 2 + 2, "an answer from what is shown needs no tool"
    assert tuple(await database.fetchrow(LEFT) or ()) == (0, 0, 0)
    assert await database.fetchval("SELECT count(*) FROM past_imports WHERE digest IS NOT NULL") == 0


async def test_model_that_makes_things_up_is_found_out(
    eval_settings: Settings, fake: RunningFake, records: Path
) -> None:
    await fake.script(
        [{"match": {"kind": "chat"}, "times": -1, "action": {"text": "It is green, by a steam engine."}}]
    )
    code, said, _ = await evaluate(eval_settings, "--data", str(records), *ABSTENTION, "--judge", "rules")
    (row,) = json.loads(said)["rows"]
    assert (code, row["unanswerable"]["invented"], row["answerable"]["right"]) == (0, 4, 1)


async def test_answering_model_judges_and_is_paid(
    eval_settings: Settings, fake: RunningFake, database: asyncpg.Connection[asyncpg.Record], records: Path
) -> None:
    await fake.script(
        [
            {"match": {"contains": "There is none"}, "times": -1, "action": {"text": "Abstained."}},
            {"match": {"contains": "Answer to judge"}, "times": -1, "action": {"text": "right"}},
        ]
    )
    code, said, _ = await evaluate(eval_settings, "--data", str(records), *ABSTENTION)
    (row,) = json.loads(said)["rows"]
    assert (code, row["unanswerable"]["abstained"], row["answerable"]["right"]) == (0, 4, 2)
    assert await database.fetchval("SELECT count(*) FROM usage WHERE purpose = 'delegate'") == 6


async def test_abstention_without_a_model_is_refused_with_advice(
    database_url: str, redis_url: str, records: Path
) -> None:
    settings = settings_for(database_url, redis_url)
    with pytest.raises(BadInput, match="cannot answer") as refused:
        await evaluate(settings, "--data", str(records), *ABSTENTION)
    assert refused.value.code == "no_answering_model"
    assert "ANTHROPIC_API_KEY" in refused.value.advice


@pytest.mark.parametrize("more", [(), ("--data", "x", "--messages", "3"), ("--data", "x", "--picture", "y")])
def test_unanswerable_questions_need_recorded_talk_as_a_whole(more: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        read_eval_arguments(("--unanswerable", "3", *more))
