"""The doctor names agents whose context settings cannot be used, and settings reach the policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shared.bootstrap.from_settings import build_policy
from shared.config.bots import BotConfig
from shared.config.settings import BadSettings, load_policy_overrides, load_settings
from shared.core.presets.catalog import PRESETS
from shared.diagnostics.row_checks import check_agent_remarks, check_agent_rows, check_bot_remarks
from tests.kit.replay.system import window_settings


def test_agents_that_can_be_used_are_fine() -> None:
    found = check_agent_rows(load_settings(), {"default": {}, "shop": {"preset": "pantheon"}})
    assert (found.level, found.what) == ("ok", "2 agents' context settings can be used")


def test_each_problem_of_each_agent_is_named_and_what_holds_meanwhile() -> None:
    found = check_agent_rows(
        load_settings(preset="arawn"),
        {"shop": {"context": {"max_round": 3}}, "home": {"preset": "stedy"}, "good": {}},
    )
    assert found.level == "warn"
    assert "agent shop: context.max_round: there is no such setting; did you mean max_rounds?" in found.what
    assert "agent home: preset: there is no 'stedy'" in found.what
    assert "use the preset arawn" in found.advice


def test_invalid_folders_and_files_are_reported_with_the_agents_name(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    shelf = tmp_path / "workspaces" / "ada" / "knowledge"
    shelf.mkdir(parents=True)
    (shelf / "picture.png").write_bytes(b"x")
    (shelf.parent / "SOUL.md").write_text("x" * 20_001)
    (shelf.parent / "USER.md").write_text("The person keeps bees.")
    configs = {"shop": {"workspace": "none", "model": "zzz"}, "home": {"workspace": "ada"}}
    told = list(check_agent_remarks(settings, configs, {"home": ["site north"]}))
    assert [line.split(" ")[1] for line in told] == ["shop:", "shop:", "home:", "home:", "home:"]
    assert any("none is not there" in line for line in told)
    assert any("only its head and tail are used" in line for line in told)
    assert any("knowledge/picture.png is none of" in line for line in told)
    assert any("strangers reach it at site north" in line for line in told)
    assert not list(check_agent_remarks(settings, {"x": {}}, {"x": ["site north"]}))


@pytest.mark.parametrize(
    ("preset", "window", "told"),
    [("arawn", 32_000, "89%"), ("goclaw", 32_000, "94%"), ("arawn", 200_000, None), ("steady", 32_000, None)],
)
def test_small_windows_are_reported_with_the_effective_share(
    tmp_path: Path, preset: str, window: int, told: str | None
) -> None:
    models = tmp_path / "models.json"
    models.write_text(json.dumps([{"name": "llama-70b", "window": window}]))
    settings = load_settings(data_dir=tmp_path, preset=preset, models_file=models, model="llama-70b")
    remarks = list(check_agent_remarks(settings, {"shop": {}}, {}))
    assert len(remarks) == (told is not None)
    assert all(str(told) in remark and "llama-70b" in remark for remark in remarks)


def test_chosen_limit_is_not_compared_with_the_share_of_its_preset(tmp_path: Path) -> None:
    models = tmp_path / "models.json"
    models.write_text(json.dumps([{"name": "llama-70b", "window": 32_000}]))
    settings = load_settings(data_dir=tmp_path, preset="arawn", models_file=models, model="llama-70b")
    config = {"context": {"compact_at": 12_000}}
    assert list(check_agent_remarks(settings, {"shop": config}, {})) == []


def test_bot_with_an_unknown_agent_is_reported() -> None:
    token = SecretStr(f"7000000001:{'x' * 35}")
    bot = BotConfig(
        token=token, token_name="SHOP_BOT", agent="shopp", audience="public", access="open",
        allowed=frozenset(), mode="polling",
    )  # fmt: skip
    (told,) = check_bot_remarks((bot,), ["default", "shop"])
    assert "SHOP_BOT" in told
    assert "Did you mean shop?" in told
    assert not list(check_bot_remarks((bot,), ["shopp"]))


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_chosen_by_name_alone_is_that_preset(name: str) -> None:
    assert build_policy(load_settings(preset=name)) == PRESETS[name]


def test_an_operators_numbers_change_the_preset() -> None:
    settings = load_settings(
        preset="spec008", max_rounds=4, history_turns="telegram=50,web=200", trim_tokens=9_000, max_output=512
    )
    made = build_policy(settings)
    assert (made.keeping.max_rounds, made.keeping.trim_tokens, made.max_output) == (4, 9_000, 512)
    assert made.keeping.history_turns == (("telegram", 50), ("web", 200))
    assert set(load_policy_overrides(settings)) == {
        "max_rounds",
        "history_turns",
        "trim_tokens",
        "max_output",
    }


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"history_turns": "fax=3"}, "'fax' is not a channel"),
        ({"max_rounds": 0}, "greater than or equal to 1"),
    ],
)
def test_what_an_operator_cannot_set_is_refused_with_a_reason(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        load_settings(**wrong)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_small_window_can_be_asked_for_with_every_preset(name: str) -> None:
    settings = load_settings(preset=name)
    smaller = settings.model_copy(update=window_settings(settings, 16_000))
    assert build_policy(smaller).context_window == 16_000


def test_persona_without_room_for_conversation_is_reported() -> None:
    heavy = {"persona": "Be kind to everybody who writes. " * 20_000}
    found = check_agent_rows(load_settings(), {"chatty": heavy, "default": {}})
    assert found.level == "warn"
    assert "chatty" in found.what + found.advice
    assert "system and tools take" in found.what + found.advice
