"""Only parts that a changed setting concerns are built again; the others keep what they have learned."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.models.routing import open_configured_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.bootstrap.configured_parts import MODEL_FIELDS, list_changed_fields
from shared.config.settings import Settings, load_settings


class Recorder:
    """Settings that remember which fields were read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in Settings.model_fields:
            self.read.add(name)
        return getattr(self._settings, name)


def test_models_are_built_from_the_named_fields_alone() -> None:
    recorder = Recorder(load_settings())
    open_configured_models(recorder, VocabularyCounter())  # type: ignore[arg-type]
    assert recorder.read <= MODEL_FIELDS
    assert {"anthropic_api_key", "models", "fallback_models"} <= recorder.read


@pytest.mark.parametrize(("name", "value"), [("model", "other"), ("timezone", "Europe/Vienna")])
def test_changed_fields_are_those_with_another_value(name: str, value: str) -> None:
    changed = load_settings().model_copy(update={name: value})
    assert list_changed_fields(load_settings(), changed) == {name}
    assert list_changed_fields(load_settings(), load_settings()) == set()
