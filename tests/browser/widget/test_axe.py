"""axe-core looks at every state of the widget, in every dress, and finds nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import find_faults
from tests.browser.widget.conftest import Visitor
from tests.browser.widget.states import SITE, states
from tests.browser.widget.stub import Stub
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.browser

LIGHT: dict[str, Any] = {"viewport": {"width": 1100, "height": 760}, "locale": "en-US"}
Colours = tuple[str, Literal["active", "none"]]
PLAIN: tuple[Colours, ...] = (("auto", "none"),)
EVERY: tuple[Colours, ...] = (("light", "none"), ("dark", "none"), ("auto", "active"))
"""The theme, and whether the device forces its own colours: all of them are looked at in each state."""
DRESSES: dict[str, tuple[dict[str, Any], str, tuple[Colours, ...]]] = {
    "light, dark and forced colours": (LIGHT, "", EVERY),
    "phone": (
        LIGHT | {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}, "", PLAIN,
    ),
    "from right to left": (LIGHT, "locale=ur", PLAIN),
}  # fmt: skip


@pytest.fixture
def dress(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "phone"))


@pytest.fixture
def context_options(dress: str) -> dict[str, Any]:
    return DRESSES[dress][0]


WEAR = """(theme) => {
    document.querySelector("#evertalk").shadowRoot.querySelector(".root").dataset.theme = theme;
    if (document.documentElement.dataset.theme) document.documentElement.dataset.theme = theme;
}"""


def findings(page: Page, colours: Iterable[Colours]) -> list[str]:
    """What is wrong in this state in the first of the colours, and which of the other colours are wrong."""
    found: list[str] = []
    for number, (theme, forced) in enumerate(colours):
        page.emulate_media(forced_colors=forced)
        page.evaluate(WEAR, theme)
        found += [
            f"{theme}, forced {forced}: {words}" for words in find_faults(page, only_colours=number > 0)
        ]
    return found


@pytest.mark.parametrize("dress", DRESSES, indirect=True)
def test_axe_finds_nothing_in_the_widget(visitor: Visitor, stub: Stub, dress: str) -> None:
    stub.site = SITE
    page = visitor.shop(f"?plain=1&{DRESSES[dress][1]}")
    launcher = page.get_by_role("button", name="Open chat")
    expect(launcher).to_be_visible()
    found = {"closed": findings(page, DRESSES[dress][2])}
    launcher.click()
    found |= {state: findings(page, DRESSES[dress][2]) for state in states(visitor, stub, page)}
    assert {state: some for state, some in found.items() if some} == {}


@pytest.mark.parametrize("dress", rest_at_night(DRESSES, by_day=("phone",)), indirect=True)
def test_axe_finds_nothing_on_the_full_page(visitor: Visitor, stub: Stub, dress: str) -> None:
    stub.site = SITE
    page = visitor.chat(f"?{DRESSES[dress][1]}")
    found = {state: findings(page, DRESSES[dress][2]) for state in states(visitor, stub, page)}
    assert {state: some for state, some in found.items() if some} == {}


def test_the_headings_of_an_answer_never_skip_a_level(visitor: Visitor) -> None:
    script = """async () => {
        const { render } = await import("/static/widget/md.js");
        const node = document.createElement("div");
        render(node, "## a\\n#### b\\n###### c\\n### d\\n# e\\n> ##### f", { labels: {} });
        return [...node.querySelectorAll("h3, h4, h5, h6")].map((one) => one.tagName + one.textContent);
    }"""
    assert visitor.chat().evaluate(script) == ["H3a", "H4b", "H5c", "H4d", "H3e", "H3f"]
