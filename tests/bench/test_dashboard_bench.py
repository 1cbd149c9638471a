"""The bench of the dashboard reads every page, on a small scale; how fast it is, is nobody's test."""

from __future__ import annotations

import pytest

from tests.bench.dashboard import as_table, measure, place_of
from tests.kit.temp_folders import short_folder


@pytest.mark.night
async def test_the_bench_reads_every_kind_of_page_of_both_databases() -> None:
    folder = short_folder("evb-")
    try:
        with place_of(folder) as place:
            found = await measure(place, sessions=300, entries=400, rounds=1, rows=200)
    finally:
        folder.rmdir()
    pages = found["pages"]
    assert {"first_page", "far_page", "search_name", "session_page", "long_session_messages"} <= pages.keys()
    assert all(page["many_ms"] > 0 for page in pages.values())
    assert found["sheet_rows_per_second"] > 0
    assert "worst_ratio" in as_table(found)
