"""One question to a model: bounded in time and length, paid for even when nothing came of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from shared.core.session.turns import Caps
from shared.core.values.errors import ModelUnavailable, PromptTooLong
from shared.core.values.messages import text_message
from shared.ports import ModelRequest
from shared.services.compaction.silent_requests import CompletionTimeouts, OneShotCompletion
from shared.services.turns.spend_tracker import SpendTracker
from tests.kit.scripted_model import Endless, NoMoney, ScriptedModel, Silence, Words

REQUEST = ModelRequest(
    model="m", system=(), messages=(text_message("user", "one two three"),), max_output_tokens=50
)
SHORT = CompletionTimeouts(first_seconds=0.05, silence_seconds=0.02, total_seconds=0.2)


def tracker() -> SpendTracker:
    return SpendTracker(
        NoMoney(), session_id=1, job_id=1, caps=Caps(total=None, person=None, visitor=None, session=None)
    )


async def failed(said: Any, bounds: CompletionTimeouts = SHORT) -> tuple[ModelUnavailable, SpendTracker]:
    money = tracker()
    asking = OneShotCompletion(ScriptedModel(say=lambda _: said), Words(), bounds=bounds)
    with pytest.raises(ModelUnavailable) as caught:
        await asking.complete(REQUEST, tracker=money)
    return caught.value, money


async def test_a_model_that_falls_silent_in_mid_answer_has_failed() -> None:
    error, money = await failed(Silence)
    assert "fell silent" in str(error)
    assert [call.aborted for call in money.spent] == [True]
    assert [call.known for call in money.spent] == [False]
    assert money.spent[0].input_tokens == 7


async def test_an_answer_without_end_is_cut_off() -> None:
    error, money = await failed(Endless, replace(SHORT, total_seconds=30.0))
    assert "did not end" in str(error)
    assert money.spent[0].output_tokens > 50


async def test_a_model_that_never_begins_has_failed() -> None:
    class Mute(ScriptedModel):
        async def reply(self, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(30)

    asking = OneShotCompletion(Mute(say=lambda _: ""), Words(), bounds=SHORT)
    with pytest.raises(ModelUnavailable, match="fell silent"):
        await asking.complete(REQUEST, tracker=tracker())


async def test_call_ends_with_the_seconds_that_its_caller_has_left() -> None:
    asking = OneShotCompletion(ScriptedModel(say=lambda _: Silence), Words(), bounds=CompletionTimeouts())
    with pytest.raises(ModelUnavailable, match="fell silent"):
        await asking.complete(REQUEST, tracker=tracker(), seconds=0.05)


async def test_what_cannot_fit_is_refused_before_anybody_is_asked() -> None:
    model = ScriptedModel(say=lambda _: "hello", window=6)
    asking = OneShotCompletion(model, Words(), bounds=SHORT)
    with pytest.raises(PromptTooLong) as caught:
        await asking.complete(REQUEST, tracker=tracker())
    assert (caught.value.tokens, caught.value.maximum) == (7, 6)
    assert model.asked == []
    assert (await asking.complete(REQUEST, tracker=tracker(), checked=False)).model == "scripted"
