"""Forms of address: a language says *you* in one way, on every screen and channel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from shared import locales

SAID_BY_THE_PERSON = ("recall", "go_on_words", "prompt_longer", "prompt_shorter", "example_tides", "why")
"""Last parts of keys whose texts the person says to the assistant, who may be addressed otherwise."""
OTHER_FORM = {
    "de": r"\b(du|dein\w*|dir|dich|euch|euer|eure\w*|schreib|schick|versuch es|drück|prüfe die|erneuere)\b"
    r"|(?:^|[.!?:] )(verwende|setze|gib|nimm|wähle|öffne|melde|lege|füge|klicke|sieh|lies|lass|nenne)\b",
    "es": r"\b(usted(es)?|inténtelo|envíelo|envíe|escriba (un|/)|elija|añada|guárdelo)\b",
    "fr": r"\b(tu|toi|ton|ta|tes)\b|\bt['’]",
    "hi": r"तुम|तेरा|तुझ",
    "id": r"\bkamu\b",
    "it": r"\b(Lei può|Lei ha|si prega|la preghiamo|inserisca)\b",
    "nl": r"\b(u|uw)\b(?!\))",
    "pt-br": r"\b(tu|teu|tua|teus|tuas|contigo)\b",
    "ru": r"\b(ты|тебя|тебе|тобой|твой|твоя|твоё|твои|твоего)\b",
    "uk": r"\b(ти|тебе|тобі|тобою|твій|твоя|твоє|твої)\b",
    "vi": r"\b(quý khách|quý vị|ngài)\b",
    "zh-hans": "您",
    "zh-hant": "您",
}
"""Of each language that has two forms: words of the one that the texts do not use."""
KOREAN = {"dashboard": r"(돼|해|어|아|예|에)요[.!?]?$", "chat": r"니다[.!?]?$", "commands": r"니다[.!?]?$"}
"""Ends of sentences of the other level: the dashboard is formal, and the assistant is polite."""


def find_texts(language: str) -> Iterator[tuple[str, str, str]]:
    """Yield file, key and text of each sentence, each plural form apart."""
    for file in sorted((locales.FOLDER / language).glob("*.json")):
        yield from ((file.stem, key, text) for key, text in _flatten(json.loads(file.read_text("utf-8"))))


def _flatten(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(inner, name)
    elif isinstance(value, str):
        yield key, value


@pytest.mark.parametrize("language", OTHER_FORM)
def test_texts_address_a_person_in_one_form(language: str) -> None:
    other = re.compile(OTHER_FORM[language], re.IGNORECASE if language != "it" else 0)
    found = [
        f"{file} {key}: {text}"
        for file, key, text in find_texts(language)
        if key not in SAID_BY_THE_PERSON and other.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("file", KOREAN)
def test_korean_texts_keep_one_level_of_politeness(file: str) -> None:
    other = re.compile(KOREAN[file])
    found = [
        f"{key}: {text}"
        for name, key, text in find_texts("ko")
        if name.startswith(file) and "아니요" not in text and other.search(text)
    ]
    assert found == []
