"""The bot's own words: within Telegram's limits in every language, without jargon or others' marks."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from bot.telegram.inbound.updates import MediaKind
from bot.telegram.markup.entity_text import render
from bot.telegram.texts import (
    describe_work,
    escape_markdown,
    explain_failure,
    explain_unreadable,
    get_texts,
    list_commands,
    say_hello,
    say_hello_to_group,
)
from shared.core.commands.texts import excerpt
from shared.core.session.turns import utf16_units
from shared.core.values import errors
from shared.core.values.money import Shortage
from shared.locales import Catalogue, catalogue, list_languages

LANGUAGES = list_languages()
ENGLISH, GERMAN = get_texts("en"), get_texts("de")
PLAIN = {
    "about", "description", "allow", "deny", "decided_before", "stopped", "whole_answer", "uncertain",
    "bring", "bringing", "brought_before", "arrived", "nothing_to_stop", "stopping", "answering_again",
    "inline_start", "inline_later", "unknown_button", "others_button", "busy", "summarising",
    "view", "undo", "on", "off", "close", "saved", "note_put_away",
    "back_again", "previous", "following", "all_notes", "forget_all",
    "draft_send", "draft_change", "draft_drop", "draft_again", "draft_approved", "draft_sent",
    "draft_dropped", "draft_outdated", "draft_expired", "draft_closed", "draft_cancelled",
    "secretary_no_right",
    "cancel", "edited_yes", "edited_no", "regenerate", "longer", "shorter", "stop", "export_caption_other",
}  # fmt: skip
"""Shown as they stand: labels of buttons, answers to a press, captions."""
BEGINNINGS_OF_PLAIN = ("setting_", "tool_")
VALUES = {
    "minutes": "10", "stars": "★★★★",
    "name": "Ada", "username": "ada_l", "code": "ABCD2345", "who": "Ada", "megabytes": "20",
    "subject": "example.org", "title": "Boats",
    "value": "English", "words": "Likes tea.", "question": "When?", "reason": "no",
    "used": "$0.15", "cap": "$0.30", "count": "1,041",
}  # fmt: skip


def filled(text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: VALUES[name[1]], text)


def is_plain(key: str) -> bool:
    return key in PLAIN or key.startswith(BEGINNINGS_OF_PLAIN)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_fits_where_it_is_shown(language: str) -> None:
    """A label has no marks, an answer to a press has at most 200 characters."""
    told = {key: filled(text) for key, text in get_texts(language).texts.items()}
    shown = {key: text if is_plain(key) else render(text).text for key, text in told.items()}
    assert [key for key, text in shown.items() if utf16_units(text) > 4096] == []
    assert [key for key in told if is_plain(key) and key != "description" and len(told[key]) > 200] == []
    marks = re.compile(r"\*\*|`|~~|\\")
    assert [key for key, text in shown.items() if marks.search(text) and not key.startswith("notice_")] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_answer_to_a_command_is_drawn_as_the_english_one(language: str) -> None:
    for key, text in catalogue("commands", language).texts.items():
        english = catalogue("commands", "en").texts.get(key)
        own, wanted = (render(re.sub(r"\{\w+\}", "x", one)) for one in (text, english or text))
        assert not re.search(r"\*\*|`|~~|\\", own.text), key
        assert sorted(one.type for one in own.entities) == sorted(one.type for one in wanted.entities), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_profile_keeps_telegrams_limits(language: str) -> None:
    say = get_texts(language).say
    assert len(say("about")) <= 120
    assert len(say("description")) <= 512
    assert all(len(say(key)) <= 64 for key in ("inline_start", "inline_later"))


@pytest.mark.parametrize("language", ["en", "de"])
def test_people_meet_no_technical_words(language: str) -> None:
    """Only /context, which the public does not have, speaks of tokens."""
    jargon = r"compact|kompakt|token|context|kontext|prompt|session|cache|webhook|database|turn\b"
    told = get_texts(language).texts
    assert [key for key, text in told.items() if re.search(jargon, text, re.IGNORECASE)] == []


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
@pytest.mark.parametrize("language", LANGUAGES)
def test_words_of_others_cannot_format_a_message_of_ours(language: str) -> None:
    texts, answers = get_texts(language), catalogue("commands", language)
    for words in NASTY:
        assert render(texts.say("let_in", name=escape_markdown(words))).entities == ()
        assert render(texts.say("file_unreadable", name=escape_markdown(words))).entities == ()
        assert render(answers.say("unpinned", words=excerpt(words))).entities == ()
        assert render(answers.say("pins_row", words=excerpt(words))).entities == ()


def error_classes(kind: type[errors.EvertalkError]) -> list[type[errors.EvertalkError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in error_classes(child))]


OURS = [
    kind for kind in error_classes(errors.EvertalkError) if kind.__module__ == "shared.core.values.errors"
]
WITH_FIGURES = {"cap_reached", "hour_cap_reached", "context_budget_exceeded", "message_too_long"}
UNSEEN = {
    "error", "fenced", "model_error", "not_found", "prompt_too_long", "model_rejected_request",
    "unknown_message",
}  # fmt: skip
"""Codes without a text of the bot: it says that something went wrong, or only pages show them."""


def explain(texts: Catalogue, code: str, advice: str = "English.", *, public: bool = False) -> str:
    return explain_failure(texts, code=code, advice=advice, public=public)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_error_has_advice_of_its_own_in_every_language(language: str) -> None:
    texts = get_texts(language)
    for code in {kind.code for kind in OURS} - UNSEEN:
        assert f"notice_{code}" in texts.texts
        told = explain(texts, code)
        assert told != texts.say("notice_error")
        assert (told == "English.") is (language == "en" and code in WITH_FIGURES), code


def test_untranslated_error_falls_back_to_its_advice_in_english_only() -> None:
    assert explain(ENGLISH, "of_tomorrow", "Do this.") == "Do this."
    assert explain(GERMAN, "of_tomorrow", "Do this.").startswith("Bei mir ist etwas schiefgegangen")


@pytest.mark.parametrize(
    "kind", [kind for kind in OURS if kind.code not in UNSEEN], ids=lambda kind: kind.code
)
def test_telegram_text_never_asks_to_reload_a_page(kind: type[errors.EvertalkError]) -> None:
    assert "page" not in explain(ENGLISH, kind.code, kind.advice)


@pytest.mark.control("S46")
@pytest.mark.parametrize("code", sorted({kind.code for kind in OURS}))
def test_the_public_hears_nothing_of_models_and_accounts(code: str) -> None:
    advice = {kind.code: kind.advice for kind in OURS}[code]
    for language in LANGUAGES:
        told = explain(get_texts(language), code, advice, public=True)
        assert not re.search(r"model\b|token|account|konto|anbieter|pin\b", told, re.IGNORECASE), told


def test_the_first_words_are_honest_about_the_demo_and_the_machine() -> None:
    assert "built-in demo" in say_hello(ENGLISH, demo=True)
    assert "demo" not in say_hello(ENGLISH)
    assert "AI assistant" in say_hello(ENGLISH, public=True)
    assert "evertalk" not in say_hello(ENGLISH, demo=True, public=True)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_words_give_three_examples(language: str) -> None:
    assert render(say_hello(get_texts(language), name="Ada")).text.count("•") == 3
    assert (
        "@ada_l"
        in render(say_hello_to_group(get_texts(language), username="ada_l", reads_all_messages=False)).text
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_of_message_that_cannot_be_read_has_its_own_words(language: str) -> None:
    kinds = set(get_args(MediaKind)) - {"photo", "document", "dice", "checklist", "other"}
    told = {explain_unreadable(get_texts(language), kind) for kind in kinds | {"other"}}
    assert len(told) == len(kinds) + 1


def test_a_tool_at_work_is_named_where_it_has_words() -> None:
    assert describe_work(ENGLISH, "fetch_url", "example.org") == "Looking at example.org …"
    assert describe_work(GERMAN, "calculate", "") == "Ich rechne …"
    assert describe_work(ENGLISH, "fetch_url", "") == describe_work(ENGLISH, "of_tomorrow", "x")


def test_plural_form_for_one_and_many() -> None:
    assert ENGLISH.say("summarised", count=1) == "I summarised one older message."
    assert ENGLISH.say("summarised", count=41) == "I summarised 41 older messages."
    assert GERMAN.say("summarised", count=1041) == "Ich habe 1.041 ältere Nachrichten zusammengefasst."


def test_help_shows_commands_as_one_types_them() -> None:
    shown = render(list_commands(ENGLISH, [("/compact [focus] [--force]", "Summarise older messages")]))
    assert "• /compact [focus] [--force] – Summarise older messages" in shown.text
    assert shown.entities == ()


def test_person_reads_cap_usage_in_their_language() -> None:
    short = Shortage(scope="session", cap_micro=300_000, spent_micro=150_400)
    error = errors.CapReached(scope="session", shortages=[short])
    assert "$0.15 of $0.30 used; not enough left for an answer" in explain(ENGLISH, error.code, error.advice)
    told = explain(GERMAN, error.code, error.advice)
    assert "0,15 $ von 0,30 $; für eine Antwort reicht der Rest nicht" in told
    assert "$" not in explain(GERMAN, error.code, error.advice, public=True)
