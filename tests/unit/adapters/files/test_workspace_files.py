"""Agents' folders as people leave them: broken files are told and never in the way; changes are seen."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.adapters.files.knowledge_files import KnowledgeFiles, UnreadableKnowledge, build_shelf
from shared.adapters.files.workspace_files import MOST_BYTES, WorkspaceFiles, read_workspace
from shared.core.context.agents import FILE_CHARS
from tests.kit.sample_files import pdf, xlsx

PATIENCE_SECONDS = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "workspaces" / "ada"
    path.mkdir(parents=True)
    return path


@pytest.fixture
async def files(folder: Path) -> AsyncIterator[WorkspaceFiles]:
    found = WorkspaceFiles(folder.parent, poll_seconds=0)
    yield found
    await found.close()


async def until(files: WorkspaceFiles, name: str, text: str, *, of: str = "ada") -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while files.load(of).text(name) != text:
            await asyncio.sleep(0.02)


def test_missing_folder_is_reported_and_empty(tmp_path: Path) -> None:
    found = read_workspace(tmp_path / "none")
    assert found.files == ()
    assert found.problems == (f"{tmp_path / 'none'} is not there",)


async def test_home_of_an_unknown_user_is_reported_and_empty(files: WorkspaceFiles) -> None:
    found = files.load("~nosuchuser/notes")
    assert (found.files, len(found.problems)) == ((), 1)
    assert found.problems[0].endswith("~nosuchuser/notes is not there")


def test_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("I am no folder")
    assert read_workspace(tmp_path / "ada").problems


def test_only_files_that_mean_something_are_read(folder: Path) -> None:
    for name in ("SOUL.md", "README.md", "soul.txt", "memory.md"):
        (folder / name).write_text(name)
    assert [name for name, _ in read_workspace(folder).files] == ["SOUL.md"]


@pytest.mark.control("S48")
def test_link_out_of_the_folder_is_refused_and_inside_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("TOP SECRET")
    (folder / "SOUL.md").symlink_to(tmp_path / "secret")
    (folder / "real.md").write_text("inside")
    (folder / "AGENTS.md").symlink_to(folder / "real.md")
    (folder / "TOOLS.md").symlink_to(folder / "nothing")
    (folder / "USER.md").symlink_to(folder / "USER.md")
    found = read_workspace(folder)
    assert dict(found.files) == {"AGENTS.md": "inside"}
    assert "SOUL.md leads out of the folder: a link must stay inside it" in found.problems
    assert "TOOLS.md is a link to nothing" in found.problems
    assert any(problem.startswith("USER.md ") for problem in found.problems)


def test_a_memory_folder_that_leads_elsewhere_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "2026-01-01.md").write_text("TOP SECRET")
    (folder / "memory").symlink_to(tmp_path / "other")
    assert read_workspace(folder).files == ()


def test_what_is_no_file_never_holds_anybody_up(folder: Path) -> None:
    (folder / "SOUL.md").mkdir()
    os.mkfifo(folder / "AGENTS.md")
    found = read_workspace(folder)
    assert found.files == ()
    assert set(found.problems) == {"SOUL.md is not a file", "AGENTS.md is not a file"}


def test_broken_encoding_is_read_as_far_as_possible_and_reported(folder: Path) -> None:
    (folder / "SOUL.md").write_bytes(b"Gr\xfc\xdfe\x00 from \xe2\x82")
    (folder / "AGENTS.md").write_bytes(b"\xef\xbb\xbfwith a mark")
    found = read_workspace(folder)
    lost = "\N{REPLACEMENT CHARACTER}"
    assert found.text("SOUL.md") == f"Gr{lost}{lost}e from {lost}"
    assert found.text("AGENTS.md") == "with a mark"
    assert len(found.problems) == 1


def test_huge_file_shows_head_and_tail_and_is_reported(folder: Path) -> None:
    with (folder / "SOUL.md").open("wb") as out:
        out.write(b"HEAD")
        out.seek(5 * 1024**3)
        out.write(b"TAIL")
    (folder / "AGENTS.md").write_text("x" * (FILE_CHARS + 1))
    found = read_workspace(folder)
    assert found.text("SOUL.md").startswith("HEAD")
    assert found.text("SOUL.md").endswith("TAIL")
    assert all(len(text) <= FILE_CHARS for _, text in found.files)
    assert sum("only its head and tail are used" in problem for problem in found.problems) == 2
    assert MOST_BYTES < 5 * 1024**3


async def test_a_change_is_seen_by_the_watcher_alone(files: WorkspaceFiles, folder: Path) -> None:
    (folder / "SOUL.md").write_text("one")
    assert files.load("ada").text("SOUL.md") == "one"
    for words in ("two", "three"):
        (folder / "new").write_text(words)
        (folder / "new").replace(folder / "SOUL.md")
        await until(files, "SOUL.md", words)
    (folder / "SOUL.md").unlink()
    await until(files, "SOUL.md", "")


async def test_a_change_is_seen_by_the_poll_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: WorkspaceFiles) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(WorkspaceFiles, "_watch", never)
    files = WorkspaceFiles(folder.parent, poll_seconds=0.05)
    assert files.load("ada").files == ()
    (folder / "SOUL.md").write_text("one")
    await until(files, "SOUL.md", "one")
    await files.close()


async def test_a_second_folder_is_watched_with_the_first(files: WorkspaceFiles, folder: Path) -> None:
    other = folder.parent / "grace"
    other.mkdir()
    files.load("ada")
    await asyncio.sleep(0.1)
    files.load("grace")
    (other / "SOUL.md").write_text("two")
    await until(files, "SOUL.md", "two", of="grace")
    (folder / "SOUL.md").write_text("one")
    await until(files, "SOUL.md", "one")


async def test_a_folder_that_is_removed_and_made_again_is_seen(files: WorkspaceFiles, folder: Path) -> None:
    (folder / "SOUL.md").write_text("one")
    files.load("ada")
    await asyncio.sleep(1.5)
    (folder / "SOUL.md").unlink()
    folder.rmdir()
    await until(files, "SOUL.md", "")
    folder.mkdir()
    (folder / "SOUL.md").write_text("again")
    await until(files, "SOUL.md", "again")


async def test_listener_hears_of_knowledge_changes(files: WorkspaceFiles, folder: Path) -> None:
    heard: list[str] = []
    files.subscribe(heard.append)
    await files.preload(["ada", "ada"])
    (folder / "knowledge").mkdir()
    (folder / "knowledge" / "a.md").write_text("x")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not heard:
            await asyncio.sleep(0.02)
    assert set(heard) == {"ada"}


async def test_nothing_runs_where_no_agent_has_a_folder(files: WorkspaceFiles) -> None:
    await files.preload([])
    assert not files._tasks


def test_a_shelf_names_what_it_cannot_use_and_goes_on(folder: Path, tmp_path: Path) -> None:
    shelf = folder / "knowledge"
    (shelf / "deep").mkdir(parents=True)
    (shelf / "deep" / "a.md").write_text("# A\ntext")
    (shelf / "picture.png").write_bytes(b"x")
    (shelf / ".hidden.md").write_text("x")
    (tmp_path / "secret.txt").write_text("x")
    (shelf / "out.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(shelf / "pipe.txt")
    with (shelf / "huge.txt").open("wb") as out:
        out.truncate(100 * 1024**2)
    found = build_shelf(shelf)
    assert list(found.files) == ["deep/a.md"]
    assert sorted(problem.split(" ")[0] for problem in found.problems) == [
        "knowledge/huge.txt", "knowledge/out.txt", "knowledge/picture.png", "knowledge/pipe.txt",
    ]  # fmt: skip
    assert "knowledge/huge.txt has 100 MB; 20 MB is the most" in found.problems


def test_undecodable_name_is_reported_and_skipped(folder: Path) -> None:
    for inner in ("knowledge", "memory"):
        (folder / inner).mkdir()
        (folder / inner / "a.md").write_text("x")
        (folder / inner / os.fsdecode(b"b\xff.md")).write_text("x")
        (folder / inner / "c\n.md").write_text("x")
    assert list(build_shelf(folder / "knowledge").files) == ["a.md"]
    assert all(problem.isascii() for problem in build_shelf(folder / "knowledge").problems)
    assert [name for name, _ in read_workspace(folder).files] == ["memory/a.md"]


def test_no_shelf_is_an_empty_one(tmp_path: Path) -> None:
    assert build_shelf(tmp_path / "none").problems == ()


async def test_each_kind_of_file_becomes_passages(folder: Path) -> None:
    shelf = folder / "knowledge"
    shelf.mkdir()
    (shelf / "a.md").write_text("# Returns\nThirty days.")
    (shelf / "b.csv").write_text("name,price\nTea,3\n")
    (shelf / "c.TXT").write_bytes(b"Gr\xfc\xdfe")
    (shelf / "d.pdf").write_bytes(pdf("Page one.", "Page two."))
    knowledge = KnowledgeFiles(folder.parent)
    told = {
        path: [(one.heading, one.text) for one in await knowledge.read_passages("ada", path)]
        for path in (await knowledge.scan("ada")).files
    }
    assert told == {
        "a.md": [("Returns", "Thirty days.")],
        "b.csv": [("row 2", "name: Tea; price: 3")],
        "c.TXT": [("line 1 · read as Windows-1252", "Grüße")],
        "d.pdf": [("page 1", "Page one."), ("page 2", "Page two.")],
    }


async def test_knowledge_of_a_workspace_in_the_home_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ada" / "knowledge").mkdir(parents=True)
    (tmp_path / "ada" / "knowledge" / "a.md").write_text("Thirty days.")
    [passage] = await KnowledgeFiles(tmp_path / "elsewhere").read_passages("~/ada", "a.md")
    assert passage.text == "Thirty days."


async def test_office_files_and_old_encodings_become_passages(folder: Path) -> None:
    shelf = folder / "knowledge"
    shelf.mkdir()
    rows = '<row><c r="A1" t="str"><v>Part</v></c></row><row><c r="A2" t="str"><v>bolt</v></c></row>'
    (shelf / "a.xlsx").write_bytes(xlsx(rows))
    (shelf / "b.csv").write_bytes("Товар;Цена\nЛожка столовая;35\n".encode("cp1251"))
    knowledge = KnowledgeFiles(folder.parent)
    assert set((await knowledge.scan("ada")).files) == {"a.xlsx", "b.csv"}
    [sheet] = await knowledge.read_passages("ada", "a.xlsx")
    assert (sheet.heading, sheet.text) == ("Budget", "| Part |\n| --- |\n| bolt |")
    [row] = await knowledge.read_passages("ada", "b.csv")
    assert (row.heading, row.text) == ("row 2 · read as Windows-1251", "Товар: Ложка столовая; Цена: 35")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.pdf", b"%PDF-1.7 broken"), ("b.csv", b'a\n"open'), ("c.md", b"\x00\x01"), ("../../x.md", b"")],
)
async def test_broken_file_is_reported_by_name(folder: Path, name: str, content: bytes) -> None:
    shelf = folder / "knowledge"
    shelf.mkdir()
    (shelf / Path(name).name).write_bytes(content)
    with pytest.raises(UnreadableKnowledge, match=re.escape(name)):
        await KnowledgeFiles(folder.parent).read_passages("ada", name)
