"""The bench of the meter runs on every kind of text, and on an operator's own."""

from __future__ import annotations

from pathlib import Path

from tests.bench.meter import as_table, run


def test_the_bench_measures_eleven_kinds_of_text() -> None:
    found = run(turns=4, seed=3, path=None, only_offline=False)
    assert len(found["kinds"]) == 11
    assert {"online_mean_pct", "online_p99_pct", "offline_mean_pct"} <= found["aims"].keys()
    assert "emoji" in as_table(found)


def test_an_operators_own_texts_can_be_measured(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("Dear Ann,\n\nthe boat is mended.\n\nYours")
    found = run(turns=3, seed=3, path=tmp_path, only_offline=True)
    assert list(found["kinds"]) == ["letters.txt"]
    assert "online_mean_pct" not in found
