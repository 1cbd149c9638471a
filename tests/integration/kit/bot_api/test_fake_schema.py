"""The stored facts about the Bot API, compared with their source where that is at hand."""

from __future__ import annotations

import json

import pytest

from tests.kit.fakes.bot_api.derive_schema import DERIVED, FULL, derived
from tests.kit.fakes.bot_api.methods import METHODS
from tests.kit.fakes.bot_api.refusals import Refusal
from tests.kit.fakes.bot_api.schema import load_schema

STORED = json.loads(DERIVED.read_text(encoding="utf-8"))


@pytest.mark.skipif(not FULL.exists(), reason="the full reference is not on this machine")
def test_the_stored_facts_are_those_of_the_reference() -> None:
    assert derived(FULL.read_bytes()) == STORED


def test_every_method_that_is_described_is_served_and_none_besides() -> None:
    assert set(METHODS) | {"getUpdates", "setWebhook"} == set(STORED["methods"])


def test_what_is_newer_than_the_reference_is_known_too() -> None:
    schema = load_schema()
    draft = {"chat_id": "1", "draft_id": "2", "can_stop": "true", "keep_on_stop": False}
    assert schema.checked("sendMessageDraft", draft)["can_stop"] is True
    assert "stopped_message_generation" in schema.updates


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([{"type": "paragraph"}], "needs it"),
        ([{"type": "poem", "text": "x"}], "rich_message.blocks[0]"),
        ([{"type": "heading", "text": "x", "size": "2"}], "expected Integer"),
        ([{"type": "list", "items": [{"blocks": [{"type": "divider"}], "label": "1"}]}], "no such field"),
    ],
)
def test_a_fault_deep_inside_is_named(blocks: list[object], words: str) -> None:
    wish = {"chat_id": 1, "rich_message": {"blocks": blocks}}
    with pytest.raises(Refusal) as caught:
        load_schema().checked("sendRichMessage", wish)
    assert words in caught.value.description
