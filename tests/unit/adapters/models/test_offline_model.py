"""The demo without a provider: honest, deterministic, and able to do every silent duty."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest

from shared.adapters.models.offline import INTRODUCTION, OFFLINE_MODEL, OfflineModel
from shared.core.compaction.audit import audit_ledger
from shared.core.compaction.next_ledger import LedgerPatch, Unreadable, apply_patch, parse_ledger_patch
from shared.core.compaction.plan import render_source
from shared.core.compaction.summary_prompts import repair_request, summary_request
from shared.core.compaction.text_audit import audit_text, read_text
from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.context.prompts import flush_instruction
from shared.core.session.ledger import Ledger, LedgerItem, Section
from shared.core.session.session import Entry
from shared.core.session.summary import form_of
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.errors import PromptTooLong
from shared.core.values.messages import (
    Author,
    Message,
    Role,
    Text,
    ToolResult,
    ToolUse,
    text_message,
    text_of,
    tool_uses,
)
from shared.ports import ModelReply, ModelRequest, SystemPart, Usage
from tests.kit.model_makers import SAVE, Listener, WordCounter, asking

FLUSH = "Save what should be kept with save_memory. If there is nothing (more), answer SILENT."
SUMMARY = """Summarise. Answer with JSON: {"narrative": "…", "add": [], "replace": {}, "close": {}}

