"""Exact strings in a text: URLs, e-mail addresses, paths, numbers, names and quotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shared.core.values.secrets_filter import REDACTED, redact

URL = re.compile(r"\bhttps?://[^\s<>()\[\]\"'`“”«»]+[^\s<>()\[\]\"'`“”«».,;:!?]", re.IGNORECASE)
EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+\b")
PATH = re.compile(
    r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.-]*[\w-]){2,}/?|\b[\w-]{1,100}\.(?:py|js|ts|md|txt|json|csv|pdf|toml|ya?ml)\b"
)
"""Pattern of file paths and names. Its bounds avoid quadratic time on long rows of words and hyphens."""
NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*%?")
QUOTED = re.compile(r"“([^”\n]{2,80})”|«([^»\n]{2,80})»|\"([^\"\n]{2,80})\"|„([^“\n]{2,80})“")
_CAPITAL_WORD = re.compile(r"[^\W\d_a-zß-öø-ÿ](?<![^\W\d_].)(?<![^\W_][’'-].)[\w’'-]*", re.DOTALL)
"""Pattern of a word that does not begin with a small Latin letter.

The look-behinds follow the first letter to save time.
"""
_SENTENCE_START = re.compile(r"(?:^|[.!?…:;]\s+|\n\s*|[-*•]\s+|\d[.)]\s+|[“”\"«»„(\[|*_`]\s*)$")
_NO_SENTENCE = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*#{1,6}[ \t][^\n]*"
    r"|^[ \t]*(?:(?:[-*•]|\d+[.)])[ \t]+)?(?:\*\*|__)[^*\n]{1,80}?(?::(?:\*\*|__)|(?:\*\*|__)(?::|[ \t]*$))",
    re.MULTILINE | re.DOTALL,
)
"""Pattern of code, headings and labels of lists, where a capital letter does not mark a name."""
_SMALL_WORD = re.compile(r"\b[a-zß-öø-ÿ]\w*")
_NAME_PARTS = 4
_JOINT = re.compile(r"[\s-]+")
_TELLING_DIGITS = 5
"""Fewest digits of a number that is kept when identifiers are merged; shorter ones are amounts, times or
years.
"""
_PART_CHARS = 2_000
_SIGN_OF_URL, _SIGN_OF_EMAIL = re.compile("://"), re.compile("@")
_SIGN_OF_PATH = re.compile(r"/[\w.-]*[\w-]/|\.(?:py|js|ts|md|txt|json|csv|pdf|toml|ya?ml)\b")
"""Cheap patterns to try first: without a match, `URL`, `EMAIL` or `PATH` finds nothing."""

NO_NAMES = frozenset(
    {"I", "I'm", "I'll", "I've", "I'd", "I’m", "I’ll", "I’ve", "I’d", "OK", "Ok", "Mr", "Mrs", "Ms", "Dr"}
    | {"Yes", "No", "Hey", "Hi", "Hello", "Thanks", "Wow", "Monday", "Tuesday", "Wednesday", "Thursday"}
    | {"Friday", "Saturday", "Sunday", "January", "February", "March", "April", "May", "June", "July"}
    | {"August", "September", "October", "November", "December"}
)
"""Capitalised words that are never taken for names, such as greetings, weekdays and months."""


def identifiers_of(text: str, *, most: int = 60, redacted: bool = False) -> tuple[str, ...]:
    """Return URLs, e-mail addresses, paths, numbers and names in a text, each once, the first `most` in text
    order.

    Numbers have at least two characters. Secrets are removed first, unless `redacted` says that this was
    done.
    """
    found: dict[str, None] = {}
    for part in _parts((text if redacted else redact(text)).replace(REDACTED, " ")):
        found.update(dict.fromkeys(_identifiers_in(part)))
        if len(found) >= most:
            break
    return tuple(found)[:most]


def _parts(text: str) -> Iterator[str]:
    """Yield groups of whole lines with at least 2,000 characters, so that a caller can stop early."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PART_CHARS)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def _identifiers_in(text: str) -> list[str]:
    places: dict[str, int] = {}
    for pattern, sign in ((URL, _SIGN_OF_URL), (EMAIL, _SIGN_OF_EMAIL), (PATH, _SIGN_OF_PATH)):
        if sign.search(text) is None:
            continue
        for match in pattern.finditer(text):
            places.setdefault(match[0], match.start())
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    for match in NUMBER.finditer(text):
        if len(match[0]) > 1:
            places.setdefault(match[0], match.start())
    for name, start in _names_with_places(text):
        places.setdefault(name, start)
    return sorted(places, key=lambda found: (places[found], found))


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a text, each once, in the order of their first appearance.

    A name is a capitalised word that does not begin a sentence or has a second capital letter. Up to four
    neighbouring words form one name.
    """
    return tuple(dict.fromkeys(name for name, _ in _names_with_places(text)))


def numbers_of(text: str) -> tuple[str, ...]:
    """Return the numbers in a text as they are written, each once, in order, including single digits."""
    return tuple(dict.fromkeys(match[0] for match in NUMBER.finditer(text)))


def quotations_of(text: str) -> tuple[str, ...]:
    """Return the texts of 2 to 80 characters between quotation marks, each once, in order, without marks."""
    groups: Iterable[tuple[str, ...]] = (match.groups("") for match in QUOTED.finditer(text))
    return tuple(dict.fromkeys("".join(group) for group in groups))


def merge_identifiers(old: Iterable[str], new: Iterable[str], *, most: int = 50) -> tuple[str, ...]:
    """Return old identifiers, then new ones, each once; above `most`, the first and oldest are dropped.

    Numbers of fewer than 5 digits are left out, as are words that are part of a longer name in the result.
    """
    fresh = tuple(dict.fromkeys(new))
    kept = [found for found in dict.fromkeys(old) if found not in fresh]
    pieces = {piece for name in (*kept, *fresh) for piece in _JOINT.split(name) if piece != name}
    return tuple(found for found in (*kept, *fresh) if found not in pieces and not _is_scrap(found))[-most:]


def _is_scrap(found: str) -> bool:
    """Return whether an identifier is a number of fewer than 5 digits, which means little alone."""
    return NUMBER.fullmatch(found) is not None and sum(map(str.isdigit, found)) < _TELLING_DIGITS


def _names_with_places(text: str) -> list[tuple[str, int]]:
    """Return names with their start in the text, without phrases that the text also writes in lower case.

    "Error Handling" is a title rather than a name if the text also has "error" and "handling".
    """
    text = _NO_SENTENCE.sub(lambda match: "\n" * len(match[0]), text)
    found = _capitals_in(text)
    small = set(_SMALL_WORD.findall(text)) if found else set()
    return [(name, at) for name, at in found if not small.issuperset(_JOINT.split(name.lower()))]


def _capitals_in(text: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    run: list[re.Match[str]] = []
    for match in _CAPITAL_WORD.finditer(text):
        if not match[0][0].isupper():
            continue
        joins = bool(run) and text[run[-1].end() : match.start()] == " " and len(run) < _NAME_PARTS
        if _is_name(match, text, joins=joins):
            if run and not joins:
                found.append(_join_name(run))
                run = []
            run.append(match)
        elif run:
            found.append(_join_name(run))
            run = []
    if run:
        found.append(_join_name(run))
    return found


def _is_name(match: re.Match[str], text: str, *, joins: bool) -> bool:
    word = match[0]
    if not word[0].isupper() or word in NO_NAMES or len(word) < 2:
        return False
    if joins or word[1:] != word[1:].lower():
        return True
    return _SENTENCE_START.search(text[max(0, match.start() - 4) : match.start()]) is None


def _join_name(run: list[re.Match[str]]) -> tuple[str, int]:
    name = " ".join(match[0] for match in run)
    return re.sub(r"[’']s?$", "", name), run[0].start()
