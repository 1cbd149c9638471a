"""Texts of the program in all languages, and their lookup. Begin with `catalogue`.

Each language has a folder of JSON files; docs/languages.md describes them, and how to add a language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from babel import Locale

__all__ = ["Catalogue", "catalogue", "list_languages", "match_language", "name_language"]

ENGLISH = "en"
Part = Literal["commands", "telegram"]
FOLDER = Path(__file__).parent
_ALIASES = {
    "iw": "he", "in": "id", "pt": "pt-br", "zh": "zh-hans", "zh-hk": "zh-hant", "zh-mo": "zh-hant",
    "zh-tw": "zh-hant",
}  # fmt: skip
"""Language tags whose folder has another name."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Texts of one part of the program in one language; a missing text is taken from English."""

    language: str
    direction: Literal["ltr", "rtl"]
    texts: Mapping[str, str]
    english: Catalogue | None = None

    def __contains__(self, key: str) -> bool:
        return key in self.texts or (self.english is not None and key in self.english)

    def say(self, key: str, **values: str | int) -> str:
        """Return a text with `values` inserted.

        Whole numbers are formatted, and `count` selects the plural form. Raises KeyError for a key that is
        missing in English, or for a value that the text needs.
        """
        return _PLACEHOLDER.sub(lambda name: self._shown(values[name[1]]), self._find(key, values))

    def number(self, value: int) -> str:
        """Return a number with the separators of the language."""
        if -1000 < value < 1000:
            return str(value)
        if self.english is None:
            return f"{value:,}"
        from babel.numbers import format_decimal

        return format_decimal(value, locale=_locale(self.language))

    def thousands(self, tokens: int) -> str:
        """Return a number of tokens, from 1,000 on in thousands such as `1.2k`."""
        if tokens < 1000:
            return str(tokens)
        from babel.numbers import format_decimal

        return f"{format_decimal(tokens / 1000, '0.0', locale=_locale(self.language))}k"

    def dollars(self, micro: int | None) -> str:
        """Return micro-dollars as text in dollars; `–` for None, meaning unknown."""
        if micro is None:
            return "–"
        from babel.numbers import format_currency

        least = 0 < micro < 5_000
        told = format_currency(0.01 if least else micro / 1e6, "USD", locale=_locale(self.language))
        return f"{'< ' if least else ''}{told}".replace("\N{NO-BREAK SPACE}", " ")

    def either(self, names: Sequence[str]) -> str:
        """Return names as a list such as `a, b or c`."""
        from babel.lists import format_list

        return format_list(names, style="or", locale=_locale(self.language))

    def _shown(self, value: str | int) -> str:
        return value if isinstance(value, str) else self.number(value)

    def _find(self, key: str, values: Mapping[str, str | int]) -> str:
        count = values.get("count")
        keys = (f"{key}_{self._plural(count)}", f"{key}_other", key) if isinstance(count, int) else (key,)
        found = next((self.texts[each] for each in keys if each in self.texts), None)
        if found is not None:
            return found
        if self.english is None:
            raise KeyError(key)
        return self.english._find(key, values)

    def _plural(self, count: int) -> str:
        if self.english is None:
            return "one" if count == 1 else "other"
        return _locale(self.language).plural_form(count)


def catalogue(part: Part, tag: str) -> Catalogue:
    """Return the texts of a part for a language tag such as `de-AT`.

    An empty or unknown tag means English.
    """
    return _load(part, match_language(tag))


def match_language(tag: str, languages: Collection[str] | None = None) -> str:
    """Return the available language for a tag, by its longest prefix; English if none matches.

    `languages` are the available ones, None for those with a folder.
    """
    known = list_languages() if languages is None else languages
    parts = tag[:40].lower().replace("_", "-").split("-")
    for length in range(len(parts), 0, -1):
        begun = "-".join(parts[:length])
        for name in (begun, _ALIASES.get(begun, "")):
            if name in known:
                return name
    return ENGLISH


@cache
def list_languages() -> tuple[str, ...]:
    """Return the languages with a folder: English first, the others by name."""
    found = {path.parent.name for path in FOLDER.glob("*/about.json")}
    return (ENGLISH, *sorted(found - {ENGLISH}))


def name_language(language: str) -> str:
    """Return the native name of a language."""
    return str(_about(language)["name"])


@cache
def _load(part: Part, language: str) -> Catalogue:
    path = FOLDER / language / f"{part}.json"
    return Catalogue(
        language=language,
        direction="rtl" if _about(language)["direction"] == "rtl" else "ltr",
        texts=json.loads(path.read_text("utf-8")) if path.exists() else {},
        english=None if language == ENGLISH else _load(part, ENGLISH),
    )


@cache
def _about(language: str) -> Mapping[str, str]:
    about: Mapping[str, str] = json.loads((FOLDER / language / "about.json").read_text("utf-8"))
    return about


@cache
def _locale(language: str) -> Locale:
    """Return babel's locale; imported late, since it takes 6 MB and one more for each language."""
    from babel import Locale

    return Locale.parse(language, sep="-")
