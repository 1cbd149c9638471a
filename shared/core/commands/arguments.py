"""Arguments of commands by name and type, and the text that a person would type for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shared.core.values.errors import BadInput

RAW = "args"
"""Name of the argument with the whole typed text; every command accepts it instead of named arguments."""
TEXT_CHARS = 2_000
"""Most characters of the text after a command."""


class BadArguments(BadInput):
    """Arguments of a command that it cannot use; `advice` says which and why."""

    sentence = "The words behind a command cannot be used."
    code = "bad_arguments"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """Argument of a command, by which named values are checked.

    `most_chars` bounds a text; `one_of` lists its allowed values, empty for any text.
    """

    name: str
    kind: Literal["text", "flag", "number"] = "text"
    required: bool = False
    most_chars: int = TEXT_CHARS
    one_of: tuple[str, ...] = ()
    typed: str = "{}"
    """Format in which a person types the value; a flag is typed as `--name`."""

    @property
    def shown(self) -> str:
        """Text of the argument in help, with its name in place of a value."""
        if self.kind == "flag":
            return f"--{self.name}"
        return " or ".join(self.one_of) or self.typed.format(f"<{self.name}>")

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the value: type and bounds or choices, without a description."""
        match self.kind:
            case "flag":
                return {"type": "boolean"}
            case "number":
                return {"type": "integer", "minimum": 1, "maximum": 1_000_000_000}
            case "text" if self.one_of:
                return {"type": "string", "enum": list(self.one_of)}
            case _:
                return {"type": "string", "maxLength": self.most_chars}


def render_arguments(command: str, arguments: Sequence[Argument], given: Mapping[str, Any]) -> str:
    """Return the values as a person would type them after the command's name; None counts as missing.

    Raises BadArguments for an unknown name, a missing required value or an invalid value.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if RAW in given:
        return _raw(command, given, takes_words=bool(arguments))
    known = {argument.name for argument in arguments}
    if unknown := sorted(set(given) - known):
        takes = f"takes {_list_names(known)}" if known else "takes no arguments"
        raise BadArguments(f"/{command} knows no {_render_name(unknown[0])}: it {takes}.")
    missing = [one.name for one in arguments if one.required and one.name not in given]
    if missing:
        raise BadArguments(f"/{command} needs {_list_names(missing)}.")
    flags = any(one.kind == "flag" for one in arguments)
    words = [_render_argument(one, given[one.name], flags=flags) for one in arguments if one.name in given]
    return " ".join(filter(None, words))


def read_value(argument: Argument, text: str) -> Any:
    """Return the value of a text typed in a shell: bool for a flag, int for a number, else the text
    unchanged.

    An empty flag is True. Raises BadArguments if the text is no flag or number.
    """
    match argument.kind:
        case "flag":
            if text.lower() not in ("true", "false", ""):
                raise BadArguments(f"{argument.name} is true or false.")
            return text.lower() != "false"
        case "number":
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise BadArguments(f"{argument.name} is a whole number.")
            return int(text)
        case _:
            return text


def _raw(command: str, given: Mapping[str, Any], *, takes_words: bool) -> str:
    raw = given[RAW]
    if len(given) > 1:
        raise BadArguments(f"/{command}: send either `{RAW}` or arguments by name, not both.")
    if not isinstance(raw, str) or len(raw) > TEXT_CHARS:
        raise BadArguments(f"`{RAW}` is text of at most {TEXT_CHARS} characters.")
    if raw.strip() and not takes_words:
        raise BadArguments.from_key("takes_no_words", command=command)
    return raw


def _render_argument(argument: Argument, value: Any, *, flags: bool) -> str:
    name = argument.name
    match argument.kind:
        case "flag":
            if not isinstance(value, bool):
                raise BadArguments(f"`{name}` is true or false.")
            return f"--{name}" if value else ""
        case "number":
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000_000:
                raise BadArguments(f"`{name}` is a whole number from 1 on.")
            return argument.typed.format(value)
    if not isinstance(value, str):
        raise BadArguments(f"`{name}` is text.")
    if argument.one_of and value not in argument.one_of:
        raise BadArguments(f"`{name}` is one of {_list_names(argument.one_of)}.")
    if len(value) > argument.most_chars:
        raise BadArguments(f"`{name}` has {len(value)} characters; {argument.most_chars} is the most.")
    if flags and any(word.replace("\N{EM DASH}", "--").startswith("--") for word in value.split()):
        raise BadArguments(f"`{name}` cannot hold a word that begins with `--`.")
    return argument.typed.format(value) if value.strip() else ""


def _list_names(names: Sequence[str] | set[str]) -> str:
    return ", ".join(f"`{name}`" for name in (sorted(names) if isinstance(names, set) else names))


def _render_name(name: str) -> str:
    return "`" + "".join(char for char in name[:40] if char.isprintable() and char != "`") + "`"
