"""Of eight times as many conversations each page touches as many blocks, whatever a sample says of names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.adapters.postgres.dashboard.session_list import NEAR_ROWS
from tests.bench.dashboard import House, houses, place_of, reads
from tests.bench.dashboard_blocks import PLANS, Pool, blocks_of, statements_of
from tests.kit.temp_folders import short_folder

MANY = 8000
ALLOWANCE = 260
"""Blocks of a page of 51 rows when an index leads to each of them, which of a thousand it need not."""
DEEPER = 1.5
"""Rows that lie together among a thousand are in blocks of their own among many."""
FOUND = 51 * 4
"""What leads from the index of the order to the rows that are shown."""
PIECES = 60
"""What tells that a name is a usual one, and the pages of that index."""
ONE_OF_ALL = ("search_name", "search_part_of_name", "search_id", "people_one", "notes_rare_word")
ALIKE = ("search_first_letters", "search_usual_name")
USUAL = (*ALIKE, "people_usual_name", "notes_usual_word")
INDEXES = ("contacts_by_pieces", "addresses_by_pieces", "notes_by_pieces")


@pytest.fixture(scope="module")
async def few_and_many() -> AsyncIterator[tuple[House, House]]:
    folder = short_folder("evk-")
    try:
        with place_of(folder) as place:
            async with houses(place, sessions=MANY, entries=MANY) as (few, many, _):
                yield few, many
    finally:
        folder.rmdir()


@pytest.fixture
async def many(few_and_many: tuple[House, House]) -> AsyncIterator[House]:
    """With the usual sample again afterwards."""
    yield few_and_many[1]
    await _sampled(few_and_many[1].pool, -1)


async def _sampled(pool: Pool, size: int) -> None:
    """So that the lists of usual pieces are short or long, and as sure or unsure of what is on them."""
    for index in INDEXES:
        await pool.execute(f"ALTER INDEX {index} ALTER COLUMN 1 SET STATISTICS {size}")
    await pool.execute("ANALYZE contacts, addresses, notes")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("page", list(reads()))
async def test_a_page_touches_as_many_blocks_among_many(
    few_and_many: tuple[House, House], page: str, plan: str
) -> None:
    before, after = [await blocks_of(reads()[page], house, plan=plan) for house in few_and_many]
    assert after <= before * DEEPER + ALLOWANCE


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("size", [1, 10, 1000], ids=lambda size: f"sample {size}")
async def test_no_sample_makes_a_search_dearer(many: House, size: int, plan: str) -> None:
    pages = (*ONE_OF_ALL, *USUAL)
    await _sampled(many.pool, -1)
    usually = {page: await blocks_of(reads()[page], many, plan=plan) for page in pages}
    await _sampled(many.pool, size)
    for page in pages:
        assert await blocks_of(reads()[page], many, plan=plan) <= usually[page] + ALLOWANCE, page


@pytest.mark.parametrize("plan", PLANS)
async def test_one_of_all_is_found_as_cheaply_without_any_sample(many: House, plan: str) -> None:
    await many.pool.execute(
        "DELETE FROM pg_statistic WHERE starelid = ANY ($1::text[]::regclass[])", list(INDEXES)
    )
    for page in ONE_OF_ALL:
        assert await blocks_of(reads()[page], many, plan=plan) <= ALLOWANCE, page
    for page in USUAL:
        assert await blocks_of(reads()[page], many, plan=plan) <= MANY, page


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("page", ALIKE)
async def test_person_with_a_common_name_is_found_by_index_order(many: House, page: str, plan: str) -> None:
    """Nobody is looked up who is not shown."""
    await many.pool.execute("VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) session_list")
    shown = await blocks_of(reads()["first_page"], many, plan=plan) + FOUND + PIECES
    assert await blocks_of(reads()[page], many, plan=plan) <= shown


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("page", ALIKE)
async def test_what_has_changed_since_it_was_vacuumed_is_looked_at_once(
    many: House, page: str, plan: str
) -> None:
    await many.pool.execute(
        """UPDATE session_list SET last_active_at = last_active_at + interval '1 ms'
            WHERE id IN (SELECT id FROM session_list ORDER BY last_active_at DESC LIMIT $1)""",
        NEAR_ROWS,
    )
    shown = await blocks_of(reads()["first_page"], many, plan=plan) + FOUND + PIECES
    assert await blocks_of(reads()[page], many, plan=plan) <= shown + NEAR_ROWS


@pytest.mark.parametrize("page", list(reads()))
async def test_a_page_is_one_statement_or_two(few_and_many: tuple[House, House], page: str) -> None:
    for house in few_and_many:
        assert len(await statements_of(reads()[page], house)) <= (2 if page != "overview" else 4)
