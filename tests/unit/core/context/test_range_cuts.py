"""Wherever a conversation with tools is cut, the request is valid; a cut list of messages often is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from shared.core.context.build_context import build_context
from shared.core.context.prompts import default_layers
from shared.core.presets.catalog import preset
from shared.core.session.ledger import Ledger
from shared.core.session.session import Compaction, Entry, View
from shared.core.values.messages import Message, Text, Thinking, repair, text_message, tool_uses
from tests.kit.builders import entry, view
from tests.kit.histories.sayings import answer, calls, result_of, said_by_person
from tests.kit.histories.validity import fault_of, refused_by_sdk_types, schema_of_requests

CONVERSATIONS = 150
HEAD = Compaction(
    id=1,
    kind="summary",
    from_turn=1,
    through_turn=1,
    through_seq=1,
    summary_text="They met.",
    ledger=Ledger(),
)


def conversation(seed: int) -> list[Entry]:
    """Five to twelve turns as the log keeps them, more than half of them with tools, the last one open."""
    rng = random.Random(seed)
    log: list[Entry] = []
    last = rng.randint(5, 12)
    for turn in range(1, last + 1):
        log.append(entry(len(log) + 1, turn, *said_by_person(rng, len(log) + 1), step=len(log) + 1))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            number = len(log) + 1
            asked = calls(rng, number)
            log.append(entry(number, turn, *asked, author="assistant", step=number))
            results = [result_of(rng, call, number + 1) for call in tool_uses(asked)]
            log.append(entry(number + 1, turn, *results, author="tool", step=number + 1))
        if turn < last:
            number = len(log) + 1
            log.append(entry(number, turn, *answer(rng, number), author="assistant", step=number))
    return log


def request_of(state: View) -> tuple[Message, ...]:
    return build_context(state, policy=preset("steady"), system=default_layers()).messages


def test_every_cut_of_a_conversation_with_tools_gives_a_valid_request() -> None:
    cuts = 0
    for seed in range(CONVERSATIONS):
        log = conversation(seed)
        for place in range(len(log)):
            rest = log[place:]
            state = view(rest, base_turn=rest[0].turn - 1, open_turn=rest[-1].turn, head=HEAD)
            assert (fault := fault_of(request_of(state))) is None, (seed, place, fault)
            cuts += 1
    assert cuts > 20 * CONVERSATIONS


def test_every_cut_at_both_ends_gives_a_valid_request() -> None:
    for seed in range(CONVERSATIONS // 30):
        log = conversation(seed)
        for first in range(len(log)):
            for last in range(first + 1, len(log) + 1):
                part = log[first:last]
                state = view(part, base_turn=part[0].turn - 1, open_turn=part[-1].turn, head=HEAD)
                made = request_of(state)
                assert (fault := fault_of(made)) is None, (seed, first, last, fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naive:
    """How often a plain slice of the message list is refused."""

    anywhere: float
    at_role: float
    """Moved on to the next message of the role `user`, as is often done."""


def naive_cuts() -> Naive:
    cuts = anywhere = at_role = 0
    for seed in range(CONVERSATIONS):
        messages = [
            replace(e.message, blocks=tuple(b for b in e.blocks if not isinstance(b, Thinking)))
            for e in conversation(seed)
        ]
        messages = [replace(m, blocks=m.blocks) for m in repair(messages)]
        assert fault_of(messages) is None
        for place in range(len(messages)):
            cuts += 1
            anywhere += fault_of(messages[place:]) is not None
            at_role += fault_of(_from_role(messages[place:])) is not None
    return Naive(anywhere=anywhere / cuts, at_role=at_role / cuts)


def _from_role(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[next(i for i, message in enumerate(messages) if message.role == "user") :]


def test_a_plain_slice_is_refused_in_a_good_share_of_places() -> None:
    """The evidence for the rule above: without it a conversation breaks sooner or later, for ever."""
    share = naive_cuts()
    assert share.anywhere > 0.3, share
    assert share.at_role > 0.07, share


def test_requests_satisfy_the_types_that_the_sdk_publishes() -> None:
    for seed in range(15):
        log = conversation(seed)
        for place in range(0, len(log), 5):
            rest = log[place:]
            state = view(rest, base_turn=rest[0].turn - 1, open_turn=rest[-1].turn, head=HEAD)
            built = build_context(state, policy=preset("steady"), system=default_layers())
            refused = refused_by_sdk_types(built.system, built.messages, cache_at=built.cache_at)
            assert refused is None, (seed, place, refused)


def test_the_schema_of_the_sdk_refuses_what_it_does_not_name() -> None:
    from jsonschema import Draft202012Validator

    schema = Draft202012Validator(schema_of_requests())
    fine = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    assert schema.is_valid(fine)
    for wrong in (
        {**fine, "messages": [{"role": "tool", "content": "hi"}]},
        {**fine, "messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {**fine, "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "seq": 4}]}]},
        {**fine, "messages": [{"role": "user", "content": [{"type": "tool_result", "content": "a"}]}]},
        {**fine, "context_edits": []},
        {"model": "m", "messages": fine["messages"]},
    ):
        assert not schema.is_valid(wrong), wrong


@given(st.integers(0, 10_000), st.data())
def test_any_selection_of_messages_becomes_a_valid_request(seed: int, data: st.DataObject) -> None:
    """Not even a cut: entries are missing, in another order, or there twice."""
    log = conversation(seed % 500)
    places = data.draw(st.lists(st.integers(0, len(log) - 1), min_size=1, max_size=12))
    messages = repair([log[place].message for place in places])
    if any(isinstance(b, Text) for place in places for b in log[place].blocks):
        assert fault_of(messages) is None
    else:
        assert not messages or fault_of(messages) is None
    assert fault_of(repair([*messages, text_message("user", "hi")])) is None
