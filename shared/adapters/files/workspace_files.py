"""Workspaces of agents, read again when the watcher or the regular check finds changed files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from shared.adapters.files.safe_paths import NotReadable, has_plain_name, read_bytes, regular_file
from shared.core.context.agents import FILE_CHARS, FILES, MEMORY_FILES, MEMORY_FOLDER, Workspace, clean, cut

log = structlog.get_logger(__name__)

MOST_BYTES = 1024 * 1024
"""Bytes above which only the head and the tail of a file are read."""
READ_SECONDS = 20.0
"""Maximum seconds for reading one workspace."""
CLOSE_SECONDS = 3.0
"""Seconds to wait for the watcher when it is closed."""
_QUIET_MS = 100
"""Milliseconds without a change before files are read; one save may write a file several times."""
_LOOK_MS = 1_000
_TRY_AGAIN_SECONDS = 5.0

OnChange = Callable[[str], None]
"""Callback with the changed workspace's folder as the agent's config names it."""


class WorkspaceFiles:
    """Reader of agents' workspaces, which keeps their files as last read and reads them again after a
    change.

    A workspace is named by its folder: a name below `root`, or an absolute path; `~` is expanded. A folder
    or file that cannot be read is no error, but one of the `problems`.

    Used from one event loop; `close` stops the watcher.
    """

    def __init__(self, root: Path, *, poll_seconds: float) -> None:
        self._root = root
        self._poll_seconds = poll_seconds
        self._on_change: OnChange | None = None
        self._known: dict[str, Workspace] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._other_paths = asyncio.Event()
        self._watched: tuple[Path, ...] = ()

    def load(self, folder: str) -> Workspace:
        """Return the workspace as last read.

        A folder that is new here is read at once, which blocks shortly.
        """
        if folder not in self._known:
            self._take(folder, read_workspace(self.resolve_path(folder)))
            self._keep_watch()
        return self._known[folder]

    async def preload(self, folders: Iterable[str]) -> None:
        """Read workspaces in advance; one that takes longer than READ_SECONDS is read when it is needed."""
        for folder in folders:
            if folder in self._known:
                continue
            with contextlib.suppress(TimeoutError):
                self._take(folder, await self._read(folder))
                self._keep_watch()

    def subscribe(self, on_change: OnChange) -> None:
        """Call `on_change` from now on whenever a workspace has been read again.

        It replaces an earlier callback.
        """
        self._on_change = on_change

    def resolve_path(self, folder: str) -> Path:
        """Return the path of a workspace's folder; the folder need not exist."""
        return workspace_path(self._root, folder)

    async def close(self) -> None:
        # The watcher's thread ends by its event, not by cancellation.
        """Stop the watcher and the regular check."""
        self._other_paths.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        self._tasks.clear()

    def _keep_watch(self) -> None:
        self._other_paths.set()
        if not self._tasks:
            self._tasks.append(asyncio.ensure_future(self._watch()))
            if self._poll_seconds:
                self._tasks.append(asyncio.ensure_future(self._poll()))

    async def _poll(self) -> None:
        """Read all workspaces every `poll_seconds`.

        This finds changes on file systems without notifications, and folders created later.
        """
        while True:
            await asyncio.sleep(self._poll_seconds)
            await self._read_all(self._known)
            if self._existing() != self._watched:
                self._other_paths.set()

    async def _watch(self) -> None:
        while True:
            self._other_paths.clear()
            self._watched = self._existing()
            try:
                await self._until_other_paths()
            except (OSError, RuntimeError) as error:
                log.warning("workspaces_watch_failed", reason=str(error), poll_seconds=self._poll_seconds)
                self._watched = ()
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

    async def _until_other_paths(self) -> None:
        if not self._watched:
            await self._other_paths.wait()
            return
        from watchfiles import awatch

        seen = awatch(
            *self._watched, stop_event=self._other_paths, step=_QUIET_MS, debounce=10 * _QUIET_MS,
            rust_timeout=_LOOK_MS, yield_on_timeout=True, watch_filter=None, ignore_permission_denied=True,
        )  # fmt: skip
        fresh = True
        async with contextlib.aclosing(seen):
            async for changes in seen:
                changed = {Path(path) for _, path in changes}
                # Read once what was written before the watch began.
                await self._read_all(
                    folder for folder in self._known if fresh or self._is_touched(folder, changed)
                )
                fresh = False
                if changed and self._existing() != self._watched:
                    return

    async def _read_all(self, folders: Iterable[str]) -> None:
        for folder in tuple(folders):
            with contextlib.suppress(TimeoutError):
                await self._read_again(folder)

    async def _read_again(self, folder: str) -> None:
        self._take(folder, await self._read(folder))
        if self._on_change is not None:
            self._on_change(folder)

    async def _read(self, folder: str) -> Workspace:
        async with asyncio.timeout(READ_SECONDS):
            return await asyncio.to_thread(read_workspace, self.resolve_path(folder))

    def _take(self, folder: str, found: Workspace) -> None:
        before = self._known.get(folder)
        if found.problems and (before is None or found.problems != before.problems):
            log.warning("workspace_problems", workspace=folder, problems=list(found.problems))
        if before is not None and before.files != found.files:
            log.info("workspace_changed", workspace=folder, files=[name for name, _ in found.files])
        self._known[folder] = found

    def _existing(self) -> tuple[Path, ...]:
        """Return the workspaces that exist, and `root` if one does not, since it may appear there."""
        paths = {self.resolve_path(folder) for folder in self._known}
        there = {path.resolve() for path in paths if path.is_dir()} - {Path(self._root.anchor)}
        if len(there) < len(paths) and self._root.is_dir():
            there.add(self._root.resolve())
        return tuple(sorted(there))

    def _is_touched(self, folder: str, changed: set[Path]) -> bool:
        path = self.resolve_path(folder).resolve()
        return any(one == path or one.is_relative_to(path) for one in changed)


