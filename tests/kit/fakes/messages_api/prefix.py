"""Splits a request into ordered pieces, on which the prompt cache and the signatures of thinking are
based.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tests.kit.fakes.messages_api import tokens
from tests.kit.fakes.messages_api.shapes import Json, blocks_of, compact_json

CACHEABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One block of a request, in the order in which the cache sees it."""

    place: str
    """`tools`, `system`, or the role of the message."""
    block: Json
    tokens: int
    mark: str | None
    """Life of a cache entry that ends at this piece ("5m" or "1h"); None if there is no breakpoint."""
    at: str
    """The piece's place as the provider's errors name it, such as `messages.0.content.1`."""


def pieces_of(body: Json) -> tuple[Piece, ...]:
    """Return all blocks of a request in order: tools, system prompt, messages."""
    pieces = [*_tool_pieces(body), *_system_pieces(body), *_message_pieces(body)]
    if body.get("cache_control"):
        for index in range(len(pieces) - 1, -1, -1):
            if pieces[index].place == "tools" or pieces[index].block.get("type") in CACHEABLE:
                pieces[index] = _marked(pieces[index], body["cache_control"])
                break
    return tuple(pieces)


def count(body: Json) -> int:
    """Return the number of input tokens of a request."""
    return sum(piece.tokens for piece in pieces_of(body))


def chain(pieces: tuple[Piece, ...], *, root: str, before_messages: str = "") -> tuple[str, ...]:
    """Return one hash per prefix: item `i` identifies the pieces up to and with piece `i`.

    A changed byte changes its own hash and all later ones.
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
