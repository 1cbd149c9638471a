"""`evertalk agent` and `evertalk site`: agents' rows and the sites that use them, changed at a terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.adapters.postgres.agents import AgentRow, PostgresAgents
from shared.adapters.postgres.pool import open_pool
from shared.agents import AGENT_NAME, BadAgentConfig, Ground, check_config, read_config
from shared.bots import DEFAULT_AGENT

_AGENT_COLUMNS = (16, 7, 5, 12, 12, 18)
_SITE_COLUMNS = (14, 16, 8, 8, 26)
_ORIGIN = re.compile(r"(https?://)?(\*\.)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")
_EDITORS = ("nano", "vi")
_FILE_KEYS = frozenset({"agent", "version", "config"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How a person at a terminal is told, asked and given a file to edit."""

    say: Callable[[str], None] = print
    ask: Callable[[str], str] = input
    editor: Callable[[Path], int] | None = None
    """Ends with the editor's exit code; None takes the one of the environment."""


def read_agent_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Ends the program with 2 and a usage line when they cannot be used."""
    parser = argparse.ArgumentParser(prog="evertalk agent", description="Who answers, and how.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="show all agents and who has them")
    _named(verbs.add_parser("show", help="print an agent's settings as JSON"))
    _named(verbs.add_parser("edit", help="open an agent's settings in your editor"))
    _named(verbs.add_parser("create", help="make an agent; edit or import gives it settings"))
    _named(verbs.add_parser("delete", help="delete an agent that nobody has"))
    export = _named(verbs.add_parser("export", help="write an agent to a file, or to the screen"))
    export.add_argument("file", metavar="FILE", nargs="?", type=Path)
    brought = verbs.add_parser("import", help="make or replace an agent from such a file")
    brought.add_argument("file", metavar="FILE", type=Path)
    assign = _named(verbs.add_parser("assign", help="give a site to an agent, or the talks of a bot"))
    where = assign.add_mutually_exclusive_group(required=True)
    where.add_argument("--site", metavar="SITE", default="")
    where.add_argument("--bot", metavar="BOT", default="", help="its @name or number")
    assign.add_argument(
        "--existing", action="store_true", help="conversations that exist already move to the agent, too"
    )
    return parser.parse_args(arguments)


def read_site_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Ends the program with 2 and a usage line when they cannot be used."""
    parser = argparse.ArgumentParser(prog="evertalk site", description="Where the widget may live.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="show all sites")
    for verb, told in (("add", "make a site"), ("edit", "change what is given of a site")):
        one = _named(verbs.add_parser(verb, help=told))
        one.add_argument("--agent", metavar="AGENT", default=DEFAULT_AGENT if verb == "add" else None)
        one.add_argument("--audience", choices=("personal", "public"))
        one.add_argument(
            "--origin", metavar="ORIGIN", action="append", help="a page's origin; may be given again"
        )
    return parser.parse_args(arguments)


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="NAME")
    return parser


@contextlib.asynccontextmanager
async def _agents(database_url: str) -> AsyncIterator[PostgresAgents]:
    pool = await open_pool(database_url, size=2)
    try:
        yield PostgresAgents(pool)
    finally:
        await pool.close()


async def run_agent(
    wish: argparse.Namespace, *, database_url: str, ground: Ground, drafts: Path, terminal: Terminal
) -> int:
    """0 when it was done, 1 when not, with lines that say why."""
    async with _agents(database_url) as agents:
        desk = AgentDesk(agents, ground=ground, drafts=drafts, terminal=terminal)
        match wish.verb:
            case "list":
                return await desk.list()
            case "import":
                return await desk.bring(wish.file)
            case "create":
                return await desk.create(wish.name)
        row = await agents.find(wish.name)
        if row is None:
            return await desk.unknown(wish.name)
        match wish.verb:
            case "show":
                return desk.show(row)
            case "export":
                return desk.export(row, wish.file)
            case "edit":
                return await desk.edit(row)
            case "assign":
                return await desk.assign(row, site=wish.site, bot=wish.bot, existing=wish.existing)
            case _:
                return await desk.delete(row)


