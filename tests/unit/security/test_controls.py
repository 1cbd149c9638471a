"""Every control has tests, every marker a control, and the public page says just that."""

from __future__ import annotations

import pytest

from tests.unit.security.controls import CONTROLS, PAGE, numbers_of, page, proofs


def test_controls_are_numbered_in_order() -> None:
    assert [control.number for control in CONTROLS] == [
        f"S{number:02}" for number in range(1, len(CONTROLS) + 1)
    ]
    assert all(control.what and control.chapter for control in CONTROLS)
    assert len({control.what for control in CONTROLS}) == len(CONTROLS)


def test_every_control_has_a_test_and_every_marker_a_control() -> None:
    proven = proofs()
    assert not {control.number for control in CONTROLS} - set(proven), "controls without a test"
    assert not set(proven) - {control.number for control in CONTROLS}, "markers that mean nothing"


def test_the_page_says_what_the_markers_say() -> None:
    advice = "python -m tests.unit.security.controls > docs/controls.md"
    assert PAGE.read_text(encoding="utf-8") == page(proofs()), advice


def test_a_marker_names_controls_and_nothing_else() -> None:
    assert numbers_of(("S09", "S50")) == ("S09", "S50")
    for wrong in ((), ("9",), (9,), ("F09",), ("S09 S10",), None):
        with pytest.raises(ValueError):
            numbers_of(wrong)
