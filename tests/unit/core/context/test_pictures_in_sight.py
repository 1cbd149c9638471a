"""Pictures stay in sight for some turns; their descriptions take over in batches, so that prefixes hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.context.build_context import BuiltContext, build_context, count_replaced_pictures
from shared.core.context.prompts import SystemLayers
from shared.core.overflow.overflow_recovery import fit
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Entry, View
from shared.core.values.messages import Image, Message, ToolResult, ToolUse
from tests.kit.builders import entry, exchange, view, words

STEADY = preset("steady")


def built(state: View, policy: ContextPolicy = STEADY, *, instruction: str = "") -> BuiltContext:
    layers = SystemLayers(base="You are kind.")
    return build_context(state, policy=policy, system=layers, count=words, instruction=instruction)


def album(turns: int) -> list[Entry]:
    """A picture with every question; every other turn a tool returns one, too."""
    log: list[Entry] = []
    for turn in range(1, turns + 1):
        seen = Image(attachment_id=turn, mime="image/png", description=f"boat {turn}")
        log.append(entry(10 * turn, turn, f"Look at {turn}", seen))
        if turn % 2:
            call, got = ToolUse(id=f"c{turn}", name="draw", input={}), replace(seen, attachment_id=100 + turn)
            log.append(entry(10 * turn + 1, turn, call, author="assistant", step=1))
            result = ToolResult(tool_use_id=call.id, text="drawn")
            log.append(entry(10 * turn + 2, turn, result, got, author="tool", step=2))
        log.append(entry(10 * turn + 3, turn, "I see.", author="assistant", step=3))
    return log


def in_sight(made: BuiltContext) -> set[int]:
    return {b.attachment_id % 100 for m in made.messages for b in m.blocks if isinstance(b, Image)}


@given(newest=st.integers(min_value=1, max_value=40), keep=st.integers(min_value=1, max_value=9))
def test_the_last_turns_are_in_sight_and_not_many_more(newest: int, keep: int) -> None:
    policy = STEADY.with_settings(picture_turns=keep)
    turns = in_sight(built(view(album(newest), open_turn=newest), policy))
    assert turns >= set(range(max(1, newest - keep), newest + 1))
    assert len(turns) <= 2 * keep
    told = str(built(view(album(newest), open_turn=newest), policy).messages)
    assert all(f"(picture {turn}: boat {turn})" in told for turn in range(1, newest + 1) if turn not in turns)


@pytest.mark.parametrize("keep", [1, 3, 4])
def test_prefix_changes_only_with_a_batch_and_meter_knows_it(keep: int) -> None:
    policy, log = STEADY.with_settings(picture_turns=keep), album(30)
    sent, before, moves = tuple[Message, ...](), 0, 0
    for newest in range(1, 31):
        upto = [e for e in log if e.turn < newest or (e.turn == newest and e.author == "person")]
        state = view(upto, open_turn=newest)
        made = built(state, policy)
        moved = made.messages[: len(sent)] != sent
        moves += moved
        gone = count_replaced_pictures(state, policy, words)
        assert (gone > 0) is moved
        added = sum(e.tokens for e in upto if e.turn == newest)
        added += sum(e.tokens for e in upto if e.turn == newest - 1 and e.author != "person")
        assert made.estimate == before + added - gone or newest == 1
        sent, before = made.messages, made.estimate
    assert moves <= 30 // keep


def test_flush_starts_with_the_pictures_of_the_former_turn() -> None:
    for newest in range(1, 12):
        log = album(newest)
        chat = built(view([e for e in log if e.seq != 10 * newest + 3], open_turn=newest))
        silent = built(view(log), instruction="Save what matters.")
        assert silent.messages[: len(chat.messages)] == chat.messages


def test_spec008_keeps_every_picture_and_describes_them_for_text_models() -> None:
    state = view(album(30), open_turn=None)
    assert in_sight(built(state, preset("spec008"))) == set(range(1, 31))
    assert in_sight(built(state, STEADY.with_settings(picture_turns=0))) == set()
    newest = view(album(30), open_turn=30)
    assert in_sight(built(newest, STEADY.with_settings(picture_turns=0))) == {30}


def test_old_images_are_described_before_text_is_trimmed() -> None:
    """Three turns of ten pictures each: the last ones may not be hidden, and pictures cannot be cut."""
    pictures = [Image(attachment_id=n, mime="image/png", description=f"boat {n}") for n in range(10)]
    log = [e for turn in (1, 2, 3) for e in exchange(turn, f"Album {turn}", "Nice. " * 50)]
    log = [entry(e.seq, e.turn, *e.blocks, *pictures) if e.author == "person" else e for e in log]
    state = view([*log, entry(90, 4, "Which was the best?")], open_turn=4)
    made = fit(state, hard=5_000, build=built, count=words, policy=STEADY)
    assert made.context.estimate <= 5_000
    assert not made.cut_short
    assert "(picture 3: boat 3)" in str(made.context.messages)
