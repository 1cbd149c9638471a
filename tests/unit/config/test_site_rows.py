"""What an operator may write into a site's row, and what a page sees of it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.sites import BadSiteConfig, build_public_config, read_site_config


def test_an_empty_row_is_a_plain_open_site() -> None:
    config = read_site_config({})
    assert (config.verified, config.webview, config.uploads, config.handover) == ("off", False, None, True)
    assert config.memory_toasts is False
    assert build_public_config(config, "de") == {"starters": []}


def test_site_asks_for_names_only_if_it_says_so() -> None:
    assert read_site_config({}).ask_name is False
    assert build_public_config(read_site_config({"ask_name": True}), "de")["ask_name"] is True


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"titel": "x"}, "titel: there is no such key; did you mean title?"),
        ({"texts": {"de": {"accent": "#fff"}}}, "texts.de.accent: there is no such key"),
        ({"texts": {"Deutsch!": {}}}, "a language is named as in de or pt-BR"),
        ({"accent": "red"}, "accent: must be a colour such as #4f46e5"),
        ({"font": "Inter; color: red"}, "font: must be font families such as Inter, sans-serif"),
        ({"font": "url(x)"}, "font: must be font families"),
        ({"verified": "always"}, "verified: must be"),
        ({"position": "top"}, "position: must be"),
        ({"webview": "yes"}, "webview: must be true or false"),
        ({"starters": ["x"] * 7}, "starters: may have 6 entries at most"),
        ({"starters": ["x" * 81]}, "starters[0]: may have 80 characters at most"),
        ({"starters": [""]}, "starters[0]: must not be empty"),
        ({"title": 7}, "title: must be a text"),
        ({"privacy_url": "http://a.example"}, "must be an address that begins with https://"),
        ({"privacy_url": "javascript:alert(1)"}, "must be an address that begins with https://"),
        ({"privacy_url": "https://u@a.example"}, "must be an address that begins with https://"),
        ({"privacy_url": "https://"}, "must be an address that begins with https://"),
        ({"welcome": "a\0b"}, "welcome: holds characters that cannot be stored"),
        ([], "must be an object"),
    ],
)
def test_invalid_site_config_is_reported_with_its_place(config: Any, told: str) -> None:
    with pytest.raises(BadSiteConfig) as caught:
        read_site_config(config)
    assert told in caught.value.advice


def test_all_site_problems_are_reported_together() -> None:
    with pytest.raises(BadSiteConfig) as caught:
        read_site_config({"accent": "red", "titel": "x", "privacy_url": "ftp://x"})
    assert len(caught.value.problems) == 3


def test_texts_are_those_of_the_language_and_else_the_sites_own() -> None:
    config = read_site_config(
        {
            "title": "Shop",
            "welcome": "Hello",
            "starters": ["Where is my parcel?"],
            "texts": {
                "de": {"welcome": "Hallo", "starters": ["Wo ist mein Paket?"]},
                "de-AT": {"title": "Gschäft"},
            },
        }
    )
    assert build_public_config(config, "en-US")["welcome"] == "Hello"
    german = build_public_config(config, "de-DE")
    assert (german["title"], german["welcome"], german["starters"]) == (
        "Shop",
        "Hallo",
        ["Wo ist mein Paket?"],
    )
    assert build_public_config(config, "de_AT")["title"] == "Gschäft"
    assert build_public_config(config, "de_AT")["welcome"] == "Hallo"


def test_a_page_sees_nothing_of_how_a_site_is_guarded() -> None:
    config = read_site_config(
        {
            "verified": "required",
            "webview": True,
            "uploads": False,
            "accent": "#fc0",
            "position": "left",
            "font": "Inter, 'Noto Sans', sans-serif",
        }
    )
    assert build_public_config(config, "") == {
        "starters": [], "accent": "#ffcc00", "on_accent": "#000000", "position": "left",
        "font": "Inter, 'Noto Sans', sans-serif",
    }  # fmt: skip
