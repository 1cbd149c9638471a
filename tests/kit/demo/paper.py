"""Prints a chat: in a terminal the last message is redrawn while it grows, in a pipe line follows line."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from textwrap import indent
from typing import TextIO

from tests.kit.demo.glance import ScreenMessage

_PROMPT = "you: "
_BOT, _QUIET = "bot: ", "bot (silently): "
_INDENT = " " * len(_BOT)
_UP_AND_CLEAR = "\x1b[{rows}F\x1b[J"


class ChatPrinter:
    """Printer of a chat; a message can be redrawn as long as only the prompt is below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.redraws = stream.isatty()
        self._last: int | None = None
        self._rows = 0

    def prompt(self) -> None:
        if self.redraws:
            self._stream.write(_PROMPT)
            self._stream.flush()

    def typed(self) -> None:
        """Note that the person has entered a line, so that messages above it are not redrawn."""
        self._last = None

    def person(self, words: str) -> None:
        """Print a line that is entered on behalf of the person."""
        self._write(f"{_PROMPT}{words}", last=None)

    def note(self, words: str) -> None:
        """Print a line that is neither the person's nor the bot's."""
        self._write(f"· {words}", last=None)

    def typing(self) -> None:
        self._write("· bot is typing …", last=0)

    def bubble(
        self, bubble: ScreenMessage, buttons: Sequence[tuple[int, str]], *, again: bool = False
    ) -> None:
        first = _QUIET if bubble.silent else _BOT
        head = f"{first}(edited) " if again and self._last != bubble.message_id else first
        lines = [indent(f"{head}{bubble.text}", _INDENT).removeprefix(_INDENT)]
        if buttons:
            lines.append(_INDENT + "  ".join(f"[#{number} {label}]" for number, label in buttons))
        self._write("\n".join(lines), last=bubble.message_id, over=(0, bubble.message_id))

    def _write(self, text: str, *, last: int | None, over: Sequence[int] = ()) -> None:
        if not self.redraws:
            self._stream.write(f"{text}\n")
            self._stream.flush()
            return
        above = self._rows if self._last in over else 0
        start = _UP_AND_CLEAR.format(rows=above) if above else "\r\x1b[K"
        self._stream.write(f"{start}{text}\n")
        self._last, self._rows = last, self._height(text)
        self.prompt()

    def _height(self, text: str) -> int:
        width = max(20, shutil.get_terminal_size().columns)
        return sum(max(1, -(-len(line) // width)) for line in text.split("\n"))
