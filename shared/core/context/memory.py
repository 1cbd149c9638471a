"""Notes about a contact: checks of new notes, comparison of notes, and the block that requests show."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, tzinfo
from typing import Any, get_args

from shared.core.context.notes import Authority, Durability, KeptNote, NewNote
from shared.core.context.prompts import NO_LONGER, notes_block, notes_since
from shared.core.context.untrusted_text import defuse
from shared.core.session.session import FrozenPrefix, Note
from shared.core.values.errors import BadInput
from shared.core.values.identifiers import identifiers_of
from shared.core.values.messages import storable
from shared.core.values.searching import normalise
from shared.core.values.secrets_filter import REDACTED, redact

NOTE_KINDS = ("profile", "preference", "fact", "decision", "event", "plan", "relation", "instruction")
"""Kinds of notes."""
DURABILITIES: tuple[Durability, ...] = get_args(Durability)
"""All values of `Durability`."""
NOTE_CHARS = 600
"""Most characters of a note's text."""
SUBJECT_CHARS = 120
"""Most characters of a note's subject; longer ones are cut."""
SAVES_PER_TURN = 3
"""Most notes saved in an ordinary turn; a flush has its own limit."""
FOUND_AT_MOST = 8
"""Most notes that a search returns."""
CORE_BLOCK_TOKENS = 400
"""Most tokens of the notes in each request."""
CORE_CANDIDATES = 40
"""Most important notes of a person that are loaded; the block shows those that fit."""
UNDO_DAYS = 30
"""Days for which a person can restore an archived note."""


class BadNote(BadInput):
    """Text or date that cannot be stored as a note; `advice` says why."""

    sentence = "The words cannot be kept as a note."
    code = "bad_note"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice=reason)


def note_from(arguments: Mapping[str, Any], *, like: NewNote | None = None) -> NewNote:
    """Return a note made of a model's or a person's arguments; it is not stored.

    Missing or invalid fields are those of `like`, or the defaults if it is None. Raises BadNote for an
    unusable `text` or `event_date`.
    """
    before = like or NewNote(kind="fact", text="")
    raw = arguments.get("text")
    text, redacted = note_text(raw if isinstance(raw, str) else "")
    kind, durability = arguments.get("kind"), arguments.get("durability")
    importance, subject = arguments.get("importance"), arguments.get("subject")
    whole = isinstance(importance, int) and not isinstance(importance, bool)
    return NewNote(
        kind=kind if kind in NOTE_KINDS else before.kind,
        text=text,
        subject=redact(subject)[:SUBJECT_CHARS] if isinstance(subject, str) else before.subject,
        importance=min(9, max(1, importance)) if whole and isinstance(importance, int) else before.importance,
        durability=next((one for one in DURABILITIES if one == durability), before.durability),
        event_date=_event_date(arguments.get("event_date")) or before.event_date,
        redacted=redacted,
    )


def to_new_note(note: KeptNote) -> NewNote:
    """Return a stored note's kind, text, subject, importance, durability and date as a new note."""
    return NewNote(
        kind=note.kind,
        text=note.text,
        subject=note.subject,
        importance=note.importance,
        durability=note.durability,
        event_date=note.event_date,
    )


def note_text(raw: str) -> tuple[str, bool]:
    """Return a note's text on one line, without secrets, and whether a secret was removed from it.

    Raises BadNote for a text that is empty, longer than 600 characters, or little more than a secret.
    """
    if len(raw) > NOTE_CHARS:
        raise BadNote.from_key("note_too_long", count=len(raw), most=NOTE_CHARS)
    readable = storable(raw.replace("\x00", " "))
    text = " ".join(unicodedata.normalize("NFC", readable).split())
    if not text:
        raise BadNote.from_key("note_empty")
    safe = redact(text)
    if safe != text and len(_WORD.findall(safe.replace(REDACTED, ""))) < _WORDS_BESIDE_A_SECRET:
        raise BadNote.from_key("note_secret")
    return safe, safe != text


def is_event_date(raw: object) -> bool:
    """Return whether a value is a date such as `2026`, `2026-11` or `2026-11-20`; False for an empty one and
    None.

    A time after the date is ignored.
    """
    try:
        return _event_date(raw) is not None
    except BadNote:
        return False


def _event_date(raw: object) -> str | None:
    """Return a date as `2026`, `2026-11` or `2026-11-20`; None if empty.

    Only the first ten characters count, so a time after the date is dropped. Raises BadNote.
    """
    if raw in (None, ""):
        return None
    text = str(raw)[:10]
    padded = f"{text}-01-01"[:10] if len(text) == 4 else f"{text}-01"[:10] if len(text) == 7 else text
    try:
        day = date.fromisoformat(padded).isoformat()
    except ValueError as error:
        raise BadNote(f"{text!r} is no date: write YYYY-MM-DD, YYYY-MM or YYYY.") from error
    return day[: len(text)] if padded != text else day


