"""The closed table of forms that a summary may have: our ledger, and four kinds of text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shared.core.session.ledger import ItemKind, Section
from shared.core.session.policy import SummaryForm

OUR_SUMMARY_TAG = "conversation_summary"
SECTIONS_TAG = "compressed_history_summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A part that a text has; `kind` says what its lines are in the five fields, None is the running text."""

    title: str
    about: str
    kind: ItemKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    name: SummaryForm
    tag: str = OUR_SUMMARY_TAG
    """What the summary is wrapped in when it is shown to the chat model."""
    tag_has_range: bool = True
    source: Literal["lines", "chat_history"] = "lines"
    headings: tuple[Heading, ...] = ()
    """None for a text that needs no parts."""
    share_of_original: tuple[float, float] | None = None
    """How long a text should be, as a share of what it is made from; only a score."""

    @property
    def is_text(self) -> bool:
        return self.name != "ledger"


FORMS: Mapping[SummaryForm, Form] = {
    form.name: form
    for form in (
        Form(name="ledger"),
        Form(
            name="sections",
            tag=SECTIONS_TAG,
            tag_has_range=False,
            source="chat_history",
            headings=(
                Heading(title="Context", about="what it is about, who takes part, where it stands"),
                Heading(
                    title="Key Information",
                    about="facts, figures, names, paths, addresses, preferences, what must not be done",
                    kind="fact",
                ),
                Heading(
                    title="Decisions & Conclusions", about="what was agreed or found out", kind="decision"
                ),
                Heading(
                    title="Action Items", about="what is still to be done, open questions", kind="action"
                ),
                Heading(
                    title="Code & Technical", about="pieces of code that are still needed", kind="artifact"
                ),
            ),
            share_of_original=(0.2, 0.4),
        ),
        Form(name="thread"),
        Form(
            name="handover",
            headings=(
                Heading(title="Task", about="what is wanted, with all limits and wishes", kind="goal"),
                Heading(title="Done", about="what was finished, and how", kind="fact"),
                Heading(title="Remaining", about="what is left, the next step first", kind="action"),
                Heading(title="Findings", about="what was learned that the rest depends on", kind="fact"),
                Heading(
                    title="Relevant Files", about="files, links and other things to look at", kind="artifact"
                ),
            ),
        ),
        Form(name="running"),
    )
}

_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$")
_BOLD_HEADING = re.compile(r"^\s*\*\*([^*]+?):?\*\*:?\s*$")
_WORDS = re.compile(r"\w+")
_EMPTY = re.compile(
    r"[\W_]*(?:none|n/?a|nothing|empty|null|nichts|keine?|ninguno|aucune?|нет|无)?"
    r"(?:\s+(?:yet|so far|noted))?[\W_]*",
    re.IGNORECASE,
)
_FENCE = "```"


def form_of(name: SummaryForm) -> Form:
    return FORMS[name]


def says_nothing(text: str) -> bool:
    """Whether a text is empty, or one of the words that stand for it."""
    return _EMPTY.fullmatch(text) is not None


def sections_in(text: str, form: Form) -> tuple[Section, ...]:
    """The parts of a Markdown text in the order of the form; empty ones are left out.

    A form without headings takes the whole text as it is; headings that it does not know stay at the end.
    """
    if not form.headings:
        return (Section(heading="", text=text.strip()),) if text.strip() else ()
    found: dict[str, list[str]] = {}
    at, in_code = "", False
    for line in text.splitlines():
        in_code ^= line.lstrip().startswith(_FENCE)
        title = None if in_code else _title(line)
        if title is not None:
            at = _known(title, form) or title
        else:
            found.setdefault(at, []).append(line)
    order = [heading.title for heading in form.headings]
    ranked = sorted(found, key=lambda title: order.index(title) if title in order else len(order))
    parts = ((title, "\n".join(found[title]).strip()) for title in ranked)
    return tuple(Section(heading=title, text=text) for title, text in parts if not says_nothing(text))


def kind_of(heading: str, form: Form) -> ItemKind | None:
    return next((known.kind for known in form.headings if known.title == heading), "fact")


def has_known_heading(sections: tuple[Section, ...], form: Form) -> bool:
    titles = {heading.title for heading in form.headings}
    return not titles or any(section.heading in titles for section in sections)


def _title(line: str) -> str | None:
    found = _HEADING.match(line) or _BOLD_HEADING.match(line)
    return found[1].strip(" *:") if found else None


def _known(title: str, form: Form) -> str | None:
    """Models write “Decisions and conclusions” or “1. Context” as well."""
    said = _plain(title)
    return next((heading.title for heading in form.headings if _plain(heading.title) == said), None)


def _plain(title: str) -> str:
    return " ".join(w for w in _WORDS.findall(title.casefold()) if w != "and" and not w.isdecimal())
