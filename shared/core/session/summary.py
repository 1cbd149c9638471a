"""Summary as text: forms of summaries, rendering, cutting to a token limit, and conversion to five fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from shared.core.session.ledger import ItemKind, Ledger, LedgerItem, Section, Topic
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.tokens import Count, truncate_text
from shared.locales import ENGLISH, Catalogue

OUR_SUMMARY_TAG = "conversation_summary"
"""Tag around a summary in requests, for all forms that define no other tag."""
SECTIONS_TAG = "compressed_history_summary"
"""Tag around a summary of the form `sections`."""
LEFT_OUT = "left out for room"
"""Reason with which `fit_ledger` closes items that exceed the token limit."""
ITEM_CHARS = 300
"""Most characters of an item that is made from a section's text."""

LETTERS: dict[ItemKind, str] = {
    "goal": "g",
    "fact": "f",
    "decision": "d",
    "question": "q",
    "action": "a",
    "constraint": "c",
    "preference": "p",
    "artifact": "t",
    "promise": "m",
}
"""First letter of an item's id, by its kind."""
_HEADINGS: tuple[tuple[ItemKind, str], ...] = (
    ("goal", "Goals"),
    ("constraint", "What must not be done"),
    ("decision", "Decisions"),
    ("fact", "Facts"),
    ("preference", "Preferences"),
    ("artifact", "Things made or named"),
    ("promise", "Promises"),
    ("action", "Action items"),
    ("question", "Open questions"),
)
_FIRST_TO_GO: tuple[ItemKind, ...] = (
    "artifact",
    "fact",
    "promise",
    "preference",
    "action",
    "decision",
    "question",
    "goal",
    "constraint",
)
"""Item kinds in the order in which they are closed when a ledger exceeds its limit."""
_LEAST_IDENTIFIERS = 20
_LEAST_TOPICS = 3
ITEMS_SHARE = 3
"""Divisor of the token limit that bounds the items kept by the program next to a summary text: a third."""
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_SENTENCE_SHARE = 0.9
"""Share of the available room that a cut after a sentence must keep; otherwise the cut is between words."""
CUT_MARK = " …"
"""Text at the end of a shortened text."""
_FENCE = "\n```"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ANY_HEADING = re.compile(r"^\s{0,3}#{1,6}\s++(.*)$")
_BOLD_HEADING = re.compile(r"^\s*\*\*([^*]+?):?\*\*:?\s*$")
_WORDS = re.compile(r"\w+")
_EMPTY = re.compile(
    r"[\W_]*+(?:none|n/?a|nothing|empty|null|nichts|keine?|ninguno|aucune?|нет|无)?"
    r"(?:(?:(?<=\s)|\s++)(?:yet|so far|noted))?[\W_]*+",
    re.IGNORECASE,
)
_CODE_MARK = "```"
MAX_NOTHING_CHARS = 80
"""Most characters of an answer that can mean "nothing new"; a longer answer contains something."""
_AROUND = " \t\r\n.!。।؛،\"'`*_()[]#-–—:"
_NOTHING_NEW = frozenset(
    {
        "nothing new", "there is nothing new", "nothing new to add", "nothing to add",
        "nothing new was said", "nothing new to summarise", "nothing new to summarize",
        "nothing to summarise", "nothing to summarize", "no new information", "no new facts",
        "no changes", "no change", "no updates", "unchanged", "nichts neues", "keine änderungen",
        "nada nuevo", "sin cambios", "rien de nouveau", "niente di nuovo", "nada de novo",
        "niets nieuws", "nic nowego", "ничего нового", "нічого нового", "yeni bir şey yok", "没有新内容",
        "沒有新內容", "新しいことはありません", "新しい情報はありません", "새로운 내용 없음", "لا جديد",
        "لا شيء جديد", "چیز جدیدی نیست", "אין חדש", "कुछ नया नहीं", "không có gì mới",
        "tidak ada yang baru",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Section of a summary text; `about` tells the model what belongs in it.

    `kind` is the item kind of its lines; None means running text.
    """

    title: str
    about: str
    kind: ItemKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Format in which a model writes summaries, for example five sections or a running text."""

    name: SummaryForm
    tag: str = OUR_SUMMARY_TAG
    """Tag around the summary in requests of the chat."""
    tag_has_range: bool = True
    """True if the tag names the first and last message that the summary covers."""
    source: Literal["lines", "chat_history"] = "lines"
    """Form in which the summarising model receives the messages."""
    headings: tuple[Heading, ...] = ()
    """Sections of the text in order; empty for a text without sections."""
    share_of_original: tuple[float, float] | None = None
    """Expected length of the summary as a share of its source, least and most; only used as a score."""

    @property
    def is_text(self) -> bool:
        """True if a model writes the summary as text; False for the ledger, whose items the program
        renders.
        """
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
"""All forms of summaries, by name."""


def form_of(name: SummaryForm) -> Form:
    """Return the form with this name."""
    return FORMS[name]


def is_blank(text: str) -> bool:
    """Return whether a text is empty or only a word for "nothing" in any of several languages, such as
    "n/a".
    """
    return _EMPTY.fullmatch(text) is not None


def says_nothing_new(text: str) -> bool:
    """Return whether a model's answer is only a phrase such as "nothing new" or "none", which adds nothing.

    False for an empty answer and for one of more than 80 characters.
    """
    if len(text) > MAX_NOTHING_CHARS:
        return False
    return bool(text.strip(_AROUND)) and (is_blank(text) or text.strip(_AROUND).casefold() in _NOTHING_NEW)


def sections_in(text: str, form: Form) -> tuple[Section, ...]:
    """Return the non-empty sections of a Markdown text in the order of the form, unknown headings last.

    A form without headings takes the whole text as one section. Text before the first heading is a section
    with an empty heading. Lines of code are never headings.
    """
    if not form.headings:
        return (Section(heading="", text=text.strip()),) if text.strip() else ()
    found: dict[str, list[str]] = {}
    at, in_code = "", False
    for line in text.splitlines():
        in_code ^= line.lstrip().startswith(_CODE_MARK)
        title = None if in_code else _title(line)
        if title is not None:
            at = _find_heading(title, form) or title
        else:
            found.setdefault(at, []).append(line)
    order = [heading.title for heading in form.headings]
    ranked = sorted(found, key=lambda title: order.index(title) if title in order else len(order))
    parts = ((title, "\n".join(found[title]).strip()) for title in ranked)
    return tuple(Section(heading=title, text=text) for title, text in parts if not is_blank(text))


def kind_of(heading: str, form: Form) -> ItemKind | None:
    """Return the item kind of a section by its heading; None for running text.

    A heading that the form does not know, or an empty one, gives `fact`.
    """
    return next((known.kind for known in form.headings if known.title == heading), "fact")


def has_known_heading(sections: tuple[Section, ...], form: Form) -> bool:
    """Return whether at least one section has a heading of the form; True for a form without headings."""
    titles = {heading.title for heading in form.headings}
    return not titles or any(section.heading in titles for section in sections)


def _title(line: str) -> str | None:
    if found := _ANY_HEADING.match(line):
        return (found[1].rstrip().rstrip("#").rstrip() or found[1][:1]).strip(" *:")
    return found[1].strip(" *:") if (found := _BOLD_HEADING.match(line)) else None


def _find_heading(title: str, form: Form) -> str | None:
    """Return the form's heading that equals `title` but for case, numbers, punctuation and "and"; None if
    unknown.
    """
    said = _plain_title(title)
    return next((heading.title for heading in form.headings if _plain_title(heading.title) == said), None)


def _plain_title(title: str) -> str:
    return " ".join(w for w in _WORDS.findall(title.casefold()) if w != "and" and not w.isdecimal())


def render_summary(ledger: Ledger) -> str:
    """Return the ledger as Markdown in a fixed order, without closed items.

    Only the form "ledger" lists topics and exact names; texts of other forms contain them.
    """
    parts = [_section(section) for section in ledger.sections]
    if ledger.narrative.strip():
        parts.append(ledger.narrative.strip())
    for kind, heading in _HEADINGS:
        items = [item for item in ledger.items if item.kind == kind and item.closed is None]
        if items:
            parts.append("\n".join((f"## {heading}", *_by_day(items))))
    if form_of(ledger.form).is_text:
        return "\n\n".join(parts)
    if hints := [_hint(topic) for topic in ledger.topics if topic.label]:
        parts.append("\n".join(("## Where to look", *hints)))
    told = "\n".join(parts)
    clauses = dict(ledger.clauses)
    if exact := [clauses.get(found, found) for found in ledger.identifiers if found not in told]:
        parts.append(f"## Exact names and numbers\n{' · '.join(exact)}")
    return "\n\n".join(parts)


def translate_headings(summary: str, texts: Catalogue) -> str:
    """Return a summary with its `##` headings translated for people; unknown headings stay in English.

    Stored summaries, and those sent to models, have English headings.
    """
    if texts.language == ENGLISH:
        return summary

    def translate(heading: re.Match[str]) -> str:
        key = f"summary_{'_'.join(re.findall('[a-z]+', heading[1].lower()))}"
        return f"## {texts.say(key)}" if key in texts else heading[0]

    return _HEADING.sub(translate, summary)


def fit_ledger(ledger: Ledger, limit: int, count: Count) -> Ledger:
    """Return the ledger shortened until its summary has at most `limit` tokens; unchanged if it fits.

    Identifiers and topics are dropped first; then items are closed with the reason `LEFT_OUT`, by kind and
    oldest first, a person's own last; then the narrative is cut. In a summary of sections, items and
    narrative get a third of `limit`, and the longest sections are cut. The result may exceed a very small
    limit.
    """
    if ledger.sections and count(render_summary(ledger)) > limit:
        items = _fit_items(replace(ledger, sections=()), limit // ITEMS_SHARE, count)
        ledger = replace(ledger, items=items.items, narrative=items.narrative)
        return _fit_sections(ledger, limit, count)
    return _fit_items(ledger, limit, count)


def five_fields(ledger: Ledger) -> dict[str, Any]:
    """Return a summary as a JSON object for clients, without closed items.

    Keys: summary_text, key_facts, decisions, open_questions, action_items, and as additions range (first and
    last message number, empty without topics) and sources (message numbers).
    """
    ledger = convert_to_ledger(ledger)

    def texts(*kinds: ItemKind) -> list[str]:
        return [item.text for item in ledger.items if item.kind in kinds and item.closed is None]

    return {
        "summary_text": ledger.narrative,
        "key_facts": texts("goal", "fact", "constraint", "preference", "artifact"),
        "decisions": texts("decision"),
        "open_questions": texts("question"),
        "action_items": texts("action", "promise"),
        "range": _range(ledger),
        "sources": sorted({seq for item in ledger.items if item.closed is None for seq in item.sources}),
    }


def convert_to_ledger(ledger: Ledger) -> Ledger:
    """Return a summary of any form as narrative and items, in the form `ledger`.

    Lines of sections become items of at most 300 characters with new ids; running text joins the narrative.
    """
    if not ledger.sections:
        return ledger if ledger.form == "ledger" else replace(ledger, form="ledger")
    form = form_of(ledger.form)
    narrative = [ledger.narrative] if ledger.narrative else []
    items = list(ledger.items)
    number = ledger.last_number
    for section in ledger.sections:
        kind = kind_of(section.heading, form) if section.heading else None
        if kind is None:
            narrative.append(section.text)
            continue
        for text in statements(section.text):
            number += 1
            asked = kind == "action" and text.endswith(("?", "？"))
            told: ItemKind = "question" if asked else kind
            items.append(
                LedgerItem(id=f"{LETTERS[told]}{number}", kind=told, text=shorten_line(text, ITEM_CHARS))
            )
    return replace(
        ledger,
        form="ledger",
        narrative="\n\n".join(narrative),
        items=tuple(items),
        sections=(),
        last_number=number,
    )


def statements(text: str) -> list[str]:
    """Return the non-empty lines of a Markdown text without bullets; a fenced block of code is one item.

    The fences are left out, and so are empty blocks.
    """
    found: list[str] = []
    code: list[str] | None = None
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            if code:
                found.append("\n".join(code))
            code = [] if code is None else None
        elif code is not None:
            code.append(line)
        elif line.strip():
            found.append(_BULLET.sub("", line).strip())
    return [*found, "\n".join(code)] if code else found


def truncate_words(text: str, most: int) -> str:
    """Return the first `most` words of a text, with ` …` after them if it has more; blanks become single."""
    words = text.split()
    return " ".join(words) if len(words) <= most else f"{' '.join(words[:most])} …"


def shorten_line(text: str, chars: int) -> str:
    """Return the text on one line, cut between words if it is longer than `chars` characters.

    A cut line ends with ` …` and has at most `chars + 1` characters. A first word that is longer is cut
    inside.
    """
    line = " ".join(text.split())
    if len(line) <= chars:
        return line
    head = line[:chars].rsplit(" ", 1)[0] if " " in line[:chars] else line[: chars - 1]
    return f"{head} …"


def item_number(id_: str) -> int:
    """Return the number in an item's id, such as 3 for `f3`; 0 if there is none."""
    digits = id_[1:]
    return int(digits) if digits.isdecimal() else 0


def _fit_items(ledger: Ledger, limit: int, count: Count) -> Ledger:
    while (excess := count(render_summary(ledger)) - limit) > 0:
        smaller = _with_less(ledger, excess, count)
        if smaller == ledger:
            return _with_shorter_narrative(ledger, limit, count)
        ledger = smaller
    return ledger


def _with_less(ledger: Ledger, excess: int, count: Count) -> Ledger:
    """Return the ledger with about `excess` tokens of identifiers, topics and items left out, in this order.

    The result equals `ledger` if nothing can be left out.
    """
    identifiers, topics = ledger.identifiers, ledger.topics
    if not form_of(ledger.form).is_text:
        said = dict(ledger.clauses)
        while len(identifiers) > _LEAST_IDENTIFIERS and excess > 0:
            excess -= count(said.get(identifiers[0], identifiers[0]))
            identifiers = identifiers[1:]
        while len(topics) > _LEAST_TOPICS and excess > 0:
            excess -= count(_hint(topics[0]))
            topics = topics[1:]
    leaving: set[str] = set()
    for item in _by_need(ledger.items):
        if excess <= 0:
            break
        excess -= count(_line(item))
        leaving.add(item.id)
    items = tuple(replace(i, closed=LEFT_OUT) if i.id in leaving else i for i in ledger.items)
    clauses = tuple(pair for pair in ledger.clauses if pair[0] in identifiers)
    return replace(ledger, items=items, identifiers=identifiers, clauses=clauses, topics=topics)


def _with_shorter_narrative(ledger: Ledger, limit: int, count: Count) -> Ledger:
    bare = replace(ledger, narrative="")
    room = limit - count(render_summary(bare)) - 2
    return replace(ledger, narrative=_cut(ledger.narrative, room, count)) if room > 0 else ledger


def _fit_sections(ledger: Ledger, limit: int, count: Count) -> Ledger:
    """Return the ledger with its longest sections cut until the summary has `limit` tokens.

    Cuts are after a line or sentence where possible. A section without any text left is dropped.
    """
    sections = list(ledger.sections)
    while (
        sections and (excess := count(render_summary(replace(ledger, sections=tuple(sections)))) - limit) > 0
    ):
        place = max(range(len(sections)), key=lambda at: count(sections[at].text))
        longest = sections[place]
        size = count(longest.text)
        text = _cut(longest.text, size - excess, count)
        if text and count(text) < size:
            sections[place] = replace(longest, text=text)
        else:
            del sections[place]
    return replace(ledger, sections=tuple(sections))


def _cut(text: str, room: int, count: Count) -> str:
    """Return the beginning of a text that fits into `room` tokens, with a mark; empty if nothing fits.

    The cut is after a line or sentence where that costs little, else between words. An open code block is
    closed. A text that fits is returned unchanged.
    """
    if count(text) <= room:
        return text
    beside = count(CUT_MARK) + (count(_FENCE) if "```" in text else 0)
    kept = truncate_text(text, room - beside, count)
    sentence = max((end.start() for end in _SENTENCE_END.finditer(f"{kept}\n")), default=0)
    if sentence >= _SENTENCE_SHARE * len(kept):
        kept = kept[:sentence]
    elif text[len(kept) : len(kept) + 1].strip() and (words := kept.rpartition(" ")[0]):
        kept = words
    kept = kept.rstrip(f"{CUT_MARK}\n")
    return f"{kept}{CUT_MARK}{_FENCE if kept.count('```') % 2 else ''}" if kept else ""


def _by_need(items: Sequence[LedgerItem]) -> list[LedgerItem]:
    standing = [item for item in items if item.closed is None]
    return sorted(
        standing,
        key=lambda item: (item.author == "person", _FIRST_TO_GO.index(item.kind), item_number(item.id)),
    )


def _section(section: Section) -> str:
    return f"## {section.heading}\n{section.text}" if section.heading else section.text


def _by_day(items: Sequence[LedgerItem]) -> Iterator[str]:
    """Yield items as lines below headings of their days; items without a day come first."""
    for day, told in groupby(sorted(items, key=attrgetter("day")), key=attrgetter("day")):
        if day:
            yield f"### {day}"
        yield from map(_line, told)


def _line(item: LedgerItem) -> str:
    marks = [f"#{seq}" for seq in item.sources[:3]]
    if item.author != "person":
        marks.append(f"by the {item.author}")
    return f"- {item.text} ({', '.join(marks)})" if marks else f"- {item.text}"


def _hint(topic: Topic) -> str:
    return f"- {topic.label}: #{topic.from_seq} to #{topic.through_seq}"


def _range(ledger: Ledger) -> list[int]:
    """Return the first and the last message number that the topics cover; empty without topics."""
    if not ledger.topics:
        return []
    return [
        min(topic.from_seq for topic in ledger.topics),
        max(topic.through_seq for topic in ledger.topics),
    ]
