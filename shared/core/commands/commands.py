"""The commands of every channel in one table, and what somebody may have meant by a name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from shared.core.commands.arguments import Argument, BadArguments, arguments_schema, typed_words

Channel = Literal["web", "telegram", "rest"]
Audience = Literal["personal", "public"]
Who = Literal["person", "operator"]
CommandSection = Literal["talk", "context", "memory", "manner", "data"]
Members = Literal["everyone", "admins"]
"""Who of a group's members may; alone with the assistant everybody may."""

__all__ = [
    "COMMANDS", "FOCUS_CHARS", "Argument", "Audience", "BadArguments", "Channel", "Command",
    "CompactArguments", "Members", "Who", "command_named", "commands_for", "compact_arguments",
    "may_in_group", "nearest_commands",
]  # fmt: skip

FOCUS_CHARS = 300
MOST_NEAREST = 3
_EVERYWHERE: frozenset[Channel] = frozenset({"web", "telegram", "rest"})
_PERSONAL: frozenset[Audience] = frozenset({"personal"})
_ALL_AUDIENCES: frozenset[Audience] = frozenset({"personal", "public"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    name: str
    description: str
    args: str = ""
    """As help shows them; empty means that it takes none."""
    example: str = ""
    """What somebody may type behind it."""
    named: tuple[Argument, ...] = ()
    """The same by name and type, for programs; see `arguments`."""
    channels: frozenset[Channel] = _EVERYWHERE
    audiences: frozenset[Audience] = _PERSONAL
    who: Who = "person"
    groups: Members = "everyone"
    section: CommandSection = "talk"
    """What it stands among in help and in lists."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """A command that takes words has an argument for them, even if nobody gave it a better name."""
        if self.named or not self.args:
            return self.named
        return (Argument(name="text", description=self.args),)

    def schema(self) -> dict[str, Any]:
        """Of the arguments, as the properties of a JSON object."""
        return arguments_schema(self.arguments)

    def words(self, given: Mapping[str, Any]) -> str:
        """Arguments by name as a person would type them; raises BadArguments."""
        return typed_words(self.name, self.arguments, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactArguments:
    focus: str | None = None
    force: bool = False


COMMANDS: tuple[Command, ...] = (
    Command(
        name="help",
        description="Show all commands, or explain one",
        args="[command]",
        example="compact",
        named=(Argument(name="command", description="the name of one, such as compact", most_chars=40),),
        audiences=_ALL_AUDIENCES,
    ),
    Command(name="start", description="Show a short introduction"),
    Command(
        name="new",
        description="Start a new conversation; old messages are kept",
        audiences=_ALL_AUDIENCES,
    ),
    Command(name="separator", description="Hide everything above from the assistant", section="context"),
    Command(name="stop", description="Stop the current answer", audiences=_ALL_AUDIENCES),
    Command(name="retry", description="Answer your last message again"),
    Command(
        name="compact",
        description="Summarise older messages now",
        args="[focus] [--force]",
        example="our trip to Lisbon --force",
        named=(
            Argument(name="force", kind="flag", description="also when there is little to gain"),
            Argument(
                name="focus", description="what the summary should keep most of", most_chars=FOCUS_CHARS
            ),
        ),
        groups="admins",
        section="context",
    ),
    Command(name="undo", description="Undo the last summary", groups="admins", section="context"),
    Command(name="status", description="Show the state of this conversation", section="context"),
    Command(name="context", description="Show what fills the assistant's context", section="context"),
    Command(name="usage", description="Show the tokens and cost of this conversation", section="context"),
    Command(name="budget", description="Show what is spent and left today", section="context"),
    Command(
        name="pin",
        description="Keep a message word for word; as a reply, or alone for the newest answer",
        args="[message]",
        example="m12",
        named=(
            Argument(name="message", description="a message's id, such as m12; without it the newest answer"),
        ),
        groups="admins",
        section="context",
    ),
    Command(
        name="unpin",
        description="Unpin a message; as a reply, or with its number",
        args="[number]",
        example="2",
        named=(Argument(name="message", description="a message's id, such as m12, or its number in /pins"),),
        groups="admins",
        section="context",
    ),
    Command(name="pins", description="Show pinned messages", section="context"),
    Command(
        name="feedback",
        description="Comment on the last answer",
        args="<text>",
        example="That was too long",
        named=(Argument(name="text", description="what you think", required=True),),
        audiences=_ALL_AUDIENCES,
        section="data",
    ),
    Command(
        name="search",
        description="Search everything that was said here",
        args="<words>",
        example="the hotel in Lisbon",
        named=(Argument(name="words", description="what to look for", required=True),),
        audiences=_ALL_AUDIENCES,
    ),
    Command(
        name="memory",
        description="Show or search what I remember about you",
        args="[words]",
        example="garden",
        named=(Argument(name="words", description="what to look for"),),
        section="memory",
    ),
    Command(
        name="remember",
        description="Save a note",
        args="<text>",
        example="My sister is called Anna",
        named=(Argument(name="text", description="the sentence", required=True),),
        section="memory",
    ),
    Command(
        name="forget",
        description="Delete what you name, or everything; shows it first",
        args="<what> | everything",
        example="garden",
        named=(
            Argument(name="what", description="words, a number of the list, or `everything`", required=True),
        ),
        audiences=_ALL_AUDIENCES,
        groups="admins",
        section="memory",
    ),
    Command(
        name="reminders",
        description="Show, pause or cancel your reminders",
        args="[cancel | pause | resume number]",
        example="cancel 2",
        named=tuple(
            Argument(name=verb, kind="number", description="its number in the list", typed=f"{verb} {{}}")
            for verb in ("cancel", "pause", "resume")
        ),
        section="memory",
    ),
    Command(
        name="link",
        description="Continue this conversation on another channel: get a code here, enter it there",
        args="[code]",
        example="K7Q2-M9XD",
        named=(Argument(name="code", description="what the other channel has shown", most_chars=40),),
        section="data",
    ),
    Command(
        name="unlink",
        description="Separate two channels that were linked by /link",
        args="[number]",
        example="1",
        named=(Argument(name="number", kind="number", description="its number in the list"),),
        section="data",
    ),
    Command(
        name="human",
        description="Ask for a human of the team; `cancel` to withdraw",
        args="[reason]",
        example="I have a question about my bill",
        audiences=_ALL_AUDIENCES,
        groups="admins",
    ),
    Command(
        name="goal",
        description="Set the goal of this conversation; `-` to clear it",
        args="[text]",
        example="Plan our trip to Lisbon",
        named=(Argument(name="text", description="what it is for; `-` takes it back"),),
        groups="admins",
        section="manner",
    ),
    Command(
        name="mode",
        description="Choose how I answer: brief, thorough …",
        args="[name]",
        example="brief",
        named=(Argument(name="name", description="of a mode; `-` takes it back", most_chars=80),),
        groups="admins",
        section="manner",
    ),
    Command(
        name="model",
        description="Choose which model answers",
        args="[name]",
        example="claude-haiku-5-5",
        named=(Argument(name="name", description="of a model; `-` takes it back", most_chars=80),),
        groups="admins",
        section="manner",
    ),
    Command(
        name="export",
        description="Download the whole conversation",
        args="[json]",
        example="json",
        named=(Argument(name="format", description="without it Markdown", one_of=("json",)),),
        audiences=_ALL_AUDIENCES,
        section="data",
    ),
    Command(
        name="settings", description="Change how I behave in this chat", groups="admins", section="manner"
    ),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def commands_for(
    *, channel: Channel, audience: Audience, operator: bool = False, humans: bool = True
) -> tuple[Command, ...]:
    """Without `humans` nobody is offered one: no operator takes conversations here."""
    return tuple(
        command
        for command in COMMANDS
        if channel in command.channels
        and audience in command.audiences
        and (operator or command.who == "person")
        and (humans or command.name != "human")
    )


def command_named(name: str) -> Command | None:
    return _BY_NAME.get(name)


def may_in_group(name: str, *, admin: bool) -> bool:
    """Whether a member of a group may give this command there."""
    return admin or _BY_NAME[name].groups == "everyone"


def nearest_commands(name: str, offered: Collection[str]) -> tuple[str, ...]:
    """Names of those that somebody may have meant, the likeliest first: at most three."""
    begun = [known for known in offered if len(name) > 1 and known.startswith(name)]
    return tuple(dict.fromkeys((*begun, *get_close_matches(name, offered))))[:MOST_NEAREST]


def compact_arguments(args: str) -> CompactArguments:
    """`--force` may stand anywhere, all other words are the focus; raises `BadArguments`."""
    words = args.replace("\N{EM DASH}", "--").split()
    strange = [word for word in words if word.startswith("--") and word != "--force"]
    if strange:
        raise BadArguments(f"/compact knows no {strange[0]}. It can be sent as: /compact [focus] [--force]")
    focus = " ".join(word for word in words if word != "--force")
    if len(focus) > FOCUS_CHARS:
        raise BadArguments(f"The focus has {len(focus)} characters; {FOCUS_CHARS} is the most.")
    return CompactArguments(focus=focus or None, force="--force" in words)
