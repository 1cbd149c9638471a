"""Messages of the compaction hook: bodies of numbers and ids, answers that count, and the end of a delay."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shared.core.compaction.hooks import render_hook_body, wants_skip
from shared.core.compaction.jobs import backoff_from_now, next_job
from shared.core.compaction.outlook import foresee_summary
from shared.core.presets.catalog import preset
from tests.kit.builders import budget, exchanges, view
from tests.kit.builders import hook_message as build_message


def test_hook_body_has_key_session_and_numbers_at_every_attempt() -> None:
    body = render_hook_body(build_message())
    assert body == render_hook_body(build_message(attempts=5))
    assert json.loads(body) == {
        "type": "compaction.before", "id": "11111111-2222-3333-4444-555555555555",
        "created_at": "2026-05-04T12:00:00+00:00", "session": "aaaaaaaa-0000-0000-0000-000000000000",
        "job": 9, "trigger": "limit", "tokens": 30_000, "may_skip": True,
    }  # fmt: skip


def test_hook_body_has_the_summary_only_when_it_is_given() -> None:
    assert b"summary_text" not in render_hook_body(build_message(phase="after"))
    assert json.loads(render_hook_body(build_message(phase="after", summary="Anna: ok")))["summary_text"] == (
        "Anna: ok"
    )


@pytest.mark.parametrize(
    ("answer", "skips"),
    [
        (b'{"skip": true}', True),
        (b' {"skip":true, "note": "busy"}\n', True),
        (b'{"skip": false}', False),
        (b'{"skip": "true"}', False),
        (b'{"skip": 1}', False),
        (b'[{"skip": true}]', False),
        (b"true", False),
        (b"", False),
        (b'{"skip": true', False),
        (b"\xff\xfe", False),
        (b"[" * 4_096, False),
    ],
)
def test_hook_answer_skips_only_by_a_plain_true(answer: bytes, skips: bool) -> None:
    assert wants_skip(answer) is skips


STEADY = preset("steady")
TALK = view(exchanges(20, tokens=200), cycle=3)
LIMIT, HARD = budget().limit, budget().hard
DELAYED = replace(TALK, backoff=backoff_from_now(TALK, reason="hook", limit=LIMIT, model="m", turns=5))


@pytest.mark.parametrize(
    ("tokens", "turns", "kind"),
    [
        (LIMIT + 1, 0, None),
        (HARD, 0, None),
        (HARD + 1, 0, "overflow"),
        (LIMIT + 1, 4, None),
        (LIMIT + 1, 5, "limit"),
    ],
)
def test_summary_that_a_hook_delays_comes_at_the_hard_limit_or_later(
    tokens: int, turns: int, kind: str | None
) -> None:
    longer = replace(DELAYED, entries=tuple(exchanges(20 + turns, tokens=200)), flushed_turn=20 + turns)
    job = next_job(longer, budget=budget(), policy=STEADY, context_tokens=tokens, model="m")
    found = job.trigger if job is not None and job.kind == "compact" else None
    assert found == kind


@pytest.mark.parametrize(("tokens", "withheld"), [(LIMIT + 1, "hook"), (HARD, "hook"), (HARD + 1, "")])
def test_outlook_names_the_hook_until_the_hard_limit(tokens: int, withheld: str) -> None:
    found = foresee_summary(
        DELAYED, budget=budget(), policy=STEADY, model="m", context_tokens=tokens, choice=""
    )
    assert found.withheld == withheld
