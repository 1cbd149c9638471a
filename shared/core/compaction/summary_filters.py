"""Checks of a summary's sentences: unsupported facts, secrets, orders to a model, refusals, and template
text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta

from shared.core.compaction.plan import source_dates, source_words
from shared.core.compaction.summary_prompts import is_own_sentence
from shared.core.context.prompts import OUR_TAGS
from shared.core.context.untrusted_text import defuse, strip_invisible
from shared.core.session.ledger import Ledger
from shared.core.session.summary import is_blank
from shared.core.session.turns import title_of
from shared.core.values.identifiers import EMAIL, URL, names_of, numbers_of, quotations_of
from shared.core.values.searching import language_of
from shared.core.values.secrets_filter import holds_secret

_DATE_ARITHMETIC_DAYS = 31
"""Days before and after a day of the conversation within which a computed date, as from "tomorrow", is
accepted.
"""
_PARTS = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]+")
_STEM_CHARS = 4
_MONTHS = (
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ],
    [
        "januar",
        "februar",
        "märz",
        "april",
        "mai",
        "juni",
        "juli",
        "august",
        "september",
        "oktober",
        "november",
        "dezember",
    ],
)
_GERMAN = re.compile(r"\b(?:und|nicht|ich|ist|das|der|die|wir)\b")
_SCRIPTS = (
    ("Latin", re.compile(r"[A-Za-z\u00c0-\u024f]")),
    ("Greek", re.compile(r"[\u0370-\u03ff]")),
    ("Cyrillic", re.compile(r"[\u0400-\u052f]")),
    ("Hebrew", re.compile(r"[\u0590-\u05ff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Devanagari", re.compile(r"[\u0900-\u097f]")),
    ("Thai", re.compile(r"[\u0e00-\u0e7f]")),
    ("Hangul", re.compile(r"[\uac00-\ud7af]")),
    ("Kana", re.compile(r"[\u3040-\u30ff]")),
    ("Han", re.compile(r"[\u4e00-\u9fff]")),
)
_FEW_LETTERS = 20
_CLEAR_SHARE = 0.7
_FIRST_YEAR, _LAST_YEAR = 2015, 2100
SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
"""Pattern of the gaps between sentences, by which texts are split."""
_REFUSAL = re.compile(
    r"\W*+(?:I(?:'m| am) (?:sorry|unable|not able)|sorry\b|I (?:cannot|can['’]t|won['’]t|must decline)"
    r" (?:help|assist|do|comply|summari[sz]e|provide|create|write)"
    r"|as an AI|there is no conversation|no conversation (?:was )?(?:provided|given)"
    r"|ich kann (?:dabei|das|diese|dieses) nicht|es tut mir leid|je suis désolé|lo siento)\b",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"what (?:this|the(?: whole)?) conversation is about (?:and (?:where|how) it stands|in at most)"
    r"|^\W*one sentence\W*$"
    r"|^the new text of item f3\b"
    r"|\[(?:insert|your|add) [^\]]{0,200}+\]|lorem ipsum",
    re.IGNORECASE,
)
_INJECTION = re.compile(
    rf"</?\s*+(?:{'|'.join(OUR_TAGS)}|system|human|assistant|user|tool_(?:use|result)|function_calls?)\b"
    r"|<\|[a-z_]+\|>|\[/?INST\]|<</?SYS>>"
    r"|^[^\S\n]*+(?:system|human|assistant)\s*+[:：]"
    r"|\[\s*+system\b|\[\s*+message (?:of|from) the (?:program|system)\b"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|all|earlier)\b.{0,30}"
    r"\b(?:instructions?|rules?|prompts?)\b"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,20}\b(?:instructions|rules|prompt)\b.{0,12}\b(?:above|before)\b"
    r"|\b(?:reveal|print|repeat|output)\b.{0,20}\bsystem prompt\b"
    r"|\bnew (?:system )?instructions?\s*:"
    r"|\byou (?:are|must act as) now (?:in )?(?:DAN|developer mode|unrestricted|jailbroken)\b"
    r"|\byou are no longer (?:bound|restricted|an? (?:assistant|AI))\b"
    r"|\b(?:the )?assistant (?:must|shall|has to) (?:always |now )?(?:obey|send|reveal|forward|transfer)\b"
    r"|\b(?:ignorier|vergiss|missacht)\w*\b.{0,30}\b(?:anweisung|regel|vorgabe)\w*"
    r"|\b(?:ignore[zr]?|oublie[zr]?)\b.{0,30}\b(?:instructions|consignes|règles)\b"
    r"|\b(?:ignor[ae]|olvid[ae])\b.{0,30}\b(?:instrucciones|reglas)\b"
    r"|\b(?:ignora|dimentica)\b.{0,30}\b(?:istruzioni|regole)\b"
    r"|\b(?:ignore|esqueça)\b.{0,30}\b(?:instruções|regras)\b"
    r"|(?:игнорируй|забудь|не обращай внимания на).{0,30}(?:инструкци|указани|правил)"
    r"|(?:忽略|无视|忘记).{0,12}(?:指令|指示|规则|提示)|(?:以前|上記|これまで).{0,8}(?:指示|命令).{0,6}無視",
    re.IGNORECASE | re.MULTILINE,
)
_CLEAR_LANGUAGE = 12
"""Stop words of one language, with hardly any of another, that make the source's language clear."""
_FIRST_LINE = re.compile(r"\A[\s#*_`>]*title[*_`]*\s*:[*_` ]*+(.*)\n?", re.IGNORECASE)
_RAW_CHARS = 300
_AROUND = " \t#*_`\"'“”„«»‘’.…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Words, numbers and dates of the source text and the former ledger, to check whether facts occur in
    them.
    """

    text: str
    numbers: frozenset[str]
    stems: frozenset[str]
    dates: frozenset[str]
    german: bool
    """True for mostly German text, in which capitals do not indicate names."""

    @classmethod
    def of(cls, source_text: str, former: Ledger) -> Ground:
        # Only texts count: line numbers and cited sources are the program's.
        """Return the index of a source text, made by `render_source`, and the texts of a former ledger."""
        former_texts = (former.narrative, *(item.text for item in former.items), *former.identifiers)
        known = "\n".join((source_words(source_text), *former_texts))
        plain = _normalise_text(known)
        return cls(
            text=plain,
            numbers=frozenset(_numbers(known)),
            stems=frozenset(_stem(word) for word in _WORD.findall(plain)),
            dates=_days_near(source_dates(source_text)),
            german=len(_GERMAN.findall(known)) > len(known) // 200,
        )

    def missing(self, text: str) -> tuple[str, ...]:
        """Return the exact facts of a text that the source lacks, as written: addresses, quotations, numbers,
        dates, names.

        Dates within 31 days of a day of the conversation are accepted, since they may be computed. Names of
        German texts are not checked.
        """
        addresses = [m[0] for pattern in (URL, EMAIL) for m in pattern.finditer(text)]
        for address in addresses:
            text = text.replace(address, " ")
        quoted = quotations_of(text)
        return (
            *(found for found in addresses if _normalise_text(found) not in self.text),
            *(found for found in quoted if _normalise_text(found).strip(" .,!?") not in self.text),
            *self._missing_numbers(text),
            *self._missing_dates(text),
            *(() if self.german else self._missing_names(text)),
        )

    def _missing_numbers(self, text: str) -> tuple[str, ...]:
        dated = _dates_in(text)
        return tuple(
            number
            for number in numbers_of(text)
            if not self._knows_number(number)
            and not any(number in written and iso in self.dates for written, iso in dated)
        )

    def _missing_dates(self, text: str) -> tuple[str, ...]:
        """Return the dates of a text that neither occur in the source nor lie near a day of the
        conversation.
        """
        possible: dict[str, set[str]] = {}
        for written, iso in _dates_in(text):
            if not written[:4].isdecimal():
                possible.setdefault(written, set()).add(iso)
        return tuple(
            written
            for written, isos in possible.items()
            if not isos & self.dates
            and not all(_stem(w) in self.stems for w in _WORD.findall(_normalise_text(written)))
        )

    def _knows_number(self, number: str) -> bool:
        bare = _bare_number(number)
        if bare in self.numbers:
            return True
        parts = _PARTS.findall(number)
        return len(parts) > 1 and all(
            part.lstrip("0") in self.numbers or part in self.numbers for part in parts
        )

    def _missing_names(self, text: str) -> tuple[str, ...]:
        return tuple(
            name
            for name in names_of(text)
            if not all(_stem(word) in self.stems for word in _WORD.findall(_normalise_text(name)))
        )


def script_of(text: str) -> str | None:
    """Return the script of at least 70 percent of a text's letters, such as "Latin".

    None if no script has so large a share, or if the text has fewer than 20 letters.
    """
    counts = Counter({name: len(pattern.findall(text)) for name, pattern in _SCRIPTS})
    if counts["Kana"]:
        counts["Kana"] += counts.pop("Han")
    letters = sum(counts.values())
    if letters < _FEW_LETTERS:
        return None
    name, most = counts.most_common(1)[0]
    return name if most / letters >= _CLEAR_SHARE else None


def _normalise_text(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(text.replace("’", "'").replace("‘", "'").split())


def _stem(word: str) -> str:
    """Return the beginning of a word, by which its inflected forms are recognised."""
    return word[: max(_STEM_CHARS, len(word) - 3)]


def _numbers(text: str) -> set[str]:
    found: set[str] = set()
    for number in numbers_of(text):
        found.add(_bare_number(number))
        found.update(part.lstrip("0") or "0" for part in _PARTS.findall(number))
    return found


def _bare_number(number: str) -> str:
    """Return the number without thousands separators and percent sign, so that 1,000 equals 1000."""
    return re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", number).rstrip("%")


def _days_near(dates: tuple[str, ...]) -> frozenset[str]:
    near: set[str] = set()
    for written in dict.fromkeys(dates):
        day = date.fromisoformat(written)
        reach = range(-_DATE_ARITHMETIC_DAYS, _DATE_ARITHMETIC_DAYS + 1)
        near.update((day + timedelta(days=days)).isoformat() for days in reach)
        near.update({f"{day.year}", f"{day.year - 1}", f"{day.year + 1}"})
    return frozenset(near)


def _dates_in(text: str) -> tuple[tuple[str, str], ...]:
    """Return each date in a text as written and as ISO date; without a year, once per possible year."""
    found = [(m[0], m[0]) for m in re.finditer(r"\b\d{4}-\d\d-\d\d\b", text)]
    found += [(m[0], m[0]) for m in re.finditer(r"\b(?:19|20)\d\d\b", text)]
    for months in _MONTHS:
        for number, name in enumerate(months, 1):
            found.extend(_named_dates(text, name, number))
    return tuple(found)


def _named_dates(text: str, month: str, number: int) -> list[tuple[str, str]]:
    day_first = rf"\b(?P<d1>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{month}(?:,?\s+(?P<y1>\d{{4}}))?"
    month_first = rf"\b{month}\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y2>\d{{4}}))?"
    found: list[tuple[str, str]] = []
    for match in re.finditer(f"{day_first}|{month_first}", text, re.IGNORECASE):
        day = int(match["d1"] or match["d2"])
        year = match["y1"] or match["y2"]
        years = (year,) if year else tuple(str(y) for y in range(_FIRST_YEAR, _LAST_YEAR))
        found.extend((match[0], f"{y}-{number:02}-{day:02}") for y in years)
    return found


def text_fault(text: str, ground: Ground) -> str | None:
    """Return, in English, why a summary must not contain the text; None if it may.

    Checked in order: a secret, orders to a model, text of our own prompts, and a fact that `ground` lacks.
    """
    if holds_secret(text):
        return "holds a secret"
    if holds_injection(text):
        return "holds marks or orders for a model"
    if is_template(text):
        return "repeats what it was asked"
    missing = ground.missing(text)
    return f"{missing[0]!r} was never said" if missing else None


def holds_injection(text: str) -> bool:
    """Return whether a text contains orders to a model, such as "ignore all rules", or imitated marks of the
    program.
    """
    return _INJECTION.search(text) is not None or defuse(text) != text


def is_refusal(text: str) -> bool:
    """Return whether an answer begins with a model's refusal, such as "I'm sorry"."""
    return _REFUSAL.match(text.strip()) is not None


