"""What a public site's or bot's visitors read when there is no answer: nothing of models, tokens or money."""

from __future__ import annotations

from collections.abc import Mapping

PUBLIC_ADVICE: Mapping[str, str] = {
    "context_budget_exceeded": "This is too much for me at once. Please make it shorter.",
    "content_refused": "I may not answer that. Please put it in other words, or ask me something else.",
    "no_room": "I cannot answer just now. Please try again in a few minutes.",
    "model_refused_account": "I cannot answer at the moment. Your message is kept; I will answer it later.",
    "model_unavailable": "I cannot answer just now. Your message is kept; I try again within half a minute.",
    "model_busy": "Many people are writing to me. Your message is kept; I try again within a minute.",
    "budget_warning": "We have talked a lot today. I may need a pause until tomorrow soon.",
    "cap_held": "Many people are writing to me. Your message is kept, and I will answer it shortly.",
    "hour_cap_reached": "Many have talked with me. Your message is kept; please write again in an hour.",
    "cap_reached": "I have talked enough for today. Your message is kept; please write again tomorrow.",
}


def advice_for_public(code: str, advice: str) -> str:
    """By the error's code; what has no words of its own here tells nothing of the machinery anyway."""
    return PUBLIC_ADVICE.get(code, advice)
