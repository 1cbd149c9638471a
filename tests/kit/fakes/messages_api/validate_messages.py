"""Refuses messages whose order, blocks or pairs of tool calls the provider would refuse."""

from __future__ import annotations

import re

from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.shapes import Json, merged_turns

TOOL_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
FIELDS = {
    "text": {"text", "citations", "cache_control"},
    "image": {"source", "cache_control"},
    "document": {"source", "title", "context", "citations", "cache_control"},
    "tool_use": {"id", "name", "input", "caller", "toolset_name", "cache_control"},
    "tool_result": {"tool_use_id", "content", "is_error", "toolset_name", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "server_tool_use": {"id", "name", "input", "cache_control"},
    "web_search_tool_result": {"tool_use_id", "content", "cache_control"},
}
ROLE_OF = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "server_tool_use": "assistant",
    "web_search_tool_result": "assistant",
    "tool_result": "user",
    "image": "user",
    "document": "user",
}
MAX_MESSAGES = 100_000


def check_messages(body: Json) -> tuple[str, ...]:
    messages = body.get("messages")
    if messages is None:
        raise Refusal("messages: Field required")
    if not isinstance(messages, list):
        raise Refusal("messages: Input should be a valid list")
    if not messages:
        raise Refusal("messages: at least one message is required")
    if len(messages) > MAX_MESSAGES:
        raise Refusal(f"messages: List should have at most {MAX_MESSAGES} items")
    for index, message in enumerate(messages):
        _check_message(message, f"messages.{index}")
    if messages[0]["role"] != "user":
        raise Refusal('messages: first message must use the "user" role')
    turns = merged_turns(messages)
    _check_pairs(turns)
    _check_searches(body, turns)
    _check_ends(turns)
    return _warnings(body, messages)


def _warnings(body: Json, messages: list[Json]) -> tuple[str, ...]:
    found = [
        f"messages.{index}: consecutive {message['role']} messages were merged"
        for index, message in enumerate(messages)
        if index and messages[index - 1]["role"] == message["role"]
    ]
    kinds = {b.get("type") for m in messages if isinstance(m["content"], list) for b in m["content"]}
    if not body.get("tools") and kinds & {"tool_use", "tool_result"}:
        found.append("messages hold tool_use or tool_result blocks, but the request has no tools")
    return tuple(found)


def _check_message(message: object, at: str) -> None:
    if not isinstance(message, dict):
        raise Refusal(f"{at}: Input should be a valid dictionary")
    for name in ("role", "content"):
        if name not in message:
            raise Refusal(f"{at}.{name}: Field required")
    extra = set(message) - {"role", "content"}
    if extra:
        raise Refusal(f"{at}.{min(extra)}: Extra inputs are not permitted")
    role, content = message["role"], message["content"]
    if role not in ("user", "assistant"):
        raise Refusal(f"{at}.role: Input should be 'user' or 'assistant'")
    if not isinstance(content, (str, list)):
        raise Refusal(f"{at}.content: Input should be a valid string or a valid list")
    if not content:
        raise Refusal(f"{at}: all messages must have non-empty content")
    if isinstance(content, str):
        _check_text(content)
        return
    for number, block in enumerate(content):
        _check_block(block, role, f"{at}.content.{number}")


def _check_block(block: object, role: str, at: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or kind not in FIELDS:
        expected = ", ".join(f"'{name}'" for name in FIELDS)
        raise Refusal(
            f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}"
        )
    extra = set(block) - FIELDS[kind] - {"type"}
    if extra:
        raise Refusal(f"{at}.{kind}.{min(extra)}: Extra inputs are not permitted")
    if ROLE_OF.get(kind, role) != role:
        raise Refusal(f"{at}: `{kind}` blocks can only be in `{ROLE_OF[kind]}` messages")
    match kind:
        case "text":
            _need(block, "text", str, at)
            _check_text(block["text"])
        case "image" | "document":
            _need(block, "source", dict, at)
        case "tool_use":
            _need(block, "name", str, at)
            _need(block, "input", dict, at)
            _check_tool_id(block, "id", at)
        case "tool_result":
            _check_tool_id(block, "tool_use_id", at)
            _check_result_content(block.get("content", ""), at)
        case "server_tool_use":
            _need(block, "name", str, at)
            _need(block, "input", dict, at)
            _check_tool_id(block, "id", at)
        case "web_search_tool_result":
            _check_tool_id(block, "tool_use_id", at)
        case "thinking":
            _need(block, "thinking", str, at)
            _need(block, "signature", str, at)