def is_template(text: str) -> bool:
    """Return whether a text repeats a sentence of the program's summary prompts, or has placeholders like
    `[insert …]`.
    """
    return _TEMPLATE.search(text) is not None or is_own_sentence(text)


def may_be_quoted(text: str) -> bool:
    """Return whether a text contains neither a secret nor an order to a model."""
    return not holds_secret(text) and not holds_injection(text)


def language_of_source(source_text: str) -> str | None:
    """Return the English name of the language of a source text that `render_source` made; None if unclear."""
    return language_of(source_words(source_text), least=_CLEAR_LANGUAGE)


def language_fault(summary: str, source_text: str) -> str | None:
    """Return, in English, the fault of a summary in another script or language than its source.

    None if they are the same, or one of them is unclear.
    """
    source_script, summary_script = script_of(source_text), script_of(summary)
    if source_script and summary_script and source_script != summary_script:
        return f"the summary is written in {summary_script} letters, the conversation in {source_script}"
    said = language_of_source(source_text)
    told = language_of(summary)
    if said and told and said != told:
        return f"the summary is written in {told}, the conversation in {said}"
    return None


def split_title(text: str) -> tuple[str, str]:
    """Return the title in a first line `Title: …` of a summary text, and the text after it.

    Without such a line the title is empty, and the text is whole.
    """
    found = _FIRST_LINE.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


def check_title(raw: str, source_text: str, former: Ledger) -> str:
    """Return a model's title as it may be shown, at most 60 characters.

    Empty if it is blank, a refusal, in another language than the source, or not supported by source and
    former ledger.
    """
    told = strip_invisible(" ".join(raw[:_RAW_CHARS].split())).strip(_AROUND)
    unusable = is_blank(told) or is_refusal(told) or language_fault(told, source_text)
    return "" if unusable or text_fault(told, Ground.of(source_text, former)) else title_of(told)
