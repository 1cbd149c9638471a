"""A running deployment takes over what an operator changes at the terminal: nobody starts anything again."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.provided import provided_by
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import ROOT, Process, environment
from tests.kit.fakes.messages_api.harness import RunningFake

PATIENCE_SECONDS = 60.0


@pytest.fixture
async def web(case: Case, fake: RunningFake, tmp_path: Path) -> AsyncIterator[Process]:
    async with case.web(**provided_by(fake), EVERTALK_DATA_DIR=str(tmp_path)) as process:
        yield process
        assert process.exits == [], process.words()


async def evertalk(case: Case, folder: Path, *words: str, **more: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared", *words, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL,
        env=environment(**case.settings(EVERTALK_DATA_DIR=str(folder), **more)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def told(person: Person, fake: RunningFake) -> str:
    """What the model was told at the person's next turn."""
    await person.ask("Good day.")
    body = (await fake.requests())[-1]["body"]
    return json.dumps([body["model"], body["system"]], ensure_ascii=False)


async def test_an_imported_agent_and_its_folder_answer_from_the_next_turn_on(
    case: Case, web: Process, fake: RunningFake, tmp_path: Path
) -> None:
    folder = tmp_path / "workspaces" / "ada"
    folder.mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Always say please.")
    file = tmp_path / "agent.json"
    config = {"persona": "You are Ada.", "model": "claude-haiku-4-5", "workspace": "ada"}
    file.write_text(json.dumps({"agent": "default", "config": config}))
    async with Person(case.port) as person:
        assert "You are Evertalk" in await told(person, fake)
        code, words = await evertalk(case, tmp_path, "agent", "import", str(file))
        assert (code, words.splitlines()[-1][:24]) == (0, "default is at version 2;")
        now = await told(person, fake)
        assert all(part in now for part in ("You are Ada.", "claude-haiku-4-5", "Always say please."))
        (folder / "AGENTS.md").write_text("Always say thank you.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "Always say thank you." not in await told(person, fake):
                await asyncio.sleep(0.1)
        await case.promises_hold(person)


async def test_a_draft_survives_an_editor_that_fails(case: Case, tmp_path: Path) -> None:
    code, words = await evertalk(case, tmp_path, "agent", "edit", "default", VISUAL="false")
    assert code == 1
    assert "The editor ended with 1." in words
    (draft,) = (tmp_path / "drafts").iterdir()
    assert str(draft) in words
    draft.write_text('{"persona": "Kept."}')
    code, words = await evertalk(case, tmp_path, "agent", "edit", "default", VISUAL="true")
    assert code == 0, words
    assert await case.value("SELECT config ->> 'persona' FROM agents") == "Kept."


@pytest.mark.control("S46")
async def test_invalid_agent_file_is_reported_without_a_stack_trace(case: Case, tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"agent": "default", "config": {"personna": 1}}')
    for words in (
        ["import", str(tmp_path / "agent.json")],
        ["import", str(tmp_path / "none.json")],
        ["import", str(tmp_path)],
        ["show", "nobody"],
        ["export", "default", str(tmp_path / "none" / "x.json")],
    ):
        code, said = await evertalk(case, tmp_path, "agent", *words)
        assert code == 1, said
        assert "Traceback" not in said