class AgentDesk:
    def __init__(self, agents: PostgresAgents, *, ground: Ground, drafts: Path, terminal: Terminal) -> None:
        self._agents = agents
        self._ground = ground
        self._drafts = drafts
        self._terminal = terminal
        self._say = terminal.say

    async def list(self) -> int:
        head = ("agent", "version", "talks", "sites", "bots", "model")
        for line in table([head, *map(_cells, await self._agents.all())], most=_AGENT_COLUMNS):
            self._say(line)
        return 0

    def show(self, row: AgentRow) -> int:
        self._say(as_json(row.config))
        return 0

    def export(self, row: AgentRow, file: Path | None) -> int:
        text = as_json({"agent": row.name, "version": row.version, "config": row.config})
        if file is None:
            self._say(text)
            return 0
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(text + "\n")
        except FileExistsError:
            self._say(f"{file} is there already: nothing was written. Choose another name.")
            return 1
        except OSError as error:
            self._say(f"{file} cannot be written: {error.strerror}.")
            return 1
        self._say(f"{row.name}, version {row.version}, is in {file}.")
        return 0

    async def create(self, name: str) -> int:
        if not AGENT_NAME.fullmatch(name):
            self._say(f"{_shown(name)} is no name for an agent: 1 to 40 of a-z, 0-9, _ and -, no mark first.")
            return 1
        if not await self._agents.create(name, {}):
            self._say(f"There is an agent {name} already. Nothing was changed.")
            return 1
        self._say(f"{name} is there, with the deployment's settings.")
        self._say(f"./evertalk agent edit {name} changes them.")
        return 0

    async def bring(self, file: Path) -> int:
        """Made when there is no such agent, else replaced, unless it changed since the file was written."""
        try:
            name, version, config = _read_file(file)
            remarks = check_config(config, self._ground)
        except (BadAgentConfig, OSError, UnicodeDecodeError) as error:
            self._problems(f"{file} cannot be used; nothing was changed:", error)
            return 1
        row = await self._agents.find(name)
        if row is None:
            if not await self._agents.create(name, config):
                return self._overtaken(name)
            return self._done(name, 1, remarks)
        changed = await self._agents.change(name, config, seen=row.version if version is None else version)
        if changed is None:
            self._say(f"{name} is at version {row.version}, the file was made from version {version}.")
            self._say(
                "Nothing was changed. Export it again, or take `version` out of the file to replace it."
            )
            return 1
        return self._done(name, changed, remarks)

    async def edit(self, row: AgentRow) -> int:
        """Nothing that was typed is lost: the draft stays in its file until the row is changed."""
        try:
            draft = self._draft(row)
        except OSError as error:
            self._say(f"No draft can be written to {self._drafts}: {error.strerror}.")
            return 1
        typed = await self._typed(row.name, draft)
        if typed is None:
            return 1
        config, remarks = typed
        if config == row.config:
            draft.unlink()
            self._say("Nothing was changed.")
            return 0
        version = await self._agents.change(row.name, config, seen=row.version)
        if version is None:
            self._say(f"Your draft is in {draft}.")
            return self._overtaken(row.name)
        draft.unlink()
        return self._done(row.name, version, remarks)

    async def _typed(self, name: str, draft: Path) -> tuple[Any, Sequence[str]] | None:
        """What the person wrote, checked, and remarks about it; None when they gave up for now."""
        while True:
            if (code := await asyncio.to_thread(self._open_editor, draft)) != 0:
                self._say(f"The editor ended with {code}. Nothing was changed; the draft is in {draft}.")
                return None
            try:
                config = read_config(draft.read_text(encoding="utf-8"))
                return config, check_config(config, self._ground)
            except (BadAgentConfig, OSError, UnicodeDecodeError) as error:
                self._problems("This cannot be used yet:", error)
            if not await self._wants_more():
                self._say(f"Nothing was changed. Your draft is in {draft};")
                self._say(f"./evertalk agent edit {name} goes on with it.")
                return None

    async def delete(self, row: AgentRow) -> int:
        if row.name == DEFAULT_AGENT:
            self._say(f"{DEFAULT_AGENT} stays: whoever has no other agent has this one.")
            return 1
        if not await self._agents.delete(row.name):
            self._say(f"{row.name} still answers: {_who_has(row)}. Nothing was changed.")
            self._say("./evertalk agent assign gives them to another agent.")
            return 1
        self._say(f"{row.name} is deleted.")
        return 0

    async def assign(self, row: AgentRow, *, site: str, bot: str, existing: bool) -> int:
        if bot:
            return await self._assign_bot(row, bot, existing)
        if not await self._agents.put_site(site, agent=row.name, audience=None, origins=None, new=False):
            self._say(f"There is no site {_shown(site)}. ./evertalk site list shows them.")
            return 1
        self._say(f"New conversations on {site} are answered by {row.name}.")
        if existing:
            await self._move(row, channel="web", account=site)
        else:
            self._say("Those that exist already keep theirs; --existing moves them, too.")
        return 0

    async def _assign_bot(self, row: AgentRow, bot: str, existing: bool) -> int:
        bot_id = await self._agents.bot_id(bot)
        if bot_id is None:
            self._say(f"No bot {_shown(bot)} is known. ./evertalk agent list shows those that are.")
            return 1
        if not existing:
            self._say(
                "Which agent a bot has stands in the bots file (EVERTALK_TELEGRAM_BOTS_FILE), as `agent`."
            )
            self._say("Change it there and restart; --existing moves the conversations that it has already.")
            return 1
        await self._move(row, channel="telegram", account=str(bot_id))
        return 0

    async def _move(self, row: AgentRow, *, channel: str, account: str) -> None:
        moved = await self._agents.move_sessions(row.name, channel=channel, account=account)
        self._say(f"{moved} conversations moved to {row.name} and go on with their next message.")
        if moved:
            self._say("What the former agent has noted of people stays with it: notes belong to an agent.")

    async def unknown(self, name: str) -> int:
        names = ", ".join(row.name for row in await self._agents.all())
        self._say(f"There is no agent {_shown(name)}. There are: {names}.")
        return 1

    def _draft(self, row: AgentRow) -> Path:
        draft = self._drafts / f"agent-{row.name}-{row.version}.json"
        if draft.exists():
            self._say(f"Going on with the draft in {draft}.")
            return draft
        self._drafts.mkdir(mode=0o700, parents=True, exist_ok=True)
        for older in sorted(self._drafts.glob(f"agent-{row.name}-*.json")):
            if older.stem.removeprefix(f"agent-{row.name}-").isdecimal():
                self._say(f"An older draft, begun on another version, lies in {older}.")
        draft.touch(mode=0o600)
        draft.write_text(as_json(row.config) + "\n", encoding="utf-8")
        return draft

    def _open_editor(self, draft: Path) -> int:
        if self._terminal.editor is not None:
            return self._terminal.editor(draft)
        command = editor_command()
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

    def _problems(self, head: str, error: Exception) -> None:
        told = error.problems if isinstance(error, BadAgentConfig) else (str(error),)
        self._say(head)
        for problem in told:
            self._say(f"  {printable(problem)}")

    def _overtaken(self, name: str) -> int:
        self._say(f"Somebody else changed {name} meanwhile: nothing of yours was stored.")
        self._say(f"./evertalk agent show {name} prints theirs; edit it again from there.")
        return 1

    def _done(self, name: str, version: int, remarks: Sequence[str]) -> int:
        for remark in remarks:
            self._say(f"  note: {printable(remark)}")
        self._say(f"{name} is at version {version}; it holds from each conversation's next message on.")
        return 0


