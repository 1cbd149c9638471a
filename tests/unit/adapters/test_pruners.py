"""Plug-ins for pruning: what works is used, what does harm is left alone and reported once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shared.adapters.files.pruners import GROUP, check_pruners, load_pruners
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy

STEADY = preset("steady").pruning
TEXT = "a long result " * 100
_never = threading.Event()


def _half(tool_name: str, text: str, policy: ContextPolicy) -> str | None:
    return text[: len(text) // 2] if tool_name == "read" else None


def _raises(tool_name: str, text: str, policy: ContextPolicy) -> str | None:
    raise KeyError(tool_name)


def _waits(tool_name: str, text: str, policy: ContextPolicy) -> str | None:
    _never.wait(5)
    return ""


PRUNERS: dict[str, Any] = {
    "half": _half,
    "raises": _raises,
    "waits": _waits,
    "lengthens": lambda _tool, text, _policy: text + "!",
    "counts": lambda _tool, text, _policy: len(text),
    "odd": lambda _tool, _text, _policy: "\ud800",
    "nul": lambda _tool, _text, _policy: "\x00",
    "no_function": 42,
}


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    made = ModuleType("plug_ins_of_a_test")
    vars(made).update(PRUNERS)
    sys.modules[made.__name__] = made
    yield
    del sys.modules[made.__name__]
    _never.set()
    _never.clear()


def _points(*names: str) -> list[EntryPoint]:
    return [EntryPoint(name=name, group=GROUP, value=f"plug_ins_of_a_test:{name}") for name in names]


def test_a_plug_in_shortens_the_results_of_its_tool_and_leaves_others() -> None:
    (half,) = load_pruners(_points("half"))
    assert half("read", TEXT, STEADY) == TEXT[: len(TEXT) // 2]
    assert half("write", TEXT, STEADY) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "failed: KeyError"),
        ("waits", "took longer than"),
        ("lengthens", "1,401 characters for 1,400"),
        ("counts", "gave a int"),
        ("odd", "cannot be stored"),
        ("nul", "cannot be stored"),
    ],
)
def test_what_does_harm_is_ignored_and_reported_once(name: str, words: str) -> None:
    told: list[tuple[str, str]] = []
    (pruner,) = load_pruners(_points(name), lambda *problem: told.append(problem))
    assert [pruner("read", TEXT, STEADY) for _ in range(3)] == [None] * 3
    assert len(told) == 1
    assert told[0][0] == name
    assert words in told[0][1]


def test_what_cannot_be_loaded_does_not_stop_the_others() -> None:
    told: list[tuple[str, str]] = []
    pruners = load_pruners(_points("missing", "no_function", "half"), lambda *problem: told.append(problem))
    assert len(pruners) == 1
    assert [name for name, _ in told] == ["missing", "no_function"]


def test_the_doctor_tries_each_on_a_sample() -> None:
    working, wrong = check_pruners(STEADY, _points("half", "raises", "missing"))
    assert working == 1
    assert [line.split()[0] for line in wrong] == ["missing", "raises"]


def test_an_installed_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "a_pruner-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-pruner\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nhalf = plug_ins_of_a_test:half\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [pruner("read", TEXT, STEADY) for pruner in load_pruners()] == [TEXT[: len(TEXT) // 2]]
