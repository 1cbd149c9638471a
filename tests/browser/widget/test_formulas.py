"""Formulas, footnotes and lists of tasks are drawn as such; prices are not, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import find_faults
from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import log, say
from tests.browser.widget.stub import Stub

pytestmark = pytest.mark.browser
MADE_UP = Path(__file__).with_name("formulas.js").read_text()
TALK = r"""The roots are $x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}$ and \(e^{i\pi} + 1 = 0\).

$$
\sum_{n=1}^{\infty} \frac{1}{n^2} = \frac{\pi^2}{6}
$$

\[ A = \begin{pmatrix} a & b \\ c & d \end{pmatrix} \]

It costs $5 and $10, US$7 or $20–$30. Not known: $\weird{x}$. Never closed: $y = \frac{1

- [ ] Buy milk
- [x] Bake bread

Water is wet[^1], not [^so].

[^1]: See chapter 2."""


def answer_with(visitor: Visitor, stub: Stub, text: str) -> tuple[Page, Locator]:
    page = visitor.chat()
    stub.replies["formulas"] = text
    say(page, "formulas")
    answer = log(page).locator("article.assistant").last
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    return page, answer


def test_formulas_notes_and_tasks_are_drawn_as_such(visitor: Visitor, stub: Stub) -> None:
    page, answer = answer_with(visitor, stub, TALK)
    expect(answer.locator("math")).to_have_count(4)
    expect(answer.locator("math mfrac")).to_have_count(3)
    expect(answer.locator("math mtable mtr")).to_have_count(2)
    expect(answer.locator("figure.formula math[display=block]")).to_have_count(2)
    expect(answer.locator("code")).to_have_text([r"$\weird{x}$"])
    expect(answer).to_contain_text("It costs $5 and $10, US$7 or $20–$30.")
    expect(answer).to_contain_text(r"Never closed: $y = \frac{1")
    expect(answer.get_by_role("checkbox", name="Buy milk")).not_to_be_checked()
    expect(answer.get_by_role("checkbox", name="Bake bread")).to_be_checked()
    expect(answer).to_contain_text("not [^so]")
    answer.get_by_role("button", name="[1]").click()
    expect(answer.locator(".footnote")).to_be_focused()
    expect(answer.locator(".footnote")).to_contain_text("See chapter 2.")
    assert find_faults(page) == []


def test_generated_formulas_are_drawn_completely_and_safely(visitor: Visitor) -> None:
    assert visitor.chat().evaluate(MADE_UP, 400) == []


def test_endless_formulas_end(visitor: Visitor) -> None:
    script = r"""async () => {
        const { formula } = await import("/static/widget/math.js");
        const parts = ["\\frac", "{", "\\sqrt[", "a^", "_", "\\left(", "\\begin{matrix}", "&", "\\cases"];
        return parts.filter((one) => formula(one.repeat(5000 / one.length), false));
    }"""
    assert visitor.chat().evaluate(script) == []


@pytest.fixture
def context_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    width = 320 if "sideways" in request.node.name else 1100
    return {"viewport": {"width": width, "height": 760}, "locale": "en-US"}


def test_wide_tables_and_formulas_scroll_sideways_on_a_small_screen(visitor: Visitor, stub: Stub) -> None:
    heads = "| Destination | Departure time | Arrival time | Platform |\n|---|---|---|---|\n"
    rows = "| Kirchheimbolanden | 10:05 | 12:44 | 7 |\n"
    wide = "$$" + " + ".join(f"a_{{{n}}} x^{{{n}}}" for n in range(20)) + "$$"
    page, answer = answer_with(visitor, stub, f"{heads}{rows}\n{wide}")
    expect(answer.locator("math")).to_have_count(1)
    for what in (".table", ".formula"):
        place = answer.locator(what)
        assert place.evaluate("node => node.scrollWidth - node.clientWidth") > 20
        place.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("node => node.scrollLeft > 0", arg=place.element_handle())
    name = answer.locator("td").first
    assert name.evaluate("node => node.getBoundingClientRect().height") < 40, "words are not broken"
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert log(page).evaluate("node => node.scrollWidth - node.clientWidth") == 0