async def run_site(wish: argparse.Namespace, *, database_url: str, say: Callable[[str], None]) -> int:
    """0 when it was done, 1 when not, with a line that says why."""
    async with _agents(database_url) as agents:
        if wish.verb == "list":
            rows = [
                (site.name, site.agent, site.audience, str(site.visitors), " ".join(site.origins) or "–")
                for site in await agents.sites()
            ]
            for line in table(
                [("site", "agent", "audience", "visitors", "origins"), *rows], most=_SITE_COLUMNS
            ):
                say(line)
            return 0
        if wish.agent is not None and await agents.find(wish.agent) is None:
            names = ", ".join(row.name for row in await agents.all())
            say(f"There is no agent {_shown(wish.agent)}. There are: {names}. Nothing was changed.")
            return 1
        new = wish.verb == "add"
        if new and not AGENT_NAME.fullmatch(wish.name):
            say(f"{_shown(wish.name)} is no name for a site: 1 to 40 of a-z, 0-9, _ and -, no mark first.")
            return 1
        if wrong := [one for one in wish.origin or () if not _ORIGIN.fullmatch(one)]:
            say(f"{_shown(wrong[0])} is no origin such as https://shop.example.org. Nothing was changed.")
            return 1
        done = await agents.put_site(
            wish.name, agent=wish.agent, audience=wish.audience, origins=wish.origin, new=new
        )
        if not done:
            known = "There is a site of that name already" if new else f"There is no site {_shown(wish.name)}"
            say(f"{known}. ./evertalk site list shows all.")
            return 1
        say(f'{wish.name}: <script src="…/widget.js" data-site="{wish.name}" async></script>')
        return 0


