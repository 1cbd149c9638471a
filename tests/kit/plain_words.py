"""Words that readers find hard, each with the words to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

PLAIN_WORDS: Mapping[str, str] = {
    r"\banew\b": "again",
    r"\bafresh\b": "start over, start a new conversation",
    r"\bbeg[aiu]ns? again\b": "restart, retry",
    r"\bof theirs\b": "their",
    r"\blet(s|ting)? go of\b": "release, delete",
    r"\bputs? (it |this |those )?away\b": "archive, delete",
    r"\bha(ve|d) (it )?back\b": "restore",
    r"\bgo(es)? out\b": "is sent",
    r"\b(is|was) told\b": "is notified",
    r"\ball the same\b": "anyway",
    r"\borgani[sz]ing conversation\b": "summarising earlier messages",
    r"\b(compact|flush) now\b": "summarise now, save memory now",
    r"\btelephones?\b": "phone",
    r"(?-i:^What|\. What|[;:] what) (?!is )[^.?;:]*\b(is|are)\b[^.?]*\.": "a noun as the subject",
}
_NEVER = re.compile("|".join(f"(?:{pattern})" for pattern in PLAIN_WORDS), re.IGNORECASE | re.MULTILINE)


def find_stumbles(text: str) -> list[str]:
    """Return the hard words in a text, in order."""
    return [found[0] for found in _NEVER.finditer(text)]
