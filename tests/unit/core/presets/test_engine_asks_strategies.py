"""The engine of turns asks a policy and its strategies, and reads no setting that differs between presets."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

from shared.core.session.policy import SETTING_KINDS, ContextPolicy

TURNS = Path(__file__).resolve().parents[4] / "shared/services/turns"
HOLDERS = ("policy", "timing", "keeping", "writing", "pruning")
MOST_FIELDS = 25


def find_read_settings(source: str) -> list[str]:
    """Return each setting that is read from a policy or a strategy, with its line."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in SETTING_KINDS
        and ast.unparse(node.value).rpartition(".")[2].lstrip("_") in HOLDERS
    ]


def test_turn_services_read_no_setting_of_a_preset() -> None:
    paths = sorted(TURNS.glob("*.py"))
    assert len(paths) > 10
    found = {path.name: find_read_settings(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_setting_read_by_an_engine_is_found() -> None:
    assert find_read_settings("if prepared.policy.pruning.prune_first: pass") == [
        "1: prepared.policy.pruning.prune_first"
    ]
    assert find_read_settings("policy.keeping.hides_chatter") == []


def test_policy_has_few_fields() -> None:
    assert len(fields(ContextPolicy)) <= MOST_FIELDS
