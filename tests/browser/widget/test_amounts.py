"""Screens of the widget with nothing, one, many, unnamed and very long things on them.

PICTURES_FOLDER in the environment names a folder that keeps a picture of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import log, say
from tests.browser.widget.stub import Stub, note_of
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.browser
AMOUNTS = ("nothing", "one", "many", "unnamed", "very long")
LONG = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen " * 6
COUNTS = {"nothing": 0, "one": 1, "many": 40, "unnamed": 2, "very long": 3}
STRAY = "/^(0|NaN|true|false|null|undefined|\\[object \\w+\\])$/"
FAULTS = f"""node => {{
  const root = node.getRootNode(), found = [];
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {{
    const words = walker.currentNode.data.trim(), parent = walker.currentNode.parentElement;
    if ({STRAY}.test(words) && parent.checkVisibility()) found.push(`${{words}} in ${{parent.className}}`);
  }}
  const panel = root.querySelector(".panel").getBoundingClientRect();
  for (const one of node.querySelectorAll("*")) {{
    const box = one.getBoundingClientRect();
    const seen = one.checkVisibility() && box.width > 1 && !one.closest("pre, .hidden");
    const inside = box.right <= panel.right + 1 && box.left >= panel.left - 1;
    if (seen && !inside) found.push(`${{one.tagName}} sticks out`);
  }}
  for (const one of node.querySelectorAll("button, a[href]")) {{
    const name = one.getAttribute("aria-label") || one.textContent.trim();
    if (one.checkVisibility() && !name) found.push("a button without a name");
  }}
  return found;
}}"""


def name_of(amount: str, number: int, words: str) -> str:
    return {"unnamed": "", "very long": LONG}.get(amount, f"{words} {number}")


def dress_site(stub: Stub, amount: str) -> None:
    """A site with a title, as every operator sets it, and as much else as the amount says."""
    starters = [name_of(amount, number, "Question") for number in range(min(COUNTS[amount], 6))]
    stub.site = {"title": "Harbour bookshop", "starters": [one for one in starters if one]}
    if amount == "very long":
        stub.site |= {"title": LONG, "welcome": LONG, "ai_notice": LONG}


def greeting(visitor: Visitor, stub: Stub, amount: str) -> tuple[Page, Locator]:
    dress_site(stub, amount)
    page = visitor.shop("?open=1&plain=1")
    expect(page.locator(".hello")).to_be_visible()
    return page, page.get_by_role("dialog")


def talk(visitor: Visitor, stub: Stub, amount: str) -> tuple[Page, Locator]:
    dress_site(stub, amount)
    page = visitor.shop("?open=1&plain=1")
    for number in range(min(COUNTS[amount], 6)):
        words = name_of(amount, number, "Message") or "."
        say(page, words)
        expect(page.locator("article.person")).to_have_count(number + 1)
        expect(page.get_by_role("button", name="Stop answering")).to_be_hidden()
    return page, page.get_by_role("dialog")


def person(visitor: Visitor, stub: Stub, amount: str) -> tuple[Page, Locator]:
    """A human answers, with a name or without."""
    page = visitor.shop("?open=1&plain=1")
    say(page, "Is anybody there?")
    expect(log(page).get_by_text("You said: Is anybody there?")).to_be_visible()
    name = "" if amount in {"nothing", "unnamed"} else name_of(amount, 1, "Ada")
    session = stub.only()
    stub.call(stub.durable(session, {"t": "handover", "state": "human", "name": name, "picture": ""}))
    for number in range(min(COUNTS[amount], 6)):
        said = {"t": "msg", "mid": f"m{90 + number}", "role": "human", "turn": None, "name": name}
        stub.call(stub.durable(session, said | {"text": name_of(amount, number, "Hello") or "."}))
    expect(page.locator(".mark")).to_be_visible()
    return page, page.get_by_role("dialog")


def memory(visitor: Visitor, stub: Stub, amount: str) -> tuple[Page, Locator]:
    page = visitor.chat()
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    stub.only().notes = [
        note_of(name_of(amount, number, "Note") or " ", id=f"n{number:08}")
        for number in range(COUNTS[amount])
    ]
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem", name="Memory").click()
    sheet = page.get_by_role("dialog", name="Memory")
    expect(sheet).to_be_visible()
    expect(sheet.get_by_role("listitem")).to_have_count(COUNTS[amount])
    return page, sheet


SCREENS: tuple[Callable[[Visitor, Stub, str], tuple[Page, Locator]], ...] = (greeting, talk, person, memory)


def keep_picture(page: Page, name: str) -> None:
    if folder := os.environ.get("PICTURES_FOLDER"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.mark.parametrize("amount", rest_at_night(AMOUNTS, by_day=("nothing", "unnamed", "very long")))
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.__name__)
def test_screen_shows_no_stray_value_and_nothing_sticks_out(
    visitor: Visitor, stub: Stub, screen: Any, amount: str
) -> None:
    page, shown = screen(visitor, stub, amount)
    keep_picture(page, f"{screen.__name__}-{amount.replace(' ', '-')}")
    assert shown.evaluate(FAULTS) == []
