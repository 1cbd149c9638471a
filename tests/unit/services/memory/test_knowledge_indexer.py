"""What agents' own files say is kept findable: only what changed is read, and one bad file spoils nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.adapters.files.knowledge_files import KnowledgeFiles, UnreadableKnowledge
from shared.services.memory.knowledge_indexer import KnowledgeIndexer
from tests.kit.kept_knowledge import Kept
from tests.kit.sample_files import pdf


@dataclass
class Rows:
    found: dict[int, str]

    async def load_folders(self) -> Mapping[int, str]:
        return self.found


@pytest.fixture
def knowledge(tmp_path: Path) -> Path:
    path = tmp_path / "ada" / "knowledge"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def kept() -> Kept:
    return Kept()


def librarian(
    tmp_path: Path, kept: Kept, *, most: int = 5_000, given_up: Collection[str] = (), **folders: str
) -> KnowledgeIndexer:
    found = {int(name.removeprefix("agent")): folder for name, folder in folders.items()} or {1: "ada"}
    return KnowledgeIndexer(
        store=kept, files=KnowledgeFiles(tmp_path), agents=Rows(found), unreadable=UnreadableKnowledge,
        most_passages=most, given_up=given_up,
    )  # fmt: skip


async def test_only_what_changed_is_read_again_and_what_is_gone_is_forgotten(
    tmp_path: Path, knowledge: Path, kept: Kept
) -> None:
    keeper = librarian(tmp_path, kept)
    (knowledge / "a.md").write_text("one")
    (knowledge / "b.md").write_text("two")
    assert (await keeper.index_all())[1].read == ("a.md", "b.md")
    assert (await keeper.index_all())[1].read == ()
    (knowledge / "a.md").write_text("three")
    (knowledge / "b.md").unlink()
    done = (await keeper.index_all())[1]
    assert (done.read, done.removed) == (("a.md",), ("b.md",))
    assert kept.texts() == {"a.md": ["three"]}
    assert kept.rows[1, "a.md"][0] == hashlib.sha256(b"three").digest()


async def test_file_that_crashed_processes_is_left_out_until_it_changes(
    tmp_path: Path, knowledge: Path, kept: Kept
) -> None:
    (knowledge / "a.md").write_text("one")
    keeper = librarian(tmp_path, kept, given_up={f"knowledge {hashlib.sha256(b'one').hexdigest()[:32]}"})
    [problem] = (await keeper.index_all())[1].problems
    assert "a.md stopped the program twice" in problem
    assert kept.texts() == {"a.md": []}
    (knowledge / "a.md").write_text("two")
    assert (await keeper.index_all())[1].problems == ()
    assert kept.texts() == {"a.md": ["two"]}


async def test_restarted_process_reads_no_unchanged_file(tmp_path: Path, knowledge: Path, kept: Kept) -> None:
    (knowledge / "a.md").write_text("one")
    await librarian(tmp_path, kept).index_all()
    kept.written.clear()
    await librarian(tmp_path, kept).index_all()
    assert kept.written == []


async def test_broken_pdf_is_reported_once_and_others_continue(
    tmp_path: Path, knowledge: Path, kept: Kept
) -> None:
    (knowledge / "a.pdf").write_bytes(b"%PDF-1.4 broken")
    (knowledge / "b.pdf").write_bytes(pdf("Thirty days."))
    with (knowledge / "c.txt").open("wb") as out:
        out.truncate(100 * 1024**2)
    keeper = librarian(tmp_path, kept)
    told = (await keeper.index_all())[1].problems
    assert [problem.split(" ")[0] for problem in told] == ["knowledge/c.txt", "knowledge/a.pdf"]
    assert kept.texts() == {"a.pdf": [], "b.pdf": ["Thirty days."]}
    kept.written.clear()
    await keeper.index_all()
    assert kept.written == []


async def test_passages_of_an_agent_are_bounded_across_its_files(
    tmp_path: Path, knowledge: Path, kept: Kept
) -> None:
    (knowledge / "a.md").write_text("# 1\none\n# 2\ntwo\n")
    await librarian(tmp_path, kept, most=3).index_all()
    (knowledge / "b.md").write_text("# 1\none\n# 2\ntwo\n# 3\nthree\n")
    told = (await librarian(tmp_path, kept, most=3).index_all())[1].problems
    assert told == ("knowledge/b.md has 3 passages and there is room for 1 of 3: the rest is left out",)
    assert sum(map(len, kept.texts().values())) == 3


async def test_an_agent_that_lost_its_folder_knows_nothing_any_more(
    tmp_path: Path, knowledge: Path, kept: Kept
) -> None:
    (knowledge / "a.md").write_text("one")
    await librarian(tmp_path, kept, agent1="ada", agent2="ada").index_all()
    await librarian(tmp_path, kept, agent1="", agent2="ada").index_all()
    assert kept.texts(1) == {}
    assert kept.texts(2) == {"a.md": ["one"]}


async def test_changed_folder_is_read_at_once_and_lost_database_awaited(
    tmp_path: Path, knowledge: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.services.memory.knowledge_indexer.RETRY_SECONDS", 0.01)
    kept.away = 2
    keeper = librarian(tmp_path, kept)
    keeping = asyncio.ensure_future(keeper.run(poll_seconds=0))
    for words in ("one", "two"):
        (knowledge / "a.md").write_text(words)
        keeper.folder_changed("ada")
        async with asyncio.timeout(20):
            while kept.texts().get("a.md") != [words]:
                await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.wait([keeping])
