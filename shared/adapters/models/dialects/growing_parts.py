"""Text and calls of an answer that a server repeats as they grow, or writes in another form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST_PREFIX = "functions."
"""Namespace of tools in the templates of gpt-oss and Kimi; no name of a tool has a dot."""
_LEAST_REPEATED_CHARS = 12
"""Characters of a last part that repeats the whole text; a shorter one may be meant."""
_LEAST_GROWN_CHARS = 8
"""Characters of a first part that a second and last one repeats with more behind it."""


class GrowingText:
    """Text of one answer; finds parts that hold all that came before them.

    DashScope sends each part with the text so far, MiniMax and others the whole message again at the end.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._grows: bool | None = None
        """Whether each part holds the text so far; None until the third part tells."""
        self._held = ""
        """Second part, while it is open whether it repeats the first."""

    def add(self, text: str, *, is_last: bool = False) -> str:
        """Return what a part adds to the text."""
        if self._grows is False:
            if (
                is_last
                and len(text) >= _LEAST_REPEATED_CHARS
                and len(self._said) > 1
                and text == self._joined()
            ):
                return ""
            self._said.append(text)
            return text
        return self._add_undecided(text)

    def add_message(self, text: str) -> str:
        """Return what a whole message adds to the text."""
        before = self.end()
        said = self._joined()
        piece = text.removeprefix(said)
        if piece:
            self._said.append(piece)
        return before + piece

    def end(self) -> str:
        """Return text that was held back; the answer has no more parts."""
        held, self._held = self._held, ""
        if not held:
            return ""
        first = self._said[0]
        piece = held[len(first) :] if len(first) >= _LEAST_GROWN_CHARS else held
        self._said.append(piece)
        return piece

    def _add_undecided(self, text: str) -> str:
        said = self._joined()
        if self._grows:
            piece = text.removeprefix(said)
            self._said.append(piece)
            return piece
        if not said:
            self._said.append(text)
            return text
        if not self._held:
            if text.startswith(said) and len(text) > len(said):
                self._held = text
                return ""
            self._grows = False
            self._said.append(text)
            return text
        held, self._held = self._held, ""
        self._grows = text.startswith(held) and len(text) > len(held) and any(map(str.isalpha, text))
        piece = text[len(said) :] if self._grows else held + text
        self._said.append(piece)
        return piece

    def _joined(self) -> str:
        if len(self._said) > 1:
            self._said = ["".join(self._said)] if self._grows else self._said
        return "".join(self._said)


def read_call(part: Mapping[str, Any]) -> tuple[str, object]:
    """Return name and arguments of a part of a call; the forms are those of both APIs and of templates."""
    told = part.get("function")
    if isinstance(told, str) and told.lstrip().startswith("{"):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            told = None
    function: Mapping[str, Any] = told if isinstance(told, Mapping) else part
    name = function.get("name")
    given = next(
        (function[key] for key in ("arguments", "parameters", "input") if function.get(key) is not None), None
    )
    return (name if isinstance(name, str) else ""), given


def clean_name(name: str) -> str:
    """Return a tool's name without blanks around it and without the namespace of a template."""
    return name.strip().removeprefix(_MOST_PREFIX)
