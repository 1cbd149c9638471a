"""Texts of the REST description: short summaries, noun phrases and plain words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from web.rest.openapi import document
from web.routes import OPERATIONS

RIDDLES = re.compile(
    r"\b(anew|put away|nobody|somebody|everybody|whoever|of theirs|one's own|so many|told|let go|as it is"
    r"|once more|beside|behind|goes on|bring back|taken back|words to)\b"
    r"|^(of|what|who|whose|whom|which|as if|so|for whoever|else)\b",
    re.IGNORECASE,
)
"""Wordings that readers cannot understand at first reading."""
VERBS = {
    "Add", "Allow", "Approve", "Archive", "Assign", "Cancel", "Change", "Compare", "Confirm", "Correct",
    "Create", "Delete", "Download", "Edit", "End", "Erase", "Estimate", "Exchange", "Export", "Get", "Hide",
    "Invite", "List", "Mark", "Open", "Pause", "Place", "Rate", "Remove", "Reply", "Report", "Restore",
    "Retry", "Revoke", "Run", "Save", "Search", "Send", "Set", "Show", "Store", "Stream", "Subscribe",
    "Summarise", "Take", "Test", "Try", "Undo", "Unsubscribe", "Upload", "Validate", "Verify", "The",
}  # fmt: skip
"""First words of summaries; *The* begins the summary of the description itself."""
LONGEST_SUMMARY = 9
"""Words of a summary."""


def list_texts(node: Any) -> list[str]:
    """Return every `description` and `summary` below `node`."""
    if isinstance(node, list):
        return [text for each in node for text in list_texts(each)]
    if not isinstance(node, dict):
        return []
    own = [node[key] for key in ("description", "summary") if isinstance(node.get(key), str)]
    return own + [text for each in node.values() for text in list_texts(each)]


def list_riddles(texts: list[str]) -> list[str]:
    return [text for text in texts if RIDDLES.search(text)]


@pytest.mark.parametrize(
    "text", ["at most so many", "of a site", "What is remembered of a person.", "put away"]
)
def test_riddles_are_recognised(text: str) -> None:
    assert list_riddles([text])


def test_rest_description_has_no_riddle() -> None:
    assert list_riddles(list_texts(document(OPERATIONS))) == []


def test_rest_summaries_are_short_and_begin_with_a_verb() -> None:
    summaries = {one.name: one.summary.split() for one in OPERATIONS if one.group}

    assert {name for name, summary in summaries.items() if len(summary) > LONGEST_SUMMARY} == set()
    first_words = {name: summary[0].strip(",") for name, summary in summaries.items()}
    assert {name: word for name, word in first_words.items() if word not in VERBS} == {}
