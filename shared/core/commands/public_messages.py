"""Notices for visitors of public sites and bots that get no answer; they name no models, tokens or money."""

from __future__ import annotations

from shared.locales import catalogue


def advice_for_public(code: str, language: str = "") -> str:
    """Return the notice for visitors of a public site about an error code, in the language, an IETF tag.

    Empty if there is none, since the usual advice of the error reveals nothing internal.
    """
    texts, key = catalogue("commands", language), f"public_notice_{code}"
    return texts.say(key) if key in texts else ""
