"""The bot's own words: whole in both languages, within Telegram's limits, without jargon or others' marks."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import pytest

from bot.telegram.inbound.updates import MediaKind
from bot.telegram.markup import count_units, render
from bot.telegram.texts import Texts, escape_markdown, get_texts
from bot.telegram.texts.german import GermanTexts
from shared.core.commands.texts import PinShown, command_texts
from shared.core.values import errors
from shared.core.values.money import Shortage

SAMPLES: dict[str, Any] = {
    "name": "Ada", "username": "ada_l", "code": "ABCD2345", "kind": "voice", "limit_mb": 20, "demo": True,
    "public": False, "hears_all": False, "commands": [("/compact [focus]", "Summarise")], "groups": "",
    "advice": "Something is wrong.", "seconds": 60, "messages": 1041, "reason": "nothing_to_undo",
    "value": "on", "text": "Likes tea.",
    "number": 3, "tool": "fetch_url", "subject": "example.org",
}  # fmt: skip
FIELDS = [field.name for field in dataclasses.fields(Texts)]
METHODS = [name for name, _ in inspect.getmembers(Texts, inspect.isfunction) if not name.startswith("_")]
SAME_IN_BOTH = {"setting"}
"""With the sample's name, which is no setting."""
LANGUAGES = ("en", "de")


def said(language: str, name: str, **other: Any) -> str:
    texts = get_texts(language)
    if name in FIELDS:
        return str(getattr(texts, name))
    method = getattr(texts, name)
    wanted = inspect.signature(method).parameters
    return str(method(**{key: {**SAMPLES, **other}[key] for key in wanted}))


@pytest.mark.parametrize("name", [*FIELDS, *METHODS])
def test_every_sentence_is_there_in_both_languages(name: str) -> None:
    own = vars(GermanTexts)["__annotations__"] if name in FIELDS else vars(GermanTexts)
    assert name in own, f"{name} has no German words"
    english, german = said("en", name), said("de", name)
    assert english.strip()
    assert german.strip()
    assert english != german or name in SAME_IN_BOTH


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [*FIELDS, *METHODS])
def test_every_sentence_fits_where_it_is_shown(language: str, name: str) -> None:
    text = said(language, name)
    kind = inspect.signature(getattr(Texts, name)).return_annotation if name in METHODS else None
    kind = kind or next(field.type for field in dataclasses.fields(Texts) if field.name == name)
    shown = text if kind == "Plain" else render(text).text
    assert count_units(shown) <= 4096
    if kind == "Plain" and name != "description":
        assert len(shown) <= 200, "an answer to a press has at most 200 characters"
    if kind == "Plain":
        assert not re.search(r"\*\*|`", text), "this is shown as it stands"
    else:
        assert "\\" not in shown
        assert "**" not in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_profile_keeps_telegrams_limits(language: str) -> None:
    texts = get_texts(language)
    assert len(texts.about) <= 120
    assert len(texts.description) <= 512


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [*FIELDS, *METHODS])
def test_people_meet_no_technical_words(language: str, name: str) -> None:
    """Only /context, which the public does not have, speaks of tokens."""
    text = said(language, name, public=True)
    jargon = r"compact|kompakt|token|context|kontext|prompt|session|cache|provider|webhook|database|turn\b"
    if name not in ("context", "help", "language"):
        assert not re.search(jargon, text, re.IGNORECASE), text


@pytest.mark.parametrize("code", ["de", "de-AT", "DE", "de_CH"])
def test_germans_of_every_country_read_german(code: str) -> None:
    assert get_texts(code).language == "de"


@pytest.mark.parametrize("code", ["", "en", "fr", "den", "x" * 500])
def test_everybody_else_reads_english(code: str) -> None:
    assert get_texts(code).language == "en"


NASTY = [
    "*bold*", "[x](http://evil.example)", "`code`", "# head", "1. one", "a\n\nb\tc", "<b>", "&amp;", "||",
    "~~x~~", "\\", "$x$", "\\(x\\)", "http://evil.example", "- item", "> quote", "_" * 5, "Ada_Lovelace",
    "😀" * 70,
]  # fmt: skip


@pytest.mark.parametrize("words", NASTY)
def test_a_name_stays_a_name(words: str) -> None:
    shown = render(f"Hello {escape_markdown(words)}!")
    line = " ".join(words.split())
    expected = line if len(line) <= 60 else line[:59] + "…"
    assert shown.text == f"Hello {expected}!"
    assert shown.entities == ()


