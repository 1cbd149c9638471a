"""The card of a model of Chat Completions."""

from __future__ import annotations

from shared.ports import ModelCard

MODEL = "claude-haiku-5-5"
CARD = ModelCard(
    name=MODEL, window=100_000, max_output=4_096, window_known=True, prices=None,
    capabilities=frozenset({"tools", "json"}),
)  # fmt: skip
