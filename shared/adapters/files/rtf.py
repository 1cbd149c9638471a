"""Text of a file in Rich Text Format, without its pictures, styles and hidden parts."""

from __future__ import annotations

import codecs
import re
from typing import Any

from shared.core.values.files import RTF

MOST_CHARS = 400_000
"""Maximum characters of the text."""
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?[0-9]{1,10})? ?|\\'(?P<hex>[0-9a-fA-F]{2})"
    rb"|\\(?P<sign>[^a-zA-Z])|(?P<brace>[{}])|[\r\n]+|(?P<text>[^\\{}\r\n]+)",
    re.DOTALL,
)
_SIGNS = {
    b"par": "\n", b"line": "\n", b"sect": "\n\n", b"page": "\n\n", b"row": "\n", b"cell": " | ", b"tab": "\t",
    b"nestcell": " | ", b"nestrow": "\n", b"emdash": "—", b"endash": "–", b"bullet": "•", b"lquote": "‘",
    b"rquote": "’", b"ldblquote": "“", b"rdblquote": "”", b"~": "\xa0", b"_": "-", b"{": "{", b"}": "}",
    b"\\": "\\", b"\n": "\n", b"\r": "\n",
}  # fmt: skip
_SILENT = frozenset(
    b"colortbl stylesheet info pict object header headerl headerr headerf footer footerl footerr footerf "
    b"fldinst listtable listoverridetable rsidtbl themedata datastore latentstyles xmlnstbl "
    b"generator nonshppict filetbl revtbl private".split()
)
r"""Names of groups without readable text; groups newer than this list are marked with `\*` in the file."""
_CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "cp1361", 134: "cp936", 136: "cp950", 161: "cp1253",
    162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250", 254: "cp437", 255: "cp850",
}  # fmt: skip


def read_rtf(content: bytes) -> tuple[dict[str, Any], str]:
    """Return head and text of an RTF file; the head has `mime` and `truncated`.

    Broken content raises nothing.
    """
    reader = _Reader()
    at = 0
    while at < len(content) and reader.chars <= MOST_CHARS:
        found = _TOKEN.match(content, at)
        if found is None:  # a backslash at the very end
            break
        at = found.end() + reader.take(found)
    reader.decode()
    text = "".join(reader.said).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return {"mime": RTF, "truncated": len(text) > MOST_CHARS}, text[:MOST_CHARS].strip()


class _Reader:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.chars = 0
        self._bytes = bytearray()
        self._default = "cp1252"
        self._encodings: dict[int, str] = {}
        self._font, self._unicode_bytes, self._silent, self._fonts = 0, 1, False, False
        self._groups: list[tuple[int, int, bool, bool]] = []
        self._passed_over = 0

    def take(self, found: re.Match[bytes]) -> int:
        """Process one token; return how many bytes of binary data follow it and must be skipped."""
        if (raw := found["text"]) is not None:
            self._hear(raw)
        elif found["hex"] is not None:
            self._hear(bytes.fromhex(found["hex"].decode()))
        elif found["brace"] is not None:
            self._turn_group(opens=found["brace"] == b"{")
        elif found["sign"] is not None:
            self._silent = self._silent or found["sign"] == b"*"
            self._say(_SIGNS.get(found["sign"], ""))
        elif found["word"] is not None:
            return self._command(found["word"], int(found["number"] or 0))
        return 0

    def decode(self) -> None:
        """Decode the collected bytes in the font's encoding and append the text."""
        if self._bytes:
            words = self._bytes.decode(self._encodings.get(self._font, self._default), "replace")
            self._bytes.clear()
            self.said.append(words)
            self.chars += len(words)

    def _hear(self, raw: bytes) -> None:
        """Add bytes in the current encoding, except those that repeat a Unicode sign for old readers."""
        kept = raw[self._passed_over :]
        self._passed_over -= len(raw) - len(kept)
        if not self._silent:
            self._bytes += kept

    def _say(self, words: str) -> None:
        self._passed_over = 0
        if words and not self._silent:
            self.decode()
            self.said.append(words)
            self.chars += len(words)

    def _turn_group(self, *, opens: bool) -> None:
        self.decode()
        self._passed_over = 0
        if opens:
            self._groups.append((self._font, self._unicode_bytes, self._silent, self._fonts))
        elif self._groups:
            self._font, self._unicode_bytes, self._silent, self._fonts = self._groups.pop()

    def _command(self, word: bytes, number: int) -> int:
        if word == b"bin":
            return max(0, number)
        if word == b"f":
            self.decode()
            self._font = number
        elif word == b"fcharset" and self._fonts:
            self._encodings[self._font] = _CHARSETS.get(number, self._default)
        elif word == b"fonttbl":
            self._fonts = self._silent = True
        elif word == b"ansicpg":
            self._default = _encoding(number) or self._default
        elif word == b"uc":
            self._unicode_bytes = min(max(0, number), 10)
        elif word == b"u":
            self._say(chr(number % 65_536))
            self._passed_over = self._unicode_bytes
        elif word in _SILENT:
            self._silent = True
        else:
            self._say(_SIGNS.get(word, ""))
        return 0


def _encoding(number: int) -> str | None:
    try:
        return codecs.lookup("utf-8" if number == 65_001 else f"cp{number}").name
    except LookupError:
        return None
