"""Who answers for which model name, with whose key, and who steps in."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.models import ModelEntry, Models, open_models
from shared.adapters.models.offline import OFFLINE_MODEL
from shared.adapters.models.provider import ANTHROPIC_URL
from shared.core.values.errors import ModelRefusedAccount
from shared.ports import Prices
from tests.kit.fakes.messages_api import RunningFake, running_fake
from tests.kit.model_makers import WordCounter, asking, impatient

Json = dict[str, Any]


def models(*entries: ModelEntry, **settings: Any) -> Models:
    usual: Json = {"api_key": None, "base_url": None, "environ": {}, "patience": impatient()}
    usual |= {"offline_piece_seconds": 0.0, **settings}
    return open_models(entries=entries, counter=WordCounter(), **usual)


def test_without_key_and_entries_the_demo_answers() -> None:
    made = models()
    assert (made.chat, made.summary, made.offline) == (OFFLINE_MODEL, OFFLINE_MODEL, True)


def test_with_a_key_the_provider_answers_and_a_small_model_sums_up() -> None:
    made = models(api_key="key")
    assert (made.chat, made.summary, made.offline) == ("claude-sonnet-5-5", "claude-haiku-5-5", False)


def test_wishes_are_followed() -> None:
    made = models(api_key="key", chat_model="claude-opus-5-5", summary_model="claude-sonnet-5-5")
    assert (made.chat, made.summary) == ("claude-opus-5-5", "claude-sonnet-5-5")
    assert models(api_key="key", chat_model=OFFLINE_MODEL).summary == OFFLINE_MODEL


def test_without_a_key_the_first_entry_answers_and_sums_up() -> None:
    made = models(ModelEntry(name="local", base_url="http://127.0.0.1:11434"))
    assert (made.chat, made.summary) == ("local", "local")


async def test_an_openai_key_and_a_name_are_enough() -> None:
    async with running_fake(wire="openai") as server:
        made = models(openai_key="key", openai_url=server.base_url, chat_model="claude-haiku-5-5")
        assert (made.chat, made.summary, made.remarks) == ("claude-haiku-5-5", "claude-haiku-5-5", ())
        assert (await made.reply(asking("Hello"))).stop_reason == "end_turn"
        assert (await made.load_card("claude-haiku-5-5")).prices is None, "who serves it says what it costs"
        await made.close()
        assert [one["path"] for one in await server.requests()] == ["/v1/chat/completions"]


def test_an_openai_key_without_a_name_says_what_is_missing() -> None:
    made = models(openai_key="key")
    assert made.offline
    assert made.remarks == (
        "OPENAI_API_KEY or OPENAI_BASE_URL is set; name a model in EVERTALK_MODEL, or set ANTHROPIC_API_KEY.",
    )


def test_anthropics_key_goes_before_and_each_key_to_its_own_server() -> None:
    gpt = ModelEntry(name="gpt", wire="openai")
    made = models(gpt, api_key="key", openai_key="other", chat_model="gpt")
    assert (made.chat, made.summary) == ("gpt", "gpt"), "no small model of another account"
    hosts = {provider.host: provider._api_key for provider in made._providers}
    assert hosts == {"api.openai.com": "other"}
    made = models(gpt, api_key="key", openai_key="other")
    hosts = {provider.host: provider._api_key for provider in made._providers}
    assert hosts == {"api.openai.com": "other", "api.anthropic.com": "key"}
    assert made.chat == "claude-sonnet-5-5"


PRICED = ModelEntry(name="claude-sonnet-5-5", prices=Prices(
    input=2.0, output=10.0, cache_read=0.1, cache_write=2.5, dated="2026-11"
))  # fmt: skip
SMALL = ModelEntry(name="claude-haiku-5-5")
OWN: Json = {"base_url": "https://models.example.org", "key_env": "OWN_KEY"}
"""An account of one's own."""


