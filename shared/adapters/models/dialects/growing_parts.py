"""Text and tool calls of streamed answers from servers that repeat text or write calls differently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST_PREFIX = "functions."
"""Namespace of tools in the templates of gpt-oss and Kimi; no name of a tool has a dot."""
_LEAST_REPEATED_CHARS = 12
"""Minimum characters of a last part that counts as a repetition of the whole text."""
_LEAST_GROWN_CHARS = 8
"""Minimum characters of a first part that counts as repeated by a longer second, last part."""


class GrowingText:
    """Text of one streamed answer, collected from parts that may repeat the text before them.

    DashScope sends the text so far with each part; MiniMax and others send the whole message at the end.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._grows: bool | None = None
        """Whether each part holds all text so far; None until that is known."""
        self._held = ""
        """Second part, held back until it is known whether it repeats the first."""

    def add(self, text: str, *, is_last: bool = False) -> str:
        """Return the new text of a part; "" if it only repeats text or is held back.

        `is_last` is true for the part that ends the answer.
        """
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
        """Return the text that a whole message adds, after any text held back."""
        before = self.end()
        said = self._joined()
        piece = text.removeprefix(said)
        if piece:
            self._said.append(piece)
        return before + piece

    def end(self) -> str:
        """Return the text that was held back, at the end of the answer; "" if there is none."""
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
    """Return name and arguments of a tool call in any form of both APIs and chat templates.

    The name is "" and the arguments None if they are missing.
    """
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
    """Return a tool's name without surrounding blanks and without a template's namespace."""
    return name.strip().removeprefix(_MOST_PREFIX)
