"""Answers are declared with all their fields, and the check of answers sees what differs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kit.answer_shapes import list_open_objects, load_answer_shapes
from web.rest.operation import Operation
from web.routes import OPERATIONS


def operation(name: str) -> Operation:
    return next(one for one in OPERATIONS if one.name == name)


def test_every_json_answer_declares_its_fields() -> None:
    assert list_open_objects(load_answer_shapes().described) == {}


@pytest.mark.parametrize("change", [{"surplus": 1}, {"name": None}, {"version": "1"}])
def test_answer_check_finds_surplus_and_wrong_fields(change: dict[str, Any]) -> None:
    site: dict[str, Any] = {
        "name": "shop", "agent": "default", "audience": "public", "origins": [], "verified": "off",
        "title": None, "visitors": 0, "version": 1,
    }  # fmt: skip
    shapes = load_answer_shapes()
    assert shapes.list_differences(operation("listSites"), 200, {"sites": [site]}) == []
    assert len(shapes.list_differences(operation("listSites"), 200, {"sites": [site | change]})) == 1


def test_answer_check_finds_missing_fields_in_one_alternative() -> None:
    begun = {"key": "k", "address": "otpauth://x", "picture": {"size": 21}}
    found = load_answer_shapes().list_differences(operation("beginSecondFactor"), 200, begun)
    assert found == ["beginSecondFactor 200 picture: 'path' is a required property"]


def test_answer_check_accepts_open_objects_that_are_described() -> None:
    entry = {
        "id": 1, "at": datetime.now(UTC).isoformat(), "actor": "ada", "action": "login", "about": "",
        "detail": {"how": "link"}, "person": None,
    }  # fmt: skip
    answer = {"entries": [entry], "before": None, "actors": ["ada"], "actions": ["login"]}
    assert load_answer_shapes().list_differences(operation("listAudit"), 200, answer) == []
