"""A model behind a server, against the strict fakes of both APIs: answers, faults, and what they become."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from shared.adapters.models import ModelEntry, Patience, remote
from shared.adapters.models.error_mapping import ModelOverloaded, ModelUnknown
from shared.adapters.models.openai_provider import OpenAIProvider, ResponsesProvider
from shared.adapters.models.provider import Provider
from shared.adapters.models.remote import RemoteModel
from shared.core.values.errors import (
    ModelAnswerUnusable,
    ModelBusy,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
    PromptTooLong,
)
from shared.core.values.messages import Message, Text, Thinking, ToolResult, ToolUse, text_message, text_of
from shared.core.verdicts.windows import NarrowedWindow
from shared.ports import SystemPart
from tests.kit.fakes.messages_api import RunningFake, running_fake
from tests.kit.fakes.messages_api.harness import WIRES
from tests.kit.model_makers import SAVE, HandClock, Listener, Naps, WordCounter, asking, impatient

CHAT = "claude-haiku-5-5"
PROVIDERS = {"messages": Provider, "openai": OpenAIProvider, "responses": ResponsesProvider}
LONG = "The lighthouse keeper writes down the wind every hour of the day and of the night. " * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    fake: RunningFake
    wire: str

    def provider(self, **account: Any) -> Provider:
        return PROVIDERS[self.wire](**{"base_url": self.fake.base_url, "api_key": "good-key", **account})

    def entry(self, **told: Any) -> ModelEntry:
        return ModelEntry(**{"name": CHAT, "wire": self.wire, **told})


@pytest.fixture(scope="module", params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def only_messages(wire: str) -> None:
    if wire != "messages":
        pytest.skip("the other API has no such thing")


@pytest.fixture
def wired(fake: RunningFake, wire: str) -> Server:
    return Server(fake=fake, wire=wire)


Opener = Callable[..., RemoteModel]


@pytest.fixture
async def opened(fake: RunningFake, wired: Server) -> AsyncIterator[Opener]:
    """Makes models at the fake; what was opened is closed."""
    made: list[RemoteModel] = []

    def make(patience: Patience | None = None, *, key: str = "good-key", **entry: Any) -> RemoteModel:
        provider = wired.provider(api_key=key, clock=HandClock())
        named = wired.entry(**entry)
        made.append(RemoteModel(named, provider, WordCounter(), patience=patience or impatient()))
        return made[-1]

    yield make
    for model in made:
        await model.close()


async def script(fake: RunningFake, *actions: dict[str, Any], times: int = 1) -> None:
    await fake.script([{"action": action, "times": times} for action in actions])


async def test_an_answer_is_streamed_and_returned_whole(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"text": LONG, "pace_ms": 20})
    heard = Listener()
    reply = await opened().reply(asking("Hello"), on_text=heard)
    assert text_of(reply.blocks) == LONG
    assert heard.pieces.keys() == {1}
    assert len(heard.pieces[1]) > 1
    assert heard.text(1) == LONG
    assert (reply.stop_reason, reply.model, reply.aborted) == ("end_turn", CHAT, ())
    assert reply.request_id.startswith("req_")


@pytest.mark.usefixtures("only_messages")
async def test_usage_is_what_the_provider_counted_cache_included(fake: RunningFake, opened: Opener) -> None:
    model = opened()
    request = asking("Hello", system=(SystemPart(text="You are kind. " * 3_000, cache=True),))
    first, second = (await model.reply(request)).usage, (await model.reply(request)).usage
    counted = await fake.usage()
    assert first.cache_write_tokens > 1_000
    assert second.cache_read_tokens == first.cache_write_tokens
    for ours, theirs in (
        ("input_tokens", "input_tokens"),
        ("output_tokens", "output_tokens"),
        ("cache_read_tokens", "cache_read_input_tokens"),
        ("cache_write_tokens", "cache_creation_input_tokens"),
    ):
        assert getattr(first, ours) + getattr(second, ours) == counted[theirs]


@pytest.mark.usefixtures("only_messages")
async def test_a_tool_is_called_and_its_result_understood_with_thinking_untouched(
    fake: RunningFake, opened: Opener
) -> None:
    call = {"name": "save_memory", "input": {"kind": "fact", "text": "tea", "subject": "me"}}
    await script(fake, {"tool_use": [call], "thinking": "they like tea"})
    model = opened()
    reply = await model.reply(asking("Remember tea", tools=(SAVE,)))
    thought, use = reply.blocks
    assert isinstance(thought, Thinking)
    assert isinstance(use, ToolUse)
    assert (reply.stop_reason, use.input) == ("tool_use", call["input"])
    answered = Message(role="assistant", blocks=reply.blocks)
    result = Message(role="user", blocks=(ToolResult(tool_use_id=use.id, text="saved"),))
    second = await model.reply(asking("Remember tea", answered, result, tools=(SAVE,)))
    assert (second.stop_reason, second.aborted) == ("end_turn", ())


@pytest.mark.usefixtures("only_messages")
async def test_thinking_after_an_edited_prefix_is_stripped_and_call_repeated(
    fake: RunningFake, opened: Opener
) -> None:
    await script(fake, {"text": "Hello.", "thinking": "a greeting"})
    model = opened()
    first = await model.reply(asking("Hi"))
    answer = Message(role="assistant", blocks=first.blocks)
    reply = await model.reply(asking("Something else entirely", answer, "Go on"))
    sent = await fake.requests()
    assert [record["status"] for record in sent] == [200, 400, 200]
    assert reply.stop_reason == "end_turn"


async def test_a_full_window_while_answering_is_a_reason_to_stop(
    fake: RunningFake, opened: Opener, wire: str
) -> None:
    await fake.set_window(CHAT, 120)
    await script(fake, {"text": LONG * 4})
    reply = await opened().reply(asking("Hello"))
    assert reply.stop_reason == ("window_exceeded" if wire == "messages" else "max_tokens")


async def test_too_long_prompt_is_reported_with_both_numbers(fake: RunningFake, opened: Opener) -> None:
    await fake.set_window(CHAT, 100)
    with pytest.raises(PromptTooLong) as caught:
        await opened().reply(asking(LONG * 5))
    assert caught.value.maximum == 100
    assert (caught.value.tokens or 0) > 100
    assert len(await fake.requests()) == 1


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ({"status": 401}, ModelRefusedAccount),
        ({"status": 402}, ModelRefusedAccount),
        ({"status": 403}, ModelRefusedAccount),
        ({"status": 400, "reason": "credit"}, ModelRefusedAccount),
        ({"status": 400, "reason": "too_long"}, PromptTooLong),
        ({"status": 413}, PromptTooLong),
        ({"status": 400, "message": "messages.3: no such call"}, ModelRejectedRequest),
        ({"stream_error": 2, "error_type": "invalid_request_error"}, ModelRejectedRequest),
        ({"status": 429, "retry_after": 60}, ModelBusy),
    ],
)
async def test_what_a_second_try_cannot_mend_is_not_tried_again(
    fake: RunningFake, opened: Opener, action: dict[str, Any], error: type[Exception]
) -> None:
    await script(fake, action, times=-1)
    with pytest.raises(error):
        await opened().reply(asking("Hello"))
    assert len(await fake.requests()) == 1


async def test_a_model_that_the_provider_does_not_know_leaves_the_breaker_closed(
    fake: RunningFake, opened: Opener
) -> None:
    model = opened(name="claude-long-gone")
    for _ in range(2):
        with pytest.raises(ModelUnknown):
            await model.reply(asking("Hello"))
    assert len(await fake.requests()) == 2


async def test_a_long_wait_is_reported_and_a_short_one_is_waited_once(
    fake: RunningFake, opened: Opener
) -> None:
    naps = Naps()
    model = opened(impatient(naps))
    await script(fake, {"status": 429, "retry_after": 60})
    with pytest.raises(ModelBusy) as caught:
        await model.reply(asking("Hello"))
    assert (caught.value.retry_after_seconds, naps.seconds) == (60.0, [])
    await script(fake, {"status": 429, "retry_after": 7})
    await model.reply(asking("Hello"))
    assert naps.seconds == [7.0]
    await script(fake, {"status": 429, "retry_after": 7}, times=-1)
    with pytest.raises(ModelBusy):
        await model.reply(asking("Hello"))
    assert naps.seconds == [7.0, 7.0]


@pytest.mark.parametrize(("status", "seconds"), [(500, 1.0), (503, 1.0), (529, 4.0)])
async def test_trouble_before_the_first_byte_is_tried_twice(
    fake: RunningFake, opened: Opener, status: int, seconds: float
) -> None:
    naps = Naps()
    model = opened(impatient(naps))
    await script(fake, {"status": status})
    assert (await model.reply(asking("Hello"))).aborted == ()
    await script(fake, {"status": status}, times=-1)
    with pytest.raises(ModelUnavailable) as caught:
        await model.reply(asking("Hello"))
    assert isinstance(caught.value, ModelOverloaded) == (status == 529)
    assert naps.seconds == [seconds, seconds]
    assert len(await fake.requests()) == 4


@pytest.mark.parametrize(
    "action",
    [
        {"cut": 3},
        {"stream_error": 3},
        {"stream_error": 3, "error_type": "api_error"},
        {"malformed": 3},
        {"no_message_stop": True},
        {"stall": {"after": 3, "seconds": 30}},
    ],
    ids=lambda action: "-".join(map(str, action)),
)
async def test_a_broken_stream_is_discarded_and_begun_again(
    fake: RunningFake, opened: Opener, wire: str, action: dict[str, Any]
) -> None:
    if "no_message_stop" in action and wire != "responses":
        pytest.skip("there the reason to end is the end")
    await script(fake, {"text": LONG, **action}, {"text": "A fresh answer."})
    heard = Listener()
    reply = await opened(impatient(silence_seconds=0.3)).reply(asking("Hello"), on_text=heard)
    assert reply.blocks == (Text(text="A fresh answer."),)
    assert LONG.startswith(heard.text(1))
    assert heard.text(1)
    assert heard.text(2) == "A fresh answer."
    (aborted,) = reply.aborted
    records = await fake.requests()
    assert aborted.output_tokens >= 1
    if wire == "messages":
        assert aborted.input_tokens == records[0]["input_tokens"]
    else:
        assert (aborted.known, aborted.input_tokens > 0) == (False, True), "counted at the end alone"


async def test_stream_that_breaks_twice_fails_with_its_cost(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"text": LONG, "cut": 3}, times=-1)
    with pytest.raises(ModelUnavailable) as caught:
        await opened().reply(asking("Hello"))
    assert caught.value.__cause__ is not None
    assert len(caught.value.aborted) == 2
    assert len(await fake.requests()) == 2


async def test_silence_before_the_first_byte_ends(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"latency": 30}, times=-1)
    with pytest.raises(ModelUnavailable, match="no answer"):
        await opened(impatient(first_byte_seconds=1)).reply(asking("Hello"))
    assert len(await fake.requests()) == 2


async def test_all_attempts_together_have_a_deadline(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"text": LONG, "pace_ms": 500}, times=-1)
    with pytest.raises(ModelUnavailable):
        await opened(impatient(total_seconds=1.5)).reply(asking("Hello"))
    assert len(await fake.requests()) == 1


async def test_a_slow_stream_with_life_in_it_is_left_alone(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"text": LONG, "pace_ms": 200})
    reply = await opened(impatient(silence_seconds=2.0)).reply(asking("Hello"))
    assert reply.aborted == ()


async def test_unreachable_server_is_an_unavailable_model(
    module_provider: RunningFake, wired: Server
) -> None:
    provider = wired.provider(base_url="http://127.0.0.1:9", api_key="key")
    model = RemoteModel(wired.entry(), provider, WordCounter(), patience=impatient())
    with pytest.raises(ModelUnavailable) as caught:
        await model.reply(asking("Hello"))
    assert caught.value.__cause__ is not None
    await model.close()


async def test_a_server_that_speaks_something_else_is_unavailable(wired: Server) -> None:
    async def chatter(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(chatter, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    provider = wired.provider(base_url=f"http://127.0.0.1:{port}", api_key="key")
    model = RemoteModel(wired.entry(), provider, WordCounter(), patience=impatient())
    with pytest.raises(ModelUnavailable):
        await model.reply(asking("Hello"))
    await model.close()
    other.close()
    await other.wait_closed()


async def test_stopping_hangs_up_at_once(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"text": LONG, "pace_ms": 20, "stall": {"after": 5, "seconds": 30}})
    begun = asyncio.Event()

    async def on_text(_attempt: int, _piece: str) -> None:
        begun.set()

    model = opened()
    turn = asyncio.create_task(model.reply(asking("Hello"), on_text=on_text))
    async with asyncio.timeout(30):
        await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        while (await fake.requests())[0]["outcome"] == "open":
            await asyncio.sleep(0.02)
    assert (await fake.requests())[0]["outcome"] == "client_gone"
    assert (await model.reply(asking("Hello again"))).stop_reason == "end_turn"


async def test_an_error_of_the_listener_is_not_blamed_on_the_provider(
    fake: RunningFake, opened: Opener
) -> None:
    async def on_text(_attempt: int, _piece: str) -> None:
        raise OSError("the channel is gone")

    await script(fake, {"text": LONG, "stall": {"after": 3, "seconds": 30}})
    with pytest.raises(OSError, match="the channel is gone") as caught:
        await opened().reply(asking("Hello"), on_text=on_text)
    async with asyncio.timeout(30):
        while (await fake.requests())[0]["outcome"] == "open":
            await asyncio.sleep(0.02)
    assert [record["outcome"] for record in await fake.requests()] == ["client_gone"]
    del caught  # it held the frames until here, so that not the garbage collector has hung up


async def test_five_failures_open_the_breaker_and_calls_fail_without_asking(
    fake: RunningFake, opened: Opener
) -> None:
    await script(fake, {"status": 503}, times=-1)
    model = opened(impatient(attempts=1))
    for session in range(1, 6):
        with pytest.raises(ModelUnavailable):
            await model.reply(asking("Hello", about=(session, 1)))
    with pytest.raises(ModelUnavailable, match="not asked again so soon"):
        await model.reply(asking("Hello"))
    assert len(await fake.requests()) == 5


async def test_an_empty_account_opens_the_breaker_until_a_probe_succeeds(
    fake: RunningFake, wired: Server
) -> None:
    clock = HandClock()
    provider = wired.provider(api_key="good-key", clock=clock)
    model = RemoteModel(wired.entry(), provider, WordCounter(), patience=impatient())
    await script(fake, {"status": 400, "reason": "credit"})
    for _ in range(3):
        with pytest.raises(ModelRefusedAccount):
            await model.reply(asking("Hello"))
    assert len(await fake.requests()) == 1
    assert provider.breaker.get_state().account_refused
    clock.now += 10
    await model.reply(asking("Hello"))
    assert not provider.breaker.get_state().open
    await model.close()


async def test_a_wrong_key_is_a_refused_account(opened: Opener) -> None:
    with pytest.raises(ModelRefusedAccount):
        await opened(key="bad-key").reply(asking("Hello"))


async def test_a_missing_key_is_named_without_asking_anyone(fake: RunningFake, wired: Server) -> None:
    provider = wired.provider(api_key=None, missing_key="LOCAL_KEY")
    model = RemoteModel(wired.entry(), provider, WordCounter())
    with pytest.raises(ModelRefusedAccount, match="LOCAL_KEY is not set"):
        await model.reply(asking("Hello"))
    assert (await model.load_card(CHAT)).window == 1_000_000
    assert await fake.requests() == []


async def test_structured_output_is_given_up_where_the_schema_is_refused(
    fake: RunningFake, opened: Opener, wire: str
) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    name = {"messages": "output_config", "openai": "response_format", "responses": "text"}[wire]
    await script(fake, {"status": 400, "message": f"{name}.format.schema: additionalProperties"})
    await opened().reply(asking("Sum up", json_schema=schema))
    first, second = [record["body"] for record in await fake.requests()]
    assert name in first
    assert name not in second


async def test_the_window_is_the_providers_own_and_the_table_stands_in(
    fake: RunningFake, opened: Opener
) -> None:
    await fake.set_window(CHAT, 300_000)
    assert (await opened().load_card(CHAT)).window == 300_000
    assert (await opened(name="claude-opus-4-6").load_card("claude-opus-4-6")).window == 1_000_000
    unknown = await opened(name="nobodys-model").load_card("nobodys-model")
    assert (unknown.window, unknown.window_known) == (8_192, False)


async def test_a_window_is_asked_once_a_day(fake: RunningFake, wired: Server) -> None:
    clock = HandClock()
    provider = wired.provider(api_key="good-key", clock=clock)
    model = RemoteModel(wired.entry(), provider, WordCounter())
    await fake.set_window(CHAT, 300_000)
    assert (await model.load_card(CHAT)).window == 300_000
    await fake.set_window(CHAT, 400_000)
    assert (await model.load_card(CHAT)).window == 300_000
    clock.now += 25 * 3_600
    assert (await model.load_card(CHAT)).window == 400_000


async def test_what_the_list_said_stands_while_it_does_not_answer(wired: Server) -> None:
    clock = HandClock()
    async with running_fake(wire=wired.wire) as fake:
        provider = wired.provider(base_url=fake.base_url, api_key="key", clock=clock)
        model = RemoteModel(wired.entry(), provider, WordCounter(), patience=impatient())
        await fake.set_window(CHAT, 300_000)
        assert (await model.load_card(CHAT)).window == 300_000
    clock.now += 25 * 3_600
    assert (await model.load_card(CHAT)).window == 300_000
    await model.close()


async def test_a_limit_named_in_refusals_of_several_conversations_holds_for_minutes(
    fake: RunningFake, wired: Server
) -> None:
    clock = HandClock()
    provider = wired.provider(api_key="key", clock=clock)
    model = RemoteModel(wired.entry(), provider, WordCounter(), patience=impatient())
    assert (await model.load_card(CHAT)).window == 1_000_000
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    await script(fake, {"status": 400, "message": message}, times=2)
    windows = []
    for conversation in (1, 2):
        with pytest.raises(PromptTooLong):
            await model.reply(asking("Hi", model=CHAT, about=(conversation, 1)))
        windows.append((await model.load_card(CHAT)).window)
    assert windows == [1_000_000, 200_000]
    assert model.find_narrowed_window() == NarrowedWindow(
        provider="127.0.0.1", model=CHAT, window=200_000, expected=1_000_000, sessions=(2, 1)
    )
    clock.now += 1_800
    assert (await model.load_card(CHAT)).window == 1_000_000
    await model.close()


async def test_a_number_too_small_for_a_window_is_not_taken_for_one(fake: RunningFake, wired: Server) -> None:
    model = RemoteModel(wired.entry(), wired.provider(api_key="key"), WordCounter())
    await script(fake, {"status": 400, "message": "prompt is too long: 9 tokens > 8 maximum"})
    with pytest.raises(PromptTooLong):
        await model.reply(asking("Hi", model=CHAT))
    assert (await model.load_card(CHAT)).window == 1_000_000
    await model.close()


@pytest.mark.usefixtures("only_messages")
async def test_hour_cache_is_counted_separately(fake: RunningFake, opened: Opener) -> None:
    system = (SystemPart(text="word " * 2_000, cache=True),)
    reply = await opened().reply(asking("Hi", model=CHAT, system=system, cache_long=True))
    assert reply.usage.cache_hour_tokens == reply.usage.cache_write_tokens > 1_000
    short = await opened().reply(
        asking("Hi", model=CHAT, system=(SystemPart(text="w " * 4_000, cache=True),))
    )
    assert short.usage.cache_write_tokens > 1_000
    assert short.usage.cache_hour_tokens == 0


@pytest.mark.usefixtures("only_messages")
async def test_the_providers_count_is_used_where_there_is_one(fake: RunningFake, opened: Opener) -> None:
    request = asking("How many?", tools=(SAVE,))
    counted = await opened().count_tokens(request)
    usage = (await opened().reply(request)).usage
    assert counted == usage.context_tokens - usage.output_tokens
    assert await opened(capabilities=frozenset({"tools"})).count_tokens(request) is None
    await script(fake, {"status": 503})
    await fake.script([{"match": {"kind": "count_tokens"}, "action": {"status": 503}}])
    assert await opened().count_tokens(request) is None


async def test_the_fake_finds_nothing_to_warn_about(fake: RunningFake, opened: Opener) -> None:
    talk = ("one", text_message("assistant", "two"), "three")
    await opened().reply(asking(*talk, system=(SystemPart(text="Be kind.", cache=True),), cache_at=(0, 2)))
    assert await fake.warnings() == []


async def test_a_hundred_turns_leave_no_connection_behind(fake: RunningFake, opened: Opener) -> None:
    await script(fake, {"text": "Yes."}, times=-1)
    model = opened()
    async with asyncio.timeout(30):
        for _ in range(5):
            await asyncio.gather(*(model.reply(asking("Hello")) for _ in range(20)))
    with contextlib.suppress(ModelUnavailable):
        await script(fake, {"text": LONG, "cut": 1}, times=2)
        await model.reply(asking("Hello"))
    assert (await model.reply(asking("Hello"))).stop_reason == "end_turn"


async def test_an_answer_without_an_end_is_given_up(
    fake: RunningFake, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MOST_CHARS", 500)
    await script(fake, {"text": "on and on " * 200}, times=-1)
    with pytest.raises(ModelAnswerUnusable, match="no end") as caught:
        await opened().reply(asking("Hi"))
    assert len(caught.value.aborted) == 1, "the attempt is paid for, and not repeated"


async def test_list_that_narrows_a_window_is_reread_within_a_minute(fake: RunningFake, wired: Server) -> None:
    clock = HandClock()
    provider = wired.provider(api_key="key", clock=clock)
    model = RemoteModel(wired.entry(), provider, WordCounter(), patience=impatient())
    assert (await model.load_card(CHAT)).window == 1_000_000
    clock.now += 25 * 3_600
    await fake.set_window(CHAT, 3_000)
    assert (await model.load_card(CHAT)).window == 3_000
    await fake.set_window(CHAT, 1_000_000)
    clock.now += 59
    assert (await model.load_card(CHAT)).window == 3_000
    clock.now += 2
    assert (await model.load_card(CHAT)).window == 1_000_000
    await model.close()
