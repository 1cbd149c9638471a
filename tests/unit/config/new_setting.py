"""Adds two settings to the text of one module, and prints as JSON what is derived from them.

`python -m tests.unit.config.new_setting` does it in a process of its own: settings are declared at import.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

DECLARED_IN = "shared.config.fields.people"
ADDED = """
    nap_minutes: Annotated[
        int, Declaration("Agents and tools", form=FormRow("people", "Nap", "In minutes; none if empty."))
    ] = Field(default=20, ge=1, description="minutes of `silence` after a [long talk](context.md)")
    nap_key: Annotated[
        LongSecret | None, Declaration("Agents and tools", processes=("web", "bot"))
    ] = Field(default=None, description="key of the server that counts sheep")
"""
"""Body of a class in Python; the class is the last statement of its module."""
HEAD = "from shared.config.fields.kinds import LongSecret\n"
ENVIRONMENT = {
    "EVERTALK_ENV_FILE": "", "EVERTALK_NAP_KEY": "k" * 32, "EVERTALK_NAP_MINUTE": "5",
    "EVERTALK_DATA_DIR": "/nonexistent/evertalk",
}  # fmt: skip
"""Variables of the process; one has a wrong name."""


def declare() -> None:
    """Import the module that declares the settings with the added text, before anything imports it."""
    spec = importlib.util.find_spec(DECLARED_IN)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text("utf-8")
    future = "from __future__ import annotations\n"
    source = source.replace(future, future + HEAD, 1) + ADDED
    module = importlib.util.module_from_spec(spec)
    sys.modules[DECLARED_IN] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)


def derive() -> dict[str, Any]:
    """Return what form, page, containers, doctor and processes make of the settings."""
    from shared.config.fields.declaration import ALL
    from shared.config.settings import load_environment, load_settings
    from shared.config.stored import StoredSettings
    from shared.diagnostics.local_checks import check_settings
    from shared.supervision.process_secrets import select_environment
    from tests.kit.settings_pages import COMPOSE, PAGE, render_compose, render_form, render_page
    from web.dashboard.setup.settings import render_settings

    given = load_environment()
    answer = render_settings(load_settings(), StoredSettings(version=0))
    return {
        "rest": {row["name"]: row for row in answer["settings"]},
        "page": render_page(PAGE.read_text("utf-8")),
        "compose": render_compose(COMPOSE.read_text("utf-8")),
        "form": render_form(),
        "doctor": [str(finding) for finding in check_settings()],
        "processes": {name: sorted(select_environment(name, given, tokens=())) for name in ALL},
        "refused": refuse(),
    }


def refuse() -> str:
    """Return the reason why values of the settings are refused."""
    from shared.config.settings import BadSettings, load_settings

    try:
        load_settings(nap_minutes=0, nap_key="short")
    except BadSettings as error:
        return str(error)
    return ""


if __name__ == "__main__":
    for variable in [name for name in os.environ if name.startswith("EVERTALK_")]:
        del os.environ[variable]
    os.environ.update(ENVIRONMENT)
    declare()
    json.dump(derive(), sys.stdout)
