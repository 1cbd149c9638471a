"""Every table and every column that can hold words is erased, or kept for a written reason."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.privacy.erasure_map import ACTIONS, Blank, Delete, Keep, Special
from shared.adapters.postgres.privacy.retention import RULES
from tests.kit.catalogue import load_columns


def wordy(columns: dict[str, str]) -> set[str]:
    return {
        name for name, kind in columns.items() if kind in ("text", "jsonb", "bytea") or kind.endswith("[]")
    }


@pytest.mark.control("S40")
async def test_the_map_names_the_tables_of_the_schema(module_database_url: str) -> None:
    assert sorted(ACTIONS) == sorted(await load_columns(module_database_url))


@pytest.mark.control("S40")
async def test_every_column_that_can_hold_words_is_decided_upon(module_database_url: str) -> None:
    tables = await load_columns(module_database_url)
    for table, action in ACTIONS.items():
        match action:
            case Delete():
                continue
            case Keep(why=why):
                assert why, table
            case Blank(values=values, kept=kept):
                assert set(values) | set(kept) == wordy(tables[table]), table
                assert all(kept.values()), table
            case Special(columns=columns, kept=kept):
                assert set(columns) | set(kept) == wordy(tables[table]), table


@pytest.mark.control("S40")
async def test_rows_with_an_owner_are_never_kept_without_saying_why(module_database_url: str) -> None:
    for table, columns in (await load_columns(module_database_url)).items():
        action = ACTIONS[table]
        if {"session_id", "contact_id"} & set(columns) and isinstance(action, Keep):
            assert action.why, table


async def test_every_table_has_a_retention(module_database_url: str) -> None:
    assert sorted(RULES) == sorted(await load_columns(module_database_url))