_WORD = re.compile(r"\w+")
_WORDS_BESIDE_A_SECRET = 4
ALIKE_AT = 0.85
"""Share of common words from which two gists are nearly equal."""
_SAID_AT = 0.6
"""Share of a note's words that the person must have used for it to count as theirs."""
_BORROWED_AT = 0.5
"""Share of the words the person did not use that others must have written for it to count as theirs."""
_STEM = 5
_GIST_BITS, _TELLING_BIT = 16, 1 << 16


def note_hash(text: str) -> bytes:
    """Return a SHA-256 that is equal for texts which differ only in case, punctuation and blanks."""
    return hashlib.sha256((normalise(text) or text.strip()).encode()).digest()


def gist_of(text: str) -> tuple[int, ...]:
    """Return a text's words as 16-bit hashes, sorted, each once.

    By these, nearly equal texts are recognised, but the text cannot be read. Hashes of numbers and negations
    have one bit more.
    """
    return tuple(sorted({_gist(word) for word in normalise(text).split()}))


def is_near_gist(a: Collection[int], b: Collection[int]) -> bool:
    """Return whether two gists share 85 percent of their words, and all numbers and negations.

    False if one is empty.
    """
    here, there = set(a), set(b)
    if not here or not there or any(number >= _TELLING_BIT for number in here ^ there):
        return False
    return len(here & there) / len(here | there) >= ALIKE_AT