@pytest.mark.control("S18")
@pytest.mark.parametrize("words", NASTY)
@pytest.mark.parametrize("language", LANGUAGES)
def test_words_of_others_cannot_format_a_message_of_ours(language: str, words: str) -> None:
    texts = get_texts(language)
    assert render(texts.let_in(name=words)).entities == ()
    assert render(texts.file_unreadable(name=words)).entities == ()
    answers = command_texts(language)
    assert render(answers.unpinned(words=words)).entities == ()
    pins = answers.pins([PinShown(mid="m1", text=words), PinShown(mid="m2", text=words)])
    assert {entity.type for entity in render(pins).entities} == {"bold"}


def error_classes(kind: type[errors.EvertalkError]) -> list[type[errors.EvertalkError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in error_classes(child))]


OURS = [
    kind for kind in error_classes(errors.EvertalkError) if kind.__module__ == "shared.core.values.errors"
]
UNSEEN = {"error", "fenced", "model_error", "prompt_too_long", "model_rejected_request"}
"""People are told in general words that something went wrong."""


@pytest.mark.parametrize("code", sorted({kind.code for kind in OURS} - UNSEEN))
def test_every_error_has_german_advice_of_its_own(code: str) -> None:
    german = get_texts("de").advice(code=code, advice="English.", public=False)
    assert german != get_texts("de").advice(code="error", advice="English.", public=False)
    assert (
        get_texts("en").advice(code=code, advice="As the error says.", public=False) == "As the error says."
    )


@pytest.mark.control("S46")
@pytest.mark.parametrize("code", sorted({kind.code for kind in OURS}))
def test_the_public_hears_nothing_of_models_and_accounts(code: str) -> None:
    advice = {kind.code: kind.advice for kind in OURS}[code]
    for language in LANGUAGES:
        told = get_texts(language).advice(code=code, advice=advice, public=True)
        assert not re.search(r"model|token|account|konto|anbieter|pin\b", told, re.IGNORECASE), told


def test_the_first_words_are_honest_about_the_demo_and_the_machine() -> None:
    texts = get_texts("en")
    assert "demo without intelligence" in texts.hello(demo=True)
    assert "demo" not in texts.hello()
    assert "AI assistant" in texts.hello(public=True)
    assert "evertalk" not in texts.hello(demo=True, public=True)
    assert render(texts.hello(name="Ada")).text.count("•") == 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_of_message_that_cannot_be_read_has_its_own_words(language: str) -> None:
    from typing import get_args

    kinds = set(get_args(MediaKind)) - {"photo", "document", "dice", "other"}
    texts = get_texts(language)
    assert len({texts.cannot(kind=kind) for kind in kinds | {"other"}}) == len(kinds) + 1


def test_one_is_told_as_one() -> None:
    assert get_texts("en").summarised(messages=1) == "I summarised one older message."
    assert get_texts("en").summarised(messages=41) == "I summarised 41 older messages."
    assert get_texts("de").summarised(messages=1041) == "Ich habe 1.041 ältere Nachrichten zusammengefasst."


def test_settings_have_names_in_both_languages() -> None:
    assert get_texts("en").setting(name="language", value="English") == "Language: English"
    assert get_texts("de").setting(name="language", value="Deutsch") == "Sprache: Deutsch"


def test_help_shows_commands_as_one_types_them() -> None:
    shown = render(
        get_texts("en").help(commands=[("/compact [focus] [--force]", "Summarise older messages")])
    )
    assert "• /compact [focus] [--force] – Summarise older messages" in shown.text
    assert shown.entities == ()


def test_a_person_reads_in_their_language_how_much_of_a_cap_is_used() -> None:
    short = Shortage(scope="session", cap_micro=300_000, spent_micro=150_400)
    error = errors.CapReached(scope="session", shortages=[short])
    told = {
        language: get_texts(language).advice(code=error.code, advice=error.advice, public=False)
        for language in ("en", "de")
    }
    assert "$0.15 of $0.30 used; not enough left for an answer" in told["en"]
    assert "0,15 $ von 0,30 $; für eine Antwort reicht der Rest nicht" in told["de"]
    assert "$" not in get_texts("de").advice(code=error.code, advice=error.advice, public=True)
