"""The models that the operator's settings choose."""

from __future__ import annotations

from shared.adapters.models.catalog import read_entries
from shared.adapters.models.routing import Models, open_models
from shared.config.settings import Settings
from shared.ports import TokenCounter


def models_of(settings: Settings, counter: TokenCounter) -> Models:
    """Nothing is asked of any provider yet. Raises ModelsFileBroken."""
    key = settings.anthropic_api_key
    return open_models(
        api_key=key.get_secret_value() if key else None,
        base_url=settings.anthropic_base_url,
        entries=read_entries(settings.models_file) if settings.models_file else (),
        counter=counter,
        chat_model=settings.model,
        summary_model=settings.summary_model,
    )
