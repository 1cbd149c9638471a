"""Every table and every column that can hold words is erased, or kept for a written reason."""

from __future__ import annotations

import pytest
from sqlalchemy import ARRAY, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import SQLModel

import shared.adapters.postgres.schema.tables  # noqa: F401  the tables register themselves
from shared.adapters.postgres.privacy.erasure_map import ACTIONS, Blank, Delete, Keep, Special
from shared.adapters.postgres.privacy.retention import RULES

TABLES = sorted(SQLModel.metadata.tables)


def wordy(table: Table) -> set[str]:
    return {
        column.name for column in table.columns if isinstance(column.type, Text | JSONB | LargeBinary | ARRAY)
    }


@pytest.mark.control("S40")
def test_the_map_names_the_tables_of_the_schema() -> None:
    assert sorted(ACTIONS) == TABLES


@pytest.mark.control("S40")
@pytest.mark.parametrize("name", TABLES)
def test_every_column_that_can_hold_words_is_decided_upon(name: str) -> None:
    action = ACTIONS[name]
    match action:
        case Delete():
            return
        case Keep(why=why):
            assert why
        case Blank(values=values, kept=kept):
            assert set(values) | set(kept) == wordy(SQLModel.metadata.tables[name])
            assert all(kept.values())
        case Special(columns=columns, kept=kept):
            assert set(columns) | set(kept) == wordy(SQLModel.metadata.tables[name])


@pytest.mark.control("S40")
@pytest.mark.parametrize("name", TABLES)
def test_rows_with_an_owner_are_never_kept_without_saying_why(name: str) -> None:
    owned = {"session_id", "party_id"} & set(SQLModel.metadata.tables[name].columns.keys())
    action = ACTIONS[name]
    if owned and isinstance(action, Keep):
        assert action.why, name


def test_every_table_has_a_retention() -> None:
    assert sorted(RULES) == TABLES
