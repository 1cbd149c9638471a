"""Refuses what the provider refuses: unknown fields, settings, messages and pairs of tool calls."""

from __future__ import annotations

import json

from tests.kit.fakes.messages_api.catalogue import Model
from tests.kit.fakes.messages_api.prefix import pieces_of
from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.shapes import Json
from tests.kit.fakes.messages_api.validate_messages import check_messages
from tests.kit.fakes.messages_api.validate_tools import check_tool_choice, check_tools

SAMPLING = ("temperature", "top_p", "top_k")
COUNTED = frozenset(
    {
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "cache_control",
        "output_config",
        "speed",
    }
    | {"user_profile_id", "workspace_id"}
)
CREATED = COUNTED | {
    "max_tokens",
    "metadata",
    "stop_sequences",
    "stream",
    "service_tier",
    "container",
    "diagnostics",
    "inference_geo",
}
MAX_BREAKPOINTS = 4


def parsed(raw: bytes) -> Json:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise Refusal(f"The request body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refusal("Input should be a valid dictionary or object to extract fields from")
    if not isinstance(body.get("model"), str):
        raise Refusal(
            "model: Field required" if "model" not in body else "model: Input should be a valid string"
        )
    return body


def check_request(body: Json, model: Model, *, counting_only: bool = False) -> tuple[str, ...]:
    """Raise Refusal if the provider would refuse the request.

    Return warnings about all that the provider accepts but a careful sender avoids.
    """
    _check_names(body, COUNTED if counting_only else CREATED)
    if not counting_only:
        _check_max_tokens(body, model)
        _check_small_settings(body)
    _check_system(body)
    tools = check_tools(body)
    _check_thinking(body, model)
    check_tool_choice(body, tools, model)
    _check_output_config(body)
    warnings = check_messages(body)
    _check_breakpoints(body)
    return warnings


def _check_names(body: Json, allowed: frozenset[str] | set[str]) -> None:
    for name in body:
        if name in SAMPLING:
            raise Refusal(f"`{name}` is not supported by this version of the API")
        if name not in allowed:
            raise Refusal(f"{name}: Extra inputs are not permitted")


def _check_max_tokens(body: Json, model: Model) -> None:
    if "max_tokens" not in body:
        raise Refusal("max_tokens: Field required")
    wanted = body["max_tokens"]
    if type(wanted) is not int:
        raise Refusal("max_tokens: Input should be a valid integer")
    if wanted < 0:
        raise Refusal("max_tokens: Input should be greater than or equal to 0")
    if wanted > model.max_output:
        raise Refusal(
            f"max_tokens: {wanted} > {model.max_output}, which is the maximum allowed number of "
            f"output tokens "
            f"for {model.id}"
        )


def _check_small_settings(body: Json) -> None:
    if type(body.get("stream", False)) is not bool:
        raise Refusal("stream: Input should be a valid boolean")
    _check_metadata(body.get("metadata", {}))
    stops = body.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise Refusal("stop_sequences: Input should be a valid list of strings")
    if any(not stop.strip() for stop in stops):
        raise Refusal("stop_sequences: each stop sequence must contain non-whitespace")
    if body.get("service_tier", "auto") not in ("auto", "standard_only"):
        raise Refusal("service_tier: Input should be 'auto' or 'standard_only'")


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict):
        raise Refusal("metadata: Input should be a valid dictionary")
    for name, value in metadata.items():
        if name != "user_id":
            raise Refusal(f"metadata.{name}: Extra inputs are not permitted")
        if value is not None and not (isinstance(value, str) and len(value) <= 256):
            raise Refusal("metadata.user_id: String should have at most 256 characters")


def _check_system(body: Json) -> None:
    system = body.get("system", "")
    if isinstance(system, str):
        return
    if not isinstance(system, list):
        raise Refusal("system: Input should be a valid string or a valid list")
    for index, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise Refusal(f"system.{index}: Input should be a text block")
        extra = set(block) - {"type", "text", "cache_control", "citations"}
        if extra:
            raise Refusal(f"system.{index}.{min(extra)}: Extra inputs are not permitted")
        if not isinstance(block.get("text"), str):
            raise Refusal(f"system.{index}.text: Input should be a valid string")
        if not block["text"]:
            raise Refusal("system: text content blocks must be non-empty")
        if not block["text"].strip():
            raise Refusal("system: text content blocks must contain non-whitespace text")


def _check_thinking(body: Json, model: Model) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        raise Refusal(
            f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags: "
            "'enabled', 'disabled', 'adaptive', 'between_tools'"
        )
    if kind == "disabled" and model.always_thinks:
        raise Refusal(f"thinking.type: 'disabled' is not supported for {model.id}")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if type(budget) is not int or budget < 1_024:
            raise Refusal("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if "max_tokens" in body and body["max_tokens"] <= budget:
            raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_output_config(body: Json) -> None:
    config = body.get("output_config")
    if config is None:
        return
    if not isinstance(config, dict) or set(config) - {"effort", "format"}:
        raise Refusal("output_config: Extra inputs are not permitted")
    if config.get("effort") not in (None, "low", "medium", "high", "xhigh", "max"):
        raise Refusal("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    wanted = config.get("format")
    if wanted is not None and (
        not isinstance(wanted, dict)
        or wanted.get("type") != "json_schema"
        or not isinstance(wanted.get("schema"), dict)
    ):
        raise Refusal("output_config.format: Input should be a valid `json_schema` format")


def _check_breakpoints(body: Json) -> None:
    marks = [block.get("cache_control") for block in _everything_markable(body)]
    for mark in (*marks, body.get("cache_control")):
        if mark is None:
            continue
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or set(mark) - {"type", "ttl"}:
            raise Refusal("cache_control: Input tag does not match any of the expected tags: 'ephemeral'")
        if mark.get("ttl", "5m") not in ("5m", "1h"):
            raise Refusal("cache_control.ephemeral.ttl: Input should be '5m' or '1h'")
    found = [piece.mark for piece in pieces_of(body) if piece.mark]
    if len(found) > MAX_BREAKPOINTS:
        raise Refusal(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(found)}."
        )
    if "5m" in found and "1h" in found[found.index("5m") :]:
        raise Refusal(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            "Note that blocks "
            "are processed in the following order: `tools`, `system`, `messages`."
        )


def _everything_markable(body: Json) -> list[Json]:
    blocks = [*(body.get("tools") or ())]
    if isinstance(body.get("system"), list):
        blocks.extend(body["system"])
    for message in body["messages"]:
        if isinstance(message["content"], list):
            blocks.extend(message["content"])
    return blocks
