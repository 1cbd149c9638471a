"""Names of tests read as a list of what Evertalk promises."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
MOST_WORDS = 12
"""Words of a name after `test_`; ten are enough for nearly all."""
RIDDLES = re.compile(
    r"_(nobody|somebody|whoever|anew|told|theirs|of_what|what_nobody|all_the_same|once_more|by_itself)(_|$)"
)
"""Words that leave out who does what, or that mean something else in plain English."""


def test_test_names_are_short_and_name_their_actor() -> None:
    names = [
        (path.relative_to(TESTS).as_posix(), node.name)
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert len(names) > 5_000
    wrong = [where for where in names if RIDDLES.search(where[1]) or where[1].count("_") > MOST_WORDS]
    assert wrong == [], "call a test test_<subject>_<behaviour>[_when_<condition>]"
