"""Indexer of agents' knowledge files: new and changed files are read, removed ones deleted from the index."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from shared.core.memory.knowledge import Passage
from shared.core.values.errors import StorageUnavailable
from shared.work_marks import mark_work

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5.0
"""Seconds to wait while the database is unavailable."""
MAX_PASSAGES = 5_000
"""Most passages of one agent; passages beyond them, in the order of the files' names, are left out."""


class KnowledgeStore(Protocol):
    """Store of the passages of agents' files, by agent id and path.

    `replace` stores all passages of a file with its SHA-256; a file without passages is stored, too.
    """

    async def load_hashes(self, agent_id: int) -> Mapping[str, bytes]:
        """Return the SHA-256 of each stored file by its path."""
        ...

    async def replace(
        self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage]
    ) -> None: ...
    async def remove(self, agent_id: int, paths: Sequence[str]) -> None: ...


class KnowledgeFolder(Protocol):
    """Files of a folder as SHA-256 by path, and problems for the operator."""

    @property
    def files(self) -> Mapping[str, bytes]: ...
    @property
    def problems(self) -> tuple[str, ...]: ...


class KnowledgeSource(Protocol):
    """Reader of agents' folders; `scan` lists the files of a folder, and raises TimeoutError if that takes
    too long.
    """

    async def scan(self, folder: str) -> KnowledgeFolder: ...
    async def read_passages(self, folder: str, path: str) -> Sequence[Passage]:
        """Return the passages of a file. Raises an exception whose text is meant for an operator."""
        ...


class AgentFolders(Protocol):
    """Store of the folder of each agent."""

    async def load_folders(self) -> Mapping[int, str]:
        """Return the workspace folder of each agent by its id; empty for an agent without one."""
        ...


class FolderPreloader(Protocol):
    """Loader that reads agents' folders before a request needs them."""

    async def preload(self, folders: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """Result of indexing one agent's files: paths read and removed, and problems for the operator."""

    read: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class KnowledgeIndexer:
    """Indexer of all agents' knowledge files, run by the worker."""

    def __init__(
        self,
        *,
        store: KnowledgeStore,
        files: KnowledgeSource,
        agents: AgentFolders,
        unreadable: type[Exception],
        watcher: FolderPreloader | None = None,
        most_passages: int = MAX_PASSAGES,
        given_up: Collection[str] = (),
    ) -> None:
        """Set up the indexer; `unreadable` is the exception that a broken file raises.

        `given_up` has keys of work that crashed processes and is not tried again.
        """
        self._given_up = given_up
        self._store = store
        self._files = files
        self._agents = agents
        self._unreadable = unreadable
        self._watcher = watcher
        self._most = most_passages
        self._sizes: dict[bytes, int] = {}
        """Number of passages by SHA-256 of the files that this process has read."""
        self._told: dict[int, tuple[str, ...]] = {}
        self._changed = asyncio.Event()

    def folder_changed(self, _folder: str) -> None:
        """Have `run` index all agents again at once; a watcher of folders calls this after a change."""
        self._changed.set()

    async def run(self, *, poll_seconds: float) -> None:
        """Index all agents until cancelled: at once, after each change, and every `poll_seconds`.

        With 0 as `poll_seconds` only changes count. While the database is unavailable it tries every 5
        seconds.
        """
        while True:
            self._changed.clear()
            try:
                await self.index_all()
            except StorageUnavailable as error:
                log.warning("knowledge_storage_unavailable", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                async with asyncio.timeout(poll_seconds or None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def index_all(self) -> dict[int, IndexReport]:
        """Index the changed files of all agents; return the report by agent id. Raises StorageUnavailable.

        Another error of one agent is reported and logged, and does not stop the others.
        """
        done: dict[int, IndexReport] = {}
        folders = await self._agents.load_folders()
        if self._watcher is not None:
            await self._watcher.preload(folder for folder in folders.values() if folder)
        for agent_id, folder in folders.items():
            try:
                done[agent_id] = await self.index_agent(agent_id, folder)
            except StorageUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is in a folder, the worker goes on
                told = f"{type(error).__name__}: {error}"
                done[agent_id] = IndexReport(problems=(f"knowledge cannot be looked at: {told}",))
            self._report(agent_id, done[agent_id])
        return done

    async def index_agent(self, agent_id: int, folder: str) -> IndexReport:
        """Store the passages of an agent's new and changed files, and delete those of removed files; return
        what was done.

        `folder` "" deletes everything that is stored for the agent. Unreadable files are reported as
        problems. Raises StorageUnavailable, and TimeoutError if the folder cannot be listed in time.
        """
        kept = await self._store.load_hashes(agent_id)
        listed = await self._files.scan(folder) if folder else None
        found: Mapping[str, bytes] = listed.files if listed is not None else {}
        problems = list(listed.problems) if listed is not None else []
        gone = sorted(kept.keys() - found.keys())
        if gone:
            await self._store.remove(agent_id, gone)
        changed = sorted(path for path, sha256 in found.items() if kept.get(path) != sha256)
        read: list[str] = []
        if changed:
            room = self._most - await self._count_unchanged(folder, found, kept)
            for path in changed:
                room -= await self._store_passages(agent_id, folder, path, found[path], room, problems)
                read.append(path)
        return IndexReport(read=tuple(read), removed=tuple(gone), problems=tuple(problems))

    async def _store_passages(
        self, agent_id: int, folder: str, path: str, sha256: bytes, room: int, problems: list[str]
    ) -> int:
        """Store the passages of a file; return their number.

        An unusable file is stored without passages, so that it is tried once until it changes.
        """
        passages: Sequence[Passage] = ()
        try:
            passages = await self._read_passages(folder, path, sha256)
        except self._unreadable as error:
            problems.append(f"knowledge/{error}")
        if len(passages) > room:
            problems.append(
                f"knowledge/{path} has {len(passages):,} passages and there is room for {max(0, room):,} of "
                f"{self._most:,}: the rest is left out"
            )
            passages = passages[: max(0, room)]
        self._sizes[sha256] = len(passages)
        await self._store.replace(agent_id, path, sha256=sha256, passages=passages)
        return len(passages)

    async def _read_passages(self, folder: str, path: str, sha256: bytes) -> Sequence[Passage]:
        """Return the passages of a file. Raises `unreadable`, also for a file that crashed processes."""
        content = sha256.hex()[:32]
        if f"knowledge {content}" in self._given_up:
            raise self._unreadable(f"{path} stopped the program twice: it is left out until it changes")
        with mark_work("knowledge", content):
            return await self._files.read_passages(folder, path)

    async def _count_unchanged(
        self, folder: str, found: Mapping[str, bytes], kept: Mapping[str, bytes]
    ) -> int:
        """Return the number of passages of the files that did not change."""
        taken = 0
        for path, sha256 in found.items():
            if kept.get(path) != sha256:
                continue
            if sha256 not in self._sizes:
                try:
                    self._sizes[sha256] = len(await self._read_passages(folder, path, sha256))
                except self._unreadable:
                    self._sizes[sha256] = 0
            taken += self._sizes[sha256]
        return taken

    def _report(self, agent_id: int, indexed: IndexReport) -> None:
        if indexed.read or indexed.removed:
            log.info(
                "knowledge_indexed", agent_id=agent_id, read=len(indexed.read), removed=len(indexed.removed)
            )
        if indexed.problems and self._told.get(agent_id) != indexed.problems:
            log.warning("knowledge_problems", agent_id=agent_id, problems=list(indexed.problems))
        self._told[agent_id] = indexed.problems
