"""What a helper may use up, and what the assistant is told when that is not enough."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shared.adapters import files
from shared.core.presets.catalog import preset
from shared.core.session.turns import Caps, Spending
from shared.core.values.errors import CapReached, ModelUnavailable, PromptTooLong
from shared.core.values.messages import Message, Text, ToolUse
from shared.core.values.money import Prices
from shared.ports import ModelCard, ModelReply, ModelRequest, ToolContext, ToolFailed, ToolSpec, Usage
from shared.services import memory, tools, turns
from shared.services.turns.delegate_tool import CONTEXT_CHARS, TASK_CHARS, TOOLS_WITHHELD, DelegateTool
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.subagent import SubagentLimits
from shared.services.turns.toolbox import Toolbox
from tests.kit.scripted_model import ScriptedModel, Words

CONTEXT = ToolContext(session_id=1, contact_id=2, scope="ada", turn=3, key="1:3:t1", call_id="t1")
NO_CAPS = Caps(total=None, person=None, visitor=None, session=None)
PRICES = Prices(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25, dated="2026-11-01")


@dataclass(slots=True)
class Reads:
    says: str = "A page."
    spec: ToolSpec = field(
        default_factory=lambda: ToolSpec(name="read", description="Reads.", input_schema={"type": "object"})
    )
    idempotent: bool = True
    timeout_seconds: float = 5.0

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        return self.says


@dataclass(slots=True)
class Named(Reads):
    """Stands for a tool that helpers must not have."""


@dataclass(slots=True)
class Money:
    """A tracker and a ledger that remember."""

    refuses_from: int = 1_000
    reserved: list[int] = field(default_factory=list)
    booked: list[Spending] = field(default_factory=list)

    async def reserve(self, session_id: int, micro: int, **_: Any) -> int | None:
        self.reserved.append(micro)
        if len(self.reserved) >= self.refuses_from:
            raise CapReached(scope="total")
        return len(self.reserved)

    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None:
        pass

    async def record_delegated(
        self, session_id: int, *, contact_id: int, turn: int, spent: Sequence[Spending]
    ) -> None:
        assert (session_id, contact_id, turn) == (1, 2, 3)
        self.booked += spent


class Model(ScriptedModel):
    async def load_card(self, model: str) -> ModelCard:
        card = await ScriptedModel.load_card(self, model)
        return replace(card, capabilities=frozenset({"tools"}))


def replied(*blocks: Any, tokens: int = 10) -> ModelReply:
    calls = any(isinstance(block, ToolUse) for block in blocks)
    return ModelReply(
        blocks=blocks, usage=Usage(input_tokens=tokens, output_tokens=1), model="main",
        stop_reason="tool_use" if calls else "end_turn",
    )  # fmt: skip


def in_turn(*said: Any) -> Model:
    """Says one thing after the other."""
    left = list(said)
    return Model(lambda _request: left.pop(0))


READS = tuple(ToolUse(id=f"call_{number}", name="read", input={}) for number in range(9))


def delegate(
    model: Model, *, tools: Sequence[Any] = (), money: Money | None = None, **more: Any
) -> DelegateTool:
    policy = preset("steady")
    money = money or Money()
    return DelegateTool(
        model=model,
        requests=RequestBuilder(
            policy=policy, chat_model="main", summary_model="cheap", max_output=4_096, counter=Words()
        ),
        toolbox_of=lambda _config: Toolbox([Reads(), *tools]),
        spend=money,
        ledger=money,
        counter=Words(),
        **{"caps": NO_CAPS, **more},
    )


def words(request: ModelRequest) -> str:
    return str(request.messages)


async def refused(tool: DelegateTool, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as told:
        await tool.run({"task": "Count the ships.", **arguments}, context=CONTEXT)
    return str(told.value)


async def test_the_agent_may_name_the_helpers_model() -> None:
    for config, name in (({}, "main"), ({"model": "own"}, "own"), ({"helper_model": "small"}, "small")):
        model = in_turn("Three.")
        context = replace(CONTEXT, agent_config=config)
        assert await delegate(model).run({"task": "Count."}, context=context) == "Three."
        assert model.models == [name]


async def test_helper_has_the_agents_tools_except_those_for_the_person() -> None:
    hidden = [
        Named(spec=ToolSpec(name=name, description="", input_schema={"type": "object"}))
        for name in sorted(TOOLS_WITHHELD)
    ]
    model = in_turn("Three.")
    await delegate(model, tools=hidden).run({"task": "Count."}, context=CONTEXT)
    assert [tool.name for tool in model.asked[0].tools] == ["read"]


def test_helper_has_no_tool_that_sends_files() -> None:
    """A helper's files would be stored, and perhaps paid, and reach nobody."""
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (tools, memory, turns, files)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    sending = [module for module in modules if "ToolOutput(files=" in inspect.getsource(module)]
    names = {spec.name for module in sending for spec in vars(module).values() if isinstance(spec, ToolSpec)}
    assert names >= {"send_file", "make_picture"}
    assert names <= TOOLS_WITHHELD


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"task": "  "}, "`task` is empty"),
        ({"task": "x" * (TASK_CHARS + 1)}, "`task` has 8,001 characters"),
        ({"context": "x" * (CONTEXT_CHARS + 1)}, "`context` has 60,001 characters"),
    ],
)
async def test_a_task_that_says_nothing_or_too_much_is_refused(arguments: Any, reason: str) -> None:
    assert reason in await refused(delegate(in_turn()), **arguments)


