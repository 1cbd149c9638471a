"""Every sample by every way in: it reaches the provider as data, and the program's own words stay its own.

No model is judged here: whether one obeys is its affair, that it can tell who speaks is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from bot.telegram.inbound.updates import MessageAuthor, QuotedMessage, build_prompt
from shared.adapters.models.catalog import find_known_card
from shared.adapters.models.wire import build_request_body
from shared.core.context.build_context import BuiltContext, build_context
from shared.core.context.memory import build_known_notes
from shared.core.context.prompts import OUR_TAGS, default_layers
from shared.core.context.untrusted_text import defuse, fence_text, file_text
from shared.core.presets.catalog import preset
from shared.core.session.artifacts import spill_results
from shared.core.session.ledger import Ledger
from shared.core.session.session import Compaction, Entry, Note, View
from shared.core.session.summary import FORMS
from shared.core.values.messages import Image, Text, ToolResult, ToolUse
from shared.ports import ModelRequest
from tests.kit.builders import entry, exchange, view, words
from tests.kit.fakes.messages_api.validate_messages import check_messages
from tests.kit.injection_samples import ALL, HIDDEN, looks_alike
from tests.kit.telegram.updates import GROUP, forward, spoken

STEADY = preset("steady")
HARMLESS = "The weather is fine."
_OURS = re.compile(rf"<(/?)({'|'.join(OUR_TAGS)})\b")

Way = Callable[[str], BuiltContext]


def built(of: View, **more: object) -> BuiltContext:
    layers = more.pop("system", default_layers())
    return build_context(of, policy=STEADY, system=layers, count=words, **more)  # type: ignore[arg-type]


def said(*blocks: object) -> BuiltContext:
    made: tuple[Entry, ...] = (*exchange(1, "hi", "hello"), entry(9, 2, *blocks))  # type: ignore[arg-type]
    return built(view(made, open_turn=2))


def as_result(sample: str) -> BuiltContext:
    call = entry(9, 2, ToolUse(id="c", name="f", input={"q": sample}), author="assistant", step=1)
    result = entry(10, 2, ToolResult(tool_use_id="c", text=sample), author="tool", step=2)
    return built(view([entry(8, 2, "look"), call, result], open_turn=2))


def as_artifact(sample: str) -> BuiltContext:
    """Too long for the log: head, tail and an id, with the sample in both."""
    text = f"{sample}\n{'x ' * 40_000}\n{sample}"
    (shown,), _ = spill_results([ToolResult(tool_use_id="c", text=text)], STEADY, words)
    call = entry(9, 2, ToolUse(id="c", name="f", input={}), author="assistant", step=1)
    return built(view([entry(8, 2, "look"), call, entry(10, 2, shown, author="tool", step=2)], open_turn=2))


def as_summary(sample: str) -> BuiltContext:
    link = Compaction(
        id=1, kind="summary", from_turn=1, through_turn=1, through_seq=2, summary_text=sample,
        ledger=Ledger(narrative=sample), tokens=9,
    )  # fmt: skip
    return built(view([entry(9, 2, "go on")], head=link, base_turn=1, open_turn=2))


def as_pin(sample: str) -> BuiltContext:
    pinned = entry(1, 1, sample, pinned=True)
    return built(view([entry(9, 2, "go on")], pins=(pinned,), base_turn=1, open_turn=2))


WAYS: Mapping[str, Way] = {
    "web": said,
    "telegram": lambda sample: said(build_prompt([spoken(1, sample)])),
    "group": lambda sample: said(build_prompt([spoken(1, sample, chat=GROUP)])),
    "name": lambda sample: said(
        build_prompt([spoken(1, "hi", chat=GROUP, sender=MessageAuthor(user_id=1, name=sample))])
    ),
    "quote": lambda sample: said(
        build_prompt([spoken(1, "True?", quoted=QuotedMessage(author="Bob", text=sample))])
    ),
    "quoted name": lambda sample: said(
        build_prompt([spoken(1, "True?", quoted=QuotedMessage(author=sample, text="x"))])
    ),
    "forward": lambda sample: said(build_prompt([forward(1, sample)])),
    "forwarded name": lambda sample: said(build_prompt([forward(1, "x", name=sample)])),
    "file": lambda sample: said("Read this.", Text(text=file_text("a.txt", sample))),
    "file name": lambda sample: said("Read this.", Text(text=file_text(sample, "x"))),
    "picture": lambda sample: built(
        view(
            [
                entry(1, 1, Image(attachment_id=1, mime="image/jpeg", description=sample)),
                entry(2, 1, "I see.", author="assistant", step=1),
                entry(9, 2, "go on"),
            ],
            open_turn=2,
        )
    ),
    "tool result": as_result,
    "artifact": as_artifact,
    "summary": as_summary,
    "pin": as_pin,
    "recall": lambda sample: built(
        view([entry(9, 2, "go on")], open_turn=2), recall=fence_text("knowledge", sample, source=sample)
    ),
    "plain recall": lambda sample: built(view([entry(9, 2, "go on")], open_turn=2), recall=sample),
    "facts": lambda sample: built(view([entry(9, 2, "go on")], open_turn=2), runtime_facts=sample),
}
INTO_SYSTEM: Mapping[str, Way] = {
    "note": lambda sample: built(
        view([entry(9, 2, "go on")], open_turn=2),
        known=build_known_notes([Note(id=1, kind="fact", text=sample)], count=words),
    ),
    "goal": lambda sample: built(
        view([entry(9, 2, "go on")], open_turn=2), system=replace(default_layers(), goal=sample)
    ),
    "mode": lambda sample: built(
        view([entry(9, 2, "go on")], open_turn=2), system=replace(default_layers(), mode=sample)
    ),
    "person": lambda sample: built(
        view([entry(9, 2, "go on")], open_turn=2), system=replace(default_layers(), person=sample)
    ),
}


def words_of_others(made: BuiltContext) -> str:
    """All texts of the request but the assistant's own, one after the other."""
    found: list[str] = []
    for message in made.messages:
        if message.role == "user":
            found += [block.text for block in message.blocks if isinstance(block, Text | ToolResult)]
    return "\n".join(found)


