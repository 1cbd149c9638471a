"""Statements whose parameters have names: `:site` becomes `$3` here, and nobody counts."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARK = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|(?<![\w:]):([a-z]\w*)")
"""What is quoted, a comment or a cast is passed over; a slice to a name is written `[1 : :most]`."""


class Named:
    """`await pool.fetch(*STATEMENT(site=…, seconds=…))`; a name that is missing or unknown is a TypeError."""

    def __init__(self, statement: str) -> None:
        self._places: dict[str, int] = {}
        self.sql = _MARK.sub(self._number, statement)

    def _number(self, found: re.Match[str]) -> str:
        name = found.group(1)
        return f"${self._places.setdefault(name, len(self._places) + 1)}" if name else found.group()

    def __call__(self, **values: object) -> tuple[str, *tuple[object, ...]]:
        if values.keys() != self._places.keys():
            raise TypeError(f"given: {sorted(values)}, wanted: {sorted(self._places)}")
        return self.sql, *(values[name] for name in self._places)


class Arguments:
    """Of a statement that is put together: each value gets the number under which it stands there."""

    def __init__(self, values: Iterable[object] = ()) -> None:
        self.values = list(values)

    def put(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}"
