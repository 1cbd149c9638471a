"""The scale of a session learns how its model counts each kind of text."""

from __future__ import annotations

import json

import pytest

from shared.core.values.token_scale import (
    KINDS,
    Estimates,
    TokenScale,
    assume_scale,
    learn_from_call,
    learn_from_foreseen,
    scale_from_json,
)

TRUE = {"steady": 0.8, "notes": 0.9, "summary": 1.0, "talk": 1.2, "passing": 1.1}
MODEL = "house-model"


def request(talk: int, *, passing: int, summary: int = 0, notes: int = 0) -> Estimates:
    return {"steady": 1_900, "notes": notes, "summary": summary, "talk": talk, "passing": passing}


def count(estimates: Estimates) -> int:
    return round(sum(TRUE[kind] * tokens for kind, tokens in estimates.items()))


def cycle(scale: TokenScale, *, epoch: int, summary: int, notes: int = 0, turns: int = 20) -> TokenScale:
    for turn in range(turns):
        whole = request(
            200 + 150 * turn, passing=60 + 90 * (turn % 4), summary=summary, notes=notes * bool(summary)
        )
        scale = learn_from_call(
            scale, whole, counted=count(whole), epoch=epoch, answer=100, answered=round(100 * TRUE["talk"])
        )
    return scale


def test_scale_tells_kinds_apart_after_three_summaries() -> None:
    scale = assume_scale(MODEL, 1.43)
    for epoch, summary in enumerate((0, 250, 400, 320)):
        scale = cycle(scale, epoch=epoch, summary=summary, notes=40 * epoch)
    shorter = request(600, passing=0, summary=300, notes=150)
    assert scale.size(shorter) == pytest.approx(count(shorter), rel=0.01)
    assert scale.ratio("passing") == pytest.approx(TRUE["passing"], rel=0.03)


def test_scale_takes_the_count_that_a_provider_tells_apart() -> None:
    whole = request(300, passing=400)
    scale = learn_from_call(assume_scale(MODEL, 1.43), whole, counted=count(whole), epoch=0, passed=440)
    assert scale.ratio("passing") == pytest.approx(1.1, rel=0.01)


def test_steady_ratio_survives_many_summaries() -> None:
    scale = cycle(assume_scale(MODEL, 1.43), epoch=0, summary=0)
    for epoch in range(1, 30):
        scale = cycle(scale, epoch=epoch, summary=200 + 40 * (epoch % 3), notes=10 * epoch, turns=4)
    assert scale.ratio("steady") == pytest.approx(TRUE["steady"], rel=0.01)


def test_first_call_after_a_summary_teaches_notes_and_summary() -> None:
    scale = cycle(assume_scale(MODEL, 1.43), epoch=0, summary=0)
    kept = 431  # messages that are counted at another ratio than the usual one
    for epoch in (1, 2, 3):
        whole = request(350, passing=120, summary=150 + 30 * epoch, notes=60 * epoch)
        before = {**whole, "talk": 0, "passing": 0}
        foreseen = scale.size(before) + kept
        counted = count({**whole, "talk": 20}) + kept
        scale = learn_from_call(
            scale, whole, counted=counted, epoch=epoch, foreseen=foreseen, added=20, passed=None
        )
    later = request(0, passing=0, summary=250, notes=200)
    shown = scale.size(later) + kept
    assert shown == pytest.approx(count(later) + kept, rel=0.01)


def test_facts_of_the_program_are_sized_like_its_prompt() -> None:
    scale, facts = assume_scale(MODEL, 1.43), 40
    for talk in (30, 200, 400):
        whole = {**request(talk, passing=0), "steady": 1_900 + facts}
        scale = learn_from_call(
            scale, whole, counted=count(whole), epoch=0, passes={"steady": facts, "passing": 0}
        )
    assert scale.size({"steady": facts, "passing": 0}) == pytest.approx(TRUE["steady"] * facts, abs=2)


def test_count_of_a_foreseen_request_is_learned_before_the_next_call() -> None:
    scale = cycle(assume_scale(MODEL, 1.43), epoch=0, summary=0)
    ahead = request(300, passing=0, summary=220, notes=160)
    counted = count(ahead) - 120  # summaries and notes of few tokens
    learned = learn_from_foreseen(scale, ahead, counted=counted, kept=360, epoch=1)
    assert abs(scale.size(ahead) - counted) > 0.04 * counted
    assert learned.size(ahead) == pytest.approx(counted, rel=0.01)
    assert (learned.epoch, learned.last[0]) == (1, counted)


def test_scale_of_another_model_is_not_used() -> None:
    stored = json.loads(json.dumps(cycle(assume_scale(MODEL, 1.43), epoch=0, summary=0).to_json()))
    assert scale_from_json(stored, MODEL, ratio=1.0).ratios == pytest.approx(stored["ratios"])
    assert scale_from_json(stored, "other", ratio=1.0) == assume_scale("other", 1.0)


def test_scale_is_read_from_half_of_its_covariances_and_from_all() -> None:
    scale = cycle(assume_scale(MODEL, 1.43), epoch=0, summary=0)
    stored = scale.to_json()
    assert len(stored["spread"]) == 15
    for form in (stored, stored | {"spread": list(scale.spread)}):
        found = scale_from_json(form, MODEL, ratio=1.0)
        assert found.spread == pytest.approx(scale.spread, abs=1e-8)


@pytest.mark.parametrize("found", [None, {}, {"model": MODEL}, {"model": MODEL, "ratios": [1], "spread": []}])
def test_scale_begins_afresh_without_usable_numbers(found: dict[str, object] | None) -> None:
    assert scale_from_json(found, MODEL, ratio=1.3) == assume_scale(MODEL, 1.3)


def test_scale_stays_within_bounds_whatever_a_provider_reports() -> None:
    scale = assume_scale(MODEL, 1.0)
    for counted in (0, 10**9, 1, 10**7):
        scale = learn_from_call(scale, request(500, passing=40), counted=counted, epoch=counted)
    assert all(0.3 <= scale.ratio(kind) <= 4.0 for kind in KINDS)
