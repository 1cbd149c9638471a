"""The fake provider, asked through the real SDK where it lets a wrong request out, else over raw HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic, DefaultAioHttpClient

from tests.kit.fakes.messages_api import RunningFake, running_fake

Json = dict[str, Any]
CHAT = "claude-haiku-5-5"
SECONDS = 20.0
SAVE: Json = {
    "name": "save_memory",
    "description": "Keeps a fact about the person.",
    "input_schema": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["preference", "fact"]},
            "text": {"type": "string"},
            "sources": {"type": "array", "items": {"type": "integer"}},
            "subject": {"type": "string"},
        },
        "required": ["kind", "text", "subject"],
    },
}
LONG = "The lighthouse keeper writes down the wind every hour. " * 120


@pytest.fixture
async def client(fake: RunningFake) -> AsyncIterator[AsyncAnthropic]:
    http = DefaultAioHttpClient()
    made = AsyncAnthropic(
        api_key="good-key", base_url=fake.base_url, max_retries=0, timeout=SECONDS, http_client=http
    )
    try:
        yield made
    finally:
        await made.close()


def user(content: object) -> Json:
    return {"role": "user", "content": content}


def assistant(content: object) -> Json:
    return {"role": "assistant", "content": content}


def call(number: str = "toolu_1", name: str = "save_memory") -> Json:
    return {"type": "tool_use", "id": number, "name": name, "input": {}}


def result(number: str = "toolu_1") -> Json:
    return {"type": "tool_result", "tool_use_id": number, "content": "saved"}


def text(words: str, **more: object) -> Json:
    return {"type": "text", "text": words, **more}


def marked(words: str, **more: object) -> Json:
    return text(words, cache_control={"type": "ephemeral", **more})


def request(*messages: Json, **more: object) -> Json:
    return {"model": CHAT, "max_tokens": 500, "messages": list(messages) or [user("Hello.")], **more}


async def post(
    fake: RunningFake, body: object, *, path: str = "/v1/messages", **headers: str
) -> tuple[int, Json]:
    all_headers = {"x-api-key": "good-key", "anthropic-version": "2026-10-21", **headers}
    kept = {name: value for name, value in all_headers.items() if value}
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    raw = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with (
        aiohttp.ClientSession(timeout=timeout, headers={"content-type": "application/json"}) as session,
        session.post(f"{fake.base_url}{path}", data=raw, headers=kept) as response,
    ):
        return response.status, await response.json()


async def ask(client: AsyncAnthropic, body: Json) -> anthropic.types.Message:
    async with asyncio.timeout(SECONDS):
        message: anthropic.types.Message = await client.messages.create(**body)
        return message


async def streamed(client: AsyncAnthropic, body: Json, into: list[Any]) -> None:
    async with asyncio.timeout(SECONDS):
        stream: Any = await client.messages.create(**body, stream=True)
        async for event in stream:  # one by one: what came before a fault must be kept
            into.append(event)  # noqa: PERF401


def words_of(events: list[Any]) -> str:
    return "".join(
        e.delta.text for e in events if e.type == "content_block_delta" and e.delta.type == "text_delta"
    )


def said(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


# --- what is refused ---

FORCED = {"type": "tool", "name": "save_memory"}
REFUSALS: dict[str, tuple[Json, str]] = {
    "an unknown parameter": (request(colour="red"), "colour: Extra inputs are not permitted"),
    "temperature": (request(temperature=0), "`temperature` is not supported"),
    "top_p": (request(top_p=0.5), "`top_p` is not supported"),
    "top_k": (request(top_k=5), "`top_k` is not supported"),
    "no max_tokens": ({"model": CHAT, "messages": [user("Hello.")]}, "max_tokens: Field required"),
    "too large max_tokens": (
        request(max_tokens=999_999),
        "max_tokens: 999999 > 128000, which is the maximum",
    ),
    "negative max_tokens": (request(max_tokens=-1), "max_tokens: Input should be greater than or equal to 0"),
    "a text as max_tokens": (request(max_tokens="9"), "max_tokens: Input should be a valid integer"),
    "no messages": (request() | {"messages": []}, "messages: at least one message is required"),
    "an assistant at first": (request(assistant("Hi."), user("Hi.")), "first message must use"),
    "another role": (
        request({"role": "system", "content": "x"}),
        "role: Input should be 'user' or 'assistant'",
    ),
    "an assistant at last": (
        request(user("Hi."), assistant("The answer is")),
        "must end with a user message",
    ),
    "an empty text": (request(user([text("")])), "text content blocks must be non-empty"),
    "a blank text": (request(user(" \n")), "must contain non-whitespace text"),
    "an empty content": (request(user([])), "all messages must have non-empty content"),
    "an unknown block": (request(user([{"type": "smell"}])), "Input tag 'smell' found using 'type'"),
    "an extra field in a block": (request(user([text("x", mood="bad")])), "text.mood: Extra inputs"),
    "an extra field in a message": (request(user("x") | {"name": "Ann"}), "name: Extra inputs"),
    "a call without its result": (
        request(user("x"), assistant([call()]), user("y")),
        "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each",
    ),
    "a call at the end": (request(user("x"), assistant([call()])), "`tool_use` ids were found without"),
    "one of two results missing": (
        request(user("x"), assistant([call("a"), call("b")]), user([result("a")])),
        "immediately after: b.",
    ),
    "a result without its call": (
        request(user([result()])),
        "unexpected `tool_use_id` found in `tool_result`",
    ),
    "a result one turn late": (
        request(user("x"), assistant([call()]), user([result()]), assistant("ok"), user([result()])),
        "unexpected `tool_use_id`",
    ),
    "equal call ids": (
        request(user("x"), assistant([call(), call()]), user([result()])),
        "`tool_use` ids must be unique",
    ),
    "call ids used again": (
        request(user("x"), assistant([call()]), user([result()]), assistant([call()]), user([result()])),
        "`tool_use` ids must be unique",
    ),
    "two results for one call": (
        request(user("x"), assistant([call()]), user([result(), result()])),
        "each tool_use must have a single result",
    ),
    "text before a result": (
        request(user("x"), assistant([call()]), user([text("look:"), result()])),
        "`tool_result` blocks must come first",
    ),
    "a call from the user": (
        request(user([call()])),
        "`tool_use` blocks can only be in `assistant` messages",
    ),
    "a result from the assistant": (
        request(user("x"), assistant([result()]), user("y")),
        "`tool_result` blocks can only be in `user` messages",
    ),
    "a strange call id": (
        request(user("x"), assistant([call("a b")]), user([result("a b")])),
        "id: String should match pattern",
    ),
    "a system that is a number": (request(system=5), "system: Input should be a valid string"),
    "an empty system block": (request(system=[text("")]), "system: text content blocks must be non-empty"),
    "a tool without a schema": (request(tools=[{"name": "x"}]), "input_schema: Field required"),
    "a tool with a bad name": (request(tools=[SAVE | {"name": "save memory"}]), "name: String should match"),
    "two tools of one name": (request(tools=[SAVE, SAVE]), "Tool names must be unique"),
    "a tool with a broken schema": (
        request(tools=[SAVE | {"input_schema": {"type": "object", "properties": {"x": {"type": "text"}}}}]),
        "JSON schema is invalid",
    ),
    "a tool whose schema is no object": (
        request(tools=[SAVE | {"input_schema": {"type": "array"}}]),
        "input_schema.type: Input should be 'object'",
    ),
    "a choice without tools": (
        request(tool_choice={"type": "auto"}),
        "only be specified while providing tools",
    ),
    "a choice of an unknown tool": (
        request(tools=[SAVE], tool_choice={"type": "tool", "name": "fly"}),
        "Tool 'fly' not found",
    ),
    "a forced tool while thinking": (
        request(tools=[SAVE], tool_choice=FORCED, thinking={"type": "adaptive"}),
        "Thinking may not be enabled when tool_choice forces tool use",
    ),
    "a forced tool of a model that always thinks": (
        request(tools=[SAVE], tool_choice={"type": "any"}, model="claude-sonnet-5-5"),
        "Thinking may not be enabled",
    ),
    "thinking switched off where it cannot be": (
        request(thinking={"type": "disabled"}, model="claude-sonnet-5-5"),
        "'disabled' is not supported for claude-sonnet-5-5",
    ),
    "a thinking budget above max_tokens": (
        request(thinking={"type": "enabled", "budget_tokens": 2_000}),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "five cache breakpoints": (
        request(user([marked(f"part {number}") for number in range(5)])),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "five breakpoints in three places": (
        request(
            user([marked("a"), marked("b"), marked("c")]),
            system=[marked("s")],
            tools=[SAVE | {"cache_control": {"type": "ephemeral"}}],
        ),
        "Found 5.",
    ),
    "an unknown lifetime": (request(user([marked("x", ttl="2h")])), "ttl: Input should be '5m' or '1h'"),
    "a long lifetime after a short one": (
        request(user([marked("a"), marked("b", ttl="1h")])),
        "must not come after a ttl='5m'",
    ),
    "a breakpoint on thinking": (
        request(
            user("x"),
            assistant(
                [{"type": "thinking", "thinking": "a", "signature": "b", "cache_control": {}}, text("y")]
            ),
            user("z"),
        ),
        "thinking.cache_control: Extra inputs are not permitted",
    ),
    "thinking at the end of an answer": (
        request(
            user("x"),
            assistant([text("y"), {"type": "thinking", "thinking": "a", "signature": "b"}]),
            user("z"),
        ),
        "The final block in an assistant message cannot be `thinking`",
    ),
    "a signature that nobody issued": (
        request(
            user("x"),
            assistant([{"type": "thinking", "thinking": "a", "signature": "b"}, text("y")]),
            user("z"),
        ),
        "Invalid `signature` in `thinking` block",
    ),
}
ONLY_RAW = ("temperature", "top_p", "top_k", "an unknown parameter", "no max_tokens")


@pytest.mark.parametrize("case", [name for name in REFUSALS if name not in ONLY_RAW])
async def test_the_sdk_raises_a_bad_request_for(case: str, client: AsyncAnthropic) -> None:
    body, wording = REFUSALS[case]
    with pytest.raises(anthropic.BadRequestError) as refused:
        await ask(client, body)
    assert refused.value.type == "invalid_request_error"
    assert wording in str(refused.value)


@pytest.mark.parametrize("case", ONLY_RAW)
async def test_a_raw_request_is_refused_for(case: str, fake: RunningFake) -> None:
    body, wording = REFUSALS[case]
    status, answer = await post(fake, body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert wording in answer["error"]["message"]


async def test_a_stream_is_refused_with_the_same_error(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="first message must use"):
        await streamed(client, request(assistant("Hi.")), [])


async def test_a_request_without_version_or_key_is_refused(fake: RunningFake) -> None:
    assert (await post(fake, request(), **{"anthropic-version": ""}))[0] == 400
    assert (await post(fake, request(), **{"x-api-key": ""}))[0] == 401
    assert (await post(fake, b"{not json"))[0] == 400
    assert (await post(fake, [1]))[0] == 400


async def test_a_bad_key_is_an_authentication_error(fake: RunningFake) -> None:
    http = DefaultAioHttpClient()
    client = AsyncAnthropic(api_key="bad-key", base_url=fake.base_url, max_retries=0, http_client=http)
    try:
        with pytest.raises(anthropic.AuthenticationError):
            await ask(client, request())
    finally:
        await client.close()


async def test_an_unknown_model_is_not_found(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="model: claude-9"):
        await ask(client, request(model="claude-9"))


async def test_a_body_above_64_megabytes_is_too_large(fake: RunningFake) -> None:
    status, answer = await post(fake, b" " * (64 * 1024 * 1024 + 1))
    assert (status, answer["error"]["type"]) == (413, "request_too_large")


async def test_neighbours_of_one_role_pass_with_a_warning(fake: RunningFake, client: AsyncAnthropic) -> None:
    await ask(client, request(user("One."), user("Two.")))
    assert [row["warning"] for row in await fake.warnings()] == [
        "messages.1: consecutive user messages were merged"
    ]


async def test_results_split_over_two_user_messages_count_as_one_turn(client: AsyncAnthropic) -> None:
    body = request(user("x"), assistant([call("a"), call("b")]), user([result("a")]), user([result("b")]))
    assert (await ask(client, body)).stop_reason == "end_turn"


# --- thinking ---


async def test_thinking_is_accepted_behind_an_unchanged_prefix_only(client: AsyncAnthropic) -> None:
    thinking = {"type": "adaptive"}
    first = await ask(
        client, request(user("The cat is called Tobermory."), thinking=thinking, system="Be kind.")
    )
    assert [block.type for block in first.content] == ["thinking", "text"]
    answer = assistant([block.model_dump(exclude_none=True) for block in first.content])
    history = [user("The cat is called Tobermory."), answer, user("Go on.")]
    await ask(client, request(*history, thinking=thinking, system="Be kind."))
    await ask(
        client, request(user([marked("The cat is called Tobermory.")]), *history[1:], system="Be kind.")
    )
    for edited in (
        request(*history, system="Be brief."),
        request(user("The dog is called Tobermory."), *history[1:], system="Be kind."),
        request(*history, system="Be kind.", tools=[SAVE]),
    ):
        with pytest.raises(anthropic.BadRequestError, match="The block is bound to a different conversation"):
            await ask(client, edited)


async def test_thinking_of_another_model_is_let_pass(client: AsyncAnthropic) -> None:
    first = await ask(client, request(user("Hello."), thinking={"type": "adaptive"}))
    answer = assistant([block.model_dump(exclude_none=True) for block in first.content])
    await ask(client, request(user("Edited."), answer, user("Go on."), model="claude-sonnet-5-5"))


async def test_thinking_survives_the_tool_loop_it_belongs_to(client: AsyncAnthropic) -> None:
    body = request(user("Remember that my cat is Tobermory."), tools=[SAVE], thinking={"type": "adaptive"})
    first = await ask(client, body)
    assert [block.type for block in first.content] == ["thinking", "tool_use"]
    answer = assistant([block.model_dump(exclude_none=True) for block in first.content])
    done = user([result(first.content[1].id)])  # type: ignore[union-attr]
    second = await ask(client, body | {"messages": [*body["messages"], answer, done]})
    assert said(second) == "I will remember it: my cat is Tobermory."


# --- window, usage, cache ---


async def test_a_prompt_above_the_window_names_both_numbers(
    fake: RunningFake, client: AsyncAnthropic
) -> None:
    await fake.set_window(CHAT, 100)
    with pytest.raises(anthropic.BadRequestError) as refused:
        await ask(client, request(user("x" * 3_600)))
    assert refused.value.api_message == "prompt is too long: 1004 tokens > 100 maximum"
    assert refused.value.type == "invalid_request_error"


async def test_an_answer_that_meets_the_window_stops_there(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.set_window(CHAT, 60)
    await fake.script([{"action": {"text": LONG}}])
    cut = await ask(client, request(user("Hello.")))
    assert cut.stop_reason == "model_context_window_exceeded"
    assert cut.usage.input_tokens + cut.usage.output_tokens <= 60


async def test_max_tokens_and_stop_sequences_end_an_answer(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"times": 2, "action": {"text": LONG}}])
    short = await ask(client, request(max_tokens=20))
    assert (short.stop_reason, short.usage.output_tokens <= 20) == ("max_tokens", True)
    stopped = await ask(client, request(max_tokens=9_000, stop_sequences=["the wind"]))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "the wind")
    assert said(stopped) == "The lighthouse keeper writes down "


async def test_counting_agrees_with_the_usage(fake: RunningFake, client: AsyncAnthropic) -> None:
    body = request(user("How are you?"), system="Be kind.", tools=[SAVE])
    counted = await client.messages.count_tokens(**{k: v for k, v in body.items() if k != "max_tokens"})
    assert counted.input_tokens == (await ask(client, body)).usage.input_tokens
    assert [row["kind"] for row in await fake.requests()] == ["count_tokens", "chat"]


async def test_the_cache_is_written_read_and_lapses(fake: RunningFake, client: AsyncAnthropic) -> None:
    body = request(user("Hello."), system=[marked(LONG)])
    first, second = (await ask(client, body)).usage, (await ask(client, body)).usage
    assert first.cache_creation_input_tokens == second.cache_read_input_tokens
    assert (first.cache_read_input_tokens, second.cache_creation_input_tokens) == (0, 0)
    assert first.cache_creation_input_tokens == 1_838
    await fake.advance_clock(299)
    assert (await ask(client, body)).usage.cache_read_input_tokens == 1_838
    await fake.advance_clock(301)
    assert (await ask(client, body)).usage.cache_read_input_tokens == 0


async def test_a_growing_conversation_reads_what_it_wrote(client: AsyncAnthropic) -> None:
    history = [user([marked(LONG)])]
    first = (await ask(client, request(*history))).usage
    history = [user(LONG), assistant("Well."), user([marked("Go on, please.")])]
    second = (await ask(client, request(*history))).usage
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert 0 < (second.cache_creation_input_tokens or 0) < 30
    assert second.input_tokens == 0


async def test_changed_tools_cost_the_cache_and_a_changed_choice_the_messages(client: AsyncAnthropic) -> None:
    body = request(user([marked(LONG)]), system=[marked(LONG)], tools=[SAVE])
    await ask(client, body)
    same = (await ask(client, body)).usage
    chosen = (await ask(client, body | {"tool_choice": {"type": "none"}})).usage
    other = (await ask(client, body | {"tools": [SAVE | {"name": "other"}]})).usage
    assert same.cache_creation_input_tokens == 0
    assert 0 < (chosen.cache_read_input_tokens or 0) < (same.cache_read_input_tokens or 0)
    assert other.cache_read_input_tokens == 0


async def test_a_prefix_below_1024_tokens_is_not_cached(client: AsyncAnthropic) -> None:
    body = request(user([marked("short")]))
    await ask(client, body)
    assert (await ask(client, body)).usage.cache_read_input_tokens == 0


async def test_an_hour_long_entry_outlives_a_short_one(fake: RunningFake, client: AsyncAnthropic) -> None:
    body = request(user([marked(LONG)]), system=[marked(LONG, ttl="1h")])
    first = await ask(client, body)
    assert first.usage.cache_creation is not None
    assert first.usage.cache_creation.ephemeral_1h_input_tokens == 1_838
    await fake.advance_clock(3_000)
    assert (await ask(client, body)).usage.cache_read_input_tokens == 1_838


async def test_a_request_for_no_tokens_warms_the_cache(client: AsyncAnthropic) -> None:
    body = request(user([text(LONG)]), cache_control={"type": "ephemeral"})
    assert (await ask(client, body | {"max_tokens": 0})).content == []
    assert ((await ask(client, body)).usage.cache_read_input_tokens or 0) > 1_000


async def test_the_models_tell_their_windows(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.set_window("my-own", 16_000)
    listed = [model.id async for model in client.models.list()]
    own = await client.models.retrieve("my-own")
    assert {"claude-sonnet-5-5", "my-own"} <= set(listed)
    assert (own.max_input_tokens, own.max_tokens, own.lifecycle) == (16_000, 128_000, "active")
    assert own.capabilities is not None
    assert own.capabilities.thinking.types.disabled.supported
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("nobody")


# --- what it answers ---


async def test_a_question_is_answered_with_the_sentence_that_fits(client: AsyncAnthropic) -> None:
    history = [
        user("My sister Ines lives in Porto. My bicycle is green."),
        assistant("Noted."),
        user("What colour is the bicycle?"),
    ]
    assert said(await ask(client, request(*history))) == "My bicycle is green."
    asked = request(user("Where does Ines live?"), system="Notes:\n- Ines lives in Porto.")
    assert said(await ask(client, asked)) == "Ines lives in Porto."
    summary = "<conversation_summary through_seq='9'>The cat is called Tobermory.</conversation_summary>"
    asked = request(user([text(summary), text("What is the cat called?")]))
    assert said(await ask(client, asked)) == "The cat is called Tobermory."


async def test_fake_model_answers_nothing_unsaid(client: AsyncAnthropic) -> None:
    answer = said(await ask(client, request(user("Who won the zebra race?"))))
    assert answer == "I cannot find that in our conversation (message 1)."


async def test_a_statement_is_echoed_with_its_number(client: AsyncAnthropic) -> None:
    history = [user("One."), assistant("Fine."), user("The tea is ready.")]
    assert said(await ask(client, request(*history))) == "Noted as message 2: The tea is ready."


async def test_a_wish_to_remember_calls_the_tool(client: AsyncAnthropic) -> None:
    message = await ask(client, request(user("Please remember that my birthday is on 3 May."), tools=[SAVE]))
    assert message.stop_reason == "tool_use"
    (block,) = message.content
    assert block.type == "tool_use"
    assert block.input["text"] == "my birthday is on 3 May."
    assert block.input["kind"] == "fact"


async def test_a_flush_saves_notes_and_then_is_silent(fake: RunningFake, client: AsyncAnthropic) -> None:
    told = "I live in Porto. My cat is called Tobermory. We decided to fly on 12 June. It rains. Nice, is it?"
    history = [user(told), assistant("Noted."), user("Save what matters, then answer SILENT.")]
    first = await ask(client, request(*history, tools=[SAVE]))
    notes = [block for block in first.content if block.type == "tool_use"]
    assert len({note.id for note in notes}) == 3
    assert all(
        str(note.input["text"]) in told and set(note.input) >= {"kind", "text", "subject"} for note in notes
    )
    history += [
        assistant([block.model_dump(exclude_none=True) for block in notes]),
        user([result(note.id) for note in notes]),
    ]
    assert said(await ask(client, request(*history, tools=[SAVE]))) == "SILENT"
    assert [row["kind"] for row in await fake.requests()] == ["flush", "flush"]


async def test_a_summary_is_json_in_the_words_of_the_source(
    fake: RunningFake, client: AsyncAnthropic
) -> None:
    asked = """Answer as JSON: {"narrative": "...", "add": [], "replace": {}, "close": {}}