[#3] person: My sister Mara moved to Lisbon in 2021. She loves it.
[#4] assistant: Lisbon is lovely in spring.
[#5] person: Never book flights before 9 am.
We decided to fly with TAP, see https://tap.example/offers/77
[#6] person: What does the ticket to Porto cost?
"""


def model(window: int = 200_000) -> OfflineModel:
    return OfflineModel(WordCounter(), window=window, piece_seconds=0)


def asked(*messages: Message | str, **fields: Any) -> ModelRequest:
    return asking(*messages, model=OFFLINE_MODEL, **fields)


async def answer(*messages: Message | str, **fields: Any) -> ModelReply:
    return await model().reply(asked(*messages, **fields))


async def words(*messages: Message | str, **fields: Any) -> str:
    return text_of((await answer(*messages, **fields)).blocks)


def said(text: str) -> Message:
    return text_message("assistant", text)


async def test_first_answer_says_that_it_is_a_demo() -> None:
    first = await words("Hello there")
    assert first.startswith(INTRODUCTION)
    assert "./evertalk setup" in first
    second = await words("Hello there", said(first), "And hello again")
    assert INTRODUCTION not in second


async def test_it_does_not_introduce_itself_again_after_a_compaction() -> None:
    summary = '<conversation_summary through_seq="40">We talked.</conversation_summary>'
    assert INTRODUCTION not in await words(f"{summary}\n\nHello")


async def test_the_same_request_gets_the_same_answer_in_pieces() -> None:
    heard = Listener()
    request = asked("I keep bees.", said("I see."), "What do I keep?")
    first = await model().reply(request, on_text=heard)
    assert first == await model().reply(request)
    assert heard.text(1) == text_of(first.blocks)
    assert len(heard.pieces[1]) > 3


@pytest.mark.parametrize(
    ("talk", "expected"),
    [
        (
            ["I keep bees in Graz.", "The weather is fine.", "Where do I keep my bees?"],
            "I keep bees in Graz.",
        ),
        (["My car is red. My boat is blue.", "What colour is the boat?"], "My boat is blue."),
        (["My boat is blue.", "My boat is green now.", "What colour is my boat?"], "My boat is green now."),
        (["我的狗叫小白。", "我的狗叫什么？"], "我的狗叫小白。"),
    ],
)
async def test_a_question_is_answered_by_quoting_the_conversation(talk: list[str], expected: str) -> None:
    messages: list[Message | str] = []
    for line in talk:
        messages += [line, said("I have kept your message: “…”")]
    assert f"“{expected}”" in await words(*messages[:-1])


async def test_summary_notes_and_recalled_lines_are_searched_too() -> None:
    question = "Which city does Mara live in?"
    summary = (
        '<conversation_summary through_seq="9">\n- Mara lives in the city of Lisbon\n</conversation_summary>'
    )
    assert "Lisbon" in await words(f"{summary}\n\n{question}")
    notes = SystemPart(text="You are kind.\n<notes>\n- Mara lives in the city of Porto\n</notes>")
    assert "Porto" in await words(question, system=(notes,))
    recalled = "<recall>\n#3 person: Mara lives in the city of Faro\n</recall>"
    assert "“Mara lives in the city of Faro”" in await words(f"{recalled}\n{question}")


async def test_what_an_answer_quotes_is_quoted_without_a_mark_too_many() -> None:
    told: list[Message | str] = [
        "Hello! My sister lives in Tromsø.",
        said("I have kept it: “Hello! My sister lives in Tromsø.”"),
    ]
    assert (await words(*told, "Where does my sister live?")).endswith("“My sister lives in Tromsø.”")


async def test_neither_tool_calls_nor_the_marks_of_a_summary_are_quoted() -> None:
    summary = (
        '<conversation_summary through_seq="9">\n- my dog Bertil is allergic to nuts. (#6, by person)\n'
        '- (uses save_memory with {"text": "my dog Bertil is allergic"}) (#7)\n</conversation_summary>'
    )
    said = await words(f"{summary}\n\nWhat is my dog allergic to?")
    assert "“my dog Bertil is allergic to nuts.”" in said


async def test_offline_model_invents_nothing() -> None:
    reply = await words("I keep bees.", said("I see."), "What is the capital of Peru?")
    assert "find nothing" in reply


@pytest.mark.parametrize(
    "words",
    ["Hello!", "Hi there", "What can you do?", "Hello! What can you do?", "who are you", "Can you help me?"],
)
async def test_greeting_and_question_about_abilities_get_suggestions(words: str) -> None:
    reply = text_of((await answer(words)).blocks)
    assert reply.startswith(INTRODUCTION)
    for told in ("Remember that", "/compact", "/undo", "/help", "that needs a real model"):
        assert told in reply


@pytest.mark.parametrize("words", ["Hello, my name is Ada and I live in Lund.", "I can do the dishes."])
async def test_statement_of_the_person_is_quoted(words: str) -> None:
    assert "I have kept your message" in text_of((await answer(words)).blocks)


async def test_its_own_advice_is_no_evidence() -> None:
    told = text_of((await answer("What can you do?")).blocks)
    reply = await answer("What can you do?", text_message("assistant", told), "What is Bertil allergic to?")
    assert "I find nothing about that" in text_of(reply.blocks)


async def test_being_asked_to_remember_it_saves_a_note_and_says_so() -> None:
    wish = "Please remember that I am allergic to nuts."
    first = await answer(wish, tools=(SAVE,))
    (call,) = tool_uses(first.blocks)
    assert first.stop_reason == "tool_use"
    assert (call.name, call.input["text"]) == ("save_memory", "I am allergic to nuts.")
    jsonschema.validate(dict(call.input), dict(SAVE.input_schema))
    result = Message(role="user", blocks=(ToolResult(tool_use_id=call.id, text="saved"),))
    second = await words(wish, Message(role="assistant", blocks=first.blocks), result, tools=(SAVE,))
    assert "allergic to nuts" in second


async def test_a_note_that_could_not_be_saved_is_not_called_saved() -> None:
    wish = "Remember that I like tea."
    first = await answer(wish, tools=(SAVE,))
    (call,) = tool_uses(first.blocks)
    failed = Message(role="user", blocks=(ToolResult(tool_use_id=call.id, text="no room", is_error=True),))
    second = await words(wish, Message(role="assistant", blocks=first.blocks), failed, tools=(SAVE,))
    assert second == "I could not save that: no room"


async def test_without_the_tool_or_when_asked_back_nothing_is_saved() -> None:
    assert not tool_uses((await answer("Remember that I like tea.")).blocks)
    assert not tool_uses((await answer("Do you remember my name?", tools=(SAVE,))).blocks)


async def test_flush_saves_statements_of_the_person_then_is_silent() -> None:
    talk = ("I work as a nurse in Graz.", said("Nice."), "Ok. I prefer tea to coffee!", said("Noted."), FLUSH)
    first = await answer(*talk, tools=(SAVE,))
    calls = tool_uses(first.blocks)
    assert [call.input["text"] for call in calls] == ["I work as a nurse in Graz.", "I prefer tea to coffee!"]
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        jsonschema.validate(dict(call.input), dict(SAVE.input_schema))
    results = Message(role="user", blocks=tuple(ToolResult(tool_use_id=call.id, text="ok") for call in calls))
    second = await words(*talk, Message(role="assistant", blocks=first.blocks), results, tools=(SAVE,))
    assert second == "SILENT"


async def test_flush_saves_at_most_three_new_unquoted_statements() -> None:
    many = " ".join(f"I have {number} brothers in Town{number}." for number in range(2, 9))
    assert len(tool_uses((await answer(many, said("Ok."), FLUSH, tools=(SAVE,))).blocks)) == 3
    known = SystemPart(text="<notes>- I work as a nurse in Graz.</notes>")
    summary = "<conversation_summary>I am a pilot in Rome.</conversation_summary>\nI work as a nurse in Graz."
    assert await words(summary, said("Ok."), FLUSH, tools=(SAVE,), system=(known,)) == "SILENT"


async def test_small_talk_leaves_a_flush_silent() -> None:
    assert (
        await words("Hello!", said("Hello."), "How are you?", said("Fine."), FLUSH, tools=(SAVE,)) == "SILENT"
    )


async def test_a_summary_is_json_out_of_the_sources_own_sentences() -> None:
    told = json.loads(await words(SUMMARY))
    assert set(told) == {"narrative", "add", "replace", "close"}
    items = {item["text"]: item for item in told["add"]}
    assert items["Never book flights before 9 am."]["kind"] == "constraint"
    assert items["We decided to fly with TAP, see https://tap.example/offers/77"]["sources"] == [5]
    assert items["What does the ticket to Porto cost?"]["kind"] == "question"
    assert items["My sister Mara moved to Lisbon in 2021."]["sources"] == [3]
    assert items["Lisbon is lovely in spring."]["author"] == "assistant"
    for text in items:
        assert text in SUMMARY
    assert len(told["narrative"].split()) <= 120


async def test_a_summary_tells_nothing_of_tool_calls() -> None:
    called = '[#7] assistant: (uses save_memory with {"kind": "fact", "text": "Mara hates early flights."})\n'
    said = await words(SUMMARY.replace("[#6]", f"{called}[#6]"))
    assert "save_memory" not in said
    assert "never book flights" in said.lower()


async def test_a_long_summary_keeps_prohibitions_and_the_last_question_and_stays_short() -> None:
    lines = [f"[#{seq}] person: I visited Town{seq} with {seq} friends." for seq in range(10, 200)]
    lines[5] = "[#15] person: Please never call me before noon."
    lines[100] = "[#110] person: What was the name of the inn?"
    request = SUMMARY.split("\n\n", maxsplit=1)[0] + "\n\n" + "\n".join(lines)
    told = json.loads(await words(request))
    kinds = [item["kind"] for item in told["add"]]
    assert "constraint" in kinds
    assert "question" in kinds
    assert len(told["add"]) <= 14
    seqs = [item["sources"][0] for item in told["add"]]
    assert seqs == sorted(seqs)


def entry(seq: int, author: Author, text: str) -> Entry:
    role: Role = "assistant" if author == "assistant" else "user"
    at = datetime(2026, 11, 1 + seq // 3, tzinfo=UTC)
    blocks, turn = (Text(text=text),), (seq + 1) // 2
    return Entry(seq=seq, turn=turn, step=seq % 2, role=role, author=author, blocks=blocks, tokens=9, at=at)


TALK: tuple[tuple[Author, str], ...] = (
    ("person", "Hello! My sister Mara moved to Lisbon in 2021. What is the weather like there?"),
    ("assistant", "Mild and sunny."),
    ("person", "We decided to visit her on 12 May 2027. Never book flights before 9 am!"),
    ("assistant", "I have kept that."),
    ("person", "The budget is 1,450 euros. Which airline do you suggest?"),
)


async def test_its_summary_of_a_real_request_passes_the_audit() -> None:
    entries = [entry(seq, author, text) for seq, (author, text) in enumerate(TALK, start=1)]
    source = render_source(entries)
    former = Ledger(
        narrative="They met in Graz in 2019.", items=(LedgerItem(id="f1", kind="fact", text="x"),)
    )
    system, request = summary_request(source, former)
    asked_for: list[Message | str] = [request, said("{}"), repair_request("the answer is empty")]
    for messages in (asked_for[:1], asked_for):
        text = await words(*messages, system=(SystemPart(text=system),))
        patch = parse_ledger_patch(text)
        assert isinstance(patch, LedgerPatch)
        patched = apply_patch(former, patch)
        verdict = audit_ledger(patched, former, source, count=WordCounter().count_tokens)
        assert verdict.hard_faults == ()
        assert verdict.dropped_items == ()
        assert patch.narrative.startswith("They met in Graz in 2019.")
        questions = [item.text for item in patch.add if item.kind == "question"]
        assert questions == ["Which airline do you suggest?"]
        assert not any("---" in item.text for item in patch.add)


async def test_the_real_flush_instruction_is_understood() -> None:
    talk = ("I work as a nurse in Graz.", said("Nice."), flush_instruction())
    request = asked(*talk, tools=(SAVE_MEMORY,))
    calls = tool_uses((await model().reply(request)).blocks)
    assert [call.input["text"] for call in calls] == ["I work as a nurse in Graz."]
    jsonschema.validate(dict(calls[0].input), dict(SAVE_MEMORY.input_schema))


async def test_what_never_happened_is_not_taken_for_a_prohibition() -> None:
    told = json.loads(await words(SUMMARY.replace("She loves it.", "I have never been to Lisbon myself.")))
    kinds = {item["text"]: item["kind"] for item in told["add"]}
    assert kinds["I have never been to Lisbon myself."] == "fact"


async def test_a_summary_of_nothing_invents_nothing() -> None:
    told = json.loads(await words(SUMMARY.split("\n\n", maxsplit=1)[0]))
    assert told == {"narrative": "", "add": [], "replace": {}, "close": {}}


async def test_everything_sent_is_counted() -> None:
    call = Message(role="assistant", blocks=(ToolUse(id="t", name="look", input={}),))
    result = Message(role="user", blocks=(ToolResult(tool_use_id="t", text="the sea is calm"),))
    bare = await model().count_tokens(asked("one two three"))
    full = await model().count_tokens(
        asked("one two three", call, result, tools=(SAVE,), system=(SystemPart(text="be kind"),))
    )
    assert bare is not None
    assert full is not None
    assert bare < full
    reply = await answer("one two three")
    assert reply.usage == Usage(input_tokens=bare, output_tokens=len(text_of(reply.blocks).split()))


async def test_its_window_is_real() -> None:
    small = model(window=100)
    with pytest.raises(PromptTooLong) as caught:
        await small.reply(asked("word " * 200))
    assert caught.value.maximum == 100
    assert (await small.load_card(OFFLINE_MODEL)).window == 100


async def test_it_costs_nothing_and_that_is_known() -> None:
    card = await model().load_card(OFFLINE_MODEL)
    assert card.offline
    assert card.prices is not None
    assert card.prices.input == card.prices.output == 0.0


@pytest.mark.parametrize(
    "odd", ["?", "???", "<", "[#1]", "\ud800", "remember", "a" * 50_000, "\n\n\n.", "SILENT"]
)
async def test_odd_text_is_answered(odd: str) -> None:
    assert (await answer(odd, tools=(SAVE,))).blocks


@pytest.mark.parametrize("name", ["sections", "thread", "handover", "running"])
async def test_its_summary_in_words_passes_the_audit_in_every_form(name: SummaryForm) -> None:
    form = form_of(name)
    source = render_source([entry(seq, author, text) for seq, (author, text) in enumerate(TALK, start=1)])
    former = Ledger(form=name, sections=(Section(heading="", text="They met in Graz in 2019."),))
    for focus in (None, "the budget"):
        system, request = summary_request(source, former, focus, form=name, most_words=300)
        text = await words(request, system=(SystemPart(text=system),))
        sections = read_text(text, form)
        assert not isinstance(sections, Unreadable), sections
        verdict = audit_text(sections, former, source, form=form, count=WordCounter().count_tokens)
        assert verdict.hard_faults == ()
        assert verdict.dropped_items == ()
        assert "They met in Graz in 2019." in text
        assert "1,450 euros" in text
        assert "Never book flights before 9 am!" in text
        assert form.headings == () or "## " in text


async def test_summary_is_returned_at_once_without_typing_pace() -> None:
    slow = OfflineModel(WordCounter(), window=200_000, piece_seconds=1_000.0)
    heard: list[str] = []

    async def hear(_attempt: int, piece: str) -> None:
        heard.append(piece)

    async with asyncio.timeout(30):
        reply = await slow.reply(asking(SUMMARY), on_text=hear)
    assert "".join(heard) == text_of(reply.blocks)
