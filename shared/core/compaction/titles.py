"""What a conversation is called by the model that summarises it: a few words, checked like all others."""

from __future__ import annotations

import re

from shared.core.compaction.grounding import Ground
from shared.core.compaction.summary_filters import is_empty, is_refusal, language_fault, text_fault
from shared.core.context.untrusted_text import without_invisible
from shared.core.session.events import title_of
from shared.core.session.ledger import Ledger

_FIRST_LINE = re.compile(r"\A[\s#*_`>]*title[*_`]*\s*:[*_` ]*(.*)\n?", re.IGNORECASE)
_RAW_CHARS = 300
_AROUND = " \t#*_`\"'“”„«»‘’.…"


def split_title(text: str) -> tuple[str, str]:
    """The title in the first line of a summary that was written as text, and the rest."""
    found = _FIRST_LINE.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


def checked_title(raw: str, source_text: str, former: Ledger) -> str:
    """As it may be shown; empty where neither the words it stands for nor the former record bear it out."""
    told = without_invisible(" ".join(raw[:_RAW_CHARS].split())).strip(_AROUND)
    unusable = is_empty(told) or is_refusal(told) or language_fault(told, source_text)
    return "" if unusable or text_fault(told, Ground.of(source_text, former)) else title_of(told)
