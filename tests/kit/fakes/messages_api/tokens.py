"""Counts tokens by a rule that no estimator under test shares, so that agreement is not built in.

The rule: a text is ceil(UTF-8 bytes / 3.6); a message or system block costs 4 more, a tool call 12, a tool
result 8, an image 1,600, a document 3,000; a tool costs its JSON and 10; the first tool adds 300 for the
provider's tool prompt. Signatures and cache marks cost nothing.
"""

from __future__ import annotations

from tests.kit.fakes.messages_api.shapes import Json, blocks_of, compact_json

BYTES_PER_TOKEN = 3.6
TOOL_PROMPT = 300
IMAGE = 1_600
DOCUMENT = 3_000


def text_tokens(text: str) -> int:
    return -int(-len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN)


def text_within(text: str, tokens: int) -> str:
    """Return the longest beginning of `text` that fits into `tokens` tokens."""
    return text.encode()[: int(max(0, tokens) * BYTES_PER_TOKEN)].decode(errors="ignore")


def tool_tokens(tool: Json) -> int:
    return (
        text_tokens(compact_json({key: value for key, value in tool.items() if key != "cache_control"})) + 10
    )


def block_tokens(block: Json) -> int:
    match block.get("type"):
        case "text":
            return text_tokens(str(block.get("text", ""))) + 4
        case "thinking":
            return text_tokens(str(block.get("thinking", ""))) + 4
        case "tool_use":
            return text_tokens(f"{block.get('name')}{compact_json(block.get('input'))}") + 12
        case "tool_result":
            return sum(block_tokens(part) for part in blocks_of(block.get("content"))) + 8
        case "image":
            return IMAGE
        case "document":
            return DOCUMENT
        case _:
            return text_tokens(compact_json(block)) + 4
