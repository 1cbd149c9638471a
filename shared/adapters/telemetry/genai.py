"""Names of OpenTelemetry's conventions for generative AI: providers, attributes and metrics of model calls.

Source: open-telemetry/semantic-conventions-genai on GitHub, docs/gen-ai, spans and metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.runtime import ModelCall

OPERATION = "chat"
"""Name of the operation of all model calls."""
OWN_PROVIDER = "evertalk"
"""Provider name of the built-in demo, which the conventions do not have."""
_PROVIDER_BY_HOST: Mapping[str, str] = {
    "anthropic.com": "anthropic",
    "openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "perplexity.ai": "perplexity",
    "cohere.com": "cohere",
    "x.ai": "x_ai",
}
_PROVIDER_BY_WIRE: Mapping[str, str] = {"messages": "anthropic", "openai": "openai", "responses": "openai"}
"""Provider name by API, for servers of unknown hosts."""

TOKEN_BUCKETS: Sequence[float] = (
    1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864,
)  # fmt: skip
"""Bucket boundaries of histograms of tokens."""
SECOND_BUCKETS: Sequence[float] = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
"""Bucket boundaries of histograms of durations, in seconds."""
METRICS: Mapping[str, tuple[str, str, Sequence[float]]] = {
    "gen_ai.client.token.usage": ("{token}", "Number of input and output tokens used.", TOKEN_BUCKETS),
    "gen_ai.client.operation.duration": ("s", "GenAI operation duration.", SECOND_BUCKETS),
    "gen_ai.client.operation.time_to_first_chunk": ("s", "Time to receive the first chunk.", SECOND_BUCKETS),
}
"""Unit, description and bucket boundaries of each histogram."""


def name_provider(call: ModelCall) -> str:
    """Return the provider's name in the conventions, by the host, else by the API that it speaks."""
    labels = call.server.lower().split(".")
    for start in range(len(labels)):
        if found := _PROVIDER_BY_HOST.get(".".join(labels[start:])):
            return found
    return _PROVIDER_BY_WIRE.get(call.wire, OWN_PROVIDER)


def build_common_attributes(call: ModelCall) -> dict[str, str | int]:
    """Return the attributes that the span and each metric of a call share."""
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": name_provider(call),
        "gen_ai.request.model": call.model,
    }
    if call.server:
        attributes |= {"server.address": call.server, "server.port": call.port}
    return attributes