@pytest.mark.control("S29")
async def test_what_it_may_read_in_all_is_bounded() -> None:
    model = in_turn(replied(Text(text="I look."), READS[0], tokens=900), "never asked")
    told = await refused(delegate(model, bounds=SubagentLimits(input_tokens=1_000)))
    assert "It has read all that it may read." in told
    assert "I look." in told
    assert len(model.asked) == 1


@pytest.mark.control("S28")
async def test_it_may_use_only_a_share_of_the_tightest_cap() -> None:
    money = Money()
    model = in_turn(replied(READS[0], tokens=1_500), "never asked")
    model.prices = PRICES
    caps = replace(NO_CAPS, total=1_000_000, person=100_000)
    told = await refused(
        delegate(model, money=money, caps=caps, bounds=SubagentLimits(caps_share=0.222, output_tokens=4_096))
    )
    assert "Its share of the spending limit is used up." in told
    assert len(money.booked) == 1


async def test_reached_cap_is_returned_and_used_tokens_are_booked() -> None:
    money = Money(refuses_from=2)
    model = in_turn(replied(READS[0]), "never asked")
    model.prices = PRICES
    told = await refused(delegate(model, money=money, caps=replace(NO_CAPS, total=10**9)))
    assert "A spending limit is reached. Do not delegate again." in told
    assert [call.input_tokens for call in money.booked] == [10]


async def test_unavailable_model_is_returned_with_its_last_text() -> None:
    model = in_turn(replied(Text(text="Two so far."), READS[0]), ModelUnavailable("away"))
    told = await refused(delegate(model))
    assert "(model_unavailable)" in told
    assert told.endswith("Two so far.")


async def test_no_words_are_no_result() -> None:
    assert "no words for a result" in await refused(delegate(in_turn("")))


async def test_a_request_that_is_too_long_loses_its_oldest_results_first() -> None:
    many = "word " * 4_000
    model = in_turn(
        replied(READS[0]), replied(READS[1]), PromptTooLong("", tokens=9_000, maximum=8_000), "Three."
    )
    result = await delegate(model, tools=[Reads(says=many)]).run({"task": "Count."}, context=CONTEXT)
    assert result == "Three."
    cleared = ["cleared to make room" in words(request) for request in model.asked]
    assert cleared == [False, False, False, True]
    assert "word" in words(model.asked[-1])


async def test_after_three_refusals_it_gives_up() -> None:
    refusals = [PromptTooLong("", tokens=9_000, maximum=8_000)] * 3
    assert "(prompt_too_long)" in await refused(delegate(in_turn(*refusals)))


async def test_a_helper_that_hangs_is_ended() -> None:
    from tests.kit.scripted_model import Endless

    class Waits(Model):
        async def reply(self, request: ModelRequest, *, on_text: Any = None) -> ModelReply:
            async def hear(_attempt: int, _piece: str) -> None:
                return None

            return await Model.reply(self, request, on_text=hear)

    money = Money()
    told = await refused(delegate(Waits(lambda _: Endless), money=money, bounds=SubagentLimits(seconds=0.05)))
    assert "It took longer than 0.05 seconds." in told
    assert [call.aborted for call in money.booked] == [True]


async def test_long_results_of_tools_and_of_the_helper_are_cut() -> None:
    model = in_turn(replied(READS[0]), "x" * 100_000)
    result = await delegate(model, tools=[Reads(says="y" * 100_000)]).run({"task": "Go."}, context=CONTEXT)
    assert len(result) < 61_000
    assert "characters left out" in result
    assert isinstance(model.asked[1].messages[-1], Message)
    assert len(words(model.asked[1])) < 26_000
