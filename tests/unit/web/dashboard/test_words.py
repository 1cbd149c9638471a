"""The dashboard's catalogue: every text in every language, none left over, placeholders as in English."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from shared.locales import FOLDER
from tests.kit.dashboard import words
from web.dashboard.sign_in import login
from web.server.words import COOKIE, dashboard_languages, language_of, translate, translate_page

TRANSLATED = sorted(path.parent.name for path in FOLDER.glob("*/dashboard.json"))


def catalogue(language: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / language / "dashboard.json").read_text("utf-8"))
    return found


@cache
def keys() -> frozenset[str]:
    return frozenset(words.keys())


def forms(entry: str | dict[str, str]) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry.values())


def test_every_text_of_the_scripts_can_be_found_without_running_them() -> None:
    assert words.unreadable_calls() == []
    assert len(words.script_texts()) > 800


def test_no_text_is_both_counted_and_not() -> None:
    counted = {other for _, other in words.plural_texts()}
    assert counted & (words.script_texts() | words.page_texts() | words.server_texts()) == set()


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_language_has_every_text_and_none_that_is_not_used(language: str) -> None:
    found = catalogue(language)
    assert sorted(keys() - set(found)) == []
    assert sorted(set(found) - keys()) == []
    assert [text for text, entry in found.items() if not all(one.strip() for one in forms(entry))] == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_language_counts_what_english_counts(language: str) -> None:
    counted = {other for _, other in words.plural_texts()}
    found = catalogue(language)
    assert {text for text, entry in found.items() if isinstance(entry, dict)} == counted
    shapes = {tuple(sorted(entry)) for entry in found.values() if isinstance(entry, dict)}
    assert len(shapes) == 1, "the plural categories of the language, always all of them"
    assert "other" in next(iter(shapes))
    assert set(next(iter(shapes))) <= {"zero", "one", "two", "few", "many", "other"}


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_translation_fills_in_what_english_fills_in(language: str) -> None:
    """A singular may leave the number out, where it says `one` in words."""
    wrong = []
    for text, entry in catalogue(language).items():
        wanted = set(words.PLACEHOLDER.findall(text))
        for one in forms(entry):
            got = set(words.PLACEHOLDER.findall(one))
            if got != wanted and not (isinstance(entry, dict) and got == wanted - {"count"}):
                wrong.append((text, one))
    assert wrong == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_what_programs_read_is_not_translated(language: str) -> None:
    """Settings, commands and addresses stand in a translation as in English."""
    fixed = re.compile(
        r"EVERTALK_[A-Z_]+|\./evertalk [a-z]+|(?<=\s)/[a-z]{3,}|https?://[\w.:/-]*\w", re.ASCII
    )
    wrong = [
        (text, entry)
        for text, entry in catalogue(language).items()
        if isinstance(entry, str) and not set(fixed.findall(text)) <= set(fixed.findall(f" {entry}"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("accepted", "chosen", "language"),
    [
        ("de-AT,de;q=0.9,en;q=0.8", "", "de"),
        ("en-GB,de;q=0.5", "", "en"),
        ("de;q=0.3,en-US;q=0.9", "", "en"),
        ("xx,de;q=0.1", "", "de"),
        ("xx", "", "en"),
        ("", "", "en"),
        ("de;q=much", "", "de"),
        ("en", "de", "de"),
        ("de", "en", "en"),
        ("de", "klingon<script>", "de"),
    ],
)
def test_the_operators_choice_comes_before_the_browsers(accepted: str, chosen: str, language: str) -> None:
    headers = {"Accept-Language": accepted} | ({"Cookie": f"{COOKIE}={chosen}"} if chosen else {})
    assert language_of(make_mocked_request("GET", "/dashboard", headers=headers)) == language


def test_pages_are_said_in_the_language_before_any_script_runs() -> None:
    page = (login.PAGES / "login.html").read_text("utf-8")
    german = translate_page("de", page, command="<code>x</code>")
    assert '<html lang="de" dir="ltr">' in german
    assert "Noch kein Passwort? <code>x</code> gibt einen Link aus" in german
    assert "[[t " not in german
    assert translate("de", login.MESSAGES["wait"], minutes="3") == "Zu viele Versuche. Bitte 3 Min. warten."
    assert translate_page("en", '<html lang="en">[[t Log in]]') == '<html lang="en" dir="ltr">Log in'


def test_what_a_translator_writes_is_text_and_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.server.words.load_texts", lambda _: {"Log in": "<script>&"})
    assert translate("de", "Log in") == "&lt;script&gt;&amp;"


def test_every_language_says_what_it_is_called_and_how_it_is_read() -> None:
    for about in dashboard_languages().values():
        assert about["name"]
        assert about["direction"] in ("ltr", "rtl")
        assert about["translated"] in ("by people", "by machine")
