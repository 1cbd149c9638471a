"""Dialects as data: what a server sends, and what becomes of it, on all wires."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models.remote import MOST_UNUSABLE
from shared.core.values.errors import ModelAnswerUnusable, ModelError
from shared.core.values.messages import ToolUse, text_of
from tests.kit import dialects
from tests.kit.dialects.remote import ask, build_answer, model_at

CASES: list[dict[str, Any]] = json.loads((Path(dialects.__file__).parent / "conformance.json").read_text())


def name_of(case: dict[str, Any]) -> str:
    return f"{case['wire']}-{case['kind']}-{case['name']}"


ANSWERED = [case for case in CASES if not {"unusable", "error"} & case["expected"].keys()]
FAILED = [case for case in CASES if {"unusable", "error"} & case["expected"].keys()]


@pytest.mark.parametrize("case", ANSWERED, ids=name_of)
async def test_dialect_is_answered(case: dict[str, Any]) -> None:
    expected = case["expected"]
    answers = [build_answer(answer) for answer in case["answers"]]
    async with model_at(*answers, wire=case["wire"]) as (model, server):
        if "hidden" in expected and "text_contains" not in expected:
            with pytest.raises(ModelAnswerUnusable):
                await ask(model)
            assert len(server.requests) <= MOST_UNUSABLE
            return
        reply, shown = await ask(model)
    uses = [[block.name, dict(block.input)] for block in reply.blocks if isinstance(block, ToolUse)]
    text = text_of(reply.blocks)
    assert shown == text
    if "text_contains" in expected:
        assert expected["text_contains"] in text
        assert not [hidden for hidden in expected["hidden"] if hidden in text]
    else:
        assert text == expected.get("text", "")
    assert uses == expected.get("calls", [])
    assert reply.stop_reason == expected.get("stop", "end_turn")
    if "usage" in expected:
        assert [reply.usage.input_tokens, reply.usage.output_tokens] == expected["usage"]
        assert reply.usage.known
    assert len(server.requests) <= expected.get("requests_at_most", len(answers))


@pytest.mark.parametrize("case", FAILED, ids=name_of)
async def test_dialect_ends_as_a_named_error(case: dict[str, Any]) -> None:
    expected = case["expected"]
    answers = [build_answer(answer) for answer in case["answers"]]
    async with model_at(*answers, wire=case["wire"]) as (model, server):
        with pytest.raises(ModelError) as caught:
            await ask(model)
    kind = type(caught.value).__name__
    assert kind in expected.get("error", "ModelAnswerUnusable").split("|"), caught.value
    assert expected.get("unusable", "") in str(caught.value)
    assert len(server.requests) <= MOST_UNUSABLE
    assert len(server.requests) == expected.get("requests", len(server.requests))
