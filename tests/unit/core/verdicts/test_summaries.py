"""Models with unusable summaries pause for their session, and for all after three sessions."""

from __future__ import annotations

from dataclasses import replace

from shared.core.session.session_state import SummaryEnd
from shared.core.verdicts.summaries import unusable_models, unusable_seconds


def ended(*unusable: str, by: str = "", age: float = 0.0) -> SummaryEnd:
    return SummaryEnd(model=by, unusable=frozenset(unusable), age_seconds=age)


def test_model_rests_after_three_consecutive_unusable_summaries() -> None:
    assert unusable_seconds([ended("small")] * 2, "small") == 0
    assert unusable_seconds([ended("small")] * 3, "small") == 900
    assert unusable_seconds([ended("small"), ended("other"), *[ended("small")] * 2], "small") == 900
    assert unusable_seconds([ended("small")] * 3, "other") == 0


def test_model_pauses_for_others_after_three_different_conversations() -> None:
    def of(session_id: int, *, own: bool = False) -> SummaryEnd:
        return replace(ended("small"), session_id=session_id, is_own=own)

    assert unusable_seconds([of(1)] * 20, "small") == 0
    assert unusable_seconds([of(1), of(2), of(1), of(2)], "small") == 0
    assert unusable_seconds([of(1), of(2), of(3)], "small") == 60
    assert unusable_seconds([of(1, own=True)] * 3, "small") == 900
    assert unusable_seconds([of(1, own=True)] * 2 + [of(2)] * 5, "small") == 0


def test_one_that_it_wrote_ends_the_row() -> None:
    written = [ended("small"), ended("small"), ended(by="small"), ended("small")]
    assert unusable_seconds(written, "small") == 0


def test_model_rest_counts_from_the_newest_and_doubles() -> None:
    assert unusable_seconds([ended("small", age=300.0), *[ended("small", age=4_000.0)] * 2], "small") == 600
    assert unusable_seconds([ended(), *[ended("small", age=900.0)] * 3], "small") == 0
    assert unusable_seconds([ended("small", age=0.0), *[ended("small", age=900.0)] * 3], "small") == 1_800
    assert unusable_seconds([ended("small")] * 40, "small") == 21_600


def test_only_answers_speak_against_a_model() -> None:
    attempts = [
        {"step": "portion", "model": "away", "fault": "model_unavailable: 529: Overloaded"},
        {"step": "portion", "model": "poor", "fault": "cap_reached: spending cap"},
        {"step": "portion", "model": "strict", "fault": "content_refused: 400"},
        {"step": "portion", "model": "small", "fault": "prompt_too_long"},
        {"step": "portion", "model": "prose", "fault": "it is no JSON"},
        {"step": "commit", "model": "long", "fault": "the summary gains too little"},
    ]
    assert unusable_models(attempts) == {"prose"}


def test_one_session_probes_a_paused_model_each_minute() -> None:
    def of(session_id: int, age: float) -> SummaryEnd:
        return replace(ended("small", age=age), session_id=session_id, is_own=False)

    failures = [of(one, 100.0 + one) for one in range(1, 9)]
    assert unusable_seconds(failures, "small") == 0, "a minute has passed"
    assert unusable_seconds([of(9, 20.0), *failures], "small") == 40, "the probe failed"
    healed = replace(ended(by="small", age=1.0), session_id=9, is_own=False)
    assert unusable_seconds([healed, *failures], "small") == 0