def marks(text: str) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in _OURS.finditer(text)]


@pytest.mark.control("S20")
@pytest.mark.parametrize("way", sorted(WAYS))
def test_no_sample_forges_a_mark_or_moves_the_system_part(way: str) -> None:
    expected = WAYS[way](HARMLESS)
    shape = marks(words_of_others(expected))
    for sample in ALL:
        made = WAYS[way](sample)
        assert made.system == expected.system, sample
        assert [message.role for message in made.messages] == [m.role for m in expected.messages], sample
        assert marks(words_of_others(made)) == shape, sample


@pytest.mark.control("S20")
@pytest.mark.parametrize("way", sorted(INTO_SYSTEM))
def test_what_rides_in_the_system_part_stays_in_its_place(way: str) -> None:
    shape = [marks(part.text) for part in INTO_SYSTEM[way](HARMLESS).system]
    for sample in ALL:
        assert [marks(part.text) for part in INTO_SYSTEM[way](sample).system] == shape, sample


@pytest.mark.control("S20")
@pytest.mark.parametrize("way", sorted({**WAYS, **INTO_SYSTEM}))
def test_no_look_alike_reaches_the_provider_as_it_was_written(way: str) -> None:
    for sample in looks_alike():
        made = {**WAYS, **INTO_SYSTEM}[way](sample)
        sent = "\n".join([words_of_others(made), *(part.text for part in made.system)])
        own = "\n".join(part.text for part in built(view([entry(9, 2, "go on")], open_turn=2)).system)
        assert sample not in sent or sample in own, sample


@pytest.mark.control("S20")
@pytest.mark.parametrize("way", sorted({**WAYS, **INTO_SYSTEM}))
def test_every_request_is_one_that_the_strict_provider_takes(way: str) -> None:
    card = find_known_card("claude-sonnet-5-5")
    assert card is not None
    for sample in (*looks_alike(), *HIDDEN):
        made = {**WAYS, **INTO_SYSTEM}[way](sample)
        request = ModelRequest(
            model=card.name, system=made.system, messages=made.messages, tools=(), max_output_tokens=100,
            cache_at=made.cache_at,
        )  # fmt: skip
        check_messages(build_request_body(request, card, card.name))


@pytest.mark.control("S20")
@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_summary_of_any_form_cannot_leave_its_frame(form: str) -> None:
    for sample in ALL:
        link = Compaction(
            id=1, kind="summary", from_turn=1, through_turn=1, through_seq=2, summary_text=sample,
            ledger=Ledger(narrative=sample, form=form), tokens=9,  # type: ignore[arg-type]
        )  # fmt: skip
        made = built(view([entry(9, 2, "go on")], head=link, base_turn=1, open_turn=2))
        tag = FORMS[form].tag  # type: ignore[index]
        assert marks(words_of_others(made)) == [("", tag), ("/", tag)], sample


def test_the_log_keeps_what_was_said() -> None:
    for sample in ALL:
        stored = entry(9, 2, sample)
        built(view([stored], open_turn=2))
        assert stored.blocks == (Text(text=sample),)


def test_the_same_words_give_the_same_bytes_and_defusing_again_changes_nothing() -> None:
    for sample in ALL:
        for foreign in (True, False):
            once = defuse(sample, foreign=foreign)
            assert defuse(once, foreign=foreign) == once