def _need(block: Json, name: str, kind: type, at: str) -> None:
    if name not in block:
        raise Refusal(f"{at}.{block['type']}.{name}: Field required")
    if not isinstance(block[name], kind):
        wanted = "string" if kind is str else "dictionary"
        raise Refusal(f"{at}.{block['type']}.{name}: Input should be a valid {wanted}")


def _check_tool_id(block: Json, name: str, at: str) -> None:
    _need(block, name, str, at)
    if not TOOL_ID.fullmatch(block[name]):
        raise Refusal(f"{at}.{block['type']}.{name}: String should match pattern '{TOOL_ID.pattern}'")


def _check_text(text: str) -> None:
    if not text:
        raise Refusal("messages: text content blocks must be non-empty")
    if not text.strip():
        raise Refusal("messages: text content blocks must contain non-whitespace text")


def _check_result_content(content: object, at: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refusal(f"{at}.tool_result.content: Input should be a valid string or a valid list")
    for number, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") not in ("text", "image", "document"):
            raise Refusal(
                f"{at}.tool_result.content.{number}: Input should be a text, image or document block"
            )
        _check_block(part, "user", f"{at}.tool_result.content.{number}")


def _check_pairs(turns: list[tuple[int, str, list[Json]]]) -> None:
    seen: set[str] = set()
    for number, (index, role, blocks) in enumerate(turns):
        if role == "user":
            before = turns[number - 1][2] if number else []
            _check_results(index, blocks, _ids(before, "tool_use", "id"))
            continue
        calls = _ids(blocks, "tool_use", "id")
        if len(set(calls)) < len(calls) or seen & set(calls):
            raise Refusal(f"messages.{index}: `tool_use` ids must be unique")
        seen |= set(calls)
        after = turns[number + 1][2] if number + 1 < len(turns) else []
        missing = [call for call in calls if call not in _ids(after, "tool_result", "tool_use_id")]
        if missing:
            raise Refusal(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding "
                f"`tool_result` block in "
                "the next message."
            )


def _check_searches(body: Json, turns: list[tuple[int, str, list[Json]]]) -> None:
    """Raise Refusal unless each web search of the provider has its result in the same message, and its tool
    is offered.
    """
    offered = {str(tool.get("name")) for tool in body.get("tools") or [] if "type" in tool}
    for index, _, blocks in turns:
        asked = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
        given = [block["tool_use_id"] for block in blocks if block["type"] == "web_search_tool_result"]
        if index == turns[-1][0] and asked[: len(given)] == given:
            continue  # the provider had paused, and is asked to continue
        if asked != given:
            raise Refusal(
                f"messages.{index}: `web_search` tool use with id {(asked + given)[0]} was found without a "
                "corresponding `web_search_tool_result` block"
            )
        if asked and "web_search" not in offered:
            raise Refusal(f"messages.{index}: `server_tool_use` blocks need the tool `web_search` in `tools`")


def _check_results(index: int, blocks: list[Json], calls: list[str]) -> None:
    answered: set[str] = set()
    something_else_first = False
    for number, block in enumerate(blocks):
        if block["type"] != "tool_result":
            something_else_first = True
            continue
        call = block["tool_use_id"]
        at = f"messages.{index}.content.{number}"
        if call not in calls:
            raise Refusal(
                f"{at}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each "
                f"`tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
        if call in answered:
            raise Refusal(
                f"{at}: each tool_use must have a single result. Found multiple `tool_result` "
                f"blocks with id: {call}"
            )
        if something_else_first:
            raise Refusal(f"{at}: `tool_result` blocks must come first in the content of the message")
        answered.add(call)


def _check_ends(turns: list[tuple[int, str, list[Json]]]) -> None:
    for index, role, blocks in turns:
        if role == "assistant" and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            raise Refusal(f"messages.{index}: The final block in an assistant message cannot be `thinking`.")
    if turns[-1][1] != "user" and turns[-1][2][-1]["type"] != "server_tool_use":
        raise Refusal(
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message."
        )


def _ids(blocks: list[Json], kind: str, name: str) -> list[str]:
    return [block[name] for block in blocks if block["type"] == kind]
