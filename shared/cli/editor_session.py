"""Settings that a person writes in an editor: checked until they can be used, and never lost."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.config.agents import BadAgentConfig, read_config
from shared.config.sites import BadSiteConfig

_EDITORS = ("nano", "vi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Terminal of a person: output, questions, and an editor for a file."""

    say: Callable[[str], None] = print
    ask: Callable[[str], str] = input
    editor: Callable[[Path], int] | None = None
    """Function that opens an editor for a file and returns its exit code; None takes the editor of the
    environment.
    """


class EditorSession:
    """Drafts of one kind of row, `agent` or `site`, which a person writes in an editor."""

    def __init__(self, kind: str, *, folder: Path, terminal: Terminal) -> None:
        self._kind = kind
        self._folder = folder
        self._terminal = terminal
        self._say = terminal.say

    async def change(
        self, name: str, version: int, shown: object, *,
        check: Callable[[Any], Sequence[str]], store: Callable[[Any, Sequence[str]], Awaitable[int]],
    ) -> int:  # fmt: skip
        """Open a row in an editor until its draft is valid, then store it; return exit status 0, or 1 if
        nothing was stored.

        The draft stays in its file until `store` has changed the row. `check` returns remarks, or raises
        BadAgentConfig or BadSiteConfig. `store` receives config and remarks, and returns 0 on success.
        """
        try:
            draft = self._create_draft(name, version, shown)
        except OSError as error:
            self._say(f"No draft can be written to {self._folder}: {error.strerror}.")
            return 1
        typed = await self._edit(name, draft, check)
        if typed is None:
            return 1
        if typed[0] == shown:
            self._say("Nothing was changed.")
        elif (code := await store(*typed)) != 0:
            self._say(f"Your draft is in {draft}.")
            return code
        draft.unlink()
        return 0

    def _create_draft(self, name: str, version: int, config: object) -> Path:
        """Create the file to edit, or return the draft that exists. Raises OSError."""
        draft = self._folder / f"{self._kind}-{name}-{version}.json"
        if draft.exists():
            self._say(f"Going on with the draft in {draft}.")
            return draft
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for older in sorted(self._folder.glob(f"{self._kind}-{name}-*.json")):
            if older.stem.removeprefix(f"{self._kind}-{name}-").isdecimal():
                self._say(f"An older draft, begun on another version, lies in {older}.")
        draft.touch(mode=0o600)
        draft.write_text(format_json(config) + "\n", encoding="utf-8")
        return draft

    async def _edit(
        self, name: str, draft: Path, check: Callable[[Any], Sequence[str]]
    ) -> tuple[Any, Sequence[str]] | None:
        """Return the edited config and its remarks; None if the person gave up."""
        while True:
            if (code := await asyncio.to_thread(self._open_editor, draft)) != 0:
                self._say(f"The editor ended with {code}. Nothing was changed; the draft is in {draft}.")
                return None
            try:
                config = read_config(draft.read_text(encoding="utf-8"))
                return config, check(config)
            except (BadAgentConfig, BadSiteConfig, OSError, UnicodeDecodeError) as error:
                self.report_problems("This cannot be used yet:", error)
            if not await self._wants_more():
                self._say(f"Nothing was changed. Your draft is in {draft};")
                self._say(f"./evertalk {self._kind} edit {name} goes on with it.")
                return None

    def report_problems(self, head: str, error: Exception) -> None:
        """Print `head`, then each problem of the error on a line."""
        told = error.problems if isinstance(error, BadAgentConfig | BadSiteConfig) else (str(error),)
        self._say(head)
        for problem in told:
            self._say(f"  {replace_unprintable(problem)}")

    def _open_editor(self, draft: Path) -> int:
        if self._terminal.editor is not None:
            return self._terminal.editor(draft)
        command = find_editor()
        if not command:
            self._say("No editor was found: set EDITOR to the name of one.")
            return 127
        try:
            return subprocess.call([*command, str(draft)])
        except OSError as error:
            self._say(f"{command[0]} cannot be started: {error.strerror}.")
            return 127

    async def _wants_more(self) -> bool:
        try:
            word = await asyncio.to_thread(self._terminal.ask, "Edit again? [Y/n] ")
        except EOFError:
            return False
        return not word.strip().lower().startswith("n")


def find_editor(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the command of the editor in VISUAL or EDITOR, else of an installed one; empty if there is none.

    `environ` None means the environment of this process.
    """
    known = os.environ if environ is None else environ
    wanted = known.get("VISUAL") or known.get("EDITOR")
    if wanted:
        return shlex.split(wanted)
    return next(([found] for name in _EDITORS if (found := shutil.which(name))), [])


def format_json(value: object) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def format_columns(rows: Sequence[Sequence[str]], *, most: Sequence[int]) -> list[str]:
    """Return rows as lines with aligned columns; longer cells are cut to `most` characters, given for each
    column.
    """
    cut = [
        [_cut(replace_unprintable(cell), chars) for cell, chars in zip(row, most, strict=True)]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cut)
    return ["  ".join(cells).rstrip() for cells in padded]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def replace_unprintable(text: str) -> str:
    """Return the text with a replacement character for each unprintable one, so that it cannot control the
    terminal.
    """
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def quote_name(name: str) -> str:
    """Return at most 60 characters of a typed name in quotation marks, without unprintable ones."""
    return f"“{replace_unprintable(name)[:60]}”"