@pytest.mark.parametrize(
    ("entries", "settings", "chosen"),
    [
        # an entry for the price of the chat model says nothing about who sums up
        ((PRICED,), {}, ("claude-sonnet-5-5", "claude-haiku-5-5")),
        ((PRICED, SMALL), {}, ("claude-sonnet-5-5", "claude-haiku-5-5")),
        ((PRICED,), {"chat_model": "claude-sonnet-5-5"}, ("claude-sonnet-5-5", "claude-haiku-5-5")),
        ((PRICED,), {"base_url": "http://gateway"}, ("claude-sonnet-5-5", "claude-haiku-5-5")),
        ((ModelEntry(name="good", model="claude-opus-5-5"),), {"chat_model": "good"},
         ("good", "claude-haiku-5-5")),
        ((PRICED, ModelEntry(name="tiny", model="claude-haiku-5-5")), {}, ("claude-sonnet-5-5", "tiny")),
        # another account: the small model there, if it is named, else the model itself
        ((ModelEntry(name="a", **OWN), ModelEntry(name="claude-haiku-5-5", **OWN)), {"chat_model": "a"},
         ("a", "claude-haiku-5-5")),
        ((ModelEntry(name="a", **OWN), SMALL), {"chat_model": "a"}, ("a", "a")),
        ((ModelEntry(name="local", base_url="http://127.0.0.1:11434"),), {"chat_model": "local"},
         ("local", "local")),
        ((), {"base_url": "http://gateway", "chat_model": "qwen3:8b"}, ("qwen3:8b", "qwen3:8b")),
        ((PRICED,), {"summary_model": "claude-opus-5-5"}, ("claude-sonnet-5-5", "claude-opus-5-5")),
    ],
)  # fmt: skip
def test_the_small_model_of_the_same_account_sums_up(
    entries: tuple[ModelEntry, ...], settings: Json, chosen: tuple[str, str]
) -> None:
    made = models(*entries, **{"api_key": "key", "environ": {"OWN_KEY": "own"}, **settings})
    assert (made.chat, made.summary) == chosen
    told = f"{made.chat} writes its own summaries; EVERTALK_SUMMARY_MODEL can name a cheaper model."
    assert made.remarks == ((told,) if made.chat == made.summary else ())


async def test_a_list_of_models_says_which_there_are(fake: RunningFake) -> None:
    made = models(ModelEntry(name="gone"), api_key="good-key", base_url=fake.base_url)
    assert await made.is_listed("claude-haiku-5-5") is True
    assert await made.is_listed("gone") is False
    assert await made.is_listed(OFFLINE_MODEL) is None
    await made.close()


def test_unservable_model_is_reported_and_not_used() -> None:
    made = models(chat_model="claude-sonnet-5-5")
    assert made.offline
    assert made.remarks == ("The model claude-sonnet-5-5 has no key (ANTHROPIC_API_KEY) and is not used.",)


def test_an_address_without_a_model_to_ask_for_is_said() -> None:
    made = models(base_url="http://127.0.0.1:11434")
    assert made.offline
    assert "EVERTALK_MODEL" in made.remarks[0]
    assert models(base_url="http://127.0.0.1:11434", chat_model="qwen3:8b").remarks == ()


def test_a_fallback_that_is_not_configured_is_said() -> None:
    made = models(ModelEntry(name="a", base_url="http://x", fallbacks=("b",)))
    assert made.remarks == ("The model a falls back to b, which is not configured.",)


async def test_unknown_model_name_is_refused_and_its_card_is_flagged() -> None:
    made = models()
    card = await made.load_card("somebodys-model")
    assert (card.window, card.window_known, card.prices) == (8_192, False, None)
    assert (await made.load_card("claude-haiku-5-5")).window == 1_000_000
    with pytest.raises(ModelRefusedAccount, match="no provider is configured"):
        await made.reply(asking("Hi", model="somebodys-model"))
    assert await made.count_tokens(asking("Hi", model="somebodys-model")) is None


