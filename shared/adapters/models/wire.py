"""Conversion of requests into the JSON of the Messages API, without what a model cannot do."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.adapters.models.dialects.message_order import alternate, fold_system, simplify_schema
from shared.adapters.models.dialects.opaque_state import KIND as STATE
from shared.adapters.models.dialects.opaque_state import find_sealed
from shared.core.values.messages import (
    Block,
    Image,
    Message,
    ProviderBlock,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from shared.core.verdicts.abilities import Ability
from shared.ports import ModelCard, ModelRequest, PictureContent, SystemPart, ToolSpec

MAX_BREAKPOINTS = 4
"""Maximum cache marks in one request; the API refuses more."""
_MAX_MESSAGE_BREAKPOINTS = 3
_MARK = {"type": "ephemeral"}
_HOUR_MARK = {"type": "ephemeral", "ttl": "1h"}
"""Cache mark for an hour.

All marks of a request have the same lifetime, since the API wants longer ones first.
"""
_MARKABLE = frozenset({"text", "image", "tool_use", "tool_result"})
SEALED_THINKING = "redacted_thinking"
"""Kind of a block with thinking that the provider has encrypted."""
_NO_STATE: frozenset[Ability] = frozenset({"opaque_state"})

Json = dict[str, Any]
"""JSON object of a request."""


def build_request_body(
    request: ModelRequest,
    card: ModelCard,
    wire_name: str,
    *,
    thinking: bool = True,
    missing: Collection[Ability] = (),
) -> Json:
    """Return the body of a call, without `stream`; `thinking` False leaves thinking blocks out.

    `missing` are abilities that the server has refused, besides those that the card lacks.
    """
    body = build_counted_body(request, card, wire_name, thinking=thinking, missing=missing)
    if missing:
        body = narrow_body(body, missing)
    body["max_tokens"] = max(1, min(request.max_output_tokens, card.max_output))
    if request.json_schema is not None and "json" in card.capabilities:
        format_ = {"type": "json_schema", "schema": dict(request.json_schema)}
        body["output_config"] = {"format": format_}
    return body


def narrow_body(body: Json, missing: Collection[Ability]) -> Json:
    """Return the body in a form that a server without these abilities accepts."""
    system = body.get("system", ())
    instructions = "\n\n".join(part["text"] for part in system)
    if instructions and "system" in missing:
        folded = fold_system([{"role": "system", "content": list(system)}, *body["messages"]])
        body = {**body, "messages": folded}
        del body["system"]
    elif instructions and "system_blocks" in missing:
        body = {**body, "system": instructions}
    if "alternation" in missing:
        body = {**body, "messages": alternate(body["messages"])}
    if "schema_keywords" in missing and "tools" in body:
        tools = [
            {**tool, "input_schema": simplify_schema(tool["input_schema"])}
            if "input_schema" in tool
            else tool
            for tool in body["tools"]
        ]
        body = {**body, "tools": tools}
    return body


def build_counted_body(
    request: ModelRequest,
    card: ModelCard,
    wire_name: str,
    *,
    thinking: bool = True,
    missing: Collection[Ability] = (),
) -> Json:
    """Return the parts of a body that count as input: model, system, tools, messages, with cache marks."""
    has_tools = "tools" in card.capabilities
    with_thinking = thinking and "thinking" in card.capabilities
    system = [_system(part) for part in request.system]
    tools = [_tool(tool) for tool in request.tools] if has_tools else []
    pictures = request.pictures if "images" in card.capabilities else {}
    theirs = has_tools and any(tool.provider is not None for tool in request.tools)
    takes = _Takes(
        model=wire_name, tools=has_tools, thinking=with_thinking, provider=theirs, pictures=pictures,
        missing=missing if thinking else _NO_STATE,
    )  # fmt: skip
    messages = [_message(message, takes) for message in request.messages]
    if "cache" in card.capabilities:
        _mark(request, system, tools, messages)
    body: Json = {"model": wire_name, "messages": [message for message in messages if message["content"]]}
    if any(part is not None for part in system):
        body["system"] = [part for part in system if part is not None]
    if tools:
        body["tools"] = tools
    return body


def _mark(
    request: ModelRequest, system: Sequence[Json | None], tools: Sequence[Json], messages: Sequence[Json]
) -> None:
    """Set at most four cache marks: first system part, newest messages, later system parts, tools.

    A new summary changes the notes and all after them; tools and rules before them are still read from the
    cache.
    """
    parts = [
        block for part, block in zip(request.system, system, strict=True) if part.cache and block is not None
    ]
    newest = sorted({at for at in request.cache_at if 0 <= at < len(messages)}, reverse=True)
    ends = [
        _markable(messages[at]["content"], but=0 if place else request.behind_mark)
        for place, at in enumerate(newest[:_MAX_MESSAGE_BREAKPOINTS])
    ]
    wanted = [*parts[:1], *(end for end in ends if end is not None), *reversed(parts[1:]), *tools[-1:]]
    for block in wanted[:MAX_BREAKPOINTS]:
        block["cache_control"] = dict(_HOUR_MARK if request.cache_long else _MARK)


def _markable(content: Sequence[Json], *, but: int) -> Json | None:
    """Return the last block that may have a cache mark, not counting the last `but` blocks.

    Returns None if there is none.
    """
    stable = content[: len(content) - but]
    return next((block for block in reversed(stable) if block["type"] in _MARKABLE), None)


def _system(part: SystemPart) -> Json | None:
    return {"type": "text", "text": part.text} if part.text.strip() else None


def _tool(tool: ToolSpec) -> Json:
    if tool.provider is not None:
        return dict(tool.provider)
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Takes:
    """Parts of a request that a model accepts; `provider` is true if its provider runs some tools."""

    model: str
    tools: bool
    thinking: bool
    provider: bool
    missing: Collection[Ability]
    pictures: Mapping[int, PictureContent]


def _message(message: Message, takes: _Takes) -> Json:
    blocks = (_block(block, takes) for block in message.blocks)
    return {"role": message.role, "content": [block for block in blocks if block is not None]}


def _block(block: Block, takes: _Takes) -> Json | None:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image(attachment_id=id_) if id_ in takes.pictures:
            return _picture(takes.pictures[id_])
        case Image(description=description):
            return {"type": "text", "text": f"[image: {description or 'not described'}]"}
        case Thinking(text=text, signature=signature, model=model):
            goes = takes.thinking and model in ("", takes.model)
            return {"type": "thinking", "thinking": text, "signature": signature} if goes else None
        case ProviderBlock(kind=kind) if kind == STATE:
            return find_sealed(block, takes.model, takes.missing)
        case ProviderBlock(raw=raw):
            goes = takes.thinking if block.kind == SEALED_THINKING else takes.provider
            return dict(raw) if goes else None
        case ToolUse(id=id_, name=name, input=input_):
            return _tool_use(id_, name, input_) if takes.tools else _render_call(name, input_)
        case ToolResult():
            return (
                _tool_result(block)
                if takes.tools
                else {"type": "text", "text": f"[tool result: {block.text}]"}
            )


def _picture(picture: PictureContent) -> Json:
    data = base64.b64encode(picture.body).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": picture.mime, "data": data}}


def _tool_use(id_: str, name: str, input_: Mapping[str, Any]) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": dict(input_)}


def _tool_result(block: ToolResult) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": block.text}
    return {**result, "is_error": True} if block.is_error else result


def _render_call(name: str, input_: Mapping[str, Any]) -> Json:
    """Return a past tool call as a text block, for a model without tools."""
    return {"type": "text", "text": f"[called {name} with {json.dumps(dict(input_), ensure_ascii=False)}]"}