def _read_file(file: Path) -> tuple[str, int | None, Any]:
    """Name, version if there is one, config. Raises BadAgentConfig, OSError, UnicodeDecodeError."""
    told = read_config(file.read_text(encoding="utf-8-sig"))
    if not isinstance(told, Mapping) or not {"agent", "config"} <= told.keys() <= _FILE_KEYS:
        raise BadAgentConfig(
            ['must be {"agent": NAME, "version": NUMBER, "config": {…}}, as export writes it']
        )
    name, version = told["agent"], told.get("version")
    if not isinstance(name, str) or not AGENT_NAME.fullmatch(name):
        raise BadAgentConfig(["agent: must be a name of 1 to 40 of a-z, 0-9, _ and -"])
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise BadAgentConfig(["version: must be a whole number, or be left out"])
    return name, version, told["config"]


def editor_command(environ: Mapping[str, str] | None = None) -> list[str]:
    known = os.environ if environ is None else environ
    wanted = known.get("VISUAL") or known.get("EDITOR")
    if wanted:
        return shlex.split(wanted)
    return next(([found] for name in _EDITORS if (found := shutil.which(name))), [])


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def table(rows: Sequence[Sequence[str]], *, most: Sequence[int]) -> list[str]:
    """Columns side by side, each at most so many characters wide: a row fits into 80 with those of ours."""
    cut = [[_cut(printable(cell), chars) for cell, chars in zip(row, most, strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cut)
    return ["  ".join(cells).rstrip() for cells in padded]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _shown(name: str) -> str:
    return f"“{printable(name)[:60]}”"


def _cells(row: AgentRow) -> tuple[str, ...]:
    model = str(row.config.get("model") or "–")
    return row.name, str(row.version), str(row.sessions), _few(row.sites), _few(row.bots), model


def _few(names: Sequence[str]) -> str:
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names) or "–"


def _who_has(row: AgentRow) -> str:
    parts = [f"{row.sessions} conversations"] if row.sessions else []
    parts += [f"site {name}" for name in row.sites] + [f"bot {name}" for name in row.bots]
    return ", ".join(parts)
