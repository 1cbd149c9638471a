"""Cuts a request into the pieces that the cache and thinking signatures are bound to, in their order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tests.kit.fakes.messages_api import tokens
from tests.kit.fakes.messages_api.shapes import Json, blocks_of, compact_json

CACHEABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    place: str
    """`tools`, `system`, or the role of a message."""
    block: Json
    tokens: int
    mark: str | None
    """How long a cache entry that ends here lives ("5m", "1h"); None where no breakpoint stands."""
    at: str
    """Where it stands, in the words of the provider's errors."""


def pieces_of(body: Json) -> tuple[Piece, ...]:
    pieces = [*_tool_pieces(body), *_system_pieces(body), *_message_pieces(body)]
    if body.get("cache_control"):
        for index in range(len(pieces) - 1, -1, -1):
            if pieces[index].place == "tools" or pieces[index].block.get("type") in CACHEABLE:
                pieces[index] = _marked(pieces[index], body["cache_control"])
                break
    return tuple(pieces)


def count(body: Json) -> int:
    return sum(piece.tokens for piece in pieces_of(body))


def chain(pieces: tuple[Piece, ...], *, root: str, before_messages: str = "") -> tuple[str, ...]:
    """One hash per prefix: item `i` names everything up to and with piece `i`. A changed byte changes all
    after it.
    """
    hashes: list[str] = []
    state, in_messages = root, False
    for piece in pieces:
        if not in_messages and piece.place in ("user", "assistant"):
            in_messages = True
            state = f"{state}|{before_messages}"
        text = f"{state}|{piece.place}|{compact_json(piece.block)}"
        state = hashlib.sha256(text.encode()).hexdigest()
        hashes.append(state)
    return tuple(hashes)


def _tool_pieces(body: Json) -> list[Piece]:
    pieces: list[Piece] = []
    for index, tool in enumerate(body.get("tools") or ()):
        cost = tokens.tool_tokens(tool) + (0 if index else tokens.TOOL_PROMPT)
        pieces.append(_piece("tools", tool, cost, f"tools.{index}"))
    return pieces


def _system_pieces(body: Json) -> list[Piece]:
    blocks = blocks_of(body.get("system"))
    return [
        _piece("system", block, tokens.block_tokens(block), f"system.{index}")
        for index, block in enumerate(blocks)
    ]


def _message_pieces(body: Json) -> list[Piece]:
    return [
        _piece(message["role"], block, tokens.block_tokens(block), f"messages.{number}.content.{index}")
        for number, message in enumerate(body.get("messages") or ())
        for index, block in enumerate(blocks_of(message["content"]))
    ]


def _piece(place: str, block: Json, cost: int, at: str) -> Piece:
    mark = block.get("cache_control")
    bare = {key: value for key, value in block.items() if key != "cache_control"}
    return Piece(place=place, block=bare, tokens=cost, mark=mark.get("ttl", "5m") if mark else None, at=at)


def _marked(piece: Piece, mark: Json) -> Piece:
    return Piece(
        place=piece.place,
        block=piece.block,
        tokens=piece.tokens,
        mark=piece.mark or mark.get("ttl", "5m"),
        at=piece.at,
    )
