"""Names of browsers, taken from the User-Agent header."""

from __future__ import annotations

_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("SamsungBrowser/", "Samsung Internet"), ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"), ("Chrome/", "Chrome"), ("CriOS/", "Chrome"), ("Chromium/", "Chromium"),
    ("Safari/", "Safari"), ("curl/", "curl"), ("Python/", "Python"),
)  # fmt: skip
"""Marks of browsers and their names; the first mark found counts, since most also claim to be others."""
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"),
    ("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip
MOST_CHARS = 500
"""Characters of the header that are read."""


def browser_name(user_agent: str) -> str:
    """Return a browser's name such as `Firefox on Linux`, or only browser or system; empty for an unknown
    program.

    The name consists of our own words only, never of text from the header.
    """
    said = user_agent[:MOST_CHARS]
    browser = next((name for mark, name in _BROWSERS if mark in said), "")
    system = next((name for mark, name in _SYSTEMS if mark in said), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system
