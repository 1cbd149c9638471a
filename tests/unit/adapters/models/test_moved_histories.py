"""Every history can be continued on all wires, before and after any cut of the ladder."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.models.chat_completions import build_completion_body
from shared.adapters.models.openai_provider import build_response_body
from shared.adapters.models.wire import build_request_body
from shared.core.context.build_context import BuiltContext, build_context
from shared.core.context.prompts import default_layers
from shared.core.overflow.overflow_recovery import fit
from shared.core.presets.catalog import preset
from shared.core.session.session import Entry, View
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import (
    Author,
    Block,
    Image,
    ProviderBlock,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from shared.ports import ModelRequest, ToolSpec
from tests.kit.builders import entry, view, words
from tests.kit.fakes.chat_completions import requests as chat_completions
from tests.kit.fakes.messages_api.catalogue import Catalogue
from tests.kit.fakes.messages_api.validate import check_request
from tests.kit.fakes.responses import requests as responses
from tests.unit.adapters.models.chat_card import CARD, MODEL

POLICY = preset("steady")
TOOL = ToolSpec(name="look_up", description="Looks up.", input_schema={"type": "object", "properties": {}})
CARDS = {
    "openai": CARD,
    "messages": replace(CARD, capabilities=frozenset({"cache", "tools", "json", "thinking", "images"})),
    "without tools": replace(CARD, capabilities=frozenset()),
}
SAID = st.sampled_from(("I like tea.", "שלום", "  ", "a\n\nb " * 200, "<runtime_facts>no</runtime_facts>"))
THOUGHT = st.sampled_from(
    ((), (Thinking(text="hm", signature="theirs"),), (Thinking(text="", signature="s"),))
)
SEALED = ProviderBlock(raw={"type": "redacted_thinking", "data": "sealed"})
PICTURE = Image(attachment_id=7, mime="image/png", description="a cat")


@st.composite
def turns(draw: st.DrawFn) -> list[list[tuple[Author, tuple[Block, ...]]]]:
    """Each with what was said, some rounds of tools that any wire may have made, and an answer, or none."""
    made = []
    for number in range(draw(st.integers(3, 8))):
        asked: tuple[Block, ...] = (Text(text=f"{number}. {draw(SAID)}"),)
        steps: list[tuple[Author, tuple[Block, ...]]] = [
            ("person", (PICTURE, *asked) if draw(st.booleans()) else asked)
        ]
        for round_ in range(draw(st.integers(0, 2))):
            id_ = draw(st.sampled_from(("toolu_{}", "call_{}", "A1b2{}"))).format(f"{number}x{round_}")
            calls = [
                ToolUse(id=f"{id_}_{n}", name="look_up", input={"q": n})
                for n in range(draw(st.integers(1, 3)))
            ]
            results = [
                ToolResult(tool_use_id=call.id, text=draw(SAID), is_error=draw(st.booleans()))
                for call in calls
            ]
            sealed = (SEALED,) if draw(st.booleans()) else ()
            steps.append(("assistant", (*draw(THOUGHT), *sealed, *calls)))
            steps.append(("tool", tuple(results)))
        if draw(st.booleans()):
            steps.append(("assistant", (*draw(THOUGHT), Text(text="So it is."))))
        made.append(steps)
    return made


def history(made: list[list[tuple[Author, tuple[Block, ...]]]]) -> View:
    """Its last turn is open: an answer there would end it."""
    entries: list[Entry] = []
    for turn, steps in enumerate(made, start=1):
        if turn == len(made) and steps[-1][0] == "assistant":
            steps = steps[:-1]
        for step, (author, blocks) in enumerate(steps):
            entries.append(entry(len(entries) + 1, turn, *blocks, author=author, step=step))
    return view(entries, open_turn=len(made))


def check(built: BuiltContext) -> None:
    """What each wire sends of it, once its strict server has taken it."""
    for wire, card in CARDS.items():
        request = ModelRequest(
            model=MODEL, system=built.system, messages=built.messages, tools=(TOOL,), max_output_tokens=99,
            cache_at=built.cache_at, behind_mark=built.behind_mark,
        )  # fmt: skip
        model = Catalogue(None).get(MODEL)
        assert model is not None
        if wire == "messages":
            check_request(_sent(build_request_body(request, card, MODEL)), model)
            # Signatures of another provider are refused; the adapter then asks without thinking.
            check_request(_sent(build_request_body(request, card, MODEL, thinking=False)), model)
            continue
        for render, check_shape, as_messages in (
            (build_completion_body, chat_completions.check_shape, chat_completions.as_messages),
            (build_response_body, responses.check_shape, responses.as_messages),
        ):
            body = _sent(render(request, card, MODEL))
            check_shape(body)
            check_request(as_messages(body), model)
            assert "theirs" not in json.dumps(body)


def _sent(body: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(body)))


@given(turns(), st.integers(55, 99))
def test_history_of_any_wire_is_valid_after_any_cut(
    made: list[list[tuple[Author, tuple[Block, ...]]]], percent: int
) -> None:
    live = history(made)
    build = partial(build_context, policy=POLICY, system=default_layers(), tools=(TOOL,), count=words)
    whole = build(live)
    check(whole)
    try:
        small = fit(live, hard=whole.estimate * percent // 100, build=build, count=words, policy=POLICY)
    except ContextBudgetExceeded:
        return
    check(small.context)
