"""A language from right to left with words of its own: everything stands the other way round."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import find_faults
from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import log
from tests.browser.widget.picked_files import file, png
from tests.browser.widget.stub import Stub, ctx, note_of
from web.server.pages import LOCALES, Files

pytestmark = pytest.mark.browser
WORDS = Path(__file__).with_name("locales")
QUESTION = "איפה החבילה שלי?"
ANSWER = """החבילה **בדרך** אליך:

1. יצאה מהמחסן
2. תגיע ביום שני

| שלב | מתי |
|---|--:|
| משלוח | 3.5 |

```python
print("left to right")
```"""


@pytest.fixture
def hebrew(visitor: Visitor, stub: Stub, tmp_path: Path) -> Visitor:
    """A visitor whose widget speaks Hebrew: what is seen first, and English where it has no words."""
    shutil.copytree(LOCALES, tmp_path, dirs_exist_ok=True)
    shutil.copytree(WORDS, tmp_path, dirs_exist_ok=True)
    stub.served = Files(locales=tmp_path)
    return visitor


def box(one: Locator) -> tuple[float, float]:
    """Where something begins and ends from left to right."""
    found = one.bounding_box()
    assert found is not None
    return found["x"], found["x"] + found["width"]


def left_of(one: Locator, other: Locator) -> bool:
    return box(one)[1] <= box(other)[0] + 1


def talk(page: Page, stub: Stub) -> None:
    """A question, an answer, a file, a fuller context, and a note."""
    field = page.get_by_role("textbox", name="הודעה")
    field.fill(QUESTION)
    field.press("Enter")
    expect(log(page).get_by_text(f"You said: {QUESTION}")).to_be_visible()
    stub.call(stub.push(stub.only(), ANSWER))
    expect(log(page).get_by_text("left to right")).to_be_visible()
    stub.call(stub.send(stub.only(), {"t": "ctx"} | ctx(86_400)))
    stub.only().notes.append(note_of("Ada", id="n00000001"))
    event: dict[str, Any] = {"t": "memory", "id": "n00000001", "kind": "fact", "change": "saved"}
    stub.call(stub.durable(stub.only(), event | {"text": "עדה שותה תה ירוק."}))
    expect(page.locator(".noted")).to_be_visible()
    # For whoever is in it, it stays.
    page.locator(".noted").get_by_role("button").first.focus()


def test_everything_stands_the_other_way_round(hebrew: Visitor, stub: Stub) -> None:
    page = hebrew.shop("?locale=he&plain=1")
    launcher = page.get_by_role("button", name="פתיחת הצ׳אט")
    assert box(launcher)[0] == 20
    launcher.click()
    expect(page.get_by_text("איך אפשר לעזור?")).to_be_visible()
    direction = "node => getComputedStyle(node).direction"
    assert page.get_by_placeholder("כתיבת הודעה…").evaluate(direction) == "rtl"
    host = page.locator("#evertalk")
    assert (host.get_attribute("lang"), host.get_attribute("dir")) == ("he", "rtl")
    talk(page, stub)
    panel, field = page.locator(".panel"), page.get_by_role("textbox", name="הודעה")
    assert round(box(panel)[0]) == 20
    assert left_of(page.locator(".send"), field)
    assert left_of(field, page.get_by_role("button", name="צירוף קבצים"))
    assert left_of(page.locator(".head").get_by_role("button", name="סגירת הצ׳אט"), page.locator(".gauge"))
    assert left_of(page.locator(".gauge"), page.get_by_role("heading", name="צ׳אט"))
    # One's own words at the end of the line, which is the left; answers begin at the right.
    person, answer = page.locator(".person .body"), page.locator(".assistant .body").last
    assert box(person)[0] < box(answer)[0] + 40
    assert box(person)[1] < box(answer)[1]
    assert answer.evaluate(direction) == "rtl"
    assert page.locator("pre").evaluate(direction) == "ltr"
    number = page.locator(".assistant ol").last
    assert number.evaluate("node => parseFloat(getComputedStyle(node).paddingRight)") > 0
    assert number.evaluate("node => parseFloat(getComputedStyle(node).paddingLeft)") == 0
    note = page.locator(".noted")
    assert left_of(note.get_by_role("button").first, note.get_by_role("paragraph"))


def test_files_and_starters_stand_the_other_way_round(hebrew: Visitor, stub: Stub) -> None:
    stub.site = {"welcome": "ברוכים הבאים", "starters": ["איפה החבילה שלי?", "החזרת מוצר"]}
    page = hebrew.shop("?locale=he&plain=1&open=1")
    starters = page.locator(".starters button")
    expect(starters).to_have_count(2)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="צירוף קבצים").click()
    chooser.value.set_files([file("תמונה.png", png(), "image/png"), file("a.txt", b"words")])
    chips = page.locator(".composer .file")
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(2)
    first = chips.first
    expect(first.locator("canvas")).to_be_visible()
    assert left_of(first.get_by_role("button"), first.locator(".file-words"))
    assert left_of(first.locator(".file-words"), first.locator("canvas"))
    assert find_faults(page) == []


def test_a_phone_from_right_to_left_scrolls_no_way_but_down(hebrew: Visitor, stub: Stub) -> None:
    page = hebrew.page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{stub.url}/chat?locale=he")
    talk(page, stub)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.get_by_role("log").evaluate("node => node.scrollWidth <= node.clientWidth")
    assert find_faults(page) == []


def test_no_visitor_is_given_half_a_language(visitor: Visitor) -> None:
    page = visitor.shop("?locale=ur&open=1")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    host = page.locator("#evertalk")
    assert (host.get_attribute("lang"), host.get_attribute("dir")) == ("en", "rtl")
