"""What the files of an agent's folder say in its prompt: which, in which order, how much of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

INSTRUCTIONS = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md")
"""How the agent works, who it is and what its tools are for: in every turn, in this order."""
BOOTSTRAP = "BOOTSTRAP.md"
"""For the first turn of a conversation only."""
PERSON = "USER.md"
MEMORY = "MEMORY.md"
MEMORY_FOLDER = "memory"
HEARTBEAT = "HEARTBEAT.md"
"""For turns that no person begins; ordinary turns go without."""
FILES = (*INSTRUCTIONS, BOOTSTRAP, PERSON, MEMORY, HEARTBEAT)
KNOWLEDGE_FOLDER = "knowledge"

FILE_CHARS = 20_000
MEMORY_CHARS = 20_000
"""Of all files in `memory/` together."""
MEMORY_FILES = 10
_HEAD, _TAIL = 0.7, 0.2
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LEAST_CHARS = 200
"""A file of `memory/` of which no more than this would be left is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folder as it was read last: texts by the file's name, and what a person should put right."""

    files: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        return next((text for known, text in self.files if known == name), "")

    @property
    def days(self) -> tuple[tuple[str, str], ...]:
        """The files of `memory/`, newest first: they are named for their dates."""
        inside = [file for file in self.files if file[0].startswith(f"{MEMORY_FOLDER}/")]
        return tuple(sorted(inside, reverse=True))


EMPTY = Workspace()


def instructions(workspace: Workspace, *, first_turn: bool, by_itself: bool = False) -> str:
    """What holds for everybody that the agent talks with; `by_itself`: no person began the turn."""
    if not workspace.files:
        return ""
    names = (*INSTRUCTIONS, *((BOOTSTRAP,) if first_turn else ()), *((HEARTBEAT,) if by_itself else ()))
    return _shown((name, workspace.text(name)) for name in names)


def has_character(workspace: Workspace) -> bool:
    """Whether its own files say who the agent is, so that our name for it would contradict them."""
    return any(workspace.text(name) for name in ("SOUL.md", "IDENTITY.md"))


def memories(workspace: Workspace) -> str:
    """Of one person: nothing for groups."""
    left, days = MEMORY_CHARS, []
    for name, text in workspace.days[:MEMORY_FILES]:
        if left < min(len(text), _LEAST_CHARS):
            break
        days.append((name, cut(text, left)))
        left -= len(days[-1][1])
    return _shown([(MEMORY, workspace.text(MEMORY)), *days])


def about_person(workspace: Workspace) -> str:
    """Of one person: nothing for groups."""
    return _shown([(PERSON, workspace.text(PERSON))])


def cut(text: str, most: int = FILE_CHARS) -> str:
    """Head and tail of what is too long, with a mark between them that says so; never longer than `most`."""
    if len(text) <= most:
        return text
    head, tail = int(most * _HEAD), int(most * _TAIL)
    mark = f"\n\n[… {len(text) - head - tail:,} characters of this file are left out here …]\n\n"
    if head + len(mark) + tail > most:
        return text[:most]
    return text[:head] + mark + text[-tail:]


def shrunk(workspace: Workspace, share: float) -> Workspace:
    """Every file cut to this share of itself."""
    files = tuple((name, cut(text, int(share * len(text)))) for name, text in workspace.files)
    return replace(workspace, files=files)


def clean(text: str) -> str:
    """Lines as `\\n`, nothing that a database or a terminal would choke on."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _shown(files: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"[{name}]\n{text}" for name, text in files if text)
