"""Every state of the chat, wide and narrow: nothing is cut off, and PICTURES_FOLDER gets pictures.

`PICTURES_FOLDER=/some/folder python -m pytest tests/browser/widget/test_pictures.py` makes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import asked, log
from tests.browser.widget.states import SITE, states
from tests.browser.widget.stub import Stub

pytestmark = pytest.mark.browser

SIZES: dict[str, ViewportSize] = {
    "1280": {"width": 1280, "height": 780}, "390": {"width": 390, "height": 780},
}  # fmt: skip
WORD = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen" * 4
LONG = f"""A word that is long: {WORD}

```python
def ferry(island: str) -> str: return "a line of code that is longer than any chat is wide, by far: " + island
```

| island | minutes | boats | remarks about the landing, which are long |
|---|---|---|---|
| Vega | 40 | 3 | none that would be worth a line of its own in any other table |

$$\\int_0^\\infty e^{{-x^2}}\\,dx = \\frac{{\\sqrt{{\\pi}}}}{{2}}$$

1. One
2. Two with `code` and **weight**, and a [link](https://example.org/a/path/that/is/rather/long/for/a/chat)
"""
CUT_OFF = """() => {
    const root = document.querySelector("#evertalk")?.shadowRoot ?? document;
    const panel = root.querySelector(".panel");
    if (!panel?.checkVisibility()) return [];
    const { left, right } = panel.getBoundingClientRect();
    const hides = (node) => /auto|scroll|hidden|clip/.test(getComputedStyle(node).overflowX);
    const isInside = (node) => node && node !== panel && (hides(node) || isInside(node.parentElement));
    const seen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    const says = (node) => `${node.tagName}.${node.getAttribute("class")}: ${node.textContent.slice(0, 40)}`;
    const beyond = [...panel.querySelectorAll("*")].filter((node) => {
        const box = node.getBoundingClientRect();
        const out = box.width > 1 && (box.left < left - 1 || box.right > right + 1);
        return out && seen(node) && !isInside(node.parentElement);
    });
    const spilled = [...panel.querySelectorAll("button, summary, label, h2, .body")].filter((node) =>
        seen(node) && !node.matches(".icon") && node.clientWidth > 0 && !hides(node)
        && node.scrollWidth > node.clientWidth + 1);
    return [...beyond, ...spilled].map(says);
}"""
"""What is drawn outside of the panel, and text that is wider than its button or bubble."""
WEAR = """(theme) => {
    const shown = document.querySelector("#evertalk")?.shadowRoot?.querySelector(".root");
    (shown ?? document.documentElement).dataset.theme = theme;
    if (document.documentElement.dataset.theme) document.documentElement.dataset.theme = theme;
}"""


def look(page: Page, name: str) -> list[str]:
    """Return what is cut off, in each size; take the pictures if there is a folder."""
    found = []
    for width, size in SIZES.items():
        page.set_viewport_size(size)
        page.wait_for_timeout(60)
        found += [f"{name} at {width}: {words}" for words in page.evaluate(CUT_OFF)]
        for theme in ("light", "dark"):
            if folder := os.environ.get("PICTURES_FOLDER"):
                page.evaluate(WEAR, theme)
                page.wait_for_timeout(200)
                page.screenshot(path=Path(folder) / f"{re.sub('[^a-z]+', '-', name)}-{width}-{theme}.png")
    page.set_viewport_size(SIZES["1280"])
    return found


def more_states(visitor: Visitor, stub: Stub, page: Page) -> Iterator[str]:
    """Bring an open chat into states that have much or unusual content."""
    page.get_by_role("textbox", name="Message").wait_for()
    yield "empty"
    asked(page, "hello")
    yield "one message"
    stub.call(stub.push(stub.only(), LONG))
    expect(log(page).locator("math")).to_be_visible()
    yield "long words"
    for number in range(12):
        asked(page, f"Question {number}: how long is the ferry to island {number}?")
    yield "many messages"
    stub.call(stub.hand_over(stub.only(), "human", "Ann"))
    stub.call(stub.write(stub.only(), "Hello, I am Ann. What can I do for you?"))
    yield "with a person"


@pytest.fixture
def context_options() -> dict[str, Any]:
    return {"viewport": SIZES["1280"], "locale": "en-US", "has_touch": False}


@pytest.mark.parametrize("where", ["widget", "page"])
def test_nothing_is_cut_off_in_unusual_conversations(visitor: Visitor, stub: Stub, where: str) -> None:
    page = visitor.shop("?plain=1") if where == "widget" else visitor.chat()
    found = []
    if where == "widget":
        found += look(page, "widget closed")
        page.get_by_role("button", name="Open chat").click()
    for state in more_states(visitor, stub, page):
        found += look(page, f"{where} {state}")
    assert found == []


@pytest.mark.parametrize("where", ["widget", "page"])
def test_nothing_is_cut_off_in_any_state(visitor: Visitor, stub: Stub, where: str) -> None:
    stub.site = SITE
    page = visitor.shop("?plain=1&open=1") if where == "widget" else visitor.chat()
    found = []
    for state in states(visitor, stub, page):
        found += look(page, f"{where} state {state}")
    assert found == []
