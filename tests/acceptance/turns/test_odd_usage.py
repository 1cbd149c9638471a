"""Usage that a provider leaves out, counts too low or too high: the cap holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models.token_cap import find_output_weight
from shared.adapters.models.token_counter import VocabularyCounter
from shared.diagnostics.local_checks import check_prices
from tests.kit.app_driver import running_app, settings_for, visit
from tests.kit.dialects.guest import guest_of
from tests.kit.dialects.server import Answer, completion, dialect_server, events

TEXT = "The shop opens at nine, and on Sundays at ten. " * 20
RUSSIAN = "Магазин открывается в девять, а по воскресеньям в десять часов. " * 20
CHINESE = "商店九点开门，星期天十点开门。灯塔看守人在九点记录天气，晚上再记录一次。" * 12
ARABIC = "يفتح المتجر في الساعة التاسعة وفي أيام الأحد في الساعة العاشرة صباحا. " * 11
QUESTIONS = {
    TEXT: "When does it open, number {}?",
    RUSSIAN: "Когда он открывается, номер {}?",
    CHINESE: "它什么时候开门，第{}个？",
    ARABIC: "متى يفتح المتجر، رقم {}؟",
}
SCRIPTS = {"Cyrillic": RUSSIAN, "Chinese": CHINESE, "Arabic": ARABIC}
INPUT_PRICE, OUTPUT_PRICE = 10, 40
CAP_MICRO = 400_000
COUNT = VocabularyCounter().count_tokens
REPORTS: dict[str, Callable[[int, int], Any]] = {
    "right": lambda read, said: counts(read, said),
    "none": lambda read, said: None,
    "zeros": lambda read, said: counts(0, 0),
    "a tenth": lambda read, said: counts(read // 10, said // 10),
    "half": lambda read, said: counts(read // 2, said // 2),
    "half of the output": lambda read, said: counts(read, said // 2),
    "a tenth less": lambda read, said: counts(read * 9 // 10, said * 9 // 10),
    "12 % more": lambda read, said: counts(read * 112 // 100, said * 112 // 100),
    "50 % more": lambda read, said: counts(read * 150 // 100, said * 150 // 100),
    "negative": lambda read, said: counts(-5, -5),
    "absurd": lambda read, said: counts(10**15, 10**15),
    "output left out": lambda read, said: {"prompt_tokens": read},
}  # fmt: skip
BELIEVED = {"right", "a tenth less", "12 % more", "50 % more"}
"""Reports that may be right: vocabularies differ by more."""


def counts(read: int, said: int) -> dict[str, Any]:
    return {"prompt_tokens": read, "completion_tokens": said}


BY_DAY = {"Latin": {"right", "none", "half", "half of the output", "50 % more", "absurd"}}
"""Reports by script that are tried by day; in other scripts `half` alone, where the most is overbooked."""


def list_cases() -> list[Any]:
    """Return each report in each script."""
    return [
        pytest.param(
            name, text, id=f"{name}-{script}",
            marks=[] if name in BY_DAY.get(script, {"half"}) else [pytest.mark.night],
        )
        for script, text in {"Latin": TEXT, **SCRIPTS}.items()
        for name in REPORTS
    ]  # fmt: skip


def count_request(body: Any) -> int:
    """Return the tokens of a request as its server should count them."""
    texts = [str(message["content"]) for message in body["messages"]]
    return COUNT("\n".join((*texts, json.dumps(body.get("tools", [])))))


@pytest.mark.parametrize(("name", "text"), list_cases())
async def test_cap_closes_whatever_a_provider_reports(
    database_url: str, redis_url: str, tmp_path: Path, name: str, text: str
) -> None:
    paid = 0

    def reply(body: Any) -> Answer:
        nonlocal paid
        read, said = count_request(body), COUNT(text)
        usage = REPORTS[name](read, said)
        factor = {"12 % more": 1.12, "50 % more": 1.5}.get(name, 1)
        paid += round(factor * (read * INPUT_PRICE + said * OUTPUT_PRICE))
        end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
        return Answer(body=events({"choices": [{"delta": {"content": text}}]}, end))

    async with dialect_server(reply) as server:
        models = tmp_path / "models.json"
        entry = {
            "name": "odd", "wire": "openai", "base_url": server.url, "window": 100_000, "max_output": 640,
            "prices": {"input": INPUT_PRICE, "output": OUTPUT_PRICE},
        }  # fmt: skip
        models.write_text(json.dumps([entry]))
        settings = settings_for(
            database_url, redis_url, models_file=models, model="odd", summary_model="odd",
            cap_total_per_day_usd=str(CAP_MICRO / 1_000_000),
        )  # fmt: skip
        async with running_app(settings) as app:
            guest = await visit(app)
            for number in range(40):
                await guest.ask(QUESTIONS[text].format(number))
            spent = await guest.one("SELECT sum(cost_micro) FROM usage")
            refused = await guest.one("SELECT count(*) FROM turns WHERE state = 'refused'")
            estimated = await guest.one("SELECT count(*) FROM usage WHERE NOT known")
            calls = await guest.one("SELECT count(*) FROM usage")
    assert refused > 0
    assert CAP_MICRO / 2 < spent <= 1.02 * CAP_MICRO, "within two hundredths above the cap"
    assert paid <= 1.02 * CAP_MICRO / (0.9 if name == "a tenth less" else 1), "what the provider charges"
    assert estimated == (0 if name in BELIEVED else calls)


@pytest.mark.parametrize("name", ["right", "none", "half"])
async def test_token_cap_closes_for_a_model_without_a_price(
    database_url: str, redis_url: str, tmp_path: Path, name: str
) -> None:
    sent = 0

    def reply(body: Any) -> Answer:
        nonlocal sent
        read, said = count_request(body), COUNT(TEXT)
        sent += read + find_output_weight() * said
        end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": REPORTS[name](read, said)}
        return Answer(body=events({"choices": [{"delta": {"content": TEXT}}]}, end))

    async with dialect_server(reply) as server:
        models = tmp_path / "models.json"
        entry = {"name": "odd", "wire": "openai", "base_url": server.url, "window": 100_000}
        models.write_text(json.dumps([{**entry, "max_output": 640}]))
        settings = settings_for(
            database_url, redis_url, models_file=models, model="odd", summary_model="odd",
            cap_tokens_per_day=60_000,
        )  # fmt: skip
        async with running_app(settings) as app:
            guest = await visit(app)
            for number in range(40):
                await guest.ask(QUESTIONS[TEXT].format(number))
            refused = await guest.one("SELECT count(*) FROM turns WHERE state = 'refused'")
            priced = await guest.one("SELECT count(*) FROM usage WHERE cost_micro IS NOT NULL")
            calls = len(server.requests)
            findings = await check_prices(settings)
            assert await guest.one("SELECT count(*) FROM turns WHERE error_code = 'cap_reached'") == refused
    assert (refused > 0, priced) == (True, 0)
    assert 30_000 < sent <= 1.02 * 60_000, calls
    assert [(one.level, "odd" in one.what) for one in findings] == [("warn", True)]


async def test_two_processes_share_the_token_cap_while_calls_run(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    sent = 0
    said = TEXT * 8

    def reply(body: Any) -> Answer:
        nonlocal sent
        sent += count_request(body) + find_output_weight() * COUNT(said)
        chunk = events({"choices": [{"delta": {"content": said}, "finish_reason": "stop"}]})
        return Answer(chunks=[chunk], pause_seconds=1.0)

    async with dialect_server(reply) as server:
        models = tmp_path / "models.json"
        entry = {"name": "odd", "wire": "openai", "base_url": server.url, "window": 100_000}
        models.write_text(json.dumps([{**entry, "max_output": 2_400}]))
        settings = settings_for(
            database_url, redis_url, models_file=models, model="odd", summary_model="odd",
            cap_tokens_per_day=60_000,
        )  # fmt: skip
        async with running_app(settings) as one, running_app(settings) as other:
            guests = [await visit(app) for app in (one, other) for _ in range(6)]
            await asyncio.gather(*(guest.ask("When does it open?") for guest in guests))
            refused = await guests[0].one("SELECT count(*) FROM turns WHERE error_code = 'cap_reached'")
            held = await guests[0].one("SELECT reserved_micro FROM spend_days WHERE scope = 'tokens'")
    assert 30_000 < sent <= 1.02 * 60_000
    assert refused == len(guests) - len(server.requests) > 0
    assert held == 0


async def test_default_token_cap_comes_from_the_dollar_cap(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with guest_of(
        database_url,
        redis_url,
        tmp_path,
        lambda _: completion(),
        prices=None,
        cap_total_per_day_usd="0.000001",
    ) as (guest, server):
        assert "spending limit" in await guest.ask("When does it open?")
        assert server.requests == []
