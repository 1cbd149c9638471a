"""Answers that were cut: a note below them, and a button that asks for the rest."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import frames, log, say
from tests.browser.widget.stub import Stub

pytestmark = pytest.mark.browser


def test_cut_answer_is_continued_by_its_button_once(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    say(page, "cut length")
    expect(log(page).get_by_role("note")).to_contain_text("reached its length limit")
    button = log(page).get_by_role("button", name="Go on")
    button.evaluate("button => { button.click(); button.click(); }")
    expect(log(page)).to_contain_text("You said: Please go on.")
    expect(button).to_have_count(0)
    expect(log(page).get_by_role("note")).to_have_count(1)
    sent = [one["cid"] for one in frames(stub, "msg") if one["cid"].startswith("go-on-")]
    assert len(sent) == 1


def test_filtered_answer_has_a_note_and_no_button(visitor: Visitor) -> None:
    page = visitor.shop("?open=1")
    say(page, "cut filter")
    expect(log(page).get_by_role("note")).to_contain_text("filter cut this answer off")
    expect(log(page).get_by_role("button", name="Go on")).to_have_count(0)


def test_whole_answer_has_no_note(visitor: Visitor) -> None:
    page = visitor.shop("?open=1")
    say(page, "hello")
    expect(log(page)).to_contain_text("You said: hello")
    expect(page.get_by_role("button", name="Answer again")).to_be_visible()
    expect(log(page).get_by_role("note")).to_have_count(0)
