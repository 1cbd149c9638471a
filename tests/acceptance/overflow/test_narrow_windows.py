"""A provider that calls requests too long: one slip costs nobody else anything."""

from __future__ import annotations

import asyncio

import pytest

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts, Rules
from shared.bootstrap.app import App
from shared.config.settings import load_settings
from shared.core.values.messages import text_message
from shared.diagnostics.row_checks import check_models
from shared.ports import ModelRequest
from tests.kit.app_driver import Visit, health_told, visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.messages_api.shapes import Json

NAMES = ("Ada", "Bo", "Cyd")


@pytest.fixture
async def guests(app: App) -> list[Visit]:
    return [await visit(app) for _ in NAMES]


def too_long(maximum: int, *, tokens: int = 6_100, times: int = 1, **match: str) -> Json:
    message = f"prompt is too long: {tokens} tokens > {maximum} maximum"
    rule = {"kind": "chat", **match}
    return {"match": rule, "times": times, "action": {"status": 400, "message": message}}


async def window(app: App) -> int:
    return (await app.models.load_card(app.models.chat)).window


async def states(app: App) -> list[str]:
    rows = await app.pool.fetch("SELECT state FROM turns ORDER BY opened_at, session_id")
    return [row["state"] for row in rows]


@pytest.mark.parametrize("maximum", [1_200, 3_000, 5_000])
async def test_one_refusal_takes_nothing_from_anybody_and_its_own_person_is_answered(
    app: App, guests: list[Visit], provider: RunningFake, maximum: int
) -> None:
    """Even where system and tools alone are more than the number says."""
    await provider.script([too_long(maximum, contains="Ada")])
    for guest, name in zip(guests, NAMES, strict=True):
        await guest.ask(f"Good day, I am {name}.")
    assert await states(app) == ["answered"] * 3
    assert await window(app) == 1_000_000
    bodies = [request["body"] for request in await provider.requests() if request["kind"] == "chat"]
    assert all(body["tools"] for body in bodies[-2:])
    await guests[0].ask("And now?")
    newest = (await provider.requests())[-1]["body"]
    assert newest["tools"], "the next turn of the same person has lost nothing either"


async def test_narrowed_window_is_believed_after_several_conversations_and_later_corrected(
    app: App, guests: list[Visit], provider: RunningFake, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await provider.script([too_long(40_000, contains="Ada"), too_long(40_000, contains="Bo")])
    assert await check_models(load_settings(), database_url) == []
    for guest, name in zip(guests[:2], NAMES, strict=False):
        await guest.ask(f"Good day, I am {name}.")
    assert await window(app) == 40_000
    assert "believed for this request only" in caplog.text
    assert "said several times and is believed" in caplog.text
    await health_told(app)
    (finding,) = await check_models(load_settings(), database_url)
    assert finding.level == "warn"
    assert "refuses more than 40,000 tokens for claude-sonnet-5-5; its window is 1,000,000" in finding.what
    alerts = PostgresAlerts(app.pool)
    rules = Rules(over_seconds=0.0)
    await alerts.sweep(rules, worker_id=app.worker_id, targets=["webhook"])
    detail = await guests[0].one("SELECT detail FROM alerts WHERE kind = 'window_narrowed'")
    assert detail == {
        "provider": "127.0.0.1", "model": "claude-sonnet-5-5", "window": 40_000, "expected": 1_000_000,
        "sessions": detail["sessions"],
    }  # fmt: skip
    one = "SELECT public_id::text FROM sessions WHERE id = $1"
    public_ids = [await guest.one(one, guest.session_id) for guest in guests[:2]]
    assert set(detail["sessions"].split(", ")) == set(public_ids)
    assert await alerts.claim(["webhook"], worker_id=app.worker_id) is not None
    long = ModelRequest(model=app.models.chat, system=(), messages=(text_message("user", "word " * 60_000),))
    await app.models.reply(long)
    assert await window(app) == 1_000_000
    await health_told(app)
    assert await check_models(load_settings(), database_url) == []
    await alerts.sweep(rules, worker_id=app.worker_id, targets=["webhook"])
    assert await guests[0].one("SELECT ended_at IS NOT NULL FROM alerts WHERE kind = 'window_narrowed'")


async def test_window_without_room_is_explained_in_plain_text(
    app: App, guests: list[Visit], provider: RunningFake
) -> None:
    """All of them are refused again and again: then, and only then, somebody must be told so."""
    await provider.script([too_long(1_200, times=-1)])
    words = []
    for _ in range(2):
        words += await asyncio.gather(*(guest.ask("Good day.") for guest in guests))
    assert await window(app) == 1_200
    assert len(await provider.requests()) < 30
    codes = await app.pool.fetch("SELECT DISTINCT error_code FROM turns")
    assert {row["error_code"] for row in codes} == {"context_budget_exceeded", "no_room"}
    for said in words:
        assert "contradict" not in said
        assert "_" not in said
    assert any("try again in a few minutes" in said for said in words)
