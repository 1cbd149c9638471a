"""Table of all commands on all channels, and suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from shared.core.commands.arguments import Argument, BadArguments, render_arguments
from shared.core.values.speech import SPEECH_CHOICES
from shared.locales import catalogue

Channel = Literal["web", "telegram", "rest"]
"""Ways to give a command: the widget, Telegram, or the REST API."""
Audience = Literal["personal", "public"]
"""Kinds of agents: for its owner, or for the public."""
Who = Literal["person", "operator"]
"""Persons to whom a command is offered: everyone who talks, or operators only."""
CommandSection = Literal["talk", "context", "memory", "manner", "data"]
"""Sections of help."""
Members = Literal["everyone", "admins"]
"""Members of a group who may use a command; private chats have no such limit."""

__all__ = [
    "COMMANDS", "FOCUS_CHARS", "Argument", "Audience", "BadArguments", "Channel", "Command",
    "CompactArguments", "Members", "Who", "command_named", "commands_for", "compact_arguments",
    "may_in_group", "nearest_commands",
]  # fmt: skip

FOCUS_CHARS = 300
"""Most characters of the focus of `/compact`."""
MOST_NEAREST = 3
"""Most suggestions for a mistyped name."""
_EVERYWHERE: frozenset[Channel] = frozenset({"web", "telegram", "rest"})
_PERSONAL: frozenset[Audience] = frozenset({"personal"})
_ALL_AUDIENCES: frozenset[Audience] = frozenset({"personal", "public"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Slash command: its name without the slash, its arguments, and where and to whom it is offered.

    `who`, `channels` and `audiences` restrict who sees it; `groups` restricts its use in groups.
    """

    name: str
    args: str = ""
    """Arguments as help shows them; empty if the command has none."""
    example: str = ""
    """Example argument that needs no translation; empty if the catalogue has the example."""
    named: tuple[Argument, ...] = ()
    """Arguments by name and type, for programs; see `arguments`."""
    channels: frozenset[Channel] = _EVERYWHERE
    audiences: frozenset[Audience] = _PERSONAL
    who: Who = "person"
    groups: Members = "everyone"
    section: CommandSection = "talk"
    """Section of help and lists in which the command appears."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Arguments of the command; unnamed ones count as one argument called `text`."""
        if self.named or not self.args:
            return self.named
        return (Argument(name="text"),)

    def schema(self, language: str = "") -> dict[str, Any]:
        """Return the JSON schema of each argument by its name, with a description.

        `language` is an IETF tag; empty gives English.
        """
        return {
            one.name: {"description": self.describe_argument(one, language), **one.schema()}
            for one in self.arguments
        }

    def describe(self, language: str = "") -> str:
        """Return the description for menus, pop-ups and help; `language` is an IETF tag, English if empty."""
        return catalogue("commands", language).say(f"command_{self.name}")

    def describe_argument(self, argument: Argument, language: str = "") -> str:
        """Return the description of an argument for menus and help; `language` is an IETF tag, English if
        empty.
        """
        return catalogue("commands", language).say(f"argument_{self.name}_{argument.name}")

    def show_example(self, language: str = "") -> str:
        """Return an example argument in the language, an IETF tag; empty for a command without arguments."""
        texts, key = catalogue("commands", language), f"example_{self.name}"
        return texts.say(key) if key in texts else self.example

    def words(self, given: Mapping[str, Any]) -> str:
        """Return named arguments as a person would type them after the command's name.

        Raises BadArguments for an unknown name, a missing required value or an invalid value.
        """
        return render_arguments(self.name, self.arguments, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactArguments:
    """Parsed arguments of `/compact`; `focus` is None if none was typed."""

    focus: str | None = None
    force: bool = False
    automatic: str = ""
    """Setting for automatic summaries, `on` or `off`; empty to summarise now."""
    limit: int | Literal["max", "default"] | None = None
    """Context limit to choose, in tokens; `max` is the largest, `default` the agent's own; None
    chooses none.
    """


LIMIT_CHARS = 20
"""Most characters of a typed limit, such as `24,000` or `default`."""
AUTOMATIC = ("on", "off")
"""Settings for automatic summaries."""
COMMANDS: tuple[Command, ...] = (
    Command(
        name="help",
        args="[command]",
        example="compact",
        named=(Argument(name="command", most_chars=40),),
        audiences=_ALL_AUDIENCES,
    ),
    Command(name="start"),
    Command(name="new", audiences=_ALL_AUDIENCES),
    Command(name="separator", section="context"),
    Command(name="stop", audiences=_ALL_AUDIENCES),
    Command(name="retry"),
    Command(
        name="compact",
        args="[focus] [--force]",
        named=(
            Argument(name="automatic", one_of=AUTOMATIC),
            Argument(name="at", most_chars=LIMIT_CHARS, typed="at {}"),
            Argument(name="force", kind="flag"),
            Argument(name="focus", most_chars=FOCUS_CHARS),
        ),
        groups="admins",
        section="context",
    ),
    Command(name="undo", groups="admins", section="context"),
    Command(name="status", section="context"),
    Command(name="context", section="context"),
    Command(name="usage", section="context"),
    Command(name="budget", section="context"),
    Command(
        name="pin",
        args="[message]",
        example="m12",
        named=(Argument(name="message"),),
        groups="admins",
        section="context",
    ),
    Command(
        name="unpin",
        args="[number]",
        example="2",
        named=(Argument(name="message"),),
        groups="admins",
        section="context",
    ),
    Command(name="pins", section="context"),
    Command(
        name="feedback",
        args="<text>",
        named=(Argument(name="text", required=True),),
        audiences=_ALL_AUDIENCES,
        section="data",
    ),
    Command(
        name="search",
        args="<words>",
        named=(Argument(name="words", required=True),),
        audiences=_ALL_AUDIENCES,
    ),
    Command(
        name="why",
        args="[message]",
        example="m12",
        named=(Argument(name="message", most_chars=20),),
        section="memory",
    ),
    Command(name="memory", args="[words]", named=(Argument(name="words"),), section="memory"),
    Command(name="remember", args="<text>", named=(Argument(name="text", required=True),), section="memory"),
    Command(
        name="forget",
        args="<what> | everything",
        named=(Argument(name="what", required=True),),
        audiences=_ALL_AUDIENCES,
        groups="admins",
        section="memory",
    ),
    Command(
        name="reminders",
        args="[cancel | pause | resume number]",
        example="cancel 2",
        named=tuple(
            Argument(name=verb, kind="number", typed=f"{verb} {{}}") for verb in ("cancel", "pause", "resume")
        ),
        section="memory",
    ),
    Command(
        name="link",
        args="[code]",
        example="K7Q2-M9XD",
        named=(Argument(name="code", most_chars=40),),
        section="data",
    ),
    Command(
        name="unlink",
        args="[number]",
        example="1",
        named=(Argument(name="number", kind="number"),),
        section="data",
    ),
    Command(name="human", args="[reason]", audiences=_ALL_AUDIENCES, groups="admins"),
    Command(name="goal", args="[text]", named=(Argument(name="text"),), groups="admins", section="manner"),
    Command(
        name="mode",
        args="[name]",
        example="brief",
        named=(Argument(name="name", most_chars=80),),
        groups="admins",
        section="manner",
    ),
    Command(
        name="model",
        args="[name]",
        example="claude-haiku-5-5",
        named=(Argument(name="name", most_chars=80),),
        groups="admins",
        section="manner",
    ),
    Command(
        name="voice",
        args="[on | off | auto]",
        example="auto",
        named=(Argument(name="choice", one_of=SPEECH_CHOICES),),
        groups="admins",
        section="manner",
    ),
    Command(
        name="export",
        args="[json]",
        example="json",
        named=(Argument(name="format", one_of=("json",)),),
        audiences=_ALL_AUDIENCES,
        section="data",
    ),
    Command(name="settings", groups="admins", section="manner"),
    Command(
        name="sample",
        args="[remove]",
        example="remove",
        named=(Argument(name="action", one_of=("remove",)),),
        channels=frozenset({"web"}),
        section="data",
    ),
)
"""All commands in the order of help."""
ONLY_IN_PERSON = frozenset({"link", "unlink"})
"""Commands for the person alone: the code of a `/link` gives access to the conversation.

API keys and operators cannot run them, neither over REST nor in a shell.
"""
_BY_NAME = {command.name: command for command in COMMANDS}


def commands_for(
    *,
    channel: Channel,
    audience: Audience,
    operator: bool = False,
    humans: bool = True,
    demo: bool = False,
    speaks: bool = False,
) -> tuple[Command, ...]:
    """Return the commands offered to an audience on a channel, in the order of help.

    `/human` needs `humans`, `/voice` needs `speaks`, and `/sample` needs `demo`. `operator` includes commands
    for operators.
    """
    return tuple(
        command
        for command in COMMANDS
        if channel in command.channels
        and audience in command.audiences
        and (operator or command.who == "person")
        and (humans or command.name != "human")
        and (demo or command.name != "sample")
        and (speaks or command.name != "voice")
    )


def command_named(name: str) -> Command | None:
    """Return the command of this name, without its slash; None if there is none."""
    return _BY_NAME.get(name)


def may_in_group(name: str, *, admin: bool) -> bool:
    """Return whether a member of a group may use the command there; `admin` is True for admins of the group.

    Raises KeyError for an unknown command.
    """
    return admin or _BY_NAME[name].groups == "everyone"


def nearest_commands(name: str, offered: Collection[str]) -> tuple[str, ...]:
    """Return at most three names among `offered` that are similar to `name`, the most likely first."""
    begun = [known for known in offered if len(name) > 1 and known.startswith(name)]
    return tuple(dict.fromkeys((*begun, *get_close_matches(name, offered))))[:MOST_NEAREST]


def compact_arguments(args: str) -> CompactArguments:
    """Return the parsed arguments of `/compact`.

    `on` or `off` alone switches automatic summaries; `at` with a number, `max` or `default` chooses the
    limit. `--force` may stand anywhere; all other words are the focus. Raises BadArguments for another
    option, and for a focus of more than 300 characters.
    """
    words = args.replace("\N{EM DASH}", "--").split()
    if len(words) == 1 and words[0].casefold() in AUTOMATIC:
        return CompactArguments(automatic=words[0].casefold())
    if len(words) == 2 and words[0].casefold() == "at" and (limit := _parse_limit(words[1])) is not None:
        return CompactArguments(limit=limit)
    strange = [word for word in words if word.startswith("--") and word != "--force"]
    if strange:
        raise BadArguments.from_key("bad_compact", option=strange[0])
    focus = " ".join(word for word in words if word != "--force")
    if len(focus) > FOCUS_CHARS:
        raise BadArguments.from_key("focus_too_long", count=len(focus), most=FOCUS_CHARS)
    return CompactArguments(focus=focus or None, force="--force" in words)


def _parse_limit(word: str) -> int | Literal["max", "default"] | None:
    """Return the limit in a text such as `24000`, `24,000`, `24k`, `max` or `default`; None for
    another word.
    """
    word = word.casefold()
    if word == "max":
        return "max"
    if word == "default":
        return "default"
    digits, thousands = word.removesuffix("k"), word.endswith("k")
    for separator in ",.'_":
        digits = digits.replace(separator, "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 8):
        return None
    return int(digits) * (1_000 if thousands else 1)
