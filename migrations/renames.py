"""Other names for what a database holds: each migration says which words it replaces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from alembic import op

_COLUMNS = """
SELECT format('ALTER TABLE %I RENAME COLUMN %I', c.relname, a.attname), a.attname
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attinhcount = 0
   AND NOT a.attisdropped AND a.attnum > 0
"""
"""Columns of tables and views; partitions inherit the name, and indexes follow."""
_RELATIONS = """
SELECT format('ALTER %s %I RENAME', CASE WHEN relkind = 'v' THEN 'VIEW' WHEN relkind = 'S' THEN 'SEQUENCE'
                                         WHEN relkind IN ('i', 'I') THEN 'INDEX' ELSE 'TABLE' END, relname),
       relname
  FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S', 'i', 'I')
"""
"""Tables, views, sequences and indexes; the constraint of an index takes the index's name."""
_CONSTRAINTS = """
SELECT format('ALTER TABLE %I RENAME CONSTRAINT %I', c.relname, o.conname), o.conname
  FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid
 WHERE o.connamespace = current_schema()::regnamespace AND o.coninhcount = 0
"""
_TRIGGERS = """
SELECT format('ALTER TRIGGER %I ON %I RENAME', t.tgname, c.relname), t.tgname
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal
"""
_FUNCTIONS = """
SELECT format('ALTER FUNCTION %s RENAME', oid::regprocedure), proname
  FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prokind = 'f'
"""
_NOT_NULL = """
SELECT c.relname, o.conname, a.attname FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid
  JOIN pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = o.conkey[1]
 WHERE o.connamespace = current_schema()::regnamespace AND o.contype = 'n' AND o.coninhcount = 0
"""
"""Constraints that PostgreSQL 18 names by itself after table and column."""
_DEFINITIONS = """
SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
 WHERE p.pronamespace = current_schema()::regnamespace AND l.lanname IN ('sql', 'plpgsql')
"""


def rename(names: Mapping[str, str]) -> None:
    """Rename each table, view, column, index, constraint, trigger and function that has one of these names.

    Bodies of functions use the new names afterwards. Names of not-null constraints follow table and column.
    """
    for table, constraint, column in _read(_NOT_NULL):
        if constraint == f"{table}_{column}_not_null":
            wanted = f"{names.get(table, table)}_{names.get(column, column)}_not_null"
            if wanted != constraint:
                op.execute(f'ALTER TABLE "{table}" RENAME CONSTRAINT "{constraint}" TO "{wanted}"')
    for statement in (_COLUMNS, _RELATIONS, _CONSTRAINTS, _TRIGGERS, _FUNCTIONS):
        for change, name in _read(statement):
            if name in names:
                op.execute(f'{change} TO "{names[name]}"')
    _rewrite_functions(names)


def reverse(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names that lead back."""
    return {new: old for old, new in names.items()}


def _rewrite_functions(names: Mapping[str, str]) -> None:
    """Use the new names in the bodies of all functions."""
    word = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    for (definition,) in _read(_DEFINITIONS):
        rewritten = word.sub(lambda found: names[found[1]], definition)
        if rewritten != definition:
            op.get_bind().exec_driver_sql(rewritten)


def _read(statement: str) -> Sequence[Any]:
    return op.get_bind().exec_driver_sql(statement).fetchall()
