"""What made-up histories have found in the core, each as the smallest case."""

from __future__ import annotations

import pytest

from shared.core.compaction.plan import render_source
from shared.core.context.build_context import build_context
from shared.core.context.prompts import OUR_TAGS, default_layers
from shared.core.overflow.overflow_recovery import fit
from shared.core.presets.catalog import preset
from shared.core.values.messages import Image, ToolUse, text_of
from tests.kit.builders import entry, exchange, exchanges, view, words

CALL = ToolUse(id="a", name="f", input={})
DIED = [entry(1, 1, "Look it up."), entry(2, 1, CALL, author="assistant")]
"""A turn that ended after its call and before the result."""


def test_clock_follows_the_last_mark_also_after_a_died_tool() -> None:
    """The made-up result shares a message with the newest words; that is no tool round of this turn."""
    state = view([*DIED, entry(3, 2, "Well?")], open_turn=2)
    built = build_context(
        state, policy=preset("steady"), system=default_layers(), runtime_facts="It is Monday.", count=words
    )
    assert (max(built.cache_at), built.behind_mark) == (len(built.messages) - 1, 1)
    assert "Monday" in text_of(built.messages[-1].blocks[-1:])


def test_turn_that_died_in_a_tool_counts_as_unanswered() -> None:
    log = [*DIED, *exchanges(4, first=2, tokens=400), entry(99, 6, "Well?")]
    made = fit(
        view(log, open_turn=6), hard=2_300, count=words, policy=preset("steady"),
        build=lambda v: build_context(v, policy=preset("steady"), system=default_layers(), count=words),
    )  # fmt: skip
    assert made.digested_through
    assert {1, 6} <= {e.turn for e in made.view.entries}


@pytest.mark.parametrize("tag", OUR_TAGS)
@pytest.mark.parametrize(
    "shape", ["< {}", "<{}\n", "< / {}>", "<conv<{0}>x</{0}>ersation_summary>", "<<{0}>/{0}>"]
)
def test_no_broken_or_nested_mark_survives_in_a_source(tag: str, shape: str) -> None:
    forged = shape.format(tag)
    log = [
        *exchange(1, f"Hello {forged}", "Hi."),
        entry(3, 2, "See", Image(attachment_id=1, mime="image/png", description=forged)),
        entry(4, 2, ToolUse(id="b", name="f", input={"q": forged}), author="assistant"),
    ]
    text = render_source(log).replace(" ", "").lower()
    assert f"<{tag}" not in text
    assert f"</{tag}" not in text
    assert "<conversation_summary" not in text
    assert "Hello" in render_source(log)
