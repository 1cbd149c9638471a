"""What texts are made of, and how words of others stand in them."""

from __future__ import annotations

import re
from typing import TypeAlias

Markdown: TypeAlias = str
"""A message as `markup.render` reads it."""
Plain: TypeAlias = str
"""Shown as it stands: labels of buttons, short answers to a press (at most 200 characters), notes."""

_SPECIAL_CHARS = re.compile(r"[!-'*-/:-@\[-`{-~]")


def escape_markdown(words: str, *, most: int = 60) -> Markdown:
    """Words of a person or a file's name, on one line, none of them read as Markdown."""
    line = " ".join(words.split())
    short = line if len(line) <= most else line[: most - 1].rstrip() + "…"
    # Not backslashes: models write formulas as \[x\], and so the renderer reads them.
    return _SPECIAL_CHARS.sub(lambda mark: f"&#{ord(mark[0])};", short)
