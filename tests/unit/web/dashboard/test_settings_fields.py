"""The forms of settings ask for everything that can be stored, once, and for nothing else."""

from __future__ import annotations

import re

from shared.config.stored import SEVERAL_SECRETS, list_storable
from tests.kit.dashboard.words import SCRIPTS


def test_every_setting_that_can_be_stored_has_its_place_in_one_form() -> None:
    source = (SCRIPTS / "form_fields.js").read_text("utf-8")
    assert sorted(re.findall(r'^ +\["([A-Z0-9_]+)", t\(', source, re.MULTILINE)) == sorted(
        name for name, field in list_storable().items() if field not in SEVERAL_SECRETS
    ), "keys and tokens are asked for with what they are for"
