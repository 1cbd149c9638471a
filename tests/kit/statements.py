"""Statements of the stores, for tests that ask PostgreSQL about each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import shared.adapters.postgres
from shared.adapters.postgres.db.pool import Named


def list_statements(value: object) -> Iterator[Named]:
    """Yield a statement, or those in a table of statements."""
    if isinstance(value, Named):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from list_statements(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from list_statements(one)


def find_statements() -> dict[str, Named]:
    """Return the statements of all modules of the stores, by module, name and number in a table."""
    package = shared.adapters.postgres
    found = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for number, statement in enumerate(list_statements(value)):
                found[f"{module.name}.{name}[{number}]"] = statement
    return found
