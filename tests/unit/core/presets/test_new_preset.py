"""A preset that is added as one file: settings and agents choose it, and a conversation is kept by it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.core.presets.catalog import PRESETS

ROOT = Path(__file__).resolve().parents[4]
TWELFTH = """\
from dataclasses import replace

from shared.core.presets.shares import NO_EARLY_FLUSH, NO_TAIL
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_strategy import PruneStrategy

PRESET = ContextPolicy(
    name="two-thirds",
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_share=2 / 3, compact_at_equal=True),
    keeping=replace(NO_TAIL, keep_turns=3),
    pruning=PruneStrategy(prune_rule="age", prune_batch=0),
)
"""
PROGRAM = """\
import json, sys

import shared.core.presets

shared.core.presets.__path__.append(sys.argv[1])

from shared.bootstrap.from_settings import build_policy
from shared.config.settings import load_settings
from shared.core.context.overrides import agent_policy
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.budget import budget_for
from tests.unit.core.presets.test_preset_requests import RecordedPlay

name = "two-thirds"
own = agent_policy(preset("steady"), {"preset": name, "context": {"keep_turns": 4, "max_output": 900}})
print(json.dumps({
    "names": sorted(PRESETS),
    "deployment": build_policy(load_settings(preset=name)).name,
    "agent": [own.name, own.keeping.keep_turns, own.max_output, own.timing.compact_share],
    "limit": budget_for(preset(name), 90_000, 8_192, 1_000).limit,
    "sent": [line.split() for line in RecordedPlay(preset(name)).play()],
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process with the twelfth preset in its folder prints."""
    folder = tmp_path_factory.mktemp("presets")
    (folder / "two_thirds.py").write_text(TWELFTH)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def test_preset_in_a_file_of_its_own_is_found(found: dict[str, Any]) -> None:
    assert found["names"] == sorted([*PRESETS, "two-thirds"])


def test_new_preset_is_chosen_by_settings_and_agents(found: dict[str, Any]) -> None:
    assert found["deployment"] == "two-thirds"
    assert found["agent"] == ["two-thirds", 4, 900, 2 / 3]
    assert found["limit"] == 60_000


def test_new_preset_prunes_flushes_and_summarises(found: dict[str, Any]) -> None:
    assert {line[1] for line in found["sent"]} == {"chat", "flush", "summary"}
    assert max(int(line[4]) for line in found["sent"]) > 0


def test_module_of_each_preset_bears_its_name() -> None:
    files = {path.stem.replace("_", "-") for path in (ROOT / "shared/core/presets").glob("*.py")}
    assert files - set(PRESETS) == {"--init--", "catalog", "shares"}
    assert set(PRESETS) <= files