async def test_the_demo_is_always_there_by_name() -> None:
    made = models(api_key="key")
    reply = await made.reply(asking("Hi", model=OFFLINE_MODEL))
    assert reply.model == OFFLINE_MODEL


async def test_the_usual_key_goes_to_the_usual_server_alone(fake: RunningFake) -> None:
    """The fake refuses a wrong key; the entry's own server must get its own key, or none."""
    own = ModelEntry(name="claude-haiku-4-5", base_url=fake.base_url, key_env="OWN_KEY")
    made = models(own, api_key="bad-key", base_url="http://127.0.0.1:9", environ={"OWN_KEY": "good-key"})
    assert (await made.reply(asking("Hi", model="claude-haiku-4-5"))).stop_reason == "end_turn"
    await made.close()
    bare = models(ModelEntry(name="claude-haiku-4-5", base_url=fake.base_url), api_key="bad-key")
    assert (await bare.reply(asking("Hi", model="claude-haiku-4-5"))).stop_reason == "end_turn"
    await bare.close()


async def test_an_entry_whose_key_is_missing_is_said_and_refused(fake: RunningFake) -> None:
    made = models(ModelEntry(name="m", base_url=fake.base_url, key_env="OWN_KEY"))
    assert "OWN_KEY is not set" in made.remarks[0]
    with pytest.raises(ModelRefusedAccount, match="OWN_KEY"):
        await made.reply(asking("Hi", model="m"))
    assert await fake.requests() == []


async def test_an_entry_is_asked_under_its_providers_name_and_answers_under_ours(fake: RunningFake) -> None:
    entry = ModelEntry(name="fast", model="claude-haiku-5-5")
    made = models(entry, api_key="good-key", base_url=fake.base_url)
    reply = await made.reply(asking("Hi", model="fast"))
    assert reply.model == "fast"
    assert (await fake.requests())[0]["model"] == "claude-haiku-5-5"
    assert (await made.load_card("fast")).name == "fast"
    await made.close()


async def test_any_name_is_tried_at_the_usual_server(fake: RunningFake) -> None:
    made = models(api_key="good-key", base_url=fake.base_url)
    assert (await made.reply(asking("Hi", model="claude-opus-5-5"))).model == "claude-opus-5-5"
    await made.close()


def test_each_model_knows_who_answers_while_it_cannot() -> None:
    entries = ModelEntry(name="a", fallbacks=("b", "claude-haiku-5-5")), ModelEntry(name="b")
    made = models(*entries, api_key="key", fallback_models=("b", "c"))
    assert made.fallbacks("a") == ("b", "claude-haiku-5-5")
    assert made.fallbacks("b") == ("c",)
    assert made.fallbacks("claude-sonnet-5-5") == ("b", "c")
    assert models(fallback_models=("b",)).fallbacks(OFFLINE_MODEL) == ()


def test_beside_anthropics_own_server_other_names_go_to_the_other_one() -> None:
    two = {"openai_key": "key", "openai_url": "http://127.0.0.1:9/v1"}
    made = models(api_key="key", **two, fallback_models=("gpt",))
    assert set(made.list_states()) == {ANTHROPIC_URL, "http://127.0.0.1:9/v1"}
    gateway = models(api_key="key", base_url="http://gateway", **two, fallback_models=("gpt",))
    assert set(gateway.list_states()) == {"http://gateway"}


async def test_models_of_one_account_share_a_breaker_that_can_be_seen(fake: RunningFake) -> None:
    made = models(api_key="good-key", base_url=fake.base_url)
    await fake.script([{"times": 1, "action": {"status": 401}}])
    with pytest.raises(ModelRefusedAccount):
        await made.reply(asking("Hi", model="claude-sonnet-5-5"))
    with pytest.raises(ModelRefusedAccount):
        await made.reply(asking("Hi", model="claude-haiku-5-5"))
    assert made.list_states()[fake.base_url].account_refused
    assert len(await fake.requests()) == 1
    await made.close()
