"""`evertalk agent`: agents' rows, changed at a terminal."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.adapters.postgres.people.agents import PostgresAgents
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import open_stores
from shared.cli.editor_session import (
    EditorSession,
    Terminal,
    format_columns,
    format_json,
    quote_name,
    replace_unprintable,
)
from shared.config.agents import (
    AGENT_NAME,
    AgentDefaults,
    AgentRow,
    BadAgentConfig,
    check_config,
    read_config,
)
from shared.core.identity.operators import COMMAND_LINE
from shared.services.admin.agent_service import (
    AgentExists,
    AgentInUse,
    AgentService,
    AgentTooLarge,
    BadAgentName,
    BotNotFound,
    DefaultAgentStays,
    SiteNotFound,
    StaleAgent,
    StoredConfig,
)

_AGENT_COLUMNS = (16, 7, 5, 12, 12, 18)
_FILE_KEYS = frozenset({"agent", "version", "config"})


def read_agent_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command's arguments; if they are invalid, print the usage and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk agent",
        description="Manage agents: who answers, with which model, instructions and tools.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="list agents and where they are used")
    _add_name(verbs.add_parser("show", help="print an agent's settings as JSON"))
    _add_name(verbs.add_parser("edit", help="open an agent's settings in your editor"))
    _add_name(verbs.add_parser("create", help="create an agent with default settings"))
    _add_name(verbs.add_parser("delete", help="delete an agent that is not in use"))
    export = _add_name(verbs.add_parser("export", help="write an agent to a file or to standard output"))
    export.add_argument("file", metavar="FILE", nargs="?", type=Path)
    brought = verbs.add_parser("import", help="create or replace an agent from an exported file")
    brought.add_argument("file", metavar="FILE", type=Path)
    assign = _add_name(verbs.add_parser("assign", help="let an agent answer on a site or for a bot"))
    where = assign.add_mutually_exclusive_group(required=True)
    where.add_argument("--site", metavar="SITE", default="")
    where.add_argument("--bot", metavar="BOT", default="", help="@name or number of the bot")
    assign.add_argument(
        "--existing", action="store_true", help="also move existing conversations to the agent"
    )
    return parser.parse_args(arguments)


def _add_name(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="NAME")
    return parser


async def run_agent(
    options: argparse.Namespace,
    *,
    database_url: str,
    defaults: AgentDefaults,
    editor: Path,
    terminal: Terminal,
) -> int:
    """Run the chosen verb on the database; return exit status 0, or 1 after printing why it failed."""
    async with open_stores(database_url) as stores:
        agents = AgentEditor(
            service=build_operator_services(stores).agents, agents=stores.agents, defaults=defaults,
            say=terminal.say,
            drafts=EditorSession("agent", folder=editor, terminal=terminal),
        )  # fmt: skip
        match options.verb:
            case "list":
                return await agents.list()
            case "import":
                return await agents.import_file(options.file)
            case "create":
                return await agents.create(options.name)
        row = await stores.agents.find(options.name)
        if row is None:
            return await agents.report_unknown(options.name)
        match options.verb:
            case "show":
                return agents.show(row)
            case "export":
                return agents.export(row, options.file)
            case "edit":
                return await agents.edit(row)
            case "assign":
                return await agents.assign(row, site=options.site, bot=options.bot, existing=options.existing)
            case _:
                return await agents.delete(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEditor:
    """Verbs of `evertalk agent`; each prints its result and returns exit status 0, or 1 after a failure."""

    service: AgentService
    agents: PostgresAgents
    defaults: AgentDefaults
    drafts: EditorSession
    say: Callable[[str], None]

    async def list(self) -> int:
        """Print a table of all agents and where they answer."""
        head = ("agent", "version", "talks", "sites", "bots", "model")
        for line in format_columns([head, *map(_cells, await self.agents.list_all())], most=_AGENT_COLUMNS):
            self.say(line)
        return 0

    def show(self, row: AgentRow) -> int:
        """Print the config of an agent as JSON."""
        self.say(format_json(row.config))
        return 0

    def export(self, row: AgentRow, file: Path | None) -> int:
        """Write name, version and config of an agent as JSON to a new file; None prints them.

        An existing file is not overwritten.
        """
        text = format_json({"agent": row.name, "version": row.version, "config": row.config})
        if file is None:
            self.say(text)
            return 0
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(text + "\n")
        except FileExistsError:
            self.say(f"{file} is there already: nothing was written. Choose another name.")
            return 1
        except OSError as error:
            self.say(f"{file} cannot be written: {error.strerror}.")
            return 1
        self.say(f"{row.name}, version {row.version}, is in {file}.")
        return 0

    async def create(self, name: str) -> int:
        """Create an agent with the deployment's settings."""
        try:
            await self.service.create_agent(name, by=COMMAND_LINE)
        except BadAgentName:
            self.say(
                f"{quote_name(name)} is no name for an agent: 1 to 40 of a-z, 0-9, _ and -, no mark first."
            )
            return 1
        except AgentExists:
            self.say(f"There is an agent {name} already. Nothing was changed.")
            return 1
        self.say(f"{name} is there, with the deployment's settings.")
        self.say(f"./evertalk agent edit {name} changes them.")
        return 0

    async def import_file(self, file: Path) -> int:
        """Create or replace the agent of an exported file; return exit status 0, or 1 after printing why it
        failed.

        A file with a version replaces only that version, one without replaces any.
        """
        head = f"{file} cannot be used; nothing was changed:"
        try:
            name, version, config = _read_file(file)
        except (BadAgentConfig, OSError, UnicodeDecodeError) as error:
            self.drafts.report_problems(head, error)
            return 1
        try:
            stored = await self.service.import_agent(
                name, config, seen=version, defaults=self.defaults, by=COMMAND_LINE
            )
        except (BadAgentConfig, AgentTooLarge) as error:
            self.drafts.report_problems(head, error)
            return 1
        except StaleAgent as error:
            if version is None:
                return self._overtaken(name)
            self.say(f"{name} is at version {error.version}, the file was made from version {version}.")
            self.say("Nothing was changed. Export it again, or take `version` out of the file to replace it.")
            return 1
        return self._report_done(name, stored)

    async def edit(self, row: AgentRow) -> int:
        """Open the agent's config in an editor, check the draft and store it, unless another operator was
        faster.
        """

        async def store(config: Any, _: Sequence[str]) -> int:
            try:
                stored = await self.service.change_agent(
                    row.name, config, seen=row.version, defaults=self.defaults, by=COMMAND_LINE
                )
            except StaleAgent:
                return self._overtaken(row.name)
            return self._report_done(row.name, stored)

        return await self.drafts.change(row.name, row.version, row.config, check=self._check, store=store)

    def _check(self, config: object) -> Sequence[str]:
        return check_config(config, self.defaults)

    async def delete(self, row: AgentRow) -> int:
        """Delete an agent that is not in use."""
        try:
            await self.service.delete_agent(row.name, by=COMMAND_LINE)
        except DefaultAgentStays as error:
            self.say(error.advice)
            return 1
        except AgentInUse as error:
            self.say(f"{row.name} still answers: {_count_users(error.agent)}. Nothing was changed.")
            self.say("./evertalk agent assign gives them to another agent.")
            return 1
        self.say(f"{row.name} is deleted.")
        return 0

    async def assign(self, row: AgentRow, *, site: str, bot: str, existing: bool) -> int:
        """Let an agent answer new conversations of a site; with `existing`, move those of a site or bot, too.

        A bot's agent for new conversations is in the bots file, so that only `existing` works for a bot.
        """
        if bot:
            return await self._assign_bot(row, bot, existing)
        try:
            moved = await self.service.assign_site(row.name, site, existing=existing, by=COMMAND_LINE)
        except SiteNotFound:
            self.say(f"There is no site {quote_name(site)}. ./evertalk site list shows them.")
            return 1
        self.say(f"New conversations on {site} are answered by {row.name}.")
        if existing:
            self._report_moved(row, moved)
        else:
            self.say("Those that exist already keep theirs; --existing moves them, too.")
        return 0

    async def _assign_bot(self, row: AgentRow, bot: str, existing: bool) -> int:
        try:
            bot_id = await self.service.find_bot(bot)
        except BotNotFound:
            self.say(f"No bot {quote_name(bot)} is known. ./evertalk agent list shows those that are.")
            return 1
        if not existing:
            self.say(
                "Which agent a bot has stands in the bots file (EVERTALK_TELEGRAM_BOTS_FILE), as `agent`."
            )
            self.say("Change it there and restart; --existing moves the conversations that it has already.")
            return 1
        self._report_moved(row, await self.service.move_bot_sessions(row.name, bot_id, by=COMMAND_LINE))
        return 0

    def _report_moved(self, row: AgentRow, moved: int) -> None:
        talks = "1 conversation" if moved == 1 else f"{moved} conversations"
        goes = "goes on with its" if moved == 1 else "go on with their"
        self.say(f"{talks} moved to {row.name} and {goes} next message.")
        if moved:
            self.say("What the former agent has noted of people stays with it: notes belong to an agent.")

    async def report_unknown(self, name: str) -> int:
        """Print that there is no such agent, and the names of all agents; return 1."""
        names = ", ".join(row.name for row in await self.agents.list_all())
        self.say(f"There is no agent {quote_name(name)}. There are: {names}.")
        return 1

    def _overtaken(self, name: str) -> int:
        self.say(f"Somebody else changed {name} meanwhile: nothing of yours was stored.")
        self.say(f"./evertalk agent show {name} prints theirs; edit it again from there.")
        return 1

    def _report_done(self, name: str, stored: StoredConfig) -> int:
        for remark in stored.remarks:
            self.say(f"  note: {replace_unprintable(remark)}")
        self.say(f"{name} is at version {stored.version}; it holds from each conversation's next message on.")
        return 0


def _read_file(file: Path) -> tuple[str, int | None, Any]:
    """Return an exported agent's name, version (None if the file has none) and unchecked configuration.

    Raises BadAgentConfig, OSError, UnicodeDecodeError.
    """
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


def _cells(row: AgentRow) -> tuple[str, ...]:
    model = str(row.config.get("model") or "–")
    return row.name, str(row.version), str(row.sessions), _few(row.sites), _few(row.bots), model


def _few(names: Sequence[str]) -> str:
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names) or "–"


def _count_users(row: AgentRow) -> str:
    parts = [f"{row.sessions} conversation{'' if row.sessions == 1 else 's'}"] if row.sessions else []
    parts += [f"site {name}" for name in row.sites] + [f"bot {name}" for name in row.bots]
    return ", ".join(parts)
