"""Every language that has a folder: a visitor reads its words everywhere, and no other ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import log
from tests.browser.widget.stub import FILES, Stub, note_of
from tests.kit.night import rest_at_night
from tests.kit.web.languages import FOLDERS, TAGS
from web.server.pages import LOCALES, Files

pytestmark = pytest.mark.browser
OTHERS = [one for one in FILES.languages if one != "en"]
BY_DAY = {"de", "ar", "ja"}
"""One of ours, one from right to left, one without spaces; the others wait for the night."""


def said(language: str, file: str) -> Any:
    return json.loads((LOCALES / language / f"{file}.json").read_text())


def direction(language: str) -> str:
    about = LOCALES / language / "about.json"
    return str(json.loads(about.read_text())["direction"]) if about.exists() else "ltr"


def form(page: Page, language: str, count: int) -> str:
    script = "([language, count]) => new Intl.PluralRules(language).select(count)"
    return str(page.evaluate(script, [language, count]))


def english_left(page: Page, language: str) -> list[str]:
    """What stands somewhere in English although the language has its own words for it."""
    english, own = said("en", "chat"), said(language, "chat")
    pairs = [(english[key], own.get(key)) for key in english]
    for part, words in said("en", "chat_parts").items():
        pairs += [(words[key], said(language, "chat_parts")[part].get(key)) for key in words]
    foreign = {text for text, mine in pairs if mine != text} - {mine for _, mine in pairs}
    script = """() => {
        const own = (node) => [...node.childNodes].filter((one) => one.nodeType === 3);
        const names = (node) => ['aria-label', 'title', 'placeholder'].map((name) => node.getAttribute(name));
        const all = [...document.querySelector('#evertalk').shadowRoot.querySelectorAll('*')];
        return all.flatMap((node) => [...own(node).map((one) => one.data), ...names(node)]).filter(Boolean);
    }"""
    return [text for text in page.evaluate(script) if text in foreign]


@pytest.mark.parametrize("language", rest_at_night(OTHERS, by_day=BY_DAY))
def test_a_visitor_reads_their_own_language(visitor: Visitor, stub: Stub, language: str) -> None:
    words, parts = said(language, "chat"), said(language, "chat_parts")
    page = visitor.page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{stub.host_url}/shop?plain=1&locale={language}")
    page.get_by_role("button", name=words["open"], exact=True).click()
    field = page.get_by_role("textbox", name=words["message"], exact=True)
    expect(field).to_have_attribute("placeholder", words["placeholder"])
    expect(page.get_by_text(words["welcome"], exact=True)).to_be_visible()
    host = page.locator("#evertalk")
    assert (host.get_attribute("lang"), host.get_attribute("dir")) == (
        page.evaluate("(tag) => Intl.getCanonicalLocales(tag)[0]", language), direction(language),
    )  # fmt: skip
    field.fill("42")
    field.press("Enter")
    expect(log(page).get_by_text("You said: 42")).to_be_visible()
    expect(log(page).get_by_role("button", name=parts["acts"]["good"], exact=True)).to_be_visible()
    page.get_by_role("button", name=words["menu"], exact=True).click()
    items = page.get_by_role("menuitem")
    expect(items.first).to_have_text(parts["menu"]["new_chat"])
    look = parts["menu"]["look"].replace("{look}", parts["menu"]["look_auto"])
    expect(items.get_by_text(look, exact=True).or_(items.filter(has_text=look))).to_be_visible()
    box = page.get_by_role("menu").bounding_box()
    assert box is not None
    assert 0 <= box["x"] <= 390 - box["width"]
    assert english_left(page, language) == []
    stub.only().notes = [note_of("1", id="n00000001"), note_of("2", id="n00000002")]
    items.filter(has_text=parts["menu"]["remembered"]).click()
    counted = parts["sheet"][f"notes_{form(page, language, 2)}"]
    number = page.evaluate("(tag) => (2).toLocaleString(tag)", language)
    expect(page.get_by_text(counted.replace("{count}", number), exact=True)).to_be_visible()
    assert english_left(page, language) == []
    assert page.locator(".head").first.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_card_heads_its_summary_in_the_language(visitor: Visitor, stub: Stub) -> None:
    card, page = said("de", "chat_parts")["card"], visitor.shop("?open=1&locale=de")
    field = page.get_by_role("textbox", name=said("de", "chat")["message"], exact=True)
    for count, words in enumerate(("eins", "zwei", "drei", "/compact"), 1):
        field.fill(words)
        field.press("Enter")
        expect(log(page).get_by_text(f"You said: {words}")).to_have_count(int(count < 4))
    page.get_by_role("button", name=card["card_summary"]).click()
    expect(page.get_by_role("tabpanel").get_by_role("heading", name=card["summary_goals"])).to_be_visible()
    assert english_left(page, "de") == []


@pytest.mark.parametrize(
    "locale", rest_at_night(["tlh", "x", "en_US", "d", "../../de"], by_day=("tlh", "../../de"))
)
def test_who_asks_for_no_language_of_ours_reads_english(visitor: Visitor, stub: Stub, locale: str) -> None:
    page = visitor.shop(f"?open=1&locale={locale}")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("Hi")
    page.keyboard.press("Enter")
    expect(log(page).get_by_role("button", name="Good answer")).to_be_visible()
    assert page.locator("#evertalk").get_attribute("lang") == "en"
    assert [path for path in stub.requests if "/locales/" in path] == []


def test_words_that_do_not_come_leave_english(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("Failed to load resource",)
    visitor.context.route(
        "**/locales/de/*.json", lambda route: route.fulfill(status=404, json={"title": "?"})
    )
    page = visitor.shop("?open=1&locale=de")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert page.locator("#evertalk").get_attribute("lang") == "en"


def test_the_longest_folder_that_a_tag_begins_with_is_spoken(
    visitor: Visitor, stub: Stub, tmp_path: Path
) -> None:
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "chat.json").write_text(json.dumps({"title": name}))
    page = visitor.chat()
    stub.served = Files(locales=tmp_path)
    script = """async (tags) => {
        const { speak, t } = await import('/static/widget/i18n.js');
        const found = [];
        for (const tag of tags) { await speak(tag); found.push(t('title')); }
        return found;
    }"""
    assert dict(zip(TAGS, page.evaluate(script, list(TAGS)), strict=True)) == TAGS


def test_a_plural_form_that_a_language_lacks_is_the_general_one(
    visitor: Visitor, stub: Stub, tmp_path: Path
) -> None:
    for name, words in {"en": {"title": "Chat", "unread_one": "1", "unread_other": "2"}, "ru": {
        "unread_one": "{count} новое", "unread_few": "{count} новых (мало)", "unread_other": "{count} новых",
    }}.items():  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "chat.json").write_text(json.dumps(words))
    page = visitor.chat()
    stub.served = Files(locales=tmp_path)
    script = """async () => {
        const { speak, t } = await import('/static/widget/i18n.js');
        await speak('ru-RU');
        return [t('title'), ...[1, 21, 3, 5, 1234.5].map((count) => t('unread', { count }))];
    }"""
    assert page.evaluate(script) == [
        "Chat", "1 новое", "21 новое", "3 новых (мало)", "5 новых", "1\xa0234,5 новых",
    ]  # fmt: skip