<source>
[#11] Ann: My cat is called Tobermory.
He is 7 years old.
[#12] assistant: A fine name.
[#14] Ann: Never call me before nine. Which vet is open?
</source>
Write {"narrative" first."""
    message = await ask(client, request(user(asked)))
    summary = json.loads(said(message))
    assert set(summary) == {"narrative", "add", "replace", "close"}
    rows = {item["text"]: item for item in summary["add"]}
    assert rows["My cat is called Tobermory."]["sources"] == [11]
    assert rows["He is 7 years old."]["sources"] == [11]
    assert rows["Never call me before nine."] == {
        "kind": "constraint",
        "text": "Never call me before nine.",
        "sources": [14],
        "author": "Ann",
    }
    assert rows["Which vet is open?"]["kind"] == "question"
    assert all(item["text"] in asked for item in summary["add"])
    assert (await fake.requests())[0]["kind"] == "summary"


async def test_the_same_request_gets_the_same_answer(client: AsyncAnthropic) -> None:
    body = request(user("Please remember that my birthday is on 3 May."), tools=[SAVE])
    assert (await ask(client, body)).content == (await ask(client, body)).content


# --- the stream ---


async def test_a_stream_follows_the_grammar_and_says_the_same(
    fake: RunningFake, client: AsyncAnthropic
) -> None:
    body = request(
        user("The lighthouse keeper writes down the wind every hour."), thinking={"type": "adaptive"}
    )
    whole = await ask(client, body)
    events: list[Any] = []
    await streamed(client, body, events)
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert events[kinds.index("content_block_stop") - 1].delta.type == "signature_delta"
    assert words_of(events) == said(whole)
    assert events[-2].usage.output_tokens == whole.usage.output_tokens
    assert all(
        len(e.delta.text) <= 20
        for e in events
        if e.type == "content_block_delta" and e.delta.type == "text_delta"
    )


async def test_the_stream_helper_of_the_sdk_assembles_tool_calls(client: AsyncAnthropic) -> None:
    body = request(user("Remember that the boat is called Vesper."), tools=[SAVE])
    async with asyncio.timeout(SECONDS), client.messages.stream(**body) as stream:
        final = await stream.get_final_message()
    assert final.content == (await ask(client, body)).content
    assert final.stop_reason == "tool_use"


async def test_a_raw_stream_names_each_event_and_pings(fake: RunningFake) -> None:
    body = json.dumps(request(stream=True)).encode()
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21", "content-type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{fake.base_url}/v1/messages", data=body, headers=headers) as response,
    ):
        raw = (await response.read()).decode()
    assert response.content_type == "text/event-stream"
    assert 'event: ping\ndata: {"type":"ping"}\n\n' in raw
    for part in raw.strip().split("\n\n"):
        name, data = part.split("\n")
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")


# --- faults ---

STATUSES = {
    401: anthropic.AuthenticationError,
    402: anthropic.PaymentRequiredError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    413: anthropic.ContentTooLargeError,
    429: anthropic.RateLimitError,
    500: anthropic.InternalServerError,
    529: anthropic.OverloadedError,
}


@pytest.mark.parametrize("status", STATUSES)
async def test_a_scripted_status_is_raised_once(
    status: int, fake: RunningFake, client: AsyncAnthropic
) -> None:
    await fake.script([{"action": {"status": status, "retry_after": 7}}])
    with pytest.raises(STATUSES[status]) as raised:
        await ask(client, request())
    assert raised.value.response.headers["retry-after"] == "7"
    assert (await ask(client, request())).stop_reason == "end_turn"
    assert [row["status"] for row in await fake.requests()] == [status, 200]


async def test_too_long_and_no_credit_are_bad_requests(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script(
        [
            {"action": {"status": 400, "reason": "too_long"}},
            {"action": {"status": 400, "reason": "credit"}},
        ]
    )
    with pytest.raises(
        anthropic.BadRequestError, match=r"prompt is too long: 1000001 tokens > 1000000 maximum"
    ):
        await ask(client, request())
    with pytest.raises(anthropic.BadRequestError, match="Your credit balance is too low"):
        await ask(client, request())


async def test_an_overload_in_mid_stream_comes_inside_a_200(
    fake: RunningFake, client: AsyncAnthropic
) -> None:
    await fake.script([{"action": {"stream_error": 2, "text": "x" * 100}}])
    events: list[Any] = []
    with pytest.raises(anthropic.APIStatusError) as raised:
        await streamed(client, request(), events)
    assert (raised.value.status_code, raised.value.type) == (200, "overloaded_error")
    assert words_of(events) == "x" * 40


@pytest.mark.parametrize("deltas", [0, 1, 3])
async def test_a_cut_stream_breaks_after_its_deltas(
    deltas: int, fake: RunningFake, client: AsyncAnthropic
) -> None:
    await fake.script([{"action": {"cut": deltas, "text": "x" * 100}}])
    events: list[Any] = []
    with pytest.raises((httpx2.TransportError, aiohttp.ClientError, anthropic.APIConnectionError)):
        await streamed(client, request(), events)
    assert sum(event.type == "content_block_delta" for event in events) == deltas
    (row,) = await fake.requests()
    assert row["outcome"] == "cut"


async def test_a_stream_may_end_without_message_stop(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"action": {"no_message_stop": True}}])
    events: list[Any] = []
    await streamed(client, request(), events)
    assert events[-1].type == "message_delta"


async def test_a_stalled_stream_says_nothing_more(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"action": {"stall": {"after": 1, "seconds": 60}, "text": "x" * 100}}])
    events: list[Any] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await streamed(client, request(), events)
    assert sum(event.type == "content_block_delta" for event in events) == 1


async def test_aborted_request_is_still_billed(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"action": {"stall": {"after": 1, "seconds": 60}, "text": "x" * 100}}])
    stream: Any = await client.messages.create(**request(), stream=True)
    async for event in stream:
        if event.type == "content_block_delta":
            break
    await stream.close()
    async with asyncio.timeout(SECONDS):
        while (await fake.requests())[0]["outcome"] != "client_gone":
            await asyncio.sleep(0.02)
    totals = await fake.usage()
    assert (totals["requests"], totals["aborted"], totals["output_tokens"]) == (1, 1, 6)


async def test_a_dripping_stream_arrives_byte_by_byte(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"action": {"drip": 0.0001, "text": "Slow."}}])
    events: list[Any] = []
    await streamed(client, request(), events)
    assert words_of(events) == "Slow."


async def test_a_malformed_event_breaks_the_parser(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"action": {"malformed": 1}}])
    with pytest.raises(json.JSONDecodeError):
        await streamed(client, request(), [])


async def test_an_unknown_event_changes_nothing(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"action": {"unknown_event": 1}}])
    events: list[Any] = []
    await streamed(client, request(), events)
    assert words_of(events) == "Noted as message 1: Hello."
    assert "brand_new_event" in [event.type for event in events]


async def test_an_answer_may_be_scripted(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script(
        [
            {"action": {"text": "Fixed."}},
            {"action": {"tool_use": [{"name": "save_memory", "input": {"text": "x"}}]}},
            {"action": {"thinking": "Hm."}},
            {"action": {"empty": True}},
            {"action": {"refusal": True}},
            {"action": {"latency": 0.01, "pace_ms": 1}},
        ]
    )
    messages = [await ask(client, request(tools=[SAVE])) for _ in range(6)]
    assert said(messages[0]) == "Fixed."
    assert messages[1].stop_reason == "tool_use"
    assert [block.type for block in messages[2].content] == ["thinking", "text"]
    assert (messages[3].content, messages[3].stop_reason) == ([], "end_turn")
    assert messages[4].stop_reason == "refusal"
    assert messages[5].stop_reason == "end_turn"


async def test_of_many_messages_every_mark_is_repeated(client: AsyncAnthropic) -> None:
    words = "\n".join(f"I say t1_x{number} now." for number in range(1, 31))
    answer = said(await ask(client, request(user(words))))
    assert re.findall(r"\bt1_x\d+\b", answer) == [f"t1_x{number}" for number in range(1, 31)]


async def test_prose_may_come_instead_of_json(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script([{"match": {"kind": "summary"}, "action": {"prose": True}}])
    asked = request(user('Give {"narrative": "", "add": []} of:\n[#1] Ann: The tea is ready.'))
    assert said(await ask(client, request())) == "Noted as message 1: Hello."
    with pytest.raises(json.JSONDecodeError):
        json.loads(said(await ask(client, asked)))
    assert json.loads(said(await ask(client, asked)))["add"]


async def test_faults_without_a_stream_hit_the_whole_answer(
    fake: RunningFake, client: AsyncAnthropic
) -> None:
    await fake.script([{"action": {"cut": 0}}, {"action": {"stream_error": 0}}])
    with pytest.raises((anthropic.APIConnectionError, httpx2.TransportError)):
        await ask(client, request())
    with pytest.raises(anthropic.OverloadedError):
        await ask(client, request())


async def test_rules_match_by_model_words_and_number(fake: RunningFake, client: AsyncAnthropic) -> None:
    await fake.script(
        [
            {"match": {"contains": "storm", "nth": 2}, "action": {"text": "second storm"}},
            {"match": {"model": "claude-opus-5-5"}, "times": -1, "action": {"text": "opus"}},
        ]
    )
    storm, opus = request(user("A storm.")), request(model="claude-opus-5-5")
    answers = [said(await ask(client, body)) for body in (storm, request(), storm, storm, opus, opus)]
    assert answers[2] == "second storm"
    assert answers[4:] == ["opus", "opus"]
    assert answers.count("second storm") == 1
    assert [rule["used"] for rule in await fake.rules()] == [1, 2]


async def test_a_rule_with_a_typing_error_is_refused(fake: RunningFake) -> None:
    wrong: tuple[Json, ...] = (
        {"action": {"statsu": 500}},
        {"action": {"cut": True}},
        {"match": {"kind": "talk"}, "action": {}},
        {"match": {}},
    )
    for rule in wrong:
        with pytest.raises(ValueError):
            await fake.script([rule])


# --- the books, and the process ---


async def test_requests_are_recorded_without_the_key(fake: RunningFake, client: AsyncAnthropic) -> None:
    await ask(client, request(user("One.")))
    (first,) = await fake.requests()
    await ask(client, request(user("Two.")))
    (second,) = await fake.requests(since=first["id"])
    assert second["body"]["messages"] == [{"role": "user", "content": "Two."}]
    assert "good-key" not in json.dumps([first, second])
    assert (first["kind"], first["status"], first["input_tokens"]) == ("chat", 200, 6)


async def test_totals_are_the_sum_of_all_answers(fake: RunningFake, client: AsyncAnthropic) -> None:
    used = [(await ask(client, request(user(LONG)))).usage for _ in range(2)]
    with pytest.raises(anthropic.BadRequestError):
        await ask(client, request(assistant("Hi.")))
    totals = await fake.usage()
    assert totals["requests"] == 2
    assert totals["input_tokens"] == sum(usage.input_tokens for usage in used)
    assert totals["output_tokens"] == sum(usage.output_tokens for usage in used)
    assert totals["by_kind"]["chat"]["requests"] == totals["by_model"][CHAT]["requests"] == 2


async def test_a_fake_is_gone_after_its_block() -> None:
    async with running_fake(window=500) as own:
        pid = own.pid
        status, answer = await post(own, request(user("x" * 3_600)))
        assert (status, answer["error"]["message"]) == (400, "prompt is too long: 1004 tokens > 500 maximum")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_fake_leaves_with_its_parent() -> None:
    """A parent that is killed cannot clean up; the fake must notice by itself."""
    program = (
        "import os,time;from tests.kit.fakes.messages_api import running_fake;f=running_fake();f.start();"
        "print(f.pid,flush=True);time.sleep(60)"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        async with asyncio.timeout(SECONDS):
            pid = int(await parent.stdout.readline())
    finally:
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
    async with asyncio.timeout(SECONDS):
        while is_running(pid):
            await asyncio.sleep(0.05)


def is_running(pid: int) -> bool:
    """A zombie that nobody has waited for yet does not run."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