def workspace_path(root: Path, folder: str) -> Path:
    """Return the path of a workspace's folder; a relative one is below `root`, `~` is expanded.

    `~` with an unknown user stays as it is, so that the folder is one that is not there.
    """
    with contextlib.suppress(RuntimeError):
        return root / Path(folder).expanduser()
    return root / folder


def read_workspace(path: Path) -> Workspace:
    """Return the usable files of a workspace and a sentence for each problem; raises nothing."""
    try:
        root = path.resolve()
        if not root.is_dir():
            return Workspace(problems=(f"{path} is not there",))
        names = [*FILES, *_memory_files(root)]
    except (OSError, RuntimeError) as error:
        return Workspace(problems=(f"{path} cannot be read: {error}",))
    files: list[tuple[str, str]] = []
    problems: list[str] = []
    for name in names:
        text = _text(root, name, problems)
        if text:
            files.append((name, text))
    return Workspace(files=tuple(files), problems=tuple(problems))


def _memory_files(root: Path) -> list[str]:
    folder = root / MEMORY_FOLDER
    if not folder.is_dir() or not folder.resolve().is_relative_to(root):
        return []
    found = (one.name for one in folder.iterdir())
    names = sorted((name for name in found if name.endswith(".md") and has_plain_name(name)), reverse=True)
    return [f"{MEMORY_FOLDER}/{name}" for name in names[:MEMORY_FILES]]


def _text(root: Path, name: str, problems: list[str]) -> str:
    try:
        real, size = regular_file(root, root / name)
        content = read_bytes(real, most=MOST_BYTES)
    except FileNotFoundError:
        return ""
    except NotReadable as error:
        problems.append(f"{name} {error}")
        return ""
    try:
        text = clean(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        text = clean(content.decode("utf-8-sig", errors="replace"))
        if size <= MOST_BYTES:
            problems.append(f"{name} is not UTF-8: what cannot be read is shown as \N{REPLACEMENT CHARACTER}")
    if size > MOST_BYTES or len(text) > FILE_CHARS:
        what = f"{size:,} bytes" if size > MOST_BYTES else f"{len(text):,} characters"
        problems.append(f"{name} has {what}: only its head and tail are used, {FILE_CHARS:,} characters")
    return cut(text)
