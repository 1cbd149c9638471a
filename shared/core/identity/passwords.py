"""Check against weak passwords: short ones, and those that are guessed first."""

from __future__ import annotations

import re

LEAST_CHARS = 12
"""Fewest characters of a password."""
MOST_CHARS = 1_000
"""Most characters of a password."""
_LEAST_OWN_CHARS = 5
"""Fewest different characters that must remain after all common parts are removed."""
_GUESSED_FIRST = """
evertalk password passwort passphrase administrator admin operator dashboard chatbot letmein welcome
willkommen changeme default secret geheim master dragon monkey football baseball sunshine princess
superman batman iloveyou ichliebedich trustno qwertyuiop qwertzuiop qwerty qwertz azerty asdfghjkl
asdfgh yxcvbnm zxcvbnm zxcvbn qazwsx login hallo hello test user root guest summer winter sommer
spring autumn herbst company firma server abc
"""
_WORDS = tuple(_GUESSED_FIRST.split())
_SPELLED = str.maketrans("013457@$!|", "oieastasii")
_YEAR = re.compile(r"(?:19|20)\d\d")


def find_weakness(password: str, *, name: str = "") -> str:
    """Return why a password is too weak, as an English sentence for people; empty if it is strong enough.

    Common words, years and rows such as `abc` do not count as strength, and neither do parts of `name`, the
    operator's name.
    """
    if len(password) < LEAST_CHARS:
        return f"A password has at least {LEAST_CHARS} characters."
    if len(password) > MOST_CHARS:
        return f"A password has at most {MOST_CHARS} characters."
    words = (*_WORDS, *(part for part in re.split(r"\W+", name.casefold()) if len(part) >= 3))
    said = password.casefold()
    own = min(_own_chars(said, words), _own_chars(said.translate(_SPELLED), words))
    if own < _LEAST_OWN_CHARS:
        return "This password is too easy to guess. Three unrelated words make a good one."
    return ""


def _own_chars(text: str, words: tuple[str, ...]) -> int:
    """Return the number of different characters outside known words, years and rows such as `abc`."""
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "")
    text = _YEAR.sub("", text)
    left = [
        char
        for before, char in zip(f" {text}", text, strict=False)
        if abs(ord(char) - ord(before)) > 1 and not char.isspace()
    ]
    return len(set(left))
