"""A setting is declared once: pages, forms, containers and the doctor follow from its declaration."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml  # type: ignore[import-untyped]

from shared.config.fields.declaration import Declaration, Section
from shared.config.settings import Settings, is_secret, list_declarations
from shared.core.session.policy import SETTING_KINDS
from tests.kit.settings_pages import (
    COMMAND,
    COMPOSE,
    FORM,
    PAGE,
    ROOT,
    render_all,
    render_compose,
    render_page,
)

MINUTES, KEY = "EVERTALK_NAP_MINUTES", "EVERTALK_NAP_KEY"


@cache
def derived() -> dict[str, Any]:
    """Return what is derived when one module declares two settings more."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.config.new_setting"],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def environment_of(service: str) -> dict[str, Any]:
    return dict(yaml.safe_load(derived()["compose"])["services"][service]["environment"])


def test_new_setting_is_in_the_form() -> None:
    row = f'["{MINUTES}", t("Nap"), t("In minutes; none if empty.")]'
    people = derived()["form"].partition("  people: {")[2].partition("rare:")[0]
    assert row in people
    assert KEY not in derived()["form"], "it has no form"


def test_new_setting_is_in_the_answer_of_the_dashboard() -> None:
    minutes, key = (derived()["rest"][name] for name in (MINUTES, KEY))
    assert (minutes["kind"], minutes["value"], minutes["default"], minutes["from"]) == (
        "number", "20", "20", "default",
    )  # fmt: skip
    assert minutes["meaning"] == "minutes of silence after a long talk"
    assert (key["secret"], key["value"], key["from"], "kind" in key) == (True, "set", "environment", False)


def test_new_setting_is_in_its_table_of_the_page() -> None:
    table = derived()["page"].partition("\n## Agents and tools\n")[2].partition("\n## ")[0]
    assert f"| `{MINUTES}` | 20 | minutes of `silence` after a [long talk](context.md) |" in table
    assert f"| `{KEY}` | none | key of the server that counts sheep |" in table


def test_new_secret_is_given_to_its_processes_only() -> None:
    assert {MINUTES, KEY} <= environment_of("web").keys()
    assert {MINUTES, KEY} <= environment_of("bot").keys()
    assert {MINUTES, KEY} & environment_of("worker").keys() == {MINUTES}
    assert [KEY in derived()["processes"][name] for name in ("web", "bot", "worker")] == [True, True, False]


def test_new_setting_is_known_to_the_doctor() -> None:
    said = "\n".join(derived()["doctor"])
    assert f"secrets: {KEY} from the environment" in said
    assert "EVERTALK_NAP_MINUTE is not a setting of Evertalk" in said
    assert f"Did you mean {MINUTES}?" in said


def test_new_setting_is_checked_by_its_type() -> None:
    minutes, key = derived()["refused"].splitlines()
    assert minutes == f"{MINUTES}=0: Input should be greater than or equal to 1"
    assert key == f"{KEY}=(hidden): must have at least 32 characters"


@pytest.mark.parametrize("path", [PAGE, COMPOSE, FORM], ids=lambda path: path.name)
def test_written_file_follows_from_the_declarations(path: Path) -> None:
    assert path.read_text("utf-8") == render_all()[path], COMMAND


def test_page_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table below the heading Model provider"):
        render_page("# Settings\n")
    with pytest.raises(ValueError, match="does not say where"):
        render_compose("services:\n")


def test_every_setting_has_one_declaration_and_a_description() -> None:
    for field, spec in Settings.model_fields.items():
        assert len([one for one in spec.metadata if isinstance(one, Declaration)]) == 1, field
        assert spec.description, field
        assert "|" not in spec.description, f"{field}: a cell of a table ends there"


def test_declarations_name_fields_that_exist() -> None:
    declarations = list_declarations()
    for field, declared in declarations.items():
        assert not declared.sent_to or declared.sent_to in declarations, field
        assert not declared.sent_to or is_secret(field), field
        assert not declared.of_policy or field in SETTING_KINDS, field
        assert not declared.by_purpose or is_secret(field), field


def test_every_form_of_a_setting_is_on_the_page_of_settings() -> None:
    source = FORM.with_name("settings_fields.js").read_text("utf-8")
    drawn = re.findall(r'^  \{ id: "(\w+)".*\.\.\.FIELDS\.(\w+) \},$', source, re.MULTILINE)
    assert drawn == [(section, section) for section in get_args(Section)]
    [tabs] = re.findall(r"export const TABS = (.*?);", source, re.DOTALL)
    assert sorted(re.findall(r'"([a-z]+)"', tabs)) == sorted(get_args(Section))
