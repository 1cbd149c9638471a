"""Picks sentences by their words alone: what answers a question, what is worth keeping, what to sum up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_IDEOGRAPH = re.compile(r"[぀-ヿ㐀-鿿]")
_TAGGED = re.compile(r"<([a-z][\w-]*)(?:\s[^<>]*)?>(.*?)</\1>", re.DOTALL)
_SOURCE = re.compile(r"^\s*(?:[-*]\s*)?\[#(\d+)[^\]]*\]\s*([^:\n]{1,80}?)\s*:\s?(.*)$")
_NOT_ANSWERED = "(not answered)"
"""How a transcript marks a line that nobody has answered yet."""
FOUND, KEPT, SAVED = "I found this: ", "I have kept your message: ", "I saved a note: "
NOTHING = "I find nothing about that in our conversation."
OWN_PHRASES = (FOUND, KEPT, SAVED, NOTHING)
"""What the demo says itself is no evidence, and not worth keeping; else it would quote its own quotes."""
TOOL_CALL = "(uses "
"""How a transcript shows that a tool was called: machinery, never worth a sentence."""
_SOURCES = re.compile(r"\s*\(#\d[^()]*\)$")
_NO_WORDS = ("<", "{", "[#", "---")
"""Tags, JSON, marks and dates: with these a line of a transcript ends."""
_COMMON_WORDS = """
a about all also am an and any are as at be been but by can could d did do does for from had has have he
her here him his how i if in is it its just ll m me my no not now of on or our out please re s say said
she so some t tell than that the their them then there they this to too up us ve very was we were what
what's when where which who whose why will with would you your know remember mention mentioned
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"(?<!^)(?<![.!?]\s)\b[A-ZÀ-ÖØ-ÞА-Я][\w’'-]+")
_ABOUT_ME = re.compile(r"\b(i|i'm|i’m|my|we|our|mine|me)\b", re.IGNORECASE)
_KINDS = (
    (
        "constraint",
        (
            r"(?<!have )(?<!has )(?<!had )(?<!['’]ve )never|must not|mustn't|do not|don't|don’t"
            r"|not allowed|forbidden|allerg\w+|without"
        ),
    ),
    ("decision", r"decided?|decision|agreed|settled on|we chose|let's go with|let’s go with"),
    ("preference", r"prefers?|likes?|loves?|hates?|favou?rite|rather"),
    ("goal", r"goal|wants? to|trying to|hope to|hoping to|plan to|planning to|aim to"),
    ("promise", r"promised?|i will|i'll|i’ll"),
    ("action", r"todo|to-do|need to|needs to|have to|has to|next step|remind"),
    ("artifact", r"https?://\S+|[\w-]+\.(?:py|md|txt|json|csv|pdf|docx?)"),
)
_KIND_SIGNS = tuple((kind, re.compile(rf"\b(?:{words})\b", re.IGNORECASE)) for kind, words in _KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLine:
    """One line of what is to be summarised: `[#12] author: words`."""

    seq: int
    author: str
    text: str

    @property
    def by_person(self) -> bool:
        return not self.author.lower().startswith(("assistant", "tool", "evertalk", "operator", "program"))

    @property
    def unanswered(self) -> bool:
        return self.text.endswith(_NOT_ANSWERED)

    @property
    def words(self) -> str:
        return self.text.removesuffix(_NOT_ANSWERED).rstrip()

    def without_questions(self) -> OfflineLine:
        told = [sentence for sentence in sentences(self.words) if kind_of(sentence) != "question"]
        return replace(self, text="\n".join(told))


def sentences(text: str) -> tuple[str, ...]:
    """Sentences and lines, in order, word for word, without list marks."""
    parts = (part.strip().lstrip("-*•> ").strip() for part in _SENTENCE_END.split(text))
    return tuple(part for part in parts if len(part) > 1)


def keywords(text: str) -> frozenset[str]:
    """The words that carry meaning, lower case, with plain English endings cut; single signs for CJK."""
    words = (word.lower().replace("’", "'") for word in _WORD.findall(text))
    found = {_stem(word) for word in words if word not in _COMMON}
    found.update(_IDEOGRAPH.findall(text))
    return frozenset(found)


def outside_tags(text: str) -> str:
    """A person's own words, without what was put around them in tags."""
    return _TAGGED.sub(" ", text).strip()


def inside_tags(text: str) -> str:
    """Only what stands in tags: summaries, notes, recalled lines."""
    return "\n".join(body for _, body in _TAGGED.findall(text))


def best_match(question: str, candidates: Sequence[str]) -> str | None:
    """The statement that shares most of the question's words; of equals the newest."""
    asked = keywords(question)
    best: tuple[float, str] | None = None
    for sentence in candidates:
        shared = asked & keywords(sentence)
        score = len(shared) / max(1, len(asked)) + min(len(sentence), 200) / 10_000
        if shared and (best is None or score >= best[0]):
            best = (score, sentence)
    return best[1] if best and best[0] >= 0.25 else None


def without_sources(sentence: str) -> str:
    """A line of a summary without the numbers of the messages that it comes from."""
    return _SOURCES.sub("", sentence)


def salience(sentence: str) -> int:
    """How much a sentence says about the person or the world; 0 is small talk."""
    if sentence.endswith("?"):
        return 0
    score = (
        2 * bool(_ABOUT_ME.search(sentence)) + bool(_NUMBER.search(sentence)) + bool(_NAME.search(sentence))
    )
    score += 2 * (kind_of(sentence) != "fact")
    return score if len(keywords(sentence)) >= 2 else 0


def kind_of(sentence: str) -> str:
    if sentence.endswith(("?", "？")):
        return "question"
    return next((kind for kind, sign in _KIND_SIGNS if sign.search(sentence)), "fact")


def source_lines(text: str) -> tuple[OfflineLine, ...]:
    """All `[#seq] author: words`; words go on over lines until an empty one, a tag or the next mark."""
    found: list[OfflineLine] = []
    open_line = False
    for raw in text.splitlines():
        mark = _SOURCE.match(raw)
        if mark:
            found.append(OfflineLine(seq=int(mark[1]), author=mark[2], text=mark[3]))
        elif open_line and raw.strip() and not raw.lstrip().startswith(_NO_WORDS):
            last = found[-1]
            found[-1] = OfflineLine(seq=last.seq, author=last.author, text=f"{last.text}\n{raw.strip()}")
            continue
        open_line = bool(mark)
    return tuple(found)


def shortened(text: str, chars: int) -> str:
    """Cut at a blank, so that no word or number becomes another one."""
    if len(text) <= chars:
        return text
    head = text[:chars].rsplit(" ", 1)[0]
    return head or text[:chars]


def unique(items: Iterable[str]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for item in items:
        seen.setdefault(item.casefold(), item)
    return tuple(seen.values())


def _stem(word: str) -> str:
    for ending in ("'s", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
