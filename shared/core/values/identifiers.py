"""Finds in a text what must be kept letter by letter: numbers, names, addresses, quotations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shared.core.values.secrets_filter import REDACTED, redact

URL = re.compile(r"\bhttps?://[^\s<>()\[\]\"'`“”«»]+[^\s<>()\[\]\"'`“”«».,;:!?]", re.IGNORECASE)
EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+\b")
PATH = re.compile(
    r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.-]*[\w-]){2,}/?|\b[\w-]{1,100}\.(?:py|js|ts|md|txt|json|csv|pdf|toml|ya?ml)\b"
)
"""The bounds keep a long row of words and hyphens from being read again from each of them."""
NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*%?")
QUOTED = re.compile(r"“([^”\n]{2,80})”|«([^»\n]{2,80})»|\"([^\"\n]{2,80})\"|„([^“\n]{2,80})“")
_CAPITAL_WORD = re.compile(r"[^\W\d_a-zß-öø-ÿ](?<![^\W\d_].)(?<![^\W_][’'-].)[\w’'-]*", re.DOTALL)
"""A word that does not begin with a small Latin letter; looking back comes last because it costs most."""
_SENTENCE_START = re.compile(r"(?:^|[.!?…:;]\s+|\n\s*|[-*•]\s+|\d[.)]\s+|[“”\"«»„(\[|*_`]\s*)$")
_NO_SENTENCE = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*#{1,6}[ \t][^\n]*"
    r"|^[ \t]*(?:(?:[-*•]|\d+[.)])[ \t]+)?(?:\*\*|__)[^*\n]{1,80}?(?::(?:\*\*|__)|(?:\*\*|__)(?::|[ \t]*$))",
    re.MULTILINE | re.DOTALL,
)
"""Code, headings and the labels of lists: a capital there tells nothing."""
_SMALL_WORD = re.compile(r"\b[a-zß-öø-ÿ]\w*")
_NAME_PARTS = 4
_JOINT = re.compile(r"[\s-]+")
_TELLING_DIGITS = 5
"""Fewer are an amount, a time or a year, of which many are said; more are a date, an account, an order."""
_PART_CHARS = 2_000
_SIGN_OF_URL, _SIGN_OF_EMAIL = re.compile("://"), re.compile("@")
_SIGN_OF_PATH = re.compile(r"/[\w.-]*[\w-]/|\.(?:py|js|ts|md|txt|json|csv|pdf|toml|ya?ml)\b")
"""Cheap to look for; without them the costly pattern finds nothing."""

NO_NAMES = frozenset(
    {"I", "I'm", "I'll", "I've", "I'd", "I’m", "I’ll", "I’ve", "I’d", "OK", "Ok", "Mr", "Mrs", "Ms", "Dr"}
    | {"Yes", "No", "Hey", "Hi", "Hello", "Thanks", "Wow", "Monday", "Tuesday", "Wednesday", "Thursday"}
    | {"Friday", "Saturday", "Sunday", "January", "February", "March", "April", "May", "June", "July"}
    | {"August", "September", "October", "November", "December"}
)


def identifiers_of(text: str, *, most: int = 60, redacted: bool = False) -> tuple[str, ...]:
    """URLs, e-mail addresses, paths, telling numbers and names in the order of their first appearance.

    `redacted` says that the text holds no secret any more, as that of a source.
    """
    found: dict[str, None] = {}
    for part in _parts((text if redacted else redact(text)).replace(REDACTED, " ")):
        found.update(dict.fromkeys(_identifiers_in(part)))
        if len(found) >= most:
            break
    return tuple(found)[:most]


def _parts(text: str) -> Iterator[str]:
    """Yield lines in groups, so that a caller who needs a few identifiers does not read the whole text."""
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
    """Words written with a capital where the sentence does not ask for one; neighbours are one name."""
    return tuple(dict.fromkeys(name for name, _ in _names_with_places(text)))


def numbers_of(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[0] for match in NUMBER.finditer(text)))


def quotations_of(text: str) -> tuple[str, ...]:
    groups: Iterable[tuple[str, ...]] = (match.groups("") for match in QUOTED.finditer(text))
    return tuple(dict.fromkeys("".join(group) for group in groups))


def merge_identifiers(old: Iterable[str], new: Iterable[str], *, most: int = 50) -> tuple[str, ...]:
    """Newest last; when there are too many, the oldest go. Scraps and pieces of others are left out."""
    fresh = tuple(dict.fromkeys(new))
    kept = [found for found in dict.fromkeys(old) if found not in fresh]
    pieces = {piece for name in (*kept, *fresh) for piece in _JOINT.split(name) if piece != name}
    return tuple(found for found in (*kept, *fresh) if found not in pieces and not _is_scrap(found))[-most:]


def _is_scrap(found: str) -> bool:
    """A short number, which says nothing without its sentence."""
    return NUMBER.fullmatch(found) is not None and sum(map(str.isdigit, found)) < _TELLING_DIGITS


def _names_with_places(text: str) -> list[tuple[str, int]]:
    """Without phrases whose words the text also writes small: "Error Handling" is a title, and no name."""
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
                found.append(_joined(run))
                run = []
            run.append(match)
        elif run:
            found.append(_joined(run))
            run = []
    if run:
        found.append(_joined(run))
    return found


def _is_name(match: re.Match[str], text: str, *, joins: bool) -> bool:
    word = match[0]
    if not word[0].isupper() or word in NO_NAMES or len(word) < 2:
        return False
    if joins or word[1:] != word[1:].lower():
        return True
    return _SENTENCE_START.search(text[max(0, match.start() - 4) : match.start()]) is None


def _joined(run: list[re.Match[str]]) -> tuple[str, int]:
    name = " ".join(match[0] for match in run)
    return re.sub(r"[’']s?$", "", name), run[0].start()
