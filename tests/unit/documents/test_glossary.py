"""The glossary has each package of the product and each public value of the core, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "glossary.md"
TOPS = ("bot", "shared", "web", "worker")
_ROW = re.compile(r"^\| (`?)([^`|]+)\1 \| ([^|]+) \| (`[^|]+`) \|$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    name: str
    is_class: bool
    meaning: str
    places: tuple[str, ...]


@cache
def terms() -> tuple[Term, ...]:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = [_ROW.match(line) for line in rows[1:]]
    assert None not in found, [line for line, row in zip(rows[1:], found, strict=True) if row is None]
    return tuple(
        Term(
            name=row[2], is_class=bool(row[1]), meaning=row[3], places=tuple(re.findall(r"`([^`]+)`", row[4]))
        )
        for row in found
        if row
    )


def sources() -> Iterator[Path]:
    for top in TOPS:
        yield from sorted((ROOT / top).rglob("*.py"))


def _room(path: Path) -> str:
    return path.parent.relative_to(ROOT).as_posix()


@cache
def values_of_the_core() -> dict[str, str]:
    """Public dataclasses and enums of `shared/core` → their module's path."""
    found = {}
    for path in sorted((ROOT / "shared" / "core").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _is_value(node):
                found[node.name] = path.relative_to(ROOT).as_posix()
    return found


def _is_value(node: ast.ClassDef) -> bool:
    decorators = [ast.unparse(one).partition("(")[0] for one in node.decorator_list]
    return "dataclass" in decorators or any(ast.unparse(base).endswith("Enum") for base in node.bases)


@cache
def domain_classes() -> dict[str, str]:
    """The rule: a value of the core that a module in another folder imports by name."""
    users = defaultdict(set)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shared.core"):
                for alias in node.names:
                    users[alias.name].add(_room(path))
    return {
        name: module for name, module in values_of_the_core().items() if users[name] - {_room(ROOT / module)}
    }


def test_every_package_stands_in_the_glossary() -> None:
    packages = {_room(path) for path in sources() if path.name == "__init__.py"} - {"shared"}
    assert len(packages) > 50
    assert packages - {place for term in terms() for place in term.places} == set()


def test_every_domain_class_stands_in_the_glossary() -> None:
    listed = {term.name: term.places for term in terms() if term.is_class}
    assert len(domain_classes()) > 100
    assert set(listed) == set(domain_classes())
    for name, module in domain_classes().items():
        assert module in listed[name], f"{name} lives in {module}"


def test_every_place_exists() -> None:
    for term in terms():
        assert term.places, term.name
        for place in term.places:
            assert (ROOT / place).exists(), f"{term.name}: {place}"


def test_the_terms_are_in_alphabetical_order_and_none_stands_twice() -> None:
    names = [term.name.casefold() for term in terms()]
    assert names == sorted(names)
    assert len(names) == len(set(names))


def test_each_meaning_is_one_line_that_ends() -> None:
    assert [term.name for term in terms() if not re.fullmatch(r"\S.{10,140}\.", term.meaning)] == []
