"""Models that the settings choose, and model servers that run on this machine."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.adapters.models.model_lists import find_local_servers
from shared.adapters.models.routing import Models, open_configured_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.bootstrap.from_settings import BUILT_IN_TOOLS, build_policy
from shared.config.settings import Settings
from shared.core.context.agents import WINDOW_SHARE, pick_affordable
from shared.core.values.money import are_old
from shared.services.compaction.silent_requests import find_flush_way


async def describe_models(settings: Settings) -> list[tuple[str, str]]:
    """Return lines about the models in use as pairs of label and text; the label is "" on further lines.

    Without a real model, model servers on this machine are looked for. Raises ModelsFileBroken.
    """
    models = open_configured_models(settings, VocabularyCounter())
    remarks = [("", remark) for remark in models.remarks]
    remarks += [("", remark) for remark in await _price_remarks(models)]
    remarks += [("", remark) for remark in await _summary_remarks(models)]
    remarks += [("", remark) for remark in await _memory_remarks(models, settings)]
    if not models.offline:
        return [("Answers", f"{models.chat}, {_describe_provider(settings)}"), *remarks]
    lines = [("Answers", "the built-in demo, not a real AI model; ./evertalk setup adds a real one")]
    for server in await find_local_servers():
        names = ", ".join(server.models[:3])
        lines.append(("", f"{server.name} runs here ({names}); ./evertalk setup can use it"))
    return [*lines, *remarks]


async def _price_remarks(models: Models) -> list[str]:
    """Return a line for each model in use whose price is unknown or over a year old.

    The models in use are those for chat and summaries. No spending cap limits a model of unknown price.
    """
    said: list[str] = []
    for name in dict.fromkeys((models.chat, models.summary)):
        card = await models.load_card(name)
        if card.offline:
            continue
        if card.prices is None:
            said.append(f"the price of {name} is unknown, so that no cap holds it; name it in a models file")
        elif are_old(card.prices, datetime.now(UTC).date()):
            said.append(f"the price of {name} is from {card.prices.dated} and may have changed")
    return said


async def _summary_remarks(models: Models) -> list[str]:
    """Return a line if the provider lists the chat model but not the summary model; otherwise an empty list.

    A list without the chat model is not trusted, because some servers list none of their models.
    """
    if models.summary == models.chat or not await models.is_listed(models.chat):
        return []
    if await models.is_listed(models.summary) is not False:
        return []
    cheaper = "EVERTALK_SUMMARY_MODEL can name a cheaper one that it serves"
    return [f"{models.summary} is not served: {models.chat} writes the summaries; {cheaper}"]


async def _memory_remarks(models: Models, settings: Settings) -> list[str]:
    """Return a line on how memory is saved if the chat model gets no memory tool; otherwise an empty list."""
    card, count = await models.load_card(models.chat), VocabularyCounter().count_tokens
    window = build_policy(settings).usable_window(card.window)
    can = "tools" in card.capabilities or card.offline
    offered = (
        pick_affordable(BUILT_IN_TOOLS, int(WINDOW_SHARE * window / card.token_factor), count) if can else ()
    )
    way, _ = find_flush_way(
        card, window=window, ratio=card.token_factor, offered=offered, allowed=True, count=count
    )
    why = f"a window of {window:,} tokens is too small for tools" if can else f"{card.name} cannot call tools"
    how = {
        "request": "memory is saved by a request of its own",
        "json": "memory is saved by a request that asks for JSON",
        "lines": "memory is saved from lines of text",
        "code": "memory is saved as excerpts, without a model",
    }.get(way)
    return [f"{how}: {why}"] if how else []


def _describe_provider(settings: Settings) -> str:
    if settings.models_file is not None:
        return f"as {settings.models_file} says"
    if settings.anthropic_api_key is None and settings.anthropic_base_url is None:
        return f"by {settings.openai_base_url or 'OpenAI'}"
    return f"by {settings.anthropic_base_url or 'Anthropic'}"
