"""Finds the test files that prove a row of a table, from their sources, without importing them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]


def marked(name: str, folder: Path = HERE) -> Mapping[str, set[Path]]:
    """Return, by number such as F09, the test files with a `pytest.mark.<name>` of that number."""
    found = defaultdict[str, set[Path]](set)
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"mark.{name}(" in text:
            for number in _numbers(ast.parse(text), name):
                found[number].add(path)
    return found


def _numbers(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_mark(node.func, name):
            for argument in node.args:
                assert isinstance(argument, ast.Constant), (
                    f"line {node.lineno}: say the number in so many words"
                )
                yield str(argument.value)


def _is_mark(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )
