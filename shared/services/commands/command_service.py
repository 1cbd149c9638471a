"""Slash commands, the same on every channel: each returns a text and is stored for all clients of the
session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, get_args

from shared.core.commands.commands import (
    Audience,
    BadArguments,
    Channel,
    Command,
    CommandSection,
    commands_for,
    nearest_commands,
)
from shared.core.commands.texts import bullets, command_help, unknown_command
from shared.core.context.memory import BadNote
from shared.core.session.summary import shorten_line
from shared.core.session.turns import Caps
from shared.core.values.errors import OnHold
from shared.locales import catalogue
from shared.ports import Announcer, Doorbell
from shared.services.commands.command_call import (
    Choice,
    CommandGroup,
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Ephemeral,
    Guide,
    Offering,
    Place,
    ReportProgress,
)
from shared.services.commands.context import (
    COMMAND_SECONDS,
    CompactionChoice,
    CompactionForecast,
    ContextCommands,
    ContextCommandStore,
)
from shared.services.commands.pins import PinCommands, PinStore
from shared.services.commands.usage import SessionStatsStore, UsageCommands
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.session_service import SessionService

__all__ = ["COMMAND_SECONDS", "CommandResult", "CommandService", "ReportProgress", "CommandNotFound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """Result of a command, as channels show it.

    `event_seq` is the number of its stored event, None if only the caller sees it; `error` repeats the text
    of a failure, else None.
    """

    command: str
    success: bool
    result: str
    """Text for the person, in Markdown."""
    error: str | None = None
    event_seq: int | None = None
    choices: tuple[Choice, ...] = ()
    places: tuple[Place, ...] = ()
    """Messages that the result names by number."""


class CommandNotFound(Exception):
    """No command has this name on this installation."""


class CommandStore(ContextCommandStore, Protocol):
    """Store of command results; `record_command` returns the number of the event that clients receive."""

    async def record_command(self, session_id: int, payload: Mapping[str, Any]) -> int: ...


class CommandService:
    """Runner of slash commands for all channels.

    `list_offered` leaves out commands that a channel or an audience does not get; the channel checks this
    before `run`.
    """

    def __init__(
        self,
        *,
        store: CommandStore,
        choice: CompactionChoice,
        pins: PinStore,
        figures: SessionStatsStore,
        sessions: SessionService,
        requests: RequestBuilder,
        announcer: Announcer,
        doorbell: Doorbell,
        forecast: CompactionForecast,
        caps: Caps,
        model_name: str,
        humans: bool = True,
        speaks: bool = False,
        more: Sequence[CommandGroup] = (),
    ) -> None:
        """Set up the commands; `more` are groups of other subjects, such as memory and money.

        `humans` says that operators may take conversations, `speaks` that answers can be read aloud.
        """
        self._humans, self._speaks = humans, speaks
        self._store = store
        self._sessions = sessions
        self._announcer = announcer
        views = ContextCommands(
            store=store, choice=choice, sessions=sessions, announcer=announcer, doorbell=doorbell,
            forecast=forecast,
        )  # fmt: skip
        measures = UsageCommands(
            store=store,
            figures=figures,
            sessions=sessions,
            forecast=forecast,
            caps=caps,
            model_name=model_name,
        )
        self._doers: dict[str, CommandHandler] = {
            "help": self._help,
            "start": self._start,
            "stop": self._stop,
            **views.handlers,
            **measures.handlers,
            **PinCommands(pins=pins, store=store, sessions=sessions, requests=requests).handlers,
        }
        for room in more:
            self._doers |= room.handlers

    def follow(self, other: CommandService) -> None:
        """Use the commands of `other` from the next call on; called after settings were changed."""
        self._humans, self._speaks, self._doers = other._humans, other._speaks, other._doers

    def list_offered(self, *, channel: Channel, audience: Audience) -> tuple[Command, ...]:
        """Return the commands offered on a channel to an audience, for menus and help.

        On Telegram, commands that its own adapter handles are included.
        """
        demo = "sample" in self._doers
        table = commands_for(
            channel=channel, audience=audience, humans=self._humans, demo=demo, speaks=self._speaks
        )
        return tuple(command for command in table if command.name in self._doers or channel == "telegram")

    async def run(
        self,
        *,
        session_id: int,
        address_id: int | None,
        name: str,
        args: str = "",
        cid: str | None = None,
        progress: ReportProgress | None = None,
        channel: Channel = "web",
        audience: Audience = "personal",
        language: str = "",
    ) -> CommandResult:
        """Run a command, store its result as an event for all clients of the session, and return it.

        Results for the caller only are not stored. A refusal, such as wrong arguments, is a result, too.
        `language` is an IETF tag; English is used if the texts are not available in it. `address_id` is None
        for a call that is not the person's; `cid` is the client's id of the call, None without one. Raises
        CommandNotFound for an unknown name, and what the services of the command raise.
        """
        doer = self._doers.get(name)
        if doer is None:
            raise CommandNotFound(name)
        call = CommandInvocation(
            session_id=session_id,
            address_id=address_id,
            channel=channel,
            audience=audience,
            args=args.strip(),
            offered=self.list_offered(channel=channel, audience=audience),
            progress=progress or _no_progress,
            texts=catalogue("commands", language),
            cid=cid,
        )
        try:
            success, words = await doer(call)
        except (BadArguments, BadNote) as error:
            success, words = False, call.texts.say(error.key, **error.values) if error.key else str(error)
        except OnHold:
            success, words = False, call.texts.say("on_hold")
        if isinstance(words, Ephemeral):
            return CommandResult(
                command=name, success=success, result=str(words), error=None if success else str(words),
                places=words.places if isinstance(words, Guide) else (),
            )  # fmt: skip
        choices = words.choices if isinstance(words, Offering) else ()
        payload: dict[str, Any] = {"cid": cid, "command": name, "success": success, "result": words}
        if choices:
            payload["choices"] = [asdict(choice) for choice in choices]
        if not success:
            payload["error"] = words
        event_seq = await self._store.record_command(session_id, payload)
        await self._announcer.announce(session_id, {"event_seq": event_seq})
        return CommandResult(
            command=name, success=success, result=words, error=None if success else words,
            event_seq=event_seq, choices=choices,
        )  # fmt: skip

    async def _help(self, call: CommandInvocation) -> CommandReply:
        if asked := call.args.removeprefix("/").lower():
            table = {command.name: command for command in call.offered}
            if asked in table:
                return True, command_help(table[asked], call.texts)
            nearest = nearest_commands(asked, table)
            return False, unknown_command(shorten_line(asked, 40), nearest, call.texts)
        parts = []
        for section in get_args(CommandSection):
            lines = [
                f"`{f'/{command.name} {command.args}'.rstrip()}` {command.describe(call.texts.language)}"
                for command in call.offered
                if command.section == section
            ]
            parts += [f"**{call.texts.say(f'section_{section}')}**\n\n{bullets(lines)}"] if lines else []
        return True, "\n\n".join(parts)

    async def _start(self, call: CommandInvocation) -> CommandReply:
        return True, call.texts.say("hello")

    async def _stop(self, call: CommandInvocation) -> CommandReply:
        stopped = await self._sessions.stop(call.session_id)
        return True, call.texts.say("stopped" if stopped else "nothing_to_stop")


async def _no_progress(_message: str, _percent: int | None) -> None:
    return None
