"""Reading of JSON of any length with limited memory: long lists are read one value at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from shared.core.values.errors import BadInput

CHUNK_CHARS = 2**18
"""Minimum characters that are read from the file at once."""
MOST_VALUE_CHARS = 32 * 2**20
"""Maximum characters of one value that is read whole, such as a ChatGPT conversation."""
MOST_DIGITS = 1_000
"""Maximum characters of a number; a longer one is refused."""
_BLANK = re.compile(r"[ \t\r\n]*")
_NOT_JSON = "The file is no JSON, or is cut off."


class JsonStream:
    """Position in a JSON text.

    Its methods raise BadInput for invalid JSON, deep nesting and values that are too long.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._ended = False
        self._decoder = json.JSONDecoder(
            parse_constant=_refuse_constant, parse_int=_read_int, parse_float=_read_float
        )

    def peek(self) -> str:
        """Return the next character that is no blank, without consuming it; "" at the end of the file."""
        while True:
            match = _BLANK.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text) or not self._read():
                return self._text[self._at : self._at + 1]

    def take(self, expected: str) -> None:
        """Consume the character `expected`, after blanks. Raises BadInput if another follows."""
        if self.peek() != expected:
            raise BadInput(f"{expected} is missing in the file", advice=_NOT_JSON)
        self._at += 1

    def value(self) -> Any:
        """Read the next value whole and return it."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > MOST_VALUE_CHARS:
                    raise BadInput("a value of the file is too long", advice=_NOT_JSON) from error
                # Read twice as much each time, so that a long value is not parsed again for each chunk.
                if not self._read(max(CHUNK_CHARS, len(self._text) - self._at)):
                    raise BadInput(f"the file is no JSON: {error.msg}", advice=_NOT_JSON) from error
                continue
            except (RecursionError, ValueError, OverflowError) as error:
                raise BadInput(f"the file is refused: {error}", advice=_NOT_JSON) from error
            if end == len(self._text) and self._read():
                continue  # a number may go on
            self._at = end
            return value

    def items(self) -> Iterator[None]:
        """Consume a list, yielding once before each value; the caller must read the value."""
        self.take("[")
        if self.peek() != "]":
            while True:
                yield
                if self.peek() != ",":
                    break
                self.take(",")
        self.take("]")

    def fields(self) -> Iterator[str]:
        """Consume an object, yielding each key; the caller must then read the key's value."""
        self.take("{")
        if self.peek() != "}":
            while True:
                key = self.value()
                if not isinstance(key, str):
                    raise BadInput("a key of the file is no text", advice=_NOT_JSON)
                self.take(":")
                yield key
                if self.peek() != ",":
                    break
                self.take(",")
        self.take("}")

    def _read(self, chars: int = CHUNK_CHARS) -> bool:
        """Read more text and drop what was passed; return False at the end of the file."""
        if self._ended:
            return False
        more = self._file.read(chars)
        self._ended = not more
        self._text = self._text[self._at :] + more
        self._at = 0
        return bool(more)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _bounded(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def limited(text: str) -> Any:
        if len(text) > MOST_DIGITS:
            raise ValueError(f"a number of {len(text)} digits")
        return read(text)

    return limited


_read_int, _read_float = _bounded(int), _bounded(float)
