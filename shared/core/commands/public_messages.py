"""Notices for visitors of public sites and bots when there is no answer, without models, tokens and money."""

from __future__ import annotations

from shared.locales import catalogue


def advice_for_public(code: str, language: str = "") -> str:
    """Return the public notice for an error's code; empty for errors that reveal nothing internal."""
    texts, key = catalogue("commands", language), f"public_notice_{code}"
    return texts.say(key) if key in texts else ""
