"""A person at a terminal with an editor, on a real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from shared.bootstrap.from_settings import build_agent_defaults
from shared.cli.agent import read_agent_arguments, run_agent
from shared.cli.editor_session import Terminal
from shared.cli.site import read_site_arguments, run_site
from shared.config.settings import load_settings

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Edit = Callable[[Path], int]


@dataclass
class TerminalDriver:
    """A person at a terminal, whose editor does what the test says."""

    database_url: str
    folder: Path
    said: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    async def agent(self, *words: str, edit: Edit | None = None) -> tuple[int, str]:
        self.said.clear()
        terminal = Terminal(say=self.said.append, ask=self._ask, editor=edit)
        code = await run_agent(
            read_agent_arguments(words), database_url=self.database_url,
            defaults=build_agent_defaults(load_settings(data_dir=self.folder)), editor=self.folder / "drafts",
            terminal=terminal,
        )  # fmt: skip
        return code, "\n".join(self.said)

    async def site(self, *words: str, edit: Edit | None = None) -> tuple[int, str]:
        self.said.clear()
        terminal = Terminal(say=self.said.append, ask=self._ask, editor=edit)
        code = await run_site(
            read_site_arguments(words), database_url=self.database_url, drafts=self.folder / "drafts",
            terminal=terminal, secret_key=lambda: b"k" * 40, public_url="https://bot.example",
        )  # fmt: skip
        return code, "\n".join(self.said)

    def _ask(self, question: str) -> str:
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)


@pytest.fixture
def terminal(database_url: str, tmp_path: Path) -> TerminalDriver:
    return TerminalDriver(database_url=database_url, folder=tmp_path)


def writes(*texts: object) -> Edit:
    """An editor that leaves one text after the other."""
    left = [text if isinstance(text, str) else json.dumps(text) for text in texts]

    def edit(path: Path) -> int:
        path.write_text(left.pop(0), encoding="utf-8")
        return 0

    return edit
