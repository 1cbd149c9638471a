"""Days that messages speak of are read in every language of the product, checked against the CLDR."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pytest
from babel import Locale
from babel.dates import format_date

from shared.core.values.spoken_times import CHARS_READ, Span, spoken_spans

TODAY = date(2026, 11, 28)
"""A Saturday."""
LANGUAGES = (
    "ar",
    "de",
    "en",
    "es",
    "fa",
    "fr",
    "he",
    "hi",
    "id",
    "it",
    "ja",
    "ko",
    "nl",
    "pl",
    "pt_BR",
    "ru",
    "tr",
    "uk",
    "vi",
    "zh_Hans",
    "zh_Hant",
)
UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
PATTERNS = {"ja": "MMMd日", "ko": "MMMM d일", "zh_Hans": "MMMd日", "zh_Hant": "MMMd日"}
COMMON_WORDS = {"March", "May"}
"""Months that are also other words: English needs "in" before them."""


def ago(locale: Locale) -> Iterator[tuple[str, date]]:
    """Yield texts such as "vor 2 Wochen" with a day that they mean."""
    for unit, days in UNITS.items():
        forms = locale._data["date_fields"][unit]["past"]
        for number in range(1, 11):
            form = forms.get(locale.plural_form(number)) or forms["other"]
            yield form.replace("{0}", str(number)), TODAY - timedelta(days=days * number)


@pytest.mark.parametrize("language", LANGUAGES)
def test_times_ago_are_read_in_each_language(language: str) -> None:
    for text, day in ago(Locale.parse(language)):
        (span,) = spoken_spans(f"{text}.", TODAY)
        assert span.holds(day), text


@pytest.mark.parametrize("language", LANGUAGES)
def test_weekdays_and_months_are_read_in_each_language(language: str) -> None:
    locale = Locale.parse(language)
    for number, name in locale.days["format"]["wide"].items():
        (span,) = spoken_spans(name, TODAY)
        assert (span.first.weekday(), span.first) == (number, span.last), name
        assert TODAY - timedelta(days=7) <= span.first < TODAY
    for month, name in locale.months["format"]["wide"].items():
        if name not in COMMON_WORDS:
            (span,) = spoken_spans(name, TODAY)
            assert (span.first.day, span.first.month, span.last.month) == (1, month, month), name
        day = date(2026 if month < 12 else 2025, month, 9)
        text = format_date(day, PATTERNS.get(language, "d MMMM"), locale=locale)
        assert spoken_spans(text, TODAY) == (Span(day, day),), text


YESTERDAYS = {
    "ar": "ماذا قلت أمس؟",
    "de": "Was habe ich gestern gesagt?",
    "en": "What did I say yesterday?",
    "es": "¿Qué dije ayer?",
    "fa": "دیروز چه گفتم؟",
    "fr": "Qu'est-ce que j'ai dit hier ?",
    "he": "מה אמרתי אתמול?",
    "hi": "मैंने कल क्या कहा?",
    "id": "Apa yang saya katakan kemarin?",
    "it": "Che cosa ho detto ieri?",
    "ja": "昨日何と言いましたか？",
    "ko": "어제 내가 뭐라고 했지?",
    "nl": "Wat zei ik gisteren?",
    "pl": "Co mówiłem wczoraj?",
    "pt_BR": "O que eu disse ontem?",
    "ru": "Что я говорил вчера?",
    "tr": "Dün ne dedim?",
    "uk": "Що я казав учора, вчора?",
    "vi": "Hôm qua tôi đã nói gì?",
    "zh_Hans": "我昨天说了什么？",
    "zh_Hant": "我昨天說了什麼？",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_yesterday_is_read_in_each_language(language: str) -> None:
    yesterday = TODAY - timedelta(days=1)
    assert spoken_spans(YESTERDAYS[language], TODAY) == (Span(yesterday, yesterday),)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did we plan last week?", date(2026, 11, 16), date(2026, 11, 22)),
        ("Was war letzte Woche?", date(2026, 11, 16), date(2026, 11, 22)),
        ("vor zwei Wochen", date(2026, 11, 11), date(2026, 11, 17)),
        ("the day before yesterday", date(2026, 11, 26), date(2026, 11, 26)),
        ("am 3. Mai", date(2026, 5, 3), date(2026, 5, 3)),
        ("4月27号", date(2026, 4, 27), date(2026, 4, 27)),
        ("в марте", date(2026, 3, 1), date(2026, 3, 31)),
        ("in December", date(2025, 12, 1), date(2025, 12, 31)),
        ("April 27, 2024", date(2024, 4, 27), date(2024, 4, 27)),
        ("on 2026-02-03", date(2026, 2, 3), date(2026, 2, 3)),
        ("先週の火曜日", date(2026, 11, 17), date(2026, 11, 17)),
        ("上周二", date(2026, 11, 17), date(2026, 11, 17)),
        ("上個星期天", date(2026, 11, 22), date(2026, 11, 22)),
        ("星期二", date(2026, 11, 24), date(2026, 11, 24)),
    ],
)
def test_expression_becomes_the_days_it_means(text: str, first: date, last: date) -> None:
    assert spoken_spans(text, TODAY) == (Span(first, last),)


@pytest.mark.parametrize(
    "text", ["", "I may march on.", "tomorrow", "🙂", "2099-01-01", "99月99日", "13월", "0 days ago"]
)
def test_text_without_a_past_day_speaks_of_none(text: str) -> None:
    assert spoken_spans(text, TODAY) == ()


def test_text_of_many_days_or_great_length_asks_for_none() -> None:
    days = " ".join(f"2026-0{month}-01" for month in range(1, 7))
    assert spoken_spans(days, TODAY) == ()
    assert spoken_spans("x " * CHARS_READ + "yesterday", TODAY) == ()
    assert len(spoken_spans("999 years ago", TODAY)) == 1