def _gist(word: str) -> int:
    number = int.from_bytes(hashlib.sha256(word.encode()).digest()[: _GIST_BITS // 8])
    return number | _TELLING_BIT if _is_telling(word) else number


def _is_telling(word: str) -> bool:
    return word in _TELLING or any(char.isdigit() for char in word)


_TELLING = frozenset(
    {"not", "no", "never", "without", "nicht", "kein", "keine", "nie", "non", "pas", "jamais", "не", "нет"}
    | {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
)
"""Words that change a sentence's meaning even if all others are the same."""


def authority_of(
    text: str,
    said: Iterable[str],
    *,
    tools_used: bool,
    before: Iterable[str] = (),
    foreign: Iterable[str] = (),
) -> Authority:
    """Return the author of a note: `person` if the person said most of its words, else `tool` or `assistant`.

    `said` are the person's texts in the turns of the note, `before` their other readable texts, `foreign`
    texts of others. Names, numbers and addresses found only in `foreign` always make it a tool's. So do, if
    the person did not say most of it, `tools_used` or half of the unsaid words being foreign.
    """
    wanted = _stems(text) - _OF_THE_GENRE
    theirs = wanted & _stems_of_all(said)
    unsaid = wanted - theirs - _stems_of_all(before)
    borrowed = unsaid & _stems_of_all(foreign) if unsaid else set()
    numbers = {stem for stem in wanted if any(char.isdigit() for char in stem)}
    telling = {stem for name in identifiers_of(text, redacted=True) for stem in _stems(name)}
    if wanted and numbers <= theirs and len(theirs) >= _SAID_AT * len(wanted):
        return "tool" if borrowed & telling else "person"
    from_others = bool(borrowed & telling) or len(borrowed) >= max(1, _BORROWED_AT * len(unsaid))
    return "tool" if tools_used or from_others else "assistant"


def likely_source(text: str, said: Sequence[str]) -> int | None:
    """Return the index in `said`, texts in order of time, of the text that a note was taken from.

    None if none has 60 percent of its words. Of several with most common words, the newest is chosen.
    """
    wanted = _stems(text) - _OF_THE_GENRE
    shared = [len(wanted & _stems(words)) for words in said]
    best = max(shared, default=0)
    if not best or best < _SAID_AT * len(wanted):
        return None
    return max(place for place, number in enumerate(shared) if number == best)


def _stems_of_all(texts: Iterable[str]) -> set[str]:
    return {stem for text in texts for stem in _stems(text)}


def search_stems(query: str, *, most: int = 12) -> list[str]:
    """Return at most `most` beginnings of words to search for, the longest first; each may occur within a
    word.

    A query of filler words only gives its whole words; an empty one gives none.
    """
    stems = set(map(_singular, _stems(query))) or set(normalise(query).split())
    return sorted(stems, key=lambda stem: (-len(stem), stem))[:most]


def _singular(stem: str) -> str:
    """Return a stem without a final letter that may be a plural ending, so that "dogs" finds "dog"."""
    return stem[:-1] if len(stem) > 3 and stem[-1] in "sen" and stem.isalpha() else stem


def _stems(text: str) -> set[str]:
    """Return the first `_STEM` letters of each word, without filler words and words of one or two letters.

    Words with digits stay whole. Scripts without spaces give pairs of adjacent characters.
    """
    stems: set[str] = set()
    for word in set(normalise(text).split()):
        if any(ord(char) >= _NO_BLANKS for char in word):
            stems |= {word[at : at + 2] for at in range(max(1, len(word) - 1))}
        elif any(char.isdigit() for char in word):
            stems.add(word)
        elif len(word) >= 3 and word not in _FILLING:
            stems.add(word[:_STEM])
    return stems


_NO_BLANKS = 0x2E80
_OF_THE_GENRE = frozenset({"perso", "user"})
_FILLING = frozenset(
    {"the", "and", "for", "are", "was", "has", "have", "that", "this", "with"}
    | {"their", "they", "them", "from", "his", "her", "who", "what", "which", "about"}
    | {"der", "die", "das", "und", "ein", "eine", "ist", "hat", "mit", "von"}
    | {"dem", "den", "des", "für", "sich", "wird", "les", "est", "pour", "que"}
    | {"una", "los"}
)
"""Frequent words that are not used as stems, since they do not show what a note is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNotes:
    """Notes about the person as a request shows them; both texts are empty if there are none.

    `block` stands before the history, `since` next to the newest message.
    """

    block: str = ""
    """Text before the history, unchanged until the next compaction or until the cached prefix expires."""
    since: str = ""
    """Text of notes that were saved, changed or expired since the block was first sent; empty if none."""
    ids: tuple[int, ...] = ()
    """Ids of the notes in `block`."""
    shown: tuple[int, ...] = ()
    """Ids of the notes in `block` and `since`."""


NOTHING_KNOWN = KnownNotes()
"""Notes of a request without notes."""


def build_known_notes(
    notes: Iterable[Note],
    frozen: FrozenPrefix | None = None,
    *,
    count: Callable[[str], int],
    zone: tzinfo = UTC,
) -> KnownNotes:
    """Return the notes that a request shows: the frozen block with changes since, or, without `frozen`, a new
    block.

    `zone` gives the days on which notes were said.
    """
    now = core_notes(notes, count, zone=zone)
    shown = tuple(note.id for note in now)
    if frozen is None:
        lines = core_block(now, count, zone=zone)
        return KnownNotes(block=notes_block(defuse(lines)) if lines else "", ids=shown, shown=shown)
    newer = [render_note(note, zone) for note in now if note.id not in frozen.notes]
    newer += [render_note(note, zone, ended=True) for note in frozen.ended]
    return KnownNotes(
        block=frozen.notes_block,
        since=notes_since(defuse("\n".join(newer))) if newer else "",
        ids=frozen.notes,
        shown=tuple(dict.fromkeys((*frozen.notes, *shown))),
    )


def core_block(
    notes: Iterable[Note],
    count: Callable[[str], int],
    limit_tokens: int = CORE_BLOCK_TOKENS,
    *,
    zone: tzinfo = UTC,
) -> str:
    """Return the most important notes that fit into `limit_tokens`, one per line; empty without notes.

    Order and choice as in `core_notes`.
    """
    return "\n".join(render_note(note, zone) for note in core_notes(notes, count, limit_tokens, zone=zone))


def core_notes(
    notes: Iterable[Note],
    count: Callable[[str], int],
    limit_tokens: int = CORE_BLOCK_TOKENS,
    *,
    zone: tzinfo = UTC,
) -> tuple[Note, ...]:
    """Return the most important notes that together fit into `limit_tokens`, by importance, then id.

    Of equal importance, newer notes are preferred. Notes known only from a tool are excluded. Lines are
    measured as `render_note` makes them with `zone`.
    """
    shown: list[Note] = []
    left = limit_tokens
    for note in sorted(notes, key=lambda note: (-note.importance, -note.id)):
        cost = count(render_note(note, zone)) + 1
        if note.authority != "tool" and cost <= left:
            shown.append(note)
            left -= cost
    return tuple(sorted(shown, key=lambda note: (-note.importance, note.id)))


def render_note(note: Note, zone: tzinfo, *, ended: bool = False) -> str:
    """Return a note as a line of a request, with the day on which it was said in the zone.

    `ended` marks it as outdated.
    """
    told = [] if note.observed_at is None else [f"said {note.observed_at.astimezone(zone):%Y-%m-%d}"]
    if note.event_date and note.event_date not in note.text:
        told.append(f"about {note.event_date}")
    if ended:
        told.append(NO_LONGER)
    return f"{core_line(note.text)} ({', '.join(told)})" if told else core_line(note.text)


def core_line(text: str) -> str:
    """Return a note's text as the beginning of its line: `- ` and the text with single blanks."""
    return f"- {' '.join(text.split())}"


_TOLD = re.compile(rf" \((?:said \d{{4}}-\d\d-\d\d|about [\d-]+|{NO_LONGER}|, )+\)$")


def words_of_line(line: str) -> str:
    """Return the note's text in a line that `render_note` or `core_line` made, without its dates and
    marks.
    """
    return _TOLD.sub("", line.removeprefix(core_line("")))
