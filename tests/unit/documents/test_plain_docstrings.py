"""Docstrings and comments of modules can be understood at first reading, without the sentence before them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("bot", "shared", "web", "worker")
FIRST_WORD = re.compile(
    r"^(of|what|who|whom|whose|whoever|whatever|whichever|which|so|those|as|for (?:who|what|whom|whoever)"
    r"|behind|beside|and|else|late|since when|however|here|there|nobody|somebody|anybody|nothing|it|they|this"
    r"|these|his|their|by the)\b",
    re.IGNORECASE,
)
"""First words that are neither a verb nor a noun: the reader has to guess the subject."""
RIDDLES = re.compile(
    r"(?<!`)\b(nobody|somebody|whoever|anybody|anew|once more|all the same|by itself|by themselves"
    r"|puts? away|lets? go|let (?:in|out)|go(?:es)? on|brings? back|brought back"
    r"|of (?:theirs|ours|its own|one's own|their own)"
    r"|so (?:many|much|long|late|often|few)|(?:is|are|was|were|be|been) (?:told|well))\b(?!`)",
    re.IGNORECASE,
)
"""Wordings without an actor, a number or a plain verb."""
JSDOC = re.compile(r"/\*\*(.*?)\*/", re.DOTALL)


def list_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a Python module."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []
        texts = (each.value for each in body if isinstance(each, ast.Expr))
        for text in texts:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.lineno, " ".join(text.value.split())


def list_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and description of each JSDoc comment of a browser's module, without its tags."""
    for found in JSDOC.finditer(text):
        words = " ".join(re.sub(r"^\s*\*", "", found[1], flags=re.MULTILINE).split())
        description = words.split(" @")[0].strip()
        if description and not description.startswith("@"):
            yield text.count("\n", 0, found.start()) + 1, description


def is_riddle(text: str) -> bool:
    return bool(FIRST_WORD.search(text) or RIDDLES.search(text))


@pytest.mark.parametrize(
    "text", ["Of whom it is about.", "Return what nobody has yet.", "At most so many rows.", "It goes on."]
)
def test_riddles_in_docstrings_are_recognised(text: str) -> None:
    assert is_riddle(text)


def test_docstrings_name_actor_and_deed() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in list_docstrings(path.read_text(encoding="utf-8"))
        if is_riddle(text)
    ]

    assert found == []


def test_comments_of_browser_modules_name_actor_and_deed() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in sorted((ROOT / "web" / "static").rglob("*.js"))
        if "dist" not in path.parts
        for line, text in list_comments(path.read_text(encoding="utf-8"))
        if is_riddle(text)
    ]

    assert found == []
