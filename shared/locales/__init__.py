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
"""Language of texts that are missing in another language."""
Part = Literal["commands", "telegram"]
"""Parts of the program that have a file of texts in each language."""
FOLDER = Path(__file__).parent
"""Folder with a folder for each language."""
_ALIASES = {
    "iw": "he", "in": "id", "pt": "pt-br", "zh": "zh-hans", "zh-hk": "zh-hant", "zh-mo": "zh-hant",
    "zh-tw": "zh-hant",
}  # fmt: skip
"""Language tags whose folder has another name."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Texts of one part of the program in one language, by key; a missing text is taken from English.

    `english` is None for English itself; `direction` is that of writing.
    """

    language: str
    direction: Literal["ltr", "rtl"]
    texts: Mapping[str, str]
    english: Catalogue | None = None

    def __contains__(self, key: str) -> bool:
        """Return whether a text of this key exists, in this language or in English."""
        return key in self.texts or (self.english is not None and key in self.english)

    def say(self, key: str, **values: str | int) -> str:
        """Return the text of a key with `values` inserted for its placeholders.

        Whole numbers are formatted as by `number`, and a whole number `count` selects the plural form. Raises
        KeyError for a key that is missing in English, and for a missing value that the text needs.
        """
        return _PLACEHOLDER.sub(lambda name: self._shown(values[name[1]]), self._find(key, values))

    def number(self, value: int) -> str:
        """Return a whole number with the separators of the language, such as `1,234`."""
        if -1000 < value < 1000:
            return str(value)
        if self.english is None:
            return f"{value:,}"
        from babel.numbers import format_decimal

        return format_decimal(value, locale=_locale(self.language))

    def thousands(self, tokens: int) -> str:
        """Return a number of tokens as text: unchanged below 1,000, then in thousands with one decimal, such
        as `1.2k`.
        """
        if tokens < 1000:
            return str(tokens)
        from babel.numbers import format_decimal

        return f"{format_decimal(tokens / 1000, '0.0', locale=_locale(self.language))}k"

    def dollars(self, micro: int | None) -> str:
        """Return micro-dollars as text in dollars, to the cent; `–` for None, which means unknown.

        An amount above 0 and below half a cent is shown as less than one cent.
        """
        if micro is None:
            return "–"
        from babel.numbers import format_currency

        least = 0 < micro < 5_000
        told = format_currency(0.01 if least else micro / 1e6, "USD", locale=_locale(self.language))
        return f"{'< ' if least else ''}{told}".replace("\N{NO-BREAK SPACE}", " ")

    def either(self, names: Sequence[str]) -> str:
        """Return names as a list in the language, such as `a, b, or c`."""
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
    """Return the texts of a part for a language tag such as `de-AT`, loaded once per process.

    An empty or unknown tag means English.
    """
    return _load(part, match_language(tag))


def match_language(tag: str, languages: Collection[str] | None = None) -> str:
    """Return the available language for a tag such as `de-AT` or `zh_TW`, by its longest prefix; English if
    none matches.

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
    """Return the names of the languages with a folder, such as `de`: English first, the others by name."""
    found = {path.parent.name for path in FOLDER.glob("*/about.json")}
    return (ENGLISH, *sorted(found - {ENGLISH}))


def name_language(language: str) -> str:
    """Return the native name of a language, such as `Deutsch`.

    `language` is the name of its folder; an unknown one raises FileNotFoundError.
    """
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
