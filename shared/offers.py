"""Which models these settings choose, and what else runs on this machine that could answer."""

from __future__ import annotations

from shared.adapters.models.chosen import models_of
from shared.adapters.models.ollama import find_ollama
from shared.adapters.token_counter import VocabularyCounter
from shared.settings import Settings


async def who_answers(settings: Settings) -> list[tuple[str, str]]:
    """Lines for people, each with its label. Raises ModelsFileBroken."""
    models = models_of(settings, VocabularyCounter())
    remarks = [("", remark) for remark in models.remarks]
    if not models.offline:
        return [("Answers", f"{models.chat}, {_served_by(settings)}"), *remarks]
    lines = [("Answers", "the offline model, a demo without intelligence; ./evertalk setup adds a real one")]
    if found := await ollama_models():
        lines.append(("", f"Ollama runs here ({', '.join(found[:3])}); ./evertalk setup can use it"))
    return [*lines, *remarks]


async def ollama_models() -> list[str]:
    """Names of the chat models that a local Ollama has, newest first; empty when none runs."""
    return [entry.name for entry in await find_ollama()]


def _served_by(settings: Settings) -> str:
    if settings.models_file is not None:
        return f"as {settings.models_file} says"
    return f"by {settings.anthropic_base_url or 'Anthropic'}"
