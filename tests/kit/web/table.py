"""The operations of REST, one row per address, with the role that may call it."""

from __future__ import annotations

from dataclasses import replace

from web.rest.arguments import arguments_of
from web.rest.operation import Operation
from web.routes import OPERATIONS


def _rows() -> tuple[Operation, ...]:
    found: dict[tuple[str, str], Operation] = {}
    for one in OPERATIONS:
        if one.group:
            known = found.setdefault((one.method, one.path), one)
            found[one.method, one.path] = replace(known, role=known.role or one.role)
    return tuple(found.values())


ROWS = _rows()
"""Operations by address.

An address with one handler for its visitor and another for operators has one row for both.
"""


def takes_body(one: Operation) -> bool:
    return one.takes != "application/json" or any(each.place == "body" for each in arguments_of(one))
