"""What a public site's or bot's visitors read when there is no answer: nothing of models, tokens or money."""

from __future__ import annotations

from shared.locales import catalogue


def advice_for_public(code: str, language: str = "") -> str:
    """By the error's code; empty for what tells nothing of the machinery anyway."""
    texts, key = catalogue("commands", language), f"public_notice_{code}"
    return texts.say(key) if key in texts else ""
